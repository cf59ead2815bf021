//! What the end-to-end tests, the simulation and the benchmarks share: real etcd, our own binaries, proxies that
//! break connections on purpose, and waiting that fails loudly.
//!
//! Nothing here is used in production, and nothing here trusts the code under test to report about itself.

pub mod auth;
pub mod bench;
pub mod case;
pub mod certificates;
pub mod cut_off;
pub mod etcd;
pub mod eventually;
pub mod fake_etcd;
pub mod follower;
pub mod h2_proxy;
pub mod history;
pub mod http;
pub mod keys;
pub mod matrix;
pub mod origin;
pub mod planes;
pub mod ports;
pub mod process;
pub mod requests;
pub mod simulation;
pub mod site;
pub mod soak;
pub mod tcp_proxy;
