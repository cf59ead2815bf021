//! What every Headwater process is made of: supervised tasks, drain, readiness, backoff, signals, logs,
//! metrics, health endpoints and settings.
//!
//! Nothing here is global: `headwater dev` runs two planes, each with its own supervisor, readiness and
//! registry, in one operating-system process. The one exception is the log subscriber, which a process can have
//! only once; [`telemetry::init`] may therefore be called again without harm.
//!
//! This crate never knows what a plane does: no etcd, no gRPC message, no resource.

pub mod backoff;
pub mod drain;
pub mod health;
pub mod readiness;
pub mod settings;
pub mod signals;
pub mod supervisor;
pub mod telemetry;

pub use backoff::Backoff;
pub use readiness::Readiness;
pub use supervisor::{Policy, Supervisor};
