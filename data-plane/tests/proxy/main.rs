//! The proxy over real sockets: clients and upstreams are raw TCP or hyper, the gateway is the whole of `proxy`.

#![expect(clippy::unwrap_used, reason = "what a test cannot set up fails it, in its shared parts as well")]

mod configuration;
mod drain;
mod forwarding;
mod gateway;
mod http2;
mod names;
mod raw;
mod retries;
mod streaming;
mod strictness;
mod tables;
mod timeouts;
mod tls;
mod upstreams;
