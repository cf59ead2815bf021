//! The replica's side of the second hop.
//!
//! A [`session`] is one node's cursor over the store, pure; [`transfer`] holds the encoded transfers that sessions
//! share; [`publication`] is what an environment shows them; [`stream`] drives a session over a gRPC stream;
//! [`endpoint`] is the gRPC edge, [`service`] accepts streams and [`admission`] decides who may.

pub mod admission;
pub mod endpoint;
pub mod metrics;
pub mod publication;
pub mod service;
pub mod session;
pub mod stream;
pub mod transfer;
