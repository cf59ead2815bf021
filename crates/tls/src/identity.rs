//! Who a peer proved to be.

use rustls_pki_types::CertificateDer;
use serde::{Deserialize, Serialize};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The names in a peer's certificate, which the handshake has verified against the client CA.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PeerIdentity {
    /// DNS names and URIs of the subject alternative names, in the certificate's order; the common name only where
    /// there is none of them. May be empty.
    pub names: Vec<String>,
}

// === impl PeerIdentity ===

impl PeerIdentity {
    /// Reads the names; none if the certificate cannot be parsed.
    #[must_use]
    pub fn from_certificate(certificate: &CertificateDer<'_>) -> Self {
        let names = match X509Certificate::from_der(certificate) {
            Ok((_, parsed)) => names(&parsed),
            Err(_) => Vec::new(),
        };
        Self { names }
    }

    /// Whether one of the names is `name`, in any case of letters, as DNS has it.
    #[must_use]
    pub fn is(&self, name: &str) -> bool {
        self.names.iter().any(|own| own.eq_ignore_ascii_case(name))
    }
}

impl std::fmt::Display for PeerIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.names.is_empty() { f.write_str("(no name)") } else { f.write_str(&self.names.join(", ")) }
    }
}

fn names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let alternative = certificate.subject_alternative_name().ok().flatten();
    let names: Vec<String> = alternative
        .iter()
        .flat_map(|extension| &extension.value.general_names)
        .filter_map(|name| match name {
            GeneralName::DNSName(name) | GeneralName::URI(name) => Some((*name).to_owned()),
            _ => None,
        })
        .collect();
    if !names.is_empty() {
        return names;
    }
    let common = certificate.subject().iter_common_name();
    common.filter_map(|name| name.as_str().ok()).map(str::to_owned).collect()
}
