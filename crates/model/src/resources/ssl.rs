//! Certificate objects: names, key pairs and protocol versions.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use super::fields::{Fields, Item};
use super::hosts;
use super::invalid::Invalid;
use super::keyring::Keyring;
use super::meta;
use crate::key::Key;

/// A certificate object with every default filled.
#[derive(Clone, Debug)]
pub struct Ssl {
    /// `desc`.
    pub desc: Option<String>,
    /// `labels`.
    pub labels: BTreeMap<String, String>,
    /// `type`.
    pub purpose: SslPurpose,
    /// `sni` or `snis`; none for a client certificate.
    pub snis: Vec<Sni>,
    /// `status` is not 0: the object takes part in handshakes.
    pub enabled: bool,
    /// `cert` with `key`, then `certs` with `keys`: each key belongs to its certificate.
    pub pairs: Vec<Arc<CertifiedKey>>,
    /// `ssl_protocols`.
    pub protocols: Protocols,
}

/// What a certificate object is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SslPurpose {
    /// To be shown to clients.
    #[default]
    Server,
    /// To be shown to upstreams that name it in `tls.client_cert_id`. Those are rejected, so it stays unused.
    Client,
}

/// A server name pattern, lower-cased and without a trailing dot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sni {
    /// This name.
    Exact(String),
    /// Exactly one label, or a part of one, before this suffix: `*.foo.com` and `*foo.com` without their star. An
    /// empty suffix, from a `*` among `snis`, matches names without a dot.
    Label(String),
    /// Every name: `*` as the only `sni`.
    Any,
}

/// The protocol versions offered for a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocols {
    /// TLS 1.2.
    pub tls12: bool,
    /// TLS 1.3.
    pub tls13: bool,
}

// === impl Ssl ===

/// By certificates and settings; a key belongs to its certificate, so equal chains mean the same key.
impl PartialEq for Ssl {
    fn eq(&self, other: &Self) -> bool {
        let settings = |ssl: &Self| (ssl.purpose, ssl.enabled, ssl.protocols);
        self.desc == other.desc
            && self.labels == other.labels
            && settings(self) == settings(other)
            && self.snis == other.snis
            && self.pairs.iter().map(|pair| &pair.cert).eq(other.pairs.iter().map(|pair| &pair.cert))
    }
}

// === impl Protocols ===

impl Default for Protocols {
    fn default() -> Self {
        Self { tls12: true, tls13: true }
    }
}

pub(super) fn parse(key: &Key, value: &[u8], keyring: &Keyring) -> Result<Ssl, Invalid> {
    meta::check_id(key)?;
    let mut fields = Fields::root("an ssl", value)?;
    fields.refuse("client", "nodes do not ask clients for certificates")?;
    let purpose = fields.read("type", purpose)?.unwrap_or_default();
    let snis = snis(&mut fields, purpose)?;
    let pairs = pairs(&mut fields, keyring)?;
    let (desc, labels) = meta::take_unnamed(&mut fields)?;
    let ssl = Ssl {
        desc,
        labels,
        purpose,
        snis,
        enabled: fields.read("status", |item| item.integer_within(0, 1))? != Some(0),
        pairs,
        protocols: fields.read("ssl_protocols", protocols)?.unwrap_or_default(),
    };
    fields.finish()?;
    Ok(ssl)
}

fn purpose(item: Item) -> Result<SslPurpose, Invalid> {
    let path = item.path.clone();
    match item.string(1, 64)?.as_str() {
        "server" => Ok(SslPurpose::Server),
        "client" => Ok(SslPurpose::Client),
        other => Err(Invalid::new(path, format!("is `{other}`; use server or client"))),
    }
}

fn snis(fields: &mut Fields, purpose: SslPurpose) -> Result<Vec<Sni>, Invalid> {
    let one = fields.read("sni", |item| sni(item, Sni::Any))?;
    let many = fields.read("snis", |item| item.set(1, |item| sni(item, Sni::Label(String::new()))))?;
    match (one, many) {
        (Some(_), Some(_)) => Err(fields.invalid("snis", "stands beside `sni`; keep one of the two")),
        (Some(sni), None) => Ok(vec![sni]),
        (None, Some(snis)) => Ok(snis),
        (None, None) if purpose == SslPurpose::Client => Ok(Vec::new()),
        (None, None) => Err(fields.invalid("sni", "is missing; give sni or snis")),
    }
}

fn sni(item: Item, star: Sni) -> Result<Sni, Invalid> {
    let pattern = hosts::pattern(plain(item)?)?;
    let pattern = pattern.strip_suffix('.').unwrap_or(&pattern);
    Ok(match pattern.strip_prefix('*') {
        None => Sni::Exact(pattern.to_owned()),
        Some("") => star,
        Some(suffix) => Sni::Label(suffix.to_owned()),
    })
}

fn protocols(item: Item) -> Result<Protocols, Invalid> {
    let names = item.set(0, |item| {
        let path = item.path.clone();
        let name = item.string(1, 64)?;
        match name.as_str() {
            "TLSv1.2" | "TLSv1.3" => Ok(name),
            "TLSv1.1" => {
                Err(Invalid::new(path, "is TLSv1.1, which nodes do not speak; use TLSv1.2 or TLSv1.3"))
            }
            _ => Err(Invalid::new(path, format!("is `{name}`; use TLSv1.2 or TLSv1.3"))),
        }
    })?;
    if names.is_empty() {
        return Ok(Protocols::default());
    }
    let has = |name: &str| names.iter().any(|known| known == name);
    Ok(Protocols { tls12: has("TLSv1.2"), tls13: has("TLSv1.3") })
}

/// `cert` with `key`, then `certs` with `keys`.
fn pairs(fields: &mut Fields, keyring: &Keyring) -> Result<Vec<Arc<CertifiedKey>>, Invalid> {
    let mut certs = vec![fields.required("cert")?];
    let mut keys = vec![fields.required("key")?];
    certs.extend(fields.read("certs", Item::array)?.unwrap_or_default());
    keys.extend(fields.read("keys", Item::array)?.unwrap_or_default());
    if certs.len() != keys.len() {
        let problem =
            format!("has {} entries beside {} in certs; pair them", keys.len() - 1, certs.len() - 1);
        return Err(fields.invalid("keys", problem));
    }
    certs.into_iter().zip(keys).map(|(cert, key)| pair(cert, key, keyring)).collect()
}

fn pair(cert: Item, key: Item, keyring: &Keyring) -> Result<Arc<CertifiedKey>, Invalid> {
    let path = key.path.clone();
    let (chain, public) = chain(cert)?;
    let key = private_key(key, keyring)?;
    let problem = |error| {
        Invalid::new(
            &path,
            format!("holds a key of a kind that cannot sign here ({error}); use RSA, ECDSA or Ed25519"),
        )
    };
    let signing = rustls::crypto::ring::sign::any_supported_type(&key).map_err(problem)?;
    // Compared by the raw public key, so that certificates older than X.509 version 3 pass as well.
    match signing.public_key() {
        Some(own) if own.as_ref() != public => Err(Invalid::new(
            path,
            "does not belong to the certificate beside it; store the pair that was issued together",
        )),
        _ => Ok(Arc::new(CertifiedKey::new(chain, signing))),
    }
}

/// The certificates of a PEM text, and the first one's public key.
fn chain(item: Item) -> Result<(Vec<CertificateDer<'static>>, Vec<u8>), Invalid> {
    let item = plain(item)?;
    let path = item.path.clone();
    let text = item.string(128, 65536)?;
    let broken = |error: String| {
        Invalid::new(&path, format!("is not a chain of PEM certificates ({error}); store one"))
    };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    let chain = chain.map_err(|error| broken(error.to_string()))?;
    let mut first = None;
    for der in &chain {
        let (_, certificate) =
            x509_parser::parse_x509_certificate(der).map_err(|error| broken(error.to_string()))?;
        first.get_or_insert_with(|| certificate.public_key().raw.to_vec());
    }
    let first = first.ok_or_else(|| broken("it holds no certificate".to_owned()))?;
    Ok((chain, first))
}

/// A private key, stored as PEM or encrypted with a key of the ring.
fn private_key(item: Item, keyring: &Keyring) -> Result<PrivateKeyDer<'static>, Invalid> {
    let item = plain(item)?;
    let path = item.path.clone();
    let text = item.string(64, 65536)?;
    if text.starts_with("---") {
        return PrivateKeyDer::from_pem_slice(text.as_bytes())
            .map_err(|error| Invalid::new(path, format!("is not a PEM private key ({error}); store one")));
    }
    let opened = keyring.decrypt(&text).find_map(|pem| PrivateKeyDer::from_pem_slice(&pem).ok());
    opened.ok_or_else(|| {
        let problem = "is neither PEM nor encrypted with a key of data_encryption.keyring; add the key it was \
                       encrypted with to the ring, or store it anew";
        Invalid::new(path, problem)
    })
}

/// Refuses a reference to a secret, which APISIX allows in every text of an ssl.
fn plain(item: Item) -> Result<Item, Invalid> {
    let text = item.value.as_str().unwrap_or_default();
    let environment = text.get(..7).is_some_and(|start| start.eq_ignore_ascii_case("$env://"));
    if environment || text.starts_with("$secret://") {
        let why = "nodes do not fetch secrets";
        return Err(Invalid::not_yet(item.path, why, "store the text itself"));
    }
    Ok(item)
}
