//! The control plane: one watch per environment towards the source, versions and differences towards the nodes.

pub mod admin;
pub mod app;
pub mod approval;
pub mod backend;
pub mod config;
pub mod distribution;
pub mod environment;
pub mod fleet;
pub mod hold;
pub mod last_known_good;
pub mod store;
