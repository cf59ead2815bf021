//! The demo upstream: says which request reached it.

use std::net::{Ipv4Addr, SocketAddr};

use axum::Router;
use axum::extract::Request;
use axum::http::header::HOST;
use headwater_process::{Policy, Supervisor};
use tokio::net::TcpListener;

use crate::exit::Error;

/// A running demo upstream.
pub(crate) struct Upstream {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    supervisor: Supervisor,
}

/// Serves on a free port of loopback.
pub(crate) async fn serve() -> Result<Upstream, Error> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    let supervisor = Supervisor::new("demo upstream");
    let policy = Policy::best_effort().dropped_on_cancel();
    supervisor.spawn("listener", policy, async move {
        axum::serve(listener, Router::new().fallback(answer)).await
    });
    Ok(Upstream { address, supervisor })
}

// === impl Upstream ===

impl Upstream {
    /// Ends it.
    pub(crate) async fn stop(self) {
        let _ = self.supervisor.shutdown(std::time::Duration::from_secs(1)).await;
    }
}

async fn answer(request: Request) -> String {
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok()).unwrap_or("-");
    format!("Hello from the demo upstream: {} {} for {host}\n", request.method(), request.uri())
}
