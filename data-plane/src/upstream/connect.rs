//! Opens connections to nodes: TCP, TLS where the scheme says so, HTTP/1.1.
//!
//! Upstream certificates are not verified, as in APISIX: the reference states it, and an operator who moves over must not find
//! every upstream refused. It must never know requests or retries.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use headwater_process::{Policy, Supervisor};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::pool::{Connection, Target};
use super::text_with_causes;

/// Why no connection came about.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ConnectError {
    /// TCP, TLS or the first bytes of HTTP failed.
    #[error("{target}: {why}")]
    Failed {
        /// The address.
        target: std::net::SocketAddr,
        /// The cause.
        why: Arc<str>,
    },
    /// It took longer than allowed.
    #[error("{target}: no connection within {limit:?}")]
    TimedOut {
        /// The address.
        target: std::net::SocketAddr,
        /// The limit.
        limit: Duration,
    },
}

/// Opens connections.
#[derive(Clone)]
pub struct Connector {
    tls: TlsConnector,
    supervisor: Supervisor,
}

impl Connector {
    /// Connections whose tasks belong to `supervisor`.
    ///
    /// # Errors
    /// Where the TLS library refuses its own defaults.
    pub fn new(supervisor: Supervisor) -> Result<Self, rustls::Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
            .with_no_client_auth();
        Ok(Self { tls: TlsConnector::from(Arc::new(config)), supervisor })
    }

    /// Opens a connection within `limit`.
    ///
    /// # Errors
    /// [`ConnectError`]: nothing of a request was written.
    pub async fn open(&self, target: &Target, limit: Duration) -> Result<Connection, ConnectError> {
        match tokio::time::timeout(limit, self.try_open(target)).await {
            Ok(opened) => opened.map_err(|error| ConnectError::Failed {
                target: target.address,
                why: text_with_causes(&error),
            }),
            Err(_) => Err(ConnectError::TimedOut { target: target.address, limit }),
        }
    }

    async fn try_open(&self, target: &Target) -> io::Result<Connection> {
        let stream = TcpStream::connect(target.address).await?;
        stream.set_nodelay(true)?;
        match &target.tls {
            None => self.start(stream).await,
            Some(name) => {
                let name = tls_name(name, target.address.ip());
                let stream = self.tls.connect(name, stream).await?;
                self.start(stream).await
            }
        }
    }

    async fn start<S>(&self, stream: S) -> io::Result<Connection>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, driver) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        self.supervisor.spawn("upstream connection", Policy::best_effort().dropped_on_cancel(), async move {
            // Whoever waits for an answer on it gets the error as well, and tells more about it.
            if let Err(error) = driver.await {
                tracing::debug!(error = %text_with_causes(&error), "upstream connection ended");
            }
        });
        Ok(Connection::new(sender))
    }
}

/// The name for the handshake. A host that cannot be a TLS name is replaced by the address, which sends no name.
fn tls_name(host: &str, address: IpAddr) -> ServerName<'static> {
    ServerName::try_from(host.to_owned()).unwrap_or_else(|_| ServerName::IpAddress(address.into()))
}

/// Accepts every certificate, but not a handshake that was not signed with it.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
