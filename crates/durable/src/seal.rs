//! Sealing: what is written under a key, when keys are given.
//!
//! The first key seals all that is written, any of them opens. A sealed file names its key by a fingerprint. The rules
//! of checksums and commit marks are those of a plain file: they tell an accident from damage; the seal tells
//! whether the holder of a key wrote what is there.
//!
//! **Nonces.** AES-256-GCM breaks when a nonce is used twice under one key, so nothing that a crash, a cut-off end, a
//! restored backup or a second process turns back may decide on one. Each try at writing a group therefore draws 128
//! random bits, which begin the group and derive a key of its own (HKDF-SHA256 of the given key over them and the
//! file's whole header, which holds another 128 random bits). Under that key the nonce is the frame's place in the
//! group. When a torn end is cut off, its place in the file is written again, but never under the same key: the chance
//! that two of 2^48 groups written to one file share theirs is 2^-33, whatever the number of files and rewrites. A
//! counter over the file would repeat after a cut; a random nonce for each record would allow only 2^32 records a file.
//!
//! **What is bound.** With header and group in the key, the place in the nonce, and the kind of frame and the commit
//! mark of the group before in the associated data, a frame counts in its own file, group and place only, and a group
//! only after the very group it was written after. A sealed commit mark is a tag, so that nobody ends a group early.
//!
//! **What is not.** Lengths, the number of groups and the format's name are seen. A file that ends after an earlier
//! group is whole, as is an older file in the place of a newer one: nothing outside of it says how new it must be. And
//! plain files are taken in, since that is how sealing begins: it keeps secrets, it does not stop whoever may replace
//! the file.

use std::fmt;
use std::io;
use std::sync::Arc;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use ring::rand::{SecureRandom, SystemRandom};

use crate::frame::{Header, Mark};

/// The size of a key.
pub const KEY_BYTES: usize = 32;

/// What sealing adds to a record or a commit mark.
pub(crate) const TAG_BYTES: usize = 16;

/// The size of the random bits of a header and of a group.
pub(crate) const SALT_BYTES: usize = 16;

/// The size of a key's fingerprint.
pub(crate) const KEY_ID_BYTES: usize = 8;

/// Authenticates one frame.
pub(crate) type Tag = [u8; TAG_BYTES];

/// The keys of a file, in order: the first one seals, all of them open. Without any, files are plain. A clone is
/// cheap; the keys are never shown.
#[derive(Clone, Debug, Default)]
pub struct Keys(Arc<[Arc<Key>]>);

/// Tells keys apart and nothing about them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeyId(pub(crate) [u8; KEY_ID_BYTES]);

#[derive(Debug)]
struct Key {
    id: KeyId,
    secret: Prk,
}

/// The seal of a file: what the keys of its groups are derived from.
#[derive(Clone, Debug)]
pub(crate) struct FileSeal {
    key: Arc<Key>,
    header: Arc<[u8]>,
}

/// The seal of one try at a group. Seals or opens its frames in their order.
#[derive(Debug)]
pub(crate) struct GroupSeal {
    key: LessSafeKey,
    before: Tag,
    last: Tag,
    place: u64,
}

/// A length for HKDF.
struct Length(usize);

// === impl Keys ===

impl Keys {
    /// Keys in order, each of 256 random bits.
    #[must_use]
    pub fn new(keys: impl IntoIterator<Item = [u8; KEY_BYTES]>) -> Self {
        let salt = Salt::new(HKDF_SHA256, b"headwater durable");
        Self(keys.into_iter().map(|key| Arc::new(Key::new(salt.extract(&key)))).collect())
    }

    /// The key that seals; nothing when files are plain.
    #[must_use]
    pub fn first(&self) -> Option<KeyId> {
        self.0.first().map(|key| key.id)
    }

    /// The seal of a file with this header: none for a plain one.
    ///
    /// # Errors
    /// The fingerprint of the key that is lacking.
    pub(crate) fn seal_of(&self, header: &Header) -> Result<Option<FileSeal>, KeyId> {
        let Some(id) = header.key else { return Ok(None) };
        let key = self.0.iter().find(|key| key.id == id).ok_or(id)?;
        Ok(Some(FileSeal { key: key.clone(), header: header.bytes.as_slice().into() }))
    }
}

// === impl KeyId ===

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

// === impl Key ===

impl Key {
    fn new(secret: Prk) -> Self {
        let mut id = [0; KEY_ID_BYTES];
        let filled = secret.expand(&[b"fingerprint"], Length(KEY_ID_BYTES)).and_then(|okm| okm.fill(&mut id));
        filled.expect("eight bytes are within what HKDF gives, 255 * 32");
        Self { id: KeyId(id), secret }
    }
}

// === impl FileSeal ===

impl FileSeal {
    pub(crate) fn key(&self) -> KeyId {
        self.key.id
    }

    /// The seal of a group that begins with `salt` and follows the commit mark `before` (zeroes for the first).
    pub(crate) fn group(&self, salt: &[u8; SALT_BYTES], before: Tag) -> GroupSeal {
        let info: [&[u8]; 3] = [b"group", &self.header, salt];
        let derived = self.key.secret.expand(&info, &AES_256_GCM);
        let key = UnboundKey::from(derived.expect("32 bytes are within what HKDF gives, 255 * 32"));
        GroupSeal { key: LessSafeKey::new(key), before, last: [0; TAG_BYTES], place: 0 }
    }
}

// === impl GroupSeal ===

impl GroupSeal {
    /// Seals the next frame's payload; it becomes longer by its tag.
    pub(crate) fn seal(&mut self, mark: Mark, payload: &[u8]) -> Vec<u8> {
        let mut sealed = Vec::with_capacity(payload.len() + TAG_BYTES);
        sealed.extend_from_slice(payload);
        let (nonce, associated) = self.next(mark);
        let done = self.key.seal_in_place_separate_tag(nonce, associated, &mut sealed);
        let tag = done.expect("a record is far below the 64 GiB that GCM seals at once");
        self.last.copy_from_slice(tag.as_ref());
        sealed.extend_from_slice(&self.last);
        sealed
    }

    /// Opens the next frame's payload; nothing when it was not sealed for this place.
    pub(crate) fn open(&mut self, mark: Mark, mut payload: Vec<u8>) -> Option<Vec<u8>> {
        self.last = *payload.last_chunk()?;
        let (nonce, associated) = self.next(mark);
        let length = self.key.open_in_place(nonce, associated, &mut payload).ok()?.len();
        payload.truncate(length);
        Some(payload)
    }

    /// The tag of the frame that was sealed or opened last.
    pub(crate) const fn last(&self) -> Tag {
        self.last
    }

    fn next(&mut self, mark: Mark) -> (Nonce, Aad<[u8; 1 + TAG_BYTES]>) {
        let mut nonce = [0; NONCE_LEN];
        nonce[..8].copy_from_slice(&self.place.to_le_bytes());
        self.place += 1;
        let mut associated = [mark.byte(); 1 + TAG_BYTES];
        associated[1..].copy_from_slice(&self.before);
        (Nonce::assume_unique_for_key(nonce), Aad::from(associated))
    }
}

// === impl Length ===

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// Random bits that nobody can foresee.
pub(crate) fn random() -> io::Result<[u8; SALT_BYTES]> {
    let mut bits = [0; SALT_BYTES];
    SystemRandom::new().fill(&mut bits).map_err(|_| io::Error::other("the system gives no random bytes"))?;
    Ok(bits)
}

#[cfg(test)]
mod tests;
