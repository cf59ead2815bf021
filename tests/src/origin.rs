//! An upstream server of the test's own: it answers its name.

use std::net::SocketAddr;

use axum::Router;
use headwater_process::{Policy, Supervisor};
use tokio::net::TcpListener;

/// A running server. Dropped, it ends.
#[derive(Debug)]
pub struct Origin {
    /// Where it listens.
    pub address: SocketAddr,
    supervisor: Supervisor,
}

// === impl Origin ===

impl Origin {
    /// A server that answers every request with `name`.
    ///
    /// # Panics
    /// When no port is free.
    pub async fn start(name: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port on the loopback");
        let address = listener.local_addr().expect("a bound socket has an address");
        let supervisor = Supervisor::new("origin");
        let router = Router::new().fallback(move || async move { name });
        let policy = Policy::best_effort().dropped_on_cancel();
        supervisor.spawn("serve", policy, async move { axum::serve(listener, router).await });
        Self { address, supervisor }
    }

    /// Its address as an upstream names it.
    #[must_use]
    pub fn node(&self) -> String {
        self.address.to_string()
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.supervisor.cancel();
    }
}
