//! TLS towards clients: the certificate comes from the configuration, by the name the client asks for.
//!
//! The object is looked up once per handshake, in the table of that moment, and the handshake keeps it to its end. So a changed
//! certificate is used by the next handshake and disturbs none under way. A client that names no known host gets no
//! certificate at all: the handshake is aborted, as in APISIX without `fallback_sni`.

use std::sync::Arc;

use headwater_model::resources::{Protocols, Ssl};
use rustls::server::{Acceptor as Hello, ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, SupportedProtocolVersion, crypto};
use tokio::net::TcpStream;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

use super::Configuration;
use crate::upstream::text_with_causes;

/// Why a handshake came to nothing.
#[derive(Debug, Clone, thiserror::Error)]
pub enum HandshakeError {
    /// The client named no host.
    #[error("the client named no host")]
    NoName,
    /// No certificate is configured for the host.
    #[error("no certificate is configured for {0}")]
    UnknownName(String),
    /// There is no configuration yet.
    #[error("this node has no configuration yet")]
    NoConfiguration,
    /// It took longer than allowed.
    #[error("the handshake did not end in time")]
    TimedOut,
    /// The two sides did not agree, or the connection ended.
    #[error("{0}")]
    Failed(Arc<str>),
}

impl HandshakeError {
    /// The word for metrics.
    pub fn label(&self) -> &'static str {
        match self {
            Self::NoName => "no_name",
            Self::UnknownName(_) => "unknown_name",
            Self::NoConfiguration => "no_configuration",
            Self::TimedOut => "timed_out",
            Self::Failed(_) => "failed",
        }
    }
}

/// Makes handshakes.
pub struct Acceptor {
    configuration: Configuration,
    provider: Arc<crypto::CryptoProvider>,
    tickets: Arc<dyn rustls::server::ProducesTickets>,
}

impl Acceptor {
    /// Handshakes with the certificates of `configuration`.
    ///
    /// # Errors
    /// Where the TLS library cannot make keys for session tickets.
    pub fn new(configuration: Configuration) -> Result<Self, rustls::Error> {
        let provider = Arc::new(crypto::ring::default_provider());
        let tickets = crypto::ring::Ticketer::new()?;
        Ok(Self { configuration, provider, tickets })
    }

    /// Makes the handshake on a connection just accepted. The caller puts a deadline on it.
    ///
    /// # Errors
    /// [`HandshakeError`]; the client was told by an alert.
    pub async fn accept(&self, stream: TcpStream) -> Result<TlsStream<TcpStream>, HandshakeError> {
        let start = LazyConfigAcceptor::new(Hello::default(), stream).await.map_err(failed)?;
        let found = self.find(start.client_hello().server_name());
        // Without a certificate the handshake goes on to its refusal, so that the client gets an alert and no mere end.
        let ssl = found.as_ref().ok().cloned();
        let config = self.config(ssl.as_deref()).map_err(failed)?;
        let made = start.into_stream(Arc::new(config)).await;
        found?;
        made.map_err(failed)
    }

    fn find(&self, name: Option<&str>) -> Result<Arc<Ssl>, HandshakeError> {
        let name = name.ok_or(HandshakeError::NoName)?.to_ascii_lowercase();
        let name = name.strip_suffix('.').unwrap_or(&name);
        let serving = self.configuration.load();
        let serving = serving.as_ref().ok_or(HandshakeError::NoConfiguration)?;
        serving.table.certificate(name).ok_or_else(|| HandshakeError::UnknownName(name.to_owned()))
    }

    fn config(&self, ssl: Option<&Ssl>) -> Result<ServerConfig, rustls::Error> {
        let versions = versions(ssl.map(|ssl| ssl.protocols).unwrap_or_default());
        let pairs = ssl.map(|ssl| ssl.pairs.clone()).unwrap_or_default();
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(versions)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(Pairs(pairs)));
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        // Resumption goes by ticket: it needs no memory here and outlives the certificate.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.ticketer = Arc::clone(&self.tickets);
        Ok(config)
    }
}

impl std::fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Acceptor")
    }
}

/// The pairs of one object: the first that the client can verify is shown, so that RSA and ECDSA stand side by side.
#[derive(Debug)]
struct Pairs(Vec<Arc<CertifiedKey>>);

impl ResolvesServerCert for Pairs {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let schemes = hello.signature_schemes();
        self.0.iter().find(|pair| pair.key.choose_scheme(schemes).is_some()).cloned()
    }
}

fn versions(protocols: Protocols) -> &'static [&'static SupportedProtocolVersion] {
    static ONLY_12: [&SupportedProtocolVersion; 1] = [&TLS12];
    static ONLY_13: [&SupportedProtocolVersion; 1] = [&TLS13];
    static BOTH: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];
    match (protocols.tls12, protocols.tls13) {
        (true, false) => &ONLY_12,
        (false, true) => &ONLY_13,
        (true, true) | (false, false) => &BOTH,
    }
}

fn failed(error: impl std::error::Error + 'static) -> HandshakeError {
    HandshakeError::Failed(text_with_causes(&error))
}
