//! What breaks for people who run such systems, case by case: each test is named after its case in docs/cases.md.
//!
//! Real etcd, real processes of both planes, real sockets. Each has a short form, for every test run, and a full one
//! (`make cases`, `HEADWATER_FULL_CASES=1`), which is the case as it was told. Bounds are the product's own.

#![expect(clippy::unwrap_used, reason = "a test ends at the first thing that is not as it should be")]

mod atomic;
mod auth;
mod away;
mod compaction;
mod large;
mod members;
mod reads;
mod restore;
mod silence;
mod soak;
mod space;
mod start;
