//! Fields that APISIX stores encrypted: AES-CBC with the key as IV, PKCS #7, base64.

use std::fmt;

use aes::cipher::block_padding::Pkcs7;
use aes::cipher::{BlockDecryptMut, KeyIvInit};
use aes::{Aes128, Aes256};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The keys of `data_encryption.keyring`. The first encrypts at the writer; each is tried to decrypt.
#[derive(Clone, PartialEq, Eq)]
pub struct Keyring(Vec<Vec<u8>>);

/// A key that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("key {position} of data_encryption.keyring has {length} bytes; use 16 (AES-128) or 32 (AES-256)")]
pub struct KeyringError {
    /// The key's place in the ring, from 1 on.
    pub position: usize,
    /// Its length in bytes.
    pub length: usize,
}

// === impl Keyring ===

impl Keyring {
    /// A ring of keys of 16 or 32 bytes each; none means that nothing is encrypted.
    ///
    /// # Errors
    /// Names the first key of another length.
    pub fn new(keys: impl IntoIterator<Item = impl Into<Vec<u8>>>) -> Result<Self, KeyringError> {
        let keys: Vec<Vec<u8>> = keys.into_iter().map(Into::into).collect();
        match keys.iter().position(|key| !matches!(key.len(), 16 | 32)) {
            Some(index) => Err(KeyringError { position: index + 1, length: keys[index].len() }),
            None => Ok(Self(keys)),
        }
    }

    /// Every plain text that one of the keys gives, in the order of the ring. A wrong key gives nothing, or, once
    /// in some hundred tries, nonsense: the caller must know what it looks for.
    pub(super) fn decrypt(&self, stored: &str) -> impl Iterator<Item = Vec<u8>> {
        let cipher = STANDARD.decode(stored.trim_end()).unwrap_or_default();
        self.0.iter().filter_map(move |key| match key.len() {
            16 => open::<cbc::Decryptor<Aes128>>(key, &cipher),
            _ => open::<cbc::Decryptor<Aes256>>(key, &cipher),
        })
    }
}

impl Default for Keyring {
    /// The ring APISIX ships with.
    fn default() -> Self {
        Self(vec![b"qeddd145sfvddff3".to_vec(), b"edd1c9f0985e76a2".to_vec()])
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keyring({} keys)", self.0.len())
    }
}

/// Decrypts with `key` as key and its first 16 bytes as IV.
fn open<D: KeyIvInit + BlockDecryptMut>(key: &[u8], cipher: &[u8]) -> Option<Vec<u8>> {
    let decryptor = D::new_from_slices(key, key.get(..16)?).ok()?;
    decryptor.decrypt_padded_vec_mut::<Pkcs7>(cipher).ok()
}
