//! Certificates for the tests of this crate.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType};

/// A certificate authority in memory.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// What to put into a certificate.
pub(crate) enum Names<'a> {
    Dns(&'a [&'a str]),
    Uri(&'a str),
    Common(&'a str),
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    pub(crate) fn write(&self, file: &Path) -> PathBuf {
        std::fs::write(file, &self.pem).unwrap();
        file.to_owned()
    }

    /// A certificate and its key, PEM; valid unless `expired`.
    pub(crate) fn issue(&self, names: &Names<'_>, expired: bool) -> (String, String) {
        let dns = match names {
            Names::Dns(dns) => dns.iter().map(|name| (*name).to_owned()).collect(),
            _ => Vec::new(),
        };
        let mut params = CertificateParams::new(dns).unwrap();
        match names {
            Names::Uri(uri) => params.subject_alt_names.push(SanType::URI((*uri).try_into().unwrap())),
            Names::Common(name) => params.distinguished_name.push(DnType::CommonName, *name),
            Names::Dns(_) => {}
        }
        if expired {
            params.not_before = rcgen::date_time_ymd(2001, 1, 1);
            params.not_after = rcgen::date_time_ymd(2002, 1, 1);
        }
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    /// Writes a pair as `<name>.pem` and `<name>.key` below `folder`.
    pub(crate) fn write_pair(&self, folder: &Path, name: &str, names: &Names<'_>) -> (PathBuf, PathBuf) {
        let (cert, key) = self.issue(names, false);
        let files = (folder.join(format!("{name}.pem")), folder.join(format!("{name}.key")));
        std::fs::write(&files.0, cert).unwrap();
        std::fs::write(&files.1, key).unwrap();
        files
    }
}
