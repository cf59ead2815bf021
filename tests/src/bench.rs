//! What the benchmark is made of: one real etcd, one replica process, one process of simulated nodes, and the
//! figures between them.
//!
//! [`fleet`] runs it all in order; [`nodes`], [`watchers`] and [`json_watchers`] are what the child process runs, [`child`] is how the
//! two talk. [`reload`] measures a full read that changes nothing, [`idle`] what a replica costs that has
//! nothing to do. A [`contender`] has a server and receivers of its own: [`floor`], [`bare_tonic`]. [`truth`] reads etcd with code of its own, because a benchmark must not believe what it measures.

pub mod bare_tonic;
pub mod beat;
pub mod child;
pub mod clock;
pub mod contender;
pub mod crowd;
pub mod fleet;
pub mod floor;
pub mod idle;
pub mod json_watchers;
pub mod load;
pub mod node;
pub mod nodes;
pub mod options;
pub mod reading;
pub mod receivers;
pub mod reload;
mod replica;
pub mod report;
pub mod system;
pub mod tally;
pub mod truth;
pub mod watchers;
