//! Accepts client connections and makes sessions of them.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use headwater_process::drain::DrainWatcher;
use headwater_process::{Policy, Supervisor};
use prometheus_client::metrics::gauge::Gauge;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::config::Limits;
use super::forward::Client;
use super::metrics::{ErrorLabels, ListenerLabels, Scheme};
use super::serve::Server;
use super::session;
use super::tls::{Acceptor, HandshakeError};

/// Connections the kernel completes before they are accepted.
const BACKLOG: u32 = 4096;
/// After an accept that failed, as when descriptors run out.
const PAUSE: Duration = Duration::from_millis(50);

/// A socket that listens.
#[derive(Debug)]
pub(super) struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    scheme: Scheme,
}

impl Listener {
    pub(super) fn bind(address: SocketAddr, scheme: Scheme) -> io::Result<Self> {
        let socket = if address.is_ipv6() { TcpSocket::new_v6()? } else { TcpSocket::new_v4()? };
        // A restarted process takes the port though connections of the one before are still winding up.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        let socket = socket.listen(BACKLOG)?;
        let address = socket.local_addr()?;
        Ok(Self { socket, address, scheme })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Places for client connections, over all listeners.
pub(super) fn places(limits: &Limits) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(limits.connections.min(Semaphore::MAX_PERMITS)))
}

/// A listener with all that its connections need.
pub(super) struct Accepting {
    pub(super) listener: Listener,
    pub(super) server: Arc<Server>,
    pub(super) tls: Arc<Acceptor>,
    pub(super) places: Arc<Semaphore>,
    pub(super) supervisor: Supervisor,
    pub(super) drain: DrainWatcher,
}

impl Accepting {
    /// Accepts until the drain begins. Where no place is free one client waits here, the others in the kernel's queue.
    pub(super) async fn run(self) {
        let mut drain = self.drain.clone();
        loop {
            let accepted = tokio::select! {
                () = drain.draining() => break,
                accepted = self.listener.socket.accept() => accepted,
            };
            // The place is taken after the accept: listeners that wait for clients must hold none.
            match accepted {
                Ok((stream, peer)) => tokio::select! {
                    () = drain.draining() => break,
                    Ok(place) = Arc::clone(&self.places).acquire_owned() => self.start(stream, peer, place),
                },
                Err(error) => {
                    tracing::warn!(%error, address = %self.listener.address, "a connection could not be accepted");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
        tracing::info!(address = %self.listener.address, "accepts no more connections");
    }

    fn start(&self, stream: TcpStream, peer: SocketAddr, place: OwnedSemaphorePermit) {
        let Some(blocker) = self.drain.block() else {
            return;
        };
        let scheme = self.listener.scheme;
        let port = stream.local_addr().unwrap_or(self.listener.address).port();
        let client = Client { peer, port, tls: scheme == Scheme::Https };
        let server = Arc::clone(&self.server);
        let tls = Arc::clone(&self.tls);
        let supervisor = self.supervisor.clone();
        let mut drain = self.drain.clone();
        let connection = async move {
            let _held = (place, blocker, Counted::new(&server, scheme));
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "TCP_NODELAY");
            }
            if scheme == Scheme::Http {
                session::run(stream, client, server, supervisor, drain).await;
            } else {
                let limit = server.limits.handshake_timeout;
                let made = tokio::select! {
                    made = tokio::time::timeout(limit, tls.accept(stream)) => made,
                    () = drain.forced() => Ok(Err(HandshakeError::TimedOut)),
                };
                match made.unwrap_or(Err(HandshakeError::TimedOut)) {
                    Ok(stream) => session::run(stream, client, server, supervisor, drain).await,
                    Err(error) => {
                        tracing::debug!(%peer, %error, "TLS handshake");
                        let labels = ErrorLabels { kind: error.label() };
                        server.told.metrics.handshake_failures.get_or_create(&labels).inc();
                    }
                }
            }
        };
        self.supervisor.spawn("client connection", Policy::best_effort().dropped_on_cancel(), connection);
    }
}

/// Counts a connection as open.
struct Counted(Gauge);

impl Counted {
    fn new(server: &Server, listener: Scheme) -> Self {
        let gauge = server.told.metrics.connections.get_or_create_owned(&ListenerLabels { listener });
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}
