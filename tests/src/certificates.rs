//! Certificates for tests and `dev`-like set-ups: an authority, and pairs it issues.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

/// A certificate authority whose files lie in a folder.
#[derive(Debug)]
pub struct Authority {
    folder: PathBuf,
    issuer: Issuer<'static, KeyPair>,
    /// Its certificate, PEM: what others are told to trust.
    pub ca: PathBuf,
}

// === impl Authority ===

impl Authority {
    /// Makes one and writes `ca.pem` into `folder`.
    ///
    /// # Panics
    /// When the file cannot be written.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no name is no bad name");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("ring makes keys");
        let ca = folder.join("ca.pem");
        let pem = params.self_signed(&key).expect("own parameters can be signed").pem();
        std::fs::write(&ca, pem).expect("the test's folder can be written");
        Self { folder: folder.to_owned(), issuer: Issuer::new(params, key), ca }
    }

    /// Issues a pair for DNS names or IP addresses; answers the paths of `<file>.pem` and `<file>.key`. An older
    /// pair of the same name is overwritten.
    ///
    /// # Panics
    /// When a name is none, or a file cannot be written.
    #[must_use]
    pub fn issue(&self, file: &str, names: &[&str]) -> (PathBuf, PathBuf) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let params = CertificateParams::new(names).expect("names of the test are names");
        let key = KeyPair::generate().expect("ring makes keys");
        let pem = params.signed_by(&key, &self.issuer).expect("an authority can sign").pem();
        let paths = (self.folder.join(format!("{file}.pem")), self.folder.join(format!("{file}.key")));
        std::fs::write(&paths.0, pem).expect("the test's folder can be written");
        std::fs::write(&paths.1, key.serialize_pem()).expect("the test's folder can be written");
        paths
    }
}

#[cfg(test)]
mod tests {
    use headwater_tls::{ClientCertificates, ClientFiles, ClientTls, ServerFiles, ServerTls};

    use super::*;

    #[test]
    fn what_it_issues_is_good_material() {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new(folder.path());
        let (cert, key) = authority.issue("server", &["localhost", "127.0.0.1"]);
        let client_ca = Some(authority.ca.clone());
        let files = ServerFiles { cert, key, client_ca, client_certificates: ClientCertificates::Required };
        assert_eq!(ServerTls::load(&files, &[]).unwrap().fault(), None);
        let (cert, key) = authority.issue("node", &["node-1"]);
        let files = ClientFiles { ca: authority.ca, cert: Some(cert), key: Some(key), server_name: None };
        assert_eq!(ClientTls::load(&files, &[]).unwrap().fault(), None);
    }
}
