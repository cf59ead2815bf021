//! Certificate objects, with keys in the clear and encrypted.

use aes::cipher::block_padding::Pkcs7;
use aes::cipher::{BlockEncryptMut, KeyIvInit};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{KeyPair, SignatureAlgorithm};

use super::*;

/// A certificate and its key, both PEM.
fn pair(algorithm: &'static SignatureAlgorithm) -> (String, String) {
    let key = KeyPair::generate_for(algorithm).unwrap();
    let certificate = rcgen::CertificateParams::new(["a.com".to_owned()]).unwrap().self_signed(&key).unwrap();
    (certificate.pem(), key.serialize_pem())
}

/// A valid object with a fresh pair.
pub(super) fn base() -> Value {
    let (cert, key) = pair(&rcgen::PKCS_ECDSA_P256_SHA256);
    json!({ "sni": "a.com", "cert": cert, "key": key })
}

fn of(value: &Value) -> Arc<Ssl> {
    match parsed("ssls/1", value) {
        Ok(Typed::Ssl(ssl)) => ssl,
        other => panic!("{value}: {other:?}"),
    }
}

fn refused(fields: Value) -> String {
    refusal("ssls/1", with(base(), &fields))
}

fn encrypted(key: &[u8], text: &str) -> String {
    let encryptor = cbc::Encryptor::<aes::Aes128>::new_from_slices(key, key).unwrap();
    STANDARD.encode(encryptor.encrypt_padded_vec_mut::<Pkcs7>(text.as_bytes()))
}

#[test]
fn defaults_of_an_ssl_are_filled() {
    let ssl = of(&base());
    assert_eq!((ssl.purpose, ssl.enabled, ssl.protocols), (SslPurpose::Server, true, Protocols::default()));
    assert_eq!(ssl.snis, [Sni::Exact("a.com".to_owned())]);
    assert_eq!(ssl.pairs.len(), 1);
    assert!(ssl.desc.is_none() && ssl.labels.is_empty());
}

#[test]
fn names_are_one_or_many_lower_cased_without_a_trailing_dot() {
    let snis = |fields: Value| of(&with(base(), &fields)).snis.clone();
    assert_eq!(snis(json!({ "sni": "*" })), [Sni::Any]);
    let many = json!({ "sni": null, "snis": ["A.com.", "*.B.com", "*", "*c.com"] });
    let label = |suffix: &str| Sni::Label(suffix.to_owned());
    assert_eq!(snis(many), [Sni::Exact("a.com".to_owned()), label(".b.com"), label(""), label("c.com")]);
    assert!(refused(json!({ "sni": null })).starts_with("field `sni` is missing"));
    assert!(refused(json!({ "snis": ["b.com"] })).starts_with("field `snis` stands beside `sni`"));
    assert!(refused(json!({ "sni": "a.*.com" })).starts_with("field `sni` is `a.*.com`"));
}

#[test]
fn a_client_object_needs_no_name_and_stays_unused() {
    let ssl = of(&with(base(), &json!({ "type": "client", "sni": null })));
    assert_eq!((ssl.purpose, ssl.snis.len()), (SslPurpose::Client, 0));
    assert!(refused(json!({ "type": "other" })).starts_with("field `type` is `other`"));
}

#[test]
fn status_of_an_ssl_is_0_or_1() {
    assert!(!of(&with(base(), &json!({ "status": 0 }))).enabled);
    assert!(refused(json!({ "status": true })).starts_with("field `status` must be a whole number"));
}

#[test]
fn further_pairs_stand_beside_the_first() {
    let (cert, key) = pair(&rcgen::PKCS_ED25519);
    assert_eq!(of(&with(base(), &json!({ "certs": [cert], "keys": [key] }))).pairs.len(), 2);
    assert!(refused(json!({ "certs": [cert] })).starts_with("field `keys` has 0 entries beside 1 in certs"));
    assert!(
        refused(json!({ "certs": [cert], "keys": [base()["key"]] }))
            .starts_with("field `keys.0` does not belong")
    );
}

#[test]
fn a_key_must_belong_to_its_certificate() {
    let other = base()["key"].clone();
    let refusal = refused(json!({ "key": other }));
    assert!(refusal.starts_with("field `key` does not belong to the certificate beside it"), "{refusal}");
}

#[test]
fn pem_must_parse() {
    let junk = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".repeat(3);
    assert!(refused(json!({ "cert": junk })).starts_with("field `cert` is not a chain of PEM certificates"));
    assert!(refused(json!({ "cert": "x".repeat(200) })).contains("it holds no certificate"));
    assert!(refused(json!({ "cert": "short" })).starts_with("field `cert` has 5 characters"));
    let key = format!("-----BEGIN PRIVATE KEY-----\n{}", "x".repeat(100));
    assert!(refused(json!({ "key": key })).starts_with("field `key` is not a PEM private key"));
    let unusable = format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", "A".repeat(100));
    assert!(
        refused(json!({ "key": unusable })).starts_with("field `key` holds a key of a kind that cannot sign")
    );
    for field in ["cert", "key"] {
        assert!(refused(json!({ field: null })).starts_with(&format!("field `{field}` is missing")));
    }
}

#[test]
fn encrypted_keys_open_with_any_key_of_the_ring() {
    let value = base();
    let key = value["key"].as_str().unwrap();
    for ring in [b"qeddd145sfvddff3", b"edd1c9f0985e76a2"] {
        assert_eq!(*of(&with(value.clone(), &json!({ "key": encrypted(ring, key) }))), *of(&value));
    }
    let foreign = encrypted(b"0123456789abcdef", key);
    let refusal = refused(json!({ "key": foreign }));
    assert!(
        refusal.starts_with("field `key` is neither PEM nor encrypted with a key of data_encryption.keyring")
    );
    let context = Context { keyring: Keyring::new(["0123456789abcdef"]).unwrap() };
    let value = with(value, &json!({ "key": foreign })).to_string();
    assert!(parse(&Key::new("ssls/1"), value.as_bytes(), &context).is_ok());
}

/// Texts made with `openssl enc -aes-{128,256}-cbc`, the key's first 16 bytes as IV.
#[test]
fn the_cipher_is_the_one_apisix_uses() {
    let opened =
        |ring: Keyring, text: &str| ring.decrypt(text).next().map(|text| String::from_utf8(text).unwrap());
    let plain = Some("-----BEGIN nothing".to_owned());
    let shipped = Keyring::default;
    assert_eq!(opened(shipped(), "NXGpozcGuz9mWUJc31ck75vr7kYxGJgpTXESs72qG+g="), plain);
    assert_eq!(
        shipped().decrypt("qRBkP58zGRA7tcSTDj2tWQiv/mhWf51SkhUoUT0qx9Q=").last(),
        plain.clone().map(Into::into)
    );
    let long = Keyring::new(["0123456789abcdef0123456789ABCDEF"]).unwrap();
    assert_eq!(opened(long, "VV5ix8bjPeh3DzUlXAA1J8OIn5o8SlMeBuctt/b++4E="), plain);
    assert_eq!(opened(shipped(), "not base64!"), None);
}

#[test]
fn keys_of_a_ring_have_16_or_32_bytes_and_are_never_printed() {
    let error = Keyring::new(["0123456789abcdef", "short"]).unwrap_err();
    assert_eq!(error, KeyringError { position: 2, length: 5 });
    assert!(error.to_string().contains("key 2 of data_encryption.keyring has 5 bytes"));
    assert_eq!(format!("{:?}", Keyring::default()), "Keyring(2 keys)");
}

#[test]
fn protocols_are_tls_1_2_and_1_3() {
    let protocols = |names: Value| of(&with(base(), &json!({ "ssl_protocols": names }))).protocols;
    assert_eq!(protocols(json!(["TLSv1.3"])), Protocols { tls12: false, tls13: true });
    assert_eq!(protocols(json!(["TLSv1.3", "TLSv1.2"])), Protocols::default());
    assert_eq!(protocols(json!([])), Protocols::default());
    let old = json!({ "ssl_protocols": ["TLSv1.2", "TLSv1.1"] });
    assert!(refused(old).starts_with("field `ssl_protocols.1` is TLSv1.1, which nodes do not speak"));
}

#[test]
fn references_to_secrets_are_refused() {
    for (field, text) in [("key", "$secret://vault/1/k"), ("cert", "$ENV://CERT"), ("sni", "$env://SNI")] {
        let refusal = refused(json!({ field: text }));
        assert!(
            refusal
                .starts_with(&format!("field `{field}` cannot be honoured yet: nodes do not fetch secrets"))
        );
    }
}
