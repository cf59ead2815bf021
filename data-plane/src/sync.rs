//! What brings a configuration to this node and keeps it: the stream's state machine, the verdict over each value,
//! and the shells around both.
//!
//! [`protocol`] and [`verdict`] are pure: they take messages, results and a [`Moment`](protocol::Moment), and
//! answer actions. They must never know sockets, files, threads or clocks; the simulation runs them as they are.

pub mod applier;
pub mod connection;
pub mod keeper;
pub mod last_known_good;
pub mod protocol;
pub mod stream;
pub mod verdict;
