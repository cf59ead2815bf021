//! etcd as the backend: one watch per environment that never certifies more than it delivered.
//!
//! [`tracker`] decides everything and does nothing; the modules beside it do what it asks and decide nothing.
//! [`version_gate`] knows which etcd releases may be believed.

pub mod tracker;
pub mod version_gate;
