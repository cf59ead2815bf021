//! An immutable state of the store.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use headwater_model::mutant;
use headwater_model::{Change, Content, Digest, Key, Lineage, Resource, Revision, Version};
use headwater_proto::convert::encode_change;
use imbl::{OrdMap, OrdSet};

/// One resource with what the store knows about it.
#[derive(Debug)]
pub struct Held {
    /// The resource.
    pub resource: Arc<Resource>,
    /// The larger of its mod revision and the revision of the reload that brought its present hash. "Changed since
    /// r" always goes by it, never by the mod revision: a restore brings old mod revisions.
    pub changed_at: Revision,
    encoded: OnceLock<Bytes>,
}

/// All resources at one version, with what changed when and what was deleted.
#[derive(Clone, Debug)]
pub struct Snapshot {
    version: Version,
    content: Content,
    held: OrdMap<Key, Arc<Held>>,
    by_change: OrdSet<(Revision, Key)>,
    tombstones: OrdMap<Key, Revision>,
    by_deletion: OrdSet<(Revision, Key)>,
    deletions_known_since: Revision,
    gaps: Vec<Gap>,
    /// The digests that this history has had, by the revision at which each began; nothing where several revisions
    /// came at once, for nobody saw the content between them.
    line: OrdMap<Revision, Option<Digest>>,
    /// How many resources of each kind there are.
    kinds: BTreeMap<&'static str, u64>,
}

/// How many reloads a snapshot remembers; what lies before an older one counts as known no longer.
const MAX_GAPS: usize = 16;

/// How many digests of the past a snapshot remembers.
const MAX_LINE: usize = 4_096;

/// A reload: nothing that came and went between the two revisions was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Up to here everything had been delivered.
    pub from: Revision,
    /// The revision of the reload.
    pub at: Revision,
    /// Whether what was held before was proven to be of the same history.
    pub proven: bool,
}

/// What changed since a revision: deletions are applied first.
#[derive(Clone, Debug, Default)]
pub struct Since {
    /// Keys deleted since, and not alive again.
    pub deleted: Vec<Key>,
    /// Resources changed since.
    pub changed: Vec<Arc<Held>>,
}

// === impl Held ===

impl Held {
    pub(super) const fn new(resource: Arc<Resource>, changed_at: Revision) -> Self {
        Self { resource, changed_at, encoded: OnceLock::new() }
    }

    /// The encoded change that brings it: made once, shared by every transfer.
    pub fn encoded(&self) -> &Bytes {
        self.encoded.get_or_init(|| encode_change(&Change::Put(self.resource.clone())))
    }
}

// === impl Snapshot ===

impl Snapshot {
    /// Nothing, at revision zero.
    #[must_use]
    pub fn empty(lineage: Lineage) -> Self {
        Self::starting_at(lineage, Revision::ZERO)
    }

    /// Nothing, of a history that is known from `revision` on.
    #[must_use]
    pub fn starting_at(lineage: Lineage, revision: Revision) -> Self {
        Self {
            version: Version { lineage, revision, digest: Digest::EMPTY },
            content: Content::new(),
            held: OrdMap::new(),
            by_change: OrdSet::new(),
            tombstones: OrdMap::new(),
            by_deletion: OrdSet::new(),
            deletions_known_since: revision,
            gaps: Vec::new(),
            line: OrdMap::new(),
            kinds: BTreeMap::new(),
        }
    }

    /// A snapshot from its saved parts.
    #[must_use]
    pub fn from_parts(
        version: Version,
        resources: impl IntoIterator<Item = (Arc<Resource>, Revision)>,
        tombstones: impl IntoIterator<Item = (Key, Revision)>,
        deletions_known_since: Revision,
        gaps: Vec<Gap>,
    ) -> Self {
        let mut snapshot = Self::starting_at(version.lineage.clone(), deletions_known_since);
        for (resource, changed_at) in resources {
            snapshot.put(resource, changed_at);
        }
        for (key, revision) in tombstones {
            snapshot.bury_absent(&key, revision);
        }
        snapshot.gaps = gaps;
        snapshot.set_position(version.lineage, version.revision);
        snapshot.mark_line();
        snapshot
    }

    /// The version: lineage, safe revision, digest.
    #[must_use]
    pub const fn version(&self) -> &Version {
        &self.version
    }

    /// The lineage.
    #[must_use]
    pub const fn lineage(&self) -> &Lineage {
        &self.version.lineage
    }

    /// The digest of the content.
    #[must_use]
    pub const fn digest(&self) -> Digest {
        self.version.digest
    }

    /// The resources.
    #[must_use]
    pub const fn content(&self) -> &Content {
        &self.content
    }

    /// How many resources of a kind there are, for the kinds that there are any of.
    pub fn kinds(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.kinds.iter().filter(|(_, count)| **count > 0).map(|(kind, count)| (*kind, *count))
    }

    /// A resource with what is known about it.
    #[must_use]
    pub fn held(&self, key: &str) -> Option<&Arc<Held>> {
        self.held.get(key)
    }

    /// All resources with what is known about them, in key order.
    pub fn all_held(&self) -> impl Iterator<Item = &Arc<Held>> {
        self.held.values()
    }

    /// The revision at which a key that is not held was deleted, as far as deletions are known.
    #[must_use]
    pub fn tombstone(&self, key: &str) -> Option<Revision> {
        self.tombstones.get(key).copied()
    }

    /// All tombstones in key order.
    pub fn tombstones(&self) -> impl Iterator<Item = (&Key, Revision)> {
        self.tombstones.iter().map(|(key, revision)| (key, *revision))
    }

    /// Every deletion after this revision is known.
    #[must_use]
    pub const fn deletions_known_since(&self) -> Revision {
        self.deletions_known_since
    }

    /// The revision of the newest reload whose continuity could not be proven.
    #[must_use]
    pub fn unproven_at(&self) -> Option<Revision> {
        self.gaps.iter().rfind(|gap| !gap.proven).map(|gap| gap.at)
    }

    /// Up to where everything had been delivered before the reload of this revision, if its continuity could not be
    /// proven and it is remembered. What has that revision for its `changed_at`, or its tombstone, may show a history
    /// that has replaced the one before.
    #[must_use]
    pub fn unproven_from(&self, at: Revision) -> Option<Revision> {
        self.gaps.iter().find(|gap| gap.at == at && !gap.proven).map(|gap| gap.from)
    }

    /// The reloads that are remembered, oldest first.
    #[must_use]
    pub fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    /// Whether a reload without proof of continuity lies between `base` and this snapshot.
    #[must_use]
    pub fn unproven_since(&self, base: Revision) -> bool {
        self.unproven_at().is_some_and(|at| at > base)
    }

    /// Whether `base` lies where nothing was read: a key may have come after what the reload was compared with and have
    /// gone before it, and another replica may have brought it to a node meanwhile.
    #[must_use]
    pub fn is_unread(&self, base: Revision) -> bool {
        self.gaps.iter().any(|gap| gap.from < base && base < gap.at) && !mutant::planted("unread-base-taken")
    }

    /// Whether a version is what this replica has seen at that place of this very history. One that it has not seen
    /// may be of another history that is not told apart by its lineage.
    #[must_use]
    pub fn confirms(&self, version: &Version) -> bool {
        let seen = self.line.range(..=version.revision).next_back();
        version.lineage == self.version.lineage
            && version.revision <= self.version.revision
            && !self.is_unread(version.revision)
            && seen.is_some_and(|(_, digest)| *digest == Some(version.digest))
    }

    /// What changed since `base`, or nothing when deletions are not known so far back.
    #[must_use]
    pub fn since(&self, base: Revision) -> Option<Since> {
        if base < self.deletions_known_since || self.is_unread(base) {
            return None;
        }
        let after = (base.next(), Key::new(""));
        let mut since = Since {
            deleted: self.by_deletion.range(after.clone()..).map(|(_, key)| key.clone()).collect(),
            changed: self
                .by_change
                .range(after..)
                .filter_map(|(_, key)| self.held.get(key).cloned())
                .collect(),
        };
        since.deleted.sort_unstable();
        since.changed.sort_unstable_by(|a, b| a.resource.key().cmp(b.resource.key()));
        Some(since)
    }

    pub(super) fn keep(&mut self, held: Arc<Held>) {
        let key = held.resource.key().clone();
        self.forget_tombstone(&key);
        self.content.put(held.resource.clone());
        self.by_change.insert((held.changed_at, key.clone()));
        let kind = key.kind().name();
        if self.held.insert(key, held).is_none() {
            *self.kinds.entry(kind).or_default() += 1;
        }
        self.version.digest = self.content.digest();
    }

    pub(super) fn put(&mut self, resource: Arc<Resource>, changed_at: Revision) {
        if let Some(old) = self.held.get(resource.key()) {
            self.by_change.remove(&(old.changed_at, resource.key().clone()));
        }
        self.keep(Arc::new(Held::new(resource, changed_at)));
    }

    /// Deletes a key; `false` when it was not held. Its tombstone stands in both cases: batches are merged by key, so
    /// it may have come and gone between two of them, and a node that another replica served may hold it.
    pub(super) fn bury(&mut self, key: &Key, revision: Revision) -> bool {
        if self.held.contains_key(key) || !mutant::planted("absent-key-not-buried") {
            self.bury_absent(key, revision);
        }
        self.vanish(key)
    }

    /// Drops a key without a word of its deletion; `false` when it was not held.
    pub(super) fn vanish(&mut self, key: &Key) -> bool {
        let Some(old) = self.held.remove(key) else {
            return false;
        };
        if let Some(count) = self.kinds.get_mut(key.kind().name()) {
            *count -= 1;
        }
        self.by_change.remove(&(old.changed_at, key.clone()));
        self.content.delete(key.as_str());
        self.version.digest = self.content.digest();
        true
    }

    pub(super) fn bury_absent(&mut self, key: &Key, revision: Revision) {
        self.forget_tombstone(key);
        self.tombstones.insert(key.clone(), revision);
        self.by_deletion.insert((revision, key.clone()));
    }

    /// A key that is there has no tombstone.
    pub(super) fn forget_tombstone(&mut self, key: &Key) {
        if let Some(revision) = self.tombstones.remove(key) {
            self.by_deletion.remove(&(revision, key.clone()));
        }
    }

    pub(super) fn trim_tombstones(&mut self, max: usize) {
        while self.tombstones.len() > max {
            let Some((revision, key)) = self.by_deletion.remove_min() else { return };
            self.tombstones.remove(&key);
            self.deletions_known_since = self.deletions_known_since.max(revision);
        }
    }

    pub(super) fn advance(&mut self, revision: Revision) {
        debug_assert!(revision >= self.version.revision, "a revision never falls inside a lineage");
        self.version.revision = self.version.revision.max(revision);
    }

    /// Notes a reload.
    pub(super) fn mark_gap(&mut self, gap: Gap) {
        if gap.proven && gap.from.next() >= gap.at {
            return;
        }
        self.gaps.retain(|old| old.at > self.deletions_known_since || !old.proven);
        self.gaps.push(gap);
        if self.gaps.len() > MAX_GAPS {
            let oldest = self.gaps.remove(0);
            self.forget_deletions(oldest.at);
        }
    }

    fn forget_deletions(&mut self, to: Revision) {
        while self.by_deletion.get_min().is_some_and(|(revision, _)| *revision <= to)
            && let Some((_, key)) = self.by_deletion.remove_min()
        {
            self.tombstones.remove(&key);
        }
        self.deletions_known_since = self.deletions_known_since.max(to);
    }

    /// Remembers the digest of now, and that nothing is known of what was held from `first` up to now.
    pub(super) fn mark_line_from(&mut self, first: Revision) {
        if first < self.version.revision {
            self.line.insert(first, None);
        }
        self.mark_line();
    }

    /// Remembers the digest of now.
    pub(super) fn mark_line(&mut self) {
        self.line.insert(self.version.revision, Some(self.version.digest));
        while self.line.len() > MAX_LINE
            && let Some(oldest) = self.line.get_min().map(|(revision, _)| *revision)
        {
            self.line.remove(&oldest);
        }
    }

    pub(super) fn set_position(&mut self, lineage: Lineage, revision: Revision) {
        self.version.lineage = lineage;
        self.version.revision = revision;
    }

    /// The same content as the start of another history: nothing is known about what changed before.
    pub(super) fn start_history(&mut self, lineage: Lineage, revision: Revision) {
        let mut next = Self::starting_at(lineage, revision);
        for held in self.held.values() {
            next.put(held.resource.clone(), revision);
        }
        next.mark_line();
        *self = next;
    }
}
