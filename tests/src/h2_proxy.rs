//! A proxy between a gRPC client and server that sees HTTP/2 streams, so that it can break some and spare the rest.
//!
//! From a given moment it swallows the response bytes of streams of one path: the connection stays open, pings are
//! answered, other calls pass, and the stream neither ends nor moves. That is how a watch dies without anybody being
//! told. It can also throttle the responses of a path.
//!
//! Plain text only. Each client connection has one connection to the server; when either goes, so does the other.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use headwater_process::{Policy, Supervisor};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

mod messages;
mod pump;
mod stream;

/// A window as large as HTTP/2 allows is not needed; this keeps a fast link fast.
const WINDOW: u32 = 1 << 20;
/// Streams of one connection at a time.
const STREAMS_MAX: u32 = 10_000;

/// A running proxy to one address. Dropped, all its connections are closed.
#[derive(Debug)]
pub struct H2Proxy {
    /// Where clients connect.
    pub address: SocketAddr,
    control: Arc<Control>,
    supervisor: Supervisor,
}

/// Which streams of a path are swallowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Those open at the moment; whoever opens another gets through.
    OpenNow,
    /// Those open and those to come, until healed.
    All,
}

/// What has happened to the streams of one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Seen {
    /// Streams opened.
    pub opened: u64,
    /// Of these, open now.
    pub open: u64,
    /// Response bytes passed on.
    pub passed: u64,
    /// Response bytes swallowed.
    pub swallowed: u64,
    /// The largest response message begun, in bytes, as gRPC frames them.
    pub largest: u64,
}

#[derive(Debug)]
pub(crate) struct Control {
    target: String,
    rules: watch::Sender<Rules>,
    seen: watch::Sender<BTreeMap<String, Seen>>,
    streams: AtomicU64,
    connections: AtomicU64,
}

/// What to do, by path.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rules {
    /// Streams with a number below this are swallowed.
    swallow_below: BTreeMap<String, u64>,
    bytes_per_second: BTreeMap<String, u64>,
}

// === impl H2Proxy ===

impl H2Proxy {
    /// A proxy on a free port of the loopback, to `host:port`.
    ///
    /// # Panics
    /// When no port is free.
    pub async fn start(target: impl Into<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port on the loopback");
        let address = listener.local_addr().expect("a bound socket has an address");
        let control = Arc::new(Control {
            target: target.into(),
            rules: watch::Sender::default(),
            seen: watch::Sender::default(),
            streams: AtomicU64::new(0),
            connections: AtomicU64::new(0),
        });
        let supervisor = Supervisor::new("h2 proxy");
        let accepting = accept(listener, Arc::clone(&control), supervisor.clone());
        supervisor.spawn("accept", Policy::best_effort().dropped_on_cancel(), accepting);
        Self { address, control, supervisor }
    }

    /// From now on, swallows the response bytes of streams of `path`, such as `/etcdserverpb.Watch/Watch`. Response
    /// headers pass, ends and trailers do not.
    pub fn swallow(&self, path: &str, reach: Reach) {
        let below = match reach {
            Reach::OpenNow => self.control.streams.load(Ordering::SeqCst),
            Reach::All => u64::MAX,
        };
        self.control.rules.send_modify(|rules| {
            rules.swallow_below.insert(path.to_owned(), below);
        });
    }

    /// From now on, passes the response bytes of `path` at this rate, each stream by itself.
    pub fn throttle(&self, path: &str, bytes_per_second: u64) {
        self.control.rules.send_modify(|rules| {
            rules.bytes_per_second.insert(path.to_owned(), bytes_per_second);
        });
    }

    /// Breaks nothing more. What was swallowed is gone: a stream it was missing from stays as it is.
    pub fn heal(&self) {
        self.control.rules.send_replace(Rules::default());
    }

    /// What has happened to the streams of `path`.
    #[must_use]
    pub fn seen(&self, path: &str) -> Seen {
        self.control.seen.borrow().get(path).copied().unwrap_or_default()
    }

    /// All paths asked for, with what happened to each.
    #[must_use]
    pub fn all_seen(&self) -> BTreeMap<String, Seen> {
        self.control.seen.borrow().clone()
    }

    /// Connections that were opened.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.control.connections.load(Ordering::SeqCst)
    }
}

impl Drop for H2Proxy {
    fn drop(&mut self) {
        self.supervisor.cancel();
    }
}

// === impl Control ===

impl Control {
    /// The number of a stream that opens now.
    fn open(&self, path: &str) -> u64 {
        self.note(path, |seen| {
            seen.opened += 1;
            seen.open += 1;
        });
        self.streams.fetch_add(1, Ordering::SeqCst)
    }

    fn note(&self, path: &str, change: impl FnOnce(&mut Seen)) {
        self.seen.send_modify(|all| change(all.entry(path.to_owned()).or_default()));
    }
}

// === impl Rules ===

impl Rules {
    fn swallows(&self, path: &str, number: u64) -> bool {
        self.swallow_below.get(path).is_some_and(|below| number < *below)
    }
}

async fn accept(listener: TcpListener, control: Arc<Control>, supervisor: Supervisor) {
    loop {
        let Ok((client, _)) = listener.accept().await else { continue };
        control.connections.fetch_add(1, Ordering::SeqCst);
        let scope = supervisor.child("connection");
        let policy = Policy::best_effort().dropped_on_cancel();
        supervisor.spawn("connection", policy, connection(client, Arc::clone(&control), scope));
    }
}

/// One client connection with its own connection to the server. The scope holds its streams, and ends with it.
async fn connection(client: TcpStream, control: Arc<Control>, scope: Supervisor) -> Result<(), h2::Error> {
    let _ended = scope.token().drop_guard();
    let Ok(server) = TcpStream::connect(&control.target).await else { return Ok(()) };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (upstream, server) = h2::client::Builder::new()
        .initial_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .enable_push(false)
        .handshake::<_, bytes::Bytes>(server)
        .await?;
    let mut client = h2::server::Builder::new()
        .initial_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_concurrent_streams(STREAMS_MAX)
        .handshake::<_, bytes::Bytes>(client)
        .await?;
    let serving = async {
        while let Some(call) = client.accept().await {
            let (request, respond) = call?;
            let stream = stream::pass(request, respond, upstream.clone(), Arc::clone(&control));
            scope.spawn("stream", Policy::best_effort().dropped_on_cancel(), stream);
        }
        Ok(())
    };
    tokio::select! {
        ended = serving => ended,
        ended = server => ended,
    }
}

#[cfg(test)]
mod tests;
