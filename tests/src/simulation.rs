//! The simulated world: the real cores, a modelled etcd, a virtual clock and faults, all drawn from one seed.
//!
//! Nothing here runs a task, reads a clock or opens a socket. What happens is a list of events ordered by virtual
//! time; each is handled to its end before the next one. The same seed gives the same run, so a failing one is
//! replayed by its number.
//!
//! The shape: a [`World`] holds one [`Etcd`](etcd::Etcd) (the MVCC model and what an independent observer knows of
//! its history), the replicas with their pure cores, and the links between them. A replica's tracker is the real one;
//! its shell is modelled by [`shell`]: connections, calls with latencies, one watch stream.
//!
//! What is checked at every event is in [`truth`] and [`mirror`], and shares no code with what is checked.

pub mod coverage;
pub mod etcd;
pub mod faults;
pub mod link;
pub mod members;
pub mod mirror;
pub mod random;
pub mod replica;
pub mod schedule;
pub mod shell;
pub mod south;
pub mod truth;
pub mod waiting;
pub mod workload;
pub mod world;

pub use coverage::Coverage;
pub use world::{Outcome, World};
