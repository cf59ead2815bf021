//! One stored resource, exactly as etcd holds it.

use std::fmt;

use bytes::Bytes;

use crate::digest::Digest;
use crate::key::Key;
use crate::version::Revision;

/// A key's value and revisions. Immutable: a changed resource is a new one, and an unchanged one is the same
/// allocation wherever it is held.
#[derive(Clone, PartialEq, Eq)]
pub struct Resource {
    key: Key,
    value: Bytes,
    create_revision: Revision,
    mod_revision: Revision,
    hash: Digest,
}

// === impl Resource ===

impl Resource {
    /// A resource; its hash is computed here, once.
    #[must_use]
    pub fn new(key: Key, value: Bytes, create_revision: Revision, mod_revision: Revision) -> Self {
        let hash = Digest::of_resource(key.as_str(), create_revision.0, mod_revision.0, &value);
        Self { key, value, create_revision, mod_revision, hash }
    }

    /// The key below the environment's prefix.
    #[must_use]
    pub const fn key(&self) -> &Key {
        &self.key
    }

    /// The value's bytes, exactly as stored.
    #[must_use]
    pub const fn value(&self) -> &Bytes {
        &self.value
    }

    /// The revision at which the key last came into being.
    #[must_use]
    pub const fn create_revision(&self) -> Revision {
        self.create_revision
    }

    /// The revision of the last write.
    #[must_use]
    pub const fn mod_revision(&self) -> Revision {
        self.mod_revision
    }

    /// The hash over key, revisions and value.
    #[must_use]
    pub const fn hash(&self) -> Digest {
        self.hash
    }
}

impl fmt::Debug for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}+{} ({} bytes)", self.key, self.create_revision, self.mod_revision, self.value.len())
    }
}
