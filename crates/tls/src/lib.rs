//! TLS material that loads, checks itself and reloads; server and client sides made of it.
//!
//! A connection uses the configuration that is current when it opens, so a changed file reaches the next connection
//! and disturbs none that is open. A changed file that is no good changes nothing and is reported.
//!
//! This crate never decides who may do what: it answers who the peer proved to be ([`PeerIdentity`]). It spawns
//! nothing: the reload is a future that the caller's supervisor runs.

pub mod client;
pub mod identity;
pub mod incoming;
pub mod material;
pub mod reload;
pub mod server;

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod tests;

pub use client::{ClientFiles, ClientTls};
pub use identity::PeerIdentity;
pub use incoming::{Incoming, Peer};
pub use material::TlsError;
pub use server::{ClientCertificates, ServerFiles, ServerTls};
