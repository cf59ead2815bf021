//! What etcd held at each revision, and whether what others say they held is that.
//!
//! [`EtcdLog`] writes the history down from a watch of its own; a [`Recorder`] writes down what a node shows;
//! a [`Checker`] judges the one by the other. Nothing here asks the code under test about itself: keys are told from
//! others, and digests are summed, by the code of this module. Of the model it uses the hash of one resource alone.

use std::collections::{BTreeMap, BTreeSet};

use headwater_model::Digest;

mod checker;
mod etcd_log;
mod record;
mod recorder;

pub use checker::{Breach, Checker, Checks, Guarantee, Sighting, Told, Version};
pub use etcd_log::{EtcdLog, Stored, read};
pub use record::Record;
pub use recorder::Recorder;

/// The prefix that all of it is about, with its slash.
pub const PREFIX: &str = "/apisix/";

/// One resource at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fact {
    /// The revision at which the key came into being.
    pub create_revision: u64,
    /// The revision of its last write.
    pub mod_revision: u64,
    /// The hash over key, both revisions and value.
    pub hash: Digest,
}

/// What happened to the content below [`PREFIX`] from some revision on.
#[derive(Debug, Default)]
pub struct History {
    /// The state at this revision is known whole; nothing is known of what was before.
    begun: u64,
    /// Everything up to here is known.
    head: u64,
    /// By key: what it was from each revision on that changed it.
    keys: BTreeMap<String, Vec<(u64, Option<Fact>)>>,
    /// The digest from each revision on that changed it.
    digests: BTreeMap<u64, Digest>,
    /// Which keys each revision changed.
    changed: BTreeMap<u64, Vec<String>>,
}

/// What a revision made of a key; nothing deleted it.
pub type Change = (String, Option<Fact>);

// === impl Fact ===

impl Fact {
    /// Of a key with its value.
    #[must_use]
    pub fn new(key: &str, create_revision: u64, mod_revision: u64, value: &[u8]) -> Self {
        let hash = Digest::of_resource(key, create_revision, mod_revision, value);
        Self { create_revision, mod_revision, hash }
    }
}

// === impl History ===

impl History {
    /// From the whole content at a revision on.
    #[must_use]
    pub fn begin(revision: u64, content: impl IntoIterator<Item = (String, Fact)>) -> Self {
        let mut history = Self { begun: revision, head: revision, ..Self::default() };
        let mut digest = Digest::EMPTY;
        for (key, fact) in content {
            digest = digest.plus(fact.hash);
            history.keys.insert(key, vec![(revision, Some(fact))]);
        }
        history.digests.insert(revision, digest);
        history
    }

    /// All that one revision did to content; revisions come in order.
    ///
    /// # Panics
    /// When they do not.
    pub fn committed(&mut self, revision: u64, changes: Vec<Change>) {
        assert!(revision > self.head, "revision {revision} after {}", self.head);
        let mut digest = self.digests.last_key_value().map_or(Digest::EMPTY, |(_, digest)| *digest);
        for (key, fact) in changes {
            if let Some(before) = self.fact_at(&key, revision) {
                digest = digest.minus(before.hash);
            }
            digest = fact.map_or(digest, |fact| digest.plus(fact.hash));
            self.keys.entry(key.clone()).or_default().push((revision, fact));
            self.changed.entry(revision).or_default().push(key);
        }
        self.digests.insert(revision, digest);
        self.head = revision;
    }

    /// The revision up to which everything is known.
    #[must_use]
    pub const fn head(&self) -> u64 {
        self.head
    }

    /// The revision before which nothing is known.
    #[must_use]
    pub const fn begun(&self) -> u64 {
        self.begun
    }

    /// The digest of the content at a revision; nothing where it is not known.
    #[must_use]
    pub fn digest_at(&self, revision: u64) -> Option<Digest> {
        if revision < self.begun || revision > self.head {
            return None;
        }
        self.digests.range(..=revision).next_back().map(|(_, digest)| *digest)
    }

    /// What a key was at a revision; nothing when it was not there.
    #[must_use]
    pub fn fact_at(&self, key: &str, revision: u64) -> Option<Fact> {
        let all = self.keys.get(key)?;
        let until = all.partition_point(|(from, _)| *from <= revision);
        all[..until].last().and_then(|(_, fact)| *fact)
    }

    /// The content at a revision.
    #[must_use]
    pub fn content_at(&self, revision: u64) -> BTreeMap<&str, Fact> {
        let facts = self.keys.keys().filter_map(|key| Some((key.as_str(), self.fact_at(key, revision)?)));
        facts.collect()
    }

    /// The keys that were written after one revision, up to another.
    #[must_use]
    pub fn written(&self, after: u64, to: u64) -> BTreeSet<&str> {
        if after >= to {
            return BTreeSet::new();
        }
        let revisions = self.changed.range(after + 1..=to);
        revisions.flat_map(|(_, keys)| keys.iter().map(String::as_str)).collect()
    }

    /// The last revision that had this digest.
    #[must_use]
    pub fn revision_of(&self, digest: Digest) -> Option<u64> {
        self.digests.iter().rev().find(|(_, other)| **other == digest).map(|(revision, _)| *revision)
    }

    /// Whether exactly this was ever so.
    #[must_use]
    pub fn ever(&self, key: &str, fact: &Fact) -> bool {
        self.keys.get(key).is_some_and(|all| all.iter().any(|(_, other)| other.as_ref() == Some(fact)))
    }

    /// How many revisions changed content.
    #[must_use]
    pub fn changes(&self) -> usize {
        self.changed.len()
    }
}

/// A key relative to [`PREFIX`], if it is one of content: two or more segments, none empty, the first not `data_plane`;
/// or `plugins`. The rule of the design, written apart from the code that keeps it.
#[must_use]
pub fn content_key(relative: &[u8]) -> Option<&str> {
    let key = std::str::from_utf8(relative).ok()?;
    let segments: Vec<&str> = key.split('/').collect();
    let whole =
        segments.len() >= 2 && segments.iter().all(|it| !it.is_empty()) && segments[0] != "data_plane";
    (whole || key == "plugins").then_some(key)
}
