//! The server side: which certificate is shown, and whose are asked for.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::server::{ServerSessionMemoryCache, WebPkiClientVerifier};
use rustls::sign::SingleCertAndKey;
use serde::{Deserialize, Serialize};

use crate::material::{TlsError, Validity, authorities, certified_key, provider};
use crate::reload::{Fault, Reloading};

/// The `tls` section of a listener.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerFiles {
    /// Certificate chain, PEM, own certificate first.
    pub cert: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
    /// Who may issue client certificates, PEM. Without it none is asked for.
    #[serde(default)]
    pub client_ca: Option<PathBuf>,
    /// Whether a client without a certificate is let in, to prove itself in another way.
    #[serde(default)]
    pub client_certificates: ClientCertificates,
}

/// What is asked of clients where a `client_ca` is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientCertificates {
    /// No certificate, no connection.
    #[default]
    Required,
    /// A certificate is verified if there is one.
    Optional,
}

/// A server's TLS; a clone is the same one.
#[derive(Clone)]
pub struct ServerTls(Arc<Reloading<ServerConfig>>);

// === impl ServerTls ===

impl ServerTls {
    /// Loads and checks. `alpn` in order of preference, such as `[b"h2"]`; empty for none.
    ///
    /// # Errors
    /// When a file is no good.
    pub fn load(files: &ServerFiles, alpn: &[&[u8]]) -> Result<Self, TlsError> {
        let watched = [Some(&files.cert), Some(&files.key), files.client_ca.as_ref()];
        let watched = watched.into_iter().flatten().cloned().collect();
        let alpn: Vec<Vec<u8>> = alpn.iter().map(|protocol| protocol.to_vec()).collect();
        let certificate = files.cert.clone();
        let files = files.clone();
        let reloading = Reloading::new(watched, Some(certificate), move || config(&files, &alpn))?;
        Ok(Self(Arc::new(reloading)))
    }

    /// The configuration for a connection that opens now.
    #[must_use]
    pub fn config(&self) -> Arc<ServerConfig> {
        self.0.current()
    }

    /// Looks at the files every `period`; to be spawned by the caller's supervisor. Never ends.
    pub fn watch(&self, period: Duration) -> impl Future<Output = ()> + Send + 'static {
        Arc::clone(&self.0).watch(period)
    }

    /// What is wrong with the files as they are now, for status and alerts.
    #[must_use]
    pub fn fault(&self) -> Option<Arc<Fault>> {
        self.0.fault()
    }

    /// When the certificate in use is valid.
    #[must_use]
    pub fn validity(&self) -> Option<Validity> {
        self.0.validity()
    }

    /// Looks at the files once, now. Answers whether new material is in use.
    pub fn look(&self) -> bool {
        self.0.look(std::time::SystemTime::now())
    }
}

impl std::fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerTls").field("validity", &self.validity()).finish_non_exhaustive()
    }
}

fn config(files: &ServerFiles, alpn: &[Vec<u8>]) -> Result<ServerConfig, TlsError> {
    let refused = |file: &PathBuf, reason: String| TlsError::Refused { file: file.clone(), reason };
    let key = certified_key(&files.cert, &files.key)?;
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| refused(&files.cert, error.to_string()))?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(authorities(file)?), provider());
            let verifier = match files.client_certificates {
                ClientCertificates::Required => verifier,
                ClientCertificates::Optional => verifier.allow_unauthenticated(),
            };
            let verifier = verifier.build().map_err(|error| refused(file, error.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(key)));
    config.alpn_protocols = alpn.to_vec();
    // A resumed session keeps the client identity it began with; the store goes with this configuration, so a
    // client whose CA was taken away does not come back by resumption.
    config.session_storage = ServerSessionMemoryCache::new(1024);
    Ok(config)
}
