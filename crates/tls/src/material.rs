//! Certificates and keys from PEM files, checked as far as one side alone can.
//!
//! Every error names the file and what to do about it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::prelude::{FromDer, X509Certificate};

/// Bytes a PEM file may have; no chain comes near.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// TLS material is no good.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The file cannot be read.
    #[error("{}: cannot be read ({source}): check the path and its permissions", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is far larger than any certificate or key.
    #[error("{}: is larger than 1 MiB: name a PEM file", file.display())]
    TooLarge {
        /// The file.
        file: PathBuf,
    },
    /// The file holds no PEM block of the kind wanted.
    #[error("{}: holds no {wanted} in PEM form ({reason}): name a file with a `-----BEGIN ...-----` block", file.display())]
    Pem {
        /// The file.
        file: PathBuf,
        /// `certificate` or `private key`.
        wanted: &'static str,
        /// What the reader said.
        reason: String,
    },
    /// A certificate cannot be parsed.
    #[error("{}: a certificate in it cannot be used ({reason}): issue it anew", file.display())]
    Certificate {
        /// The file.
        file: PathBuf,
        /// What the parser said.
        reason: String,
    },
    /// The key is of a form that is not supported.
    #[error("{}: the private key cannot be used ({reason}): use an RSA, ECDSA P-256/P-384 or Ed25519 key", file.display())]
    Key {
        /// The file.
        file: PathBuf,
        /// What the provider said.
        reason: String,
    },
    /// The certificate's public key is not that of the private key.
    #[error("{}: is not the key of the certificate in {}: give the pair that was issued together", key.display(), certificate.display())]
    Mismatch {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
    /// The certificate's time is over, or has not come.
    #[error("{}: the certificate {state}: issue it anew, or check the clock", file.display())]
    Expired {
        /// The file.
        file: PathBuf,
        /// `expired 5 s ago`, `is valid only in 5 s`.
        state: String,
    },
    /// One of certificate and key is given without the other.
    #[error("{}: a certificate needs its key and a key its certificate: give both `cert` and `key`", given.display())]
    Half {
        /// The file that was given.
        given: PathBuf,
    },
    /// rustls refuses the whole.
    #[error("{}: {reason}: correct the TLS section that names it", file.display())]
    Refused {
        /// The file it is about.
        file: PathBuf,
        /// What rustls said.
        reason: String,
    },
}

/// When the first certificate of a chain is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// Valid from.
    pub not_before: SystemTime,
    /// Valid until.
    pub not_after: SystemTime,
}

/// The one set of algorithms this project uses.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// A certificate chain with its key: parsed, and the key is the certificate's. Its time is not judged here, see
/// [`validity`].
///
/// # Errors
/// When a file is no good or the two do not match.
pub fn certified_key(certificate: &Path, key: &Path) -> Result<CertifiedKey, TlsError> {
    let chain = certificates(certificate)?;
    let private =
        PrivateKeyDer::from_pem_slice(&read(key)?).map_err(|error| pem_error(key, "private key", &error))?;
    CertifiedKey::from_der(chain, private, &provider()).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            TlsError::Mismatch { certificate: certificate.to_owned(), key: key.to_owned() }
        }
        rustls::Error::InvalidCertificate(reason) => {
            TlsError::Certificate { file: certificate.to_owned(), reason: format!("{reason:?}") }
        }
        other => TlsError::Key { file: key.to_owned(), reason: other.to_string() },
    })
}

/// Trust anchors.
///
/// # Errors
/// When the file holds none, or one that cannot be used.
pub fn authorities(file: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        roots
            .add(certificate)
            .map_err(|error| TlsError::Certificate { file: file.to_owned(), reason: error.to_string() })?;
    }
    Ok(roots)
}

/// All certificates of a file, at least one.
///
/// # Errors
/// When the file cannot be read or holds none.
pub fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bytes = read(file)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match chain {
        Ok(chain) if chain.is_empty() => Err(pem_error(file, "certificate", &pem::Error::NoItemsFound)),
        Ok(chain) => Ok(chain),
        Err(error) => Err(pem_error(file, "certificate", &error)),
    }
}

/// When the first certificate of `file` is valid.
///
/// # Errors
/// When it cannot be read or parsed.
pub fn validity(file: &Path) -> Result<Validity, TlsError> {
    let chain = certificates(file)?;
    let first = chain.first().expect("`certificates` answers at least one");
    let (_, parsed) = X509Certificate::from_der(first)
        .map_err(|error| TlsError::Certificate { file: file.to_owned(), reason: error.to_string() })?;
    let time = |stamp: i64| UNIX_EPOCH + Duration::from_secs(u64::try_from(stamp).unwrap_or(0));
    let validity = parsed.validity();
    Ok(Validity {
        not_before: time(validity.not_before.timestamp()),
        not_after: time(validity.not_after.timestamp()),
    })
}

// === impl Validity ===

impl Validity {
    /// Whether `now` lies within.
    ///
    /// # Errors
    /// When it does not; `file` is named.
    pub fn check(&self, file: &Path, now: SystemTime) -> Result<(), TlsError> {
        let state = if let Ok(past) = now.duration_since(self.not_after) {
            format!("expired {} s ago", past.as_secs())
        } else if let Ok(early) = self.not_before.duration_since(now) {
            format!("is valid only in {} s", early.as_secs())
        } else {
            return Ok(());
        };
        Err(TlsError::Expired { file: file.to_owned(), state })
    }
}

/// The bytes of a PEM file, within a bound.
///
/// # Errors
/// When it cannot be read or is too large.
pub fn read(file: &Path) -> Result<Vec<u8>, TlsError> {
    let failed = |source| TlsError::Read { file: file.to_owned(), source };
    let length = std::fs::metadata(file).map_err(failed)?.len();
    if length > FILE_BYTES_MAX {
        return Err(TlsError::TooLarge { file: file.to_owned() });
    }
    std::fs::read(file).map_err(failed)
}

fn pem_error(file: &Path, wanted: &'static str, error: &pem::Error) -> TlsError {
    TlsError::Pem { file: file.to_owned(), wanted, reason: error.to_string() }
}
