//! The reverse proxy: the life of a request, phase by phase.
//!
//! ```text
//! listener   accept, TLS by SNI, HTTP/1.1 or HTTP/2, limits on clients
//!   session    one client connection: framing verdict, idleness, drain
//!     serve      one request: admit -> host -> path -> match -> upstream
//!       exchange   pick a node -> connect -> send -> head, again where allowed
//!     body       the answer on its way to the client
//!   record     what is told at the end: access log, metrics
//! ```
//!
//! It reads the current [`Serving`] once per request and never waits for one: without configuration it answers 503. It must
//! never know where configuration comes from, and it changes none.

pub mod access_log;
pub mod activity;
pub mod body;
pub mod config;
pub mod error;
pub mod exchange;
pub mod forward;
pub mod framing;
pub mod host;
mod listener;
pub mod metrics;
pub mod path;
pub mod record;
mod serve;
mod session;
pub mod stream;
pub mod tls;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use headwater_process::drain::DrainWatcher;
use headwater_process::{Policy, Supervisor};

use crate::compile::Table;
use crate::upstream::{Upstream, Upstreams};
use config::{AccessLogTarget, ProxyConfig};
use listener::Listener;
use metrics::{ProxyMetrics, Scheme};
use record::Telling;
use serve::Server;

/// What requests are served by: one version of the configuration, compiled.
#[derive(Debug, Clone)]
pub struct Serving {
    /// The compiled configuration.
    pub table: Table<Arc<Upstream>>,
    /// The version's name for the access log.
    pub version: Option<Arc<str>>,
}

/// The cell that holds what is served now; `None` until there is a configuration. Swapped whole.
pub type Configuration = Arc<ArcSwapOption<Serving>>;

/// Why the proxy cannot start.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// An address cannot be listened on.
    #[error("cannot serve {scheme} on {address}: {source}")]
    Listen {
        /// `http` or `https`.
        scheme: &'static str,
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: io::Error,
    },
    /// The access log cannot be opened.
    #[error("cannot open the access log {}: {source}", path.display())]
    AccessLog {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The TLS library refuses its own defaults.
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
}

/// Starts the proxy.
#[derive(Debug)]
pub struct Proxy;

/// A proxy that listens and does not serve yet. Connections wait in the kernel's queue.
pub struct Bound {
    http: Vec<Listener>,
    https: Vec<Listener>,
    server: Arc<Server>,
    log: Option<access_log::Writer>,
    tls: Arc<tls::Acceptor>,
}

impl Proxy {
    /// Takes the addresses, opens the access log, and serves nothing yet.
    ///
    /// # Errors
    /// [`BindError`]: a fault of the static configuration, to end the process with.
    pub fn bind(
        config: &ProxyConfig,
        configuration: Configuration,
        upstreams: Arc<Upstreams>,
        metrics: ProxyMetrics,
    ) -> Result<Bound, BindError> {
        let (log, writer) = access_log::open(&config.access_log, metrics.access_log_dropped.clone())
            .map_err(|source| BindError::AccessLog { path: log_path(config), source })?;
        let told = Arc::new(Telling { log, metrics });
        let tls = tls::Acceptor::new(Arc::clone(&configuration))?;
        let server = Arc::new(Server { configuration, upstreams, told, limits: config.limits.clone() });
        let listen = |addresses: &[SocketAddr], scheme: Scheme| {
            let listeners = addresses.iter().map(|address| {
                Listener::bind(*address, scheme).map_err(|source| BindError::Listen {
                    scheme: scheme.label(),
                    address: *address,
                    source,
                })
            });
            listeners.collect::<Result<Vec<_>, _>>()
        };
        Ok(Bound {
            http: listen(&config.http, Scheme::Http)?,
            https: listen(&config.https, Scheme::Https)?,
            server,
            log: writer,
            tls: Arc::new(tls),
        })
    }
}

impl Bound {
    /// The addresses of plain HTTP, with the ports that were given where 0 was asked for.
    pub fn http_addresses(&self) -> Vec<SocketAddr> {
        self.http.iter().map(Listener::address).collect()
    }

    /// The addresses of HTTPS, likewise.
    pub fn https_addresses(&self) -> Vec<SocketAddr> {
        self.https.iter().map(Listener::address).collect()
    }

    /// Serves until drained: then accepting stops, HTTP/1.1 connections are closed after their request, HTTP/2 clients are
    /// told to go away, and what has not ended when the drain is forced is dropped. The drain waits for every connection.
    ///
    /// Returns at once; the tasks belong to `supervisor`.
    pub fn serve(self, supervisor: &Supervisor, drain: &DrainWatcher) {
        let upstreams = Arc::clone(&self.server.upstreams);
        supervisor.spawn("upstreams", Policy::essential().dropped_on_cancel(), upstreams.run());
        if let Some(writer) = self.log {
            supervisor.spawn("access log", Policy::essential(), writer.run(supervisor.token()));
        }
        let places = listener::places(&self.server.limits);
        for listener in self.http.into_iter().chain(self.https) {
            let accepting = listener::Accepting {
                listener,
                server: Arc::clone(&self.server),
                tls: Arc::clone(&self.tls),
                places: Arc::clone(&places),
                supervisor: supervisor.clone(),
                drain: drain.clone(),
            };
            supervisor.spawn("proxy listener", Policy::essential().dropped_on_cancel(), accepting.run());
        }
    }
}

impl std::fmt::Debug for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bound").field("http", &self.http).field("https", &self.https).finish_non_exhaustive()
    }
}

fn log_path(config: &ProxyConfig) -> PathBuf {
    match &config.access_log.to {
        AccessLogTarget::File(path) => path.clone(),
        AccessLogTarget::Off | AccessLogTarget::Stdout => PathBuf::new(),
    }
}
