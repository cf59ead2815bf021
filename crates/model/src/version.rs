//! Revisions, generations, lineages and versions: what is compared with what.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use crate::digest::Digest;

/// etcd's revision number. Never ours: Headwater counts nothing of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision(pub u64);

/// How often the history of an environment was proven to have gone back. Never lowered by anybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Generation(pub u64);

/// One history: versions of one lineage lie on one line of revisions.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Lineage {
    /// etcd's cluster id. Equal ids do not prove an equal history (a restore keeps them); different ones disprove it.
    pub cluster_id: u64,
    /// The environment's key prefix, without a trailing slash.
    pub prefix: Arc<str>,
    /// Rises by one with each proven rewind.
    pub generation: Generation,
}

/// A state of an environment: identified by its digest, ordered by generation and then revision.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Version {
    /// The history it lies on.
    pub lineage: Lineage,
    /// The revision up to which every event is contained.
    pub revision: Revision,
    /// The digest of the content.
    pub digest: Digest,
}

// === impl Revision ===

impl Revision {
    /// Before every write.
    pub const ZERO: Self = Self(0);

    /// The following revision.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

// === impl Generation ===

impl Generation {
    /// The generation after a proven rewind.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

// === impl Lineage ===

impl fmt::Display for Lineage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}:{}:{}", self.cluster_id, self.prefix, self.generation)
    }
}

impl fmt::Debug for Lineage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

// === impl Version ===

impl Version {
    /// Where the version stands: what (generation, revision) order compares.
    #[must_use]
    pub const fn position(&self) -> (Generation, Revision) {
        (self.lineage.generation, self.revision)
    }

    /// The order of versions of one environment.
    #[must_use]
    pub fn cmp_position(&self, other: &Self) -> Ordering {
        self.position().cmp(&other.position())
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.lineage.generation, self.revision)
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}#{}", self.lineage, self.revision, self.digest)
    }
}
