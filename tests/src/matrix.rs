//! Real releases of etcd, one member or three, under real faults: every node must end with what etcd holds.
//!
//! A cell is a release, a number of members and a fault; a run of it is etcd, a replica and two nodes as real
//! processes, a writer that never stops, the fault, and the comparison. Finished runs are lines of a file, which is
//! what makes it resumable and what `docs/etcd-matrix.md` is written from.

pub mod binaries;
pub mod cell;
pub mod faults;
pub mod options;
pub mod page;
pub mod plan;
pub mod record;
pub mod runner;
pub mod stand;
pub mod writer;

pub use cell::{Cell, Fault, Members};
pub use options::Arguments;
