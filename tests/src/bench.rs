//! What the benchmark is made of: one real etcd, one replica process, one process of simulated nodes, and the
//! figures between them.
//!
//! [`fleet`] runs it all in order; [`nodes`] and [`watchers`] are what the child process runs, [`child`] is how the
//! two talk. [`truth`] reads etcd with code of its own, because a benchmark must not believe what it measures.

pub mod child;
pub mod clock;
pub mod fleet;
pub mod load;
pub mod node;
pub mod nodes;
pub mod options;
pub mod report;
pub mod system;
pub mod tally;
pub mod truth;
pub mod watchers;
