//! The digest of a content: 128 bits that writer, replica and node compute alike.
//!
//! Each resource hashes on its own, and a content's digest is the wrapping sum of those hashes, so one change costs
//! one hash whatever the size of the content, and the order of keys does not matter. It guards against faults, not
//! against somebody who may write values.

use std::fmt;

use xxhash_rust::xxh3::{Xxh3, xxh3_128_with_seed};

/// Names the hash function and the content-shape rule together. Sides that differ in it cannot compare digests.
pub const DIGEST_SCHEME: u32 = 1;

/// Fixed for scheme 1: the bytes `headwate` read as a big-endian number.
const SEED: u64 = 0x6865_6164_7761_7465;

/// A hash of one resource, or the digest of a whole content.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Digest(pub u128);

// === impl Digest ===

impl Digest {
    /// The digest of an empty content.
    pub const EMPTY: Self = Self(0);

    /// Hashes one resource: key, create revision, mod revision and value, each framed by its length or width.
    #[must_use]
    pub fn of_resource(key: &str, create_revision: u64, mod_revision: u64, value: &[u8]) -> Self {
        let mut hasher = Xxh3::with_seed(SEED);
        hasher.update(&(key.len() as u64).to_le_bytes());
        hasher.update(key.as_bytes());
        hasher.update(&create_revision.to_le_bytes());
        hasher.update(&mod_revision.to_le_bytes());
        hasher.update(value);
        Self(hasher.digest128())
    }

    /// Hashes bytes alone, to tell two values apart inside one process: no part of the digest scheme.
    #[must_use]
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self(xxh3_128_with_seed(bytes, SEED))
    }

    /// The digest with one more resource.
    #[must_use]
    pub const fn plus(self, hash: Self) -> Self {
        Self(self.0.wrapping_add(hash.0))
    }

    /// The digest without one resource.
    #[must_use]
    pub const fn minus(self, hash: Self) -> Self {
        Self(self.0.wrapping_sub(hash.0))
    }

    /// Sixteen bytes, most significant first: the form on the wire and in files.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// Reads what [`Digest::to_bytes`] wrote; `None` for any other length.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(|bytes| Self(u128::from_be_bytes(bytes)))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl std::str::FromStr for Digest {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u128::from_str_radix(text, 16).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scheme_1_is_pinned() {
        let hash = Digest::of_resource("routes/1", 5, 7, br#"{"uri":"/"}"#);
        assert_eq!(hash.to_string(), "ff7ffa521dc63cd1ab2e0af4d8c041b0");
        assert_eq!(Digest::from_bytes(&hash.to_bytes()), Some(hash));
        assert_eq!(hash.to_string().parse(), Ok(hash));
    }

    #[test]
    fn every_part_counts() {
        let base = Digest::of_resource("routes/1", 5, 7, b"v");
        for other in [
            Digest::of_resource("routes/2", 5, 7, b"v"),
            Digest::of_resource("routes/1", 6, 7, b"v"),
            Digest::of_resource("routes/1", 5, 8, b"v"),
            Digest::of_resource("routes/1", 5, 7, b"w"),
        ] {
            assert_ne!(base, other);
        }
    }
}
