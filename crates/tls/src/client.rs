//! The client side: whom to trust, how to prove oneself, and a connector for tonic channels.

use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::Endpoint;

use crate::material::{TlsError, Validity, authorities, certified_key, provider};
use crate::reload::{Fault, Reloading};

/// The `tls` section of a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientFiles {
    /// Whom to trust, PEM.
    pub ca: PathBuf,
    /// Own certificate chain for mTLS, PEM; goes with `key`.
    #[serde(default)]
    pub cert: Option<PathBuf>,
    /// Its private key, PEM.
    #[serde(default)]
    pub key: Option<PathBuf>,
    /// The name the server's certificate must bear, where that is not the name in the address.
    #[serde(default)]
    pub server_name: Option<String>,
}

/// A client's TLS; a clone is the same one.
#[derive(Clone)]
pub struct ClientTls {
    reloading: Arc<Reloading<ClientConfig>>,
    server_name: Option<String>,
}

/// Opens connections for a tonic channel, with or without TLS.
#[derive(Debug, Clone)]
pub struct Connector {
    tls: Option<ClientTls>,
    timeout: Duration,
}

/// No connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The address is none.
    #[error("{address:?} is not an address: write host:port")]
    Address {
        /// As given.
        address: String,
    },
    /// TCP failed.
    #[error("{address}: cannot connect ({source})")]
    Tcp {
        /// Host and port.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// The name to verify is none.
    #[error("{name:?} cannot be verified in a certificate: set `server_name` to a DNS name or an IP address")]
    ServerName {
        /// As given.
        name: String,
    },
    /// The handshake failed.
    #[error("{address}: TLS failed ({source}): check `ca`, `server_name`, and the client certificate")]
    Tls {
        /// Host and port.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// Neither came to an end in time.
    #[error("{address}: no connection within {timeout:?}")]
    TimedOut {
        /// Host and port.
        address: String,
        /// The limit.
        timeout: Duration,
    },
}

/// An open connection of a client.
#[derive(Debug)]
pub enum Connection {
    /// Not encrypted.
    Plain(TcpStream),
    /// Encrypted, peer verified.
    Tls(Box<TlsStream<TcpStream>>),
}

// === impl ClientTls ===

impl ClientTls {
    /// Loads and checks. `alpn` in order of preference, such as `[b"h2"]`; empty for none.
    ///
    /// # Errors
    /// When a file is no good, or one of certificate and key lacks.
    pub fn load(files: &ClientFiles, alpn: &[&[u8]]) -> Result<Self, TlsError> {
        if let (Some(given), None) | (None, Some(given)) = (&files.cert, &files.key) {
            return Err(TlsError::Half { given: given.clone() });
        }
        let watched = [Some(&files.ca), files.cert.as_ref(), files.key.as_ref()];
        let watched = watched.into_iter().flatten().cloned().collect();
        let alpn: Vec<Vec<u8>> = alpn.iter().map(|protocol| protocol.to_vec()).collect();
        let server_name = files.server_name.clone();
        let certificate = files.cert.clone();
        let files = files.clone();
        let reloading = Reloading::new(watched, certificate, move || config(&files, &alpn))?;
        Ok(Self { reloading: Arc::new(reloading), server_name })
    }

    /// The configuration for a connection that opens now.
    #[must_use]
    pub fn config(&self) -> Arc<ClientConfig> {
        self.reloading.current()
    }

    /// Looks at the files every `period`; to be spawned by the caller's supervisor. Never ends.
    pub fn watch(&self, period: Duration) -> impl Future<Output = ()> + Send + 'static {
        Arc::clone(&self.reloading).watch(period)
    }

    /// What is wrong with the files as they are now, for status and alerts.
    #[must_use]
    pub fn fault(&self) -> Option<Arc<Fault>> {
        self.reloading.fault()
    }

    /// When the own certificate in use is valid, if there is one.
    #[must_use]
    pub fn validity(&self) -> Option<Validity> {
        self.reloading.validity()
    }
}

impl std::fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientTls").field("server_name", &self.server_name).finish_non_exhaustive()
    }
}

fn config(files: &ClientFiles, alpn: &[Vec<u8>]) -> Result<ClientConfig, TlsError> {
    let refused =
        |error: rustls::Error| TlsError::Refused { file: files.ca.clone(), reason: error.to_string() };
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(refused)?
        .with_root_certificates(authorities(&files.ca)?);
    let mut config = match (&files.cert, &files.key) {
        (Some(cert), Some(key)) => {
            let key = certified_key(cert, key)?;
            builder.with_client_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(key)))
        }
        _ => builder.with_no_client_auth(),
    };
    config.alpn_protocols = alpn.to_vec();
    Ok(config)
}

/// An endpoint for `host:port`, to be connected by a [`Connector`]. Requests bear the scheme that the connector's
/// TLS makes true.
///
/// # Errors
/// When the address is none.
pub fn endpoint(address: &str, encrypted: bool) -> Result<Endpoint, ConnectError> {
    let invalid = || ConnectError::Address { address: address.to_owned() };
    let scheme = if encrypted { "https" } else { "http" };
    let target: Uri = format!("http://{address}").parse().map_err(|_| invalid())?;
    if target.port_u16().is_none() || target.path() != "/" {
        return Err(invalid());
    }
    let origin: Uri = format!("{scheme}://{address}").parse().map_err(|_| invalid())?;
    // tonic would do its own TLS for an https target; ours reloads, so the target says http and the origin the truth.
    Ok(Endpoint::from(target).origin(origin))
}

// === impl Connector ===

impl Connector {
    /// Connects within `timeout`, name lookup and handshake included; without `tls` in plain text.
    #[must_use]
    pub const fn new(tls: Option<ClientTls>, timeout: Duration) -> Self {
        Self { tls, timeout }
    }

    /// One connection.
    ///
    /// # Errors
    /// When there is none in time.
    pub async fn connect(&self, host: &str, port: u16) -> Result<Connection, ConnectError> {
        let address = format!("{host}:{port}");
        match tokio::time::timeout(self.timeout, self.open(host, &address)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(ConnectError::TimedOut { address, timeout: self.timeout }),
        }
    }

    async fn open(&self, host: &str, address: &str) -> Result<Connection, ConnectError> {
        let tcp = |source| ConnectError::Tcp { address: address.to_owned(), source };
        let stream = TcpStream::connect(address).await.map_err(tcp)?;
        stream.set_nodelay(true).map_err(tcp)?;
        let Some(tls) = &self.tls else { return Ok(Connection::Plain(stream)) };
        let name = tls.server_name.as_deref().unwrap_or_else(|| host.trim_matches(['[', ']']));
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_| ConnectError::ServerName { name: name.to_owned() })?;
        let stream = TlsConnector::from(tls.config())
            .connect(name, stream)
            .await
            .map_err(|source| ConnectError::Tls { address: address.to_owned(), source })?;
        Ok(Connection::Tls(Box::new(stream)))
    }
}

impl tower::Service<Uri> for Connector {
    type Response = TokioIo<Connection>;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, target: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move {
            match (target.host(), target.port_u16()) {
                (Some(host), Some(port)) => connector.connect(host, port).await.map(TokioIo::new),
                _ => Err(ConnectError::Address { address: target.to_string() }),
            }
        })
    }
}

// === impl Connection ===

impl AsyncRead for Connection {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
