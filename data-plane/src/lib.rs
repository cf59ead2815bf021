//! The data plane: a thin gateway that serves one version of an environment's configuration at a time, and goes on
//! serving it whether or not anything upstream is alive.

pub mod app;
pub mod compile;
pub mod config;
pub mod control;
pub mod proxy;
pub mod routing;
pub mod sync;
pub mod upstream;
