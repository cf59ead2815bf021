//! The soak: a real etcd, replicas and nodes as real processes, a proxy on every connection between them, changes
//! without pause and faults drawn from a seed.
//!
//! [`plan`] decides what breaks when and is pure, [`world`] does it, [`writer`] changes etcd. [`judge`] holds what
//! nodes and clients were seen to hold against etcd's history; in quiet times [`compare`] reads everybody whole and
//! [`levels`] looks at what each process uses. [`run`] puts them in order.

pub mod clients;
pub mod compare;
pub mod judge;
pub mod levels;
pub mod options;
pub mod plan;
pub mod report;
pub mod run;
pub mod world;
pub mod writer;
