//! etcd as the backend: one watch per environment that never certifies more than it delivered.
//!
//! [`tracker`] decides everything and does nothing; the modules beside it do what it asks and decide nothing.
//! [`version_gate`] knows which etcd releases may be believed.
//!
//! [`EtcdCluster`] is a replica's way to its etcd: one connection for the watch streams of all environments, and a
//! second one, closed when idle, for loads, audits and writes. [`EtcdSource`], [`EtcdReader`], [`EtcdCommit`] and
//! [`Auditor`] borrow it, one of each for an environment.

pub mod auditor;
mod client;
pub mod commit;
pub mod config;
mod load;
pub mod member;
pub mod metrics;
mod others;
mod proof;
mod range;
pub mod recorder;
pub mod tracker;
pub mod version_gate;
mod watch;

pub use auditor::Auditor;
pub use commit::{EtcdCommit, EtcdReader};
pub use config::EtcdConfig;
pub use member::EtcdCluster;
pub use metrics::Metrics;
pub use recorder::Recorder;
pub use watch::EtcdSource;
