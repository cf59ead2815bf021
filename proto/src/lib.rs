//! The wire: both gRPC services, their messages, and the domain types they become at the edge.
//!
//! Wire types die in [`convert`]: planes see [`config`] and nothing generated. [`frame`] carries encoded frames, so
//! that one transfer is encoded once and its bytes are shared by every session. [`limits`] are the numbers both
//! sides rely on. [`admin`] is the operators' interface. `PROTOCOL.md` beside this crate states states, messages and
//! their legal order.

pub mod config;
pub mod convert;
pub mod frame;
pub mod limits;

/// The generated wire types of the config service. Only [`convert`] and tests name them.
pub mod wire {
    #![allow(
        missing_docs,
        unreachable_pub,
        clippy::all,
        reason = "generated code, its lints are not ours to keep"
    )]
    pub mod config {
        tonic::include_proto!("headwater.config.v1");
    }
}

/// The generated server and client of the config service, over [`frame::Frame`].
pub mod service {
    #![allow(
        missing_docs,
        unreachable_pub,
        clippy::all,
        reason = "generated code, its lints are not ours to keep"
    )]
    include!(concat!(env!("OUT_DIR"), "/headwater.config.v1.Config.rs"));
}

/// The operators' interface: messages, servers and clients. The control plane's gRPC edge and admin clients name it.
pub mod admin {
    #![allow(
        missing_docs,
        unreachable_pub,
        clippy::all,
        clippy::or_fun_call,
        clippy::too_many_lines,
        clippy::use_self,
        reason = "generated code, its lints are not ours to keep"
    )]
    tonic::include_proto!("headwater.admin.v1");

    /// The encoded description of the interface, for gRPC reflection.
    pub const DESCRIPTOR: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/admin_descriptor.bin"));
}
