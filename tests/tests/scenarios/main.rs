//! What must hold end to end, each with a real etcd and both planes as real processes; one subject a file. What is a
//! case of docs/cases.md is in `cases/`.
//!
//! One binary for all of them: linking is most of what such a test costs.

#![expect(clippy::unwrap_used, reason = "a test ends at the first thing that is not as it should be")]

mod encryption;
mod fallback;
mod generations;
mod killed;
mod main_path;
mod matrix;
mod outage;
mod rejected;
mod second_hop;
mod unchanged_reload;
