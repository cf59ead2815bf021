//! `etcd grpc-proxy`, which some put between etcd and its clients.

use std::time::Duration;

use tokio::net::TcpStream;

use super::etcd_binary;
use crate::eventually::eventually;
use crate::ports;
use crate::process::{Process, Program};

/// How long it may take to start.
const START: Duration = Duration::from_secs(10);

/// A running proxy. Dropped, it is killed.
#[derive(Debug)]
pub struct GrpcProxy {
    /// The process.
    pub process: Process,
    /// `http://host:port` for clients.
    pub endpoint: String,
}

// === impl GrpcProxy ===

impl GrpcProxy {
    /// A proxy to these endpoints.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn start(endpoints: &[String]) -> Self {
        let address = format!("127.0.0.1:{}", ports::free());
        let program = Program::new(etcd_binary()).args(["grpc-proxy", "start"]);
        let program = program.arg(format!("--endpoints={}", endpoints.join(",")));
        // It is a client of its own address, and ends after a few seconds when that is not where it listens.
        let program = program.arg(format!("--advertise-client-url={address}"));
        let process = program.arg(format!("--listen-addr={address}")).start();
        eventually("the grpc-proxy listens", START, || TcpStream::connect(&address)).await;
        Self { process, endpoint: format!("http://{address}") }
    }
}
