//! The embedded store: one replica without an etcd.

pub mod mvcc;
