//! The store of one environment: the newest content, what changed when, and what was deleted.
//!
//! Pure, with one writer. Readers clone an `Arc` of an immutable [`Snapshot`]; two snapshots share structure. The
//! store always follows the source: it never guards, never waits, never knows who reads. It must never know nodes,
//! streams or clocks.
//!
//! Instead of a log of deltas it keeps, beside the map, an index by `changed_at` and the tombstones of deleted keys.
//! What changed since revision r is then "resources with changed_at > r, and tombstones > r": merged by
//! construction, whatever r is, back to `deletions_known_since`.

mod snapshot;

use std::sync::Arc;

use bytes::Bytes;
use headwater_model::shape::{Ignored, Shape, classify};
use headwater_model::{Content, Generation, Key, Lineage, Resource, Revision, Version, mutant};

use crate::backend::{Batch, Continuity, Entry, KeyEvent, Load};
pub use snapshot::{Gap, Held, Since, Snapshot};

/// How many tombstones are kept; older deletions are forgotten and `deletions_known_since` rises.
pub const MAX_TOMBSTONES: usize = 100_000;

/// The one writer of an environment's content.
#[derive(Debug)]
pub struct Store {
    snapshot: Snapshot,
    max_tombstones: usize,
    loaded: bool,
    ignored: std::collections::BTreeMap<&'static str, u64>,
}

/// What a change of the store means to its readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Whether the content or its generation differs from before: readers are woken for nothing else.
    pub published: bool,
    /// Resources that are new or replaced.
    pub put: usize,
    /// Resources that are gone.
    pub deleted: usize,
    /// Resources that kept their allocation over a reload.
    pub kept: usize,
}

// === impl Store ===

impl Store {
    /// An empty store of a prefix, at revision zero of generation zero.
    #[must_use]
    pub fn new(prefix: Arc<str>) -> Self {
        Self::with_max_tombstones(prefix, MAX_TOMBSTONES)
    }

    /// An empty store that keeps at most `max_tombstones` deletions.
    #[must_use]
    pub fn with_max_tombstones(prefix: Arc<str>, max_tombstones: usize) -> Self {
        let lineage = Lineage { cluster_id: 0, prefix, generation: Generation(0) };
        Self { snapshot: Snapshot::empty(lineage), max_tombstones, loaded: false, ignored: [].into() }
    }

    /// A store that goes on from a saved snapshot.
    #[must_use]
    pub fn resume(snapshot: Snapshot) -> Self {
        Self { snapshot, max_tombstones: MAX_TOMBSTONES, loaded: true, ignored: [].into() }
    }

    /// The newest state.
    #[must_use]
    pub const fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Whether the store holds a complete state: it was loaded once, or opened whole from a file.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.loaded
    }

    /// How many keys of the last load were no content, by reason.
    #[must_use]
    pub const fn ignored(&self) -> &std::collections::BTreeMap<&'static str, u64> {
        &self.ignored
    }

    /// Installs a full read.
    ///
    /// A resource of equal hash keeps its allocation and its `changed_at`; a vanished key is a deletion; a key that
    /// lives again drops its tombstone. Across a proven rewind, or when the read was asked for with a higher one, the generation rises, and nothing that was known
    /// about changes and deletions is carried over, since its revisions are of another history.
    pub fn load(&mut self, load: &Load) -> Outcome {
        let before = self.snapshot.clone();
        let mut lineage = before.lineage().clone();
        lineage.cluster_id = load.cluster_id;
        if matches!(load.continuity, Continuity::Rewound { .. }) {
            lineage.generation = lineage.generation.next();
        }
        lineage.generation = lineage.generation.max(load.generation);
        let rewound = lineage.generation > before.lineage().generation;
        let mut outcome = Outcome { published: false, put: 0, deleted: 0, kept: 0 };
        self.ignored.clear();
        // What is there already stays where it is, so that a reload costs what differs beside looking at it all.
        let (mut next, vanished) = if rewound || !self.loaded {
            self.read_afresh(load, lineage.clone(), &mut outcome)
        } else {
            self.read_again(load, &mut outcome)
        };
        for key in &vanished {
            next.vanish(key);
            if !rewound && !mutant::planted("tombstone-not-kept-on-reload") {
                next.bury_absent(key, load.revision);
            }
        }
        outcome.deleted = vanished.len();
        if self.loaded && !rewound {
            let proven = load.continuity == Continuity::Proven;
            next.mark_gap(Gap { from: before.version().revision, at: load.revision, proven });
        }
        next.set_position(lineage, load.revision);
        next.trim_tombstones(self.max_tombstones);
        next.mark_line();
        outcome.published =
            !self.loaded || next.digest() != before.digest() || next.lineage() != before.lineage();
        self.snapshot = next;
        self.loaded = true;
        outcome
    }

    /// Everything as the start of a history; what is held already with an equal hash keeps its allocation. Gives the
    /// keys that are gone, too.
    fn read_afresh(&mut self, load: &Load, lineage: Lineage, outcome: &mut Outcome) -> (Snapshot, Vec<Key>) {
        let before = self.snapshot.clone();
        let mut next = Snapshot::starting_at(lineage, load.revision);
        for entry in &load.entries {
            let Some(key) = self.content_key(&entry.key) else { continue };
            let fresh = resource(key, entry);
            let same = before.held(fresh.key().as_str()).filter(|held| held.resource.hash() == fresh.hash());
            if let Some(held) = same {
                next.put(held.resource.clone(), load.revision);
                outcome.kept += 1;
            } else {
                next.put(Arc::new(fresh), changed_at(entry, load));
                outcome.put += 1;
            }
        }
        let gone = before.content().iter().map(|resource| resource.key());
        let gone = gone.filter(|key| next.held(key.as_str()).is_none()).cloned().collect();
        (next, gone)
    }

    /// What is held and what was read, side by side in key order: only what differs is touched. Gives the keys that are
    /// gone, too.
    fn read_again(&mut self, load: &Load, outcome: &mut Outcome) -> (Snapshot, Vec<Key>) {
        debug_assert!(load.entries.is_sorted_by(|a, b| a.key < b.key), "a read is in key order");
        let before = self.snapshot.clone();
        let (mut next, mut gone) = (before.clone(), Vec::new());
        let mut held = before.all_held().peekable();
        for entry in &load.entries {
            let of = |held: &Arc<Held>| held.resource.key().as_str().as_bytes().cmp(&entry.key);
            while let Some(passed) = held.next_if(|held| of(held).is_lt()) {
                gone.push(passed.resource.key().clone());
            }
            let there = held.next_if(|held| of(held).is_eq());
            if there.is_some_and(|held| is_unchanged(&held.resource, entry)) {
                outcome.kept += 1;
            } else if let Some(key) = self.content_key(&entry.key) {
                next.put(Arc::new(resource(key, entry)), changed_at(entry, load));
                outcome.put += 1;
            }
        }
        gone.extend(held.map(|held| held.resource.key().clone()));
        (next, gone)
    }

    /// Applies complete revisions.
    pub fn apply(&mut self, batch: &Batch) -> Outcome {
        let mut outcome = Outcome { published: false, put: 0, deleted: 0, kept: 0 };
        for event in &batch.events {
            let Some(key) = self.content_key(event.key()) else { continue };
            match event {
                KeyEvent::Put(entry) => {
                    self.snapshot.put(Arc::new(resource(key, entry)), entry.mod_revision);
                    outcome.put += 1;
                }
                KeyEvent::Delete { revision, .. } => {
                    if self.snapshot.bury(&key, *revision) {
                        outcome.deleted += 1;
                    }
                }
            }
        }
        outcome.published = outcome.put + outcome.deleted > 0;
        self.snapshot.advance(batch.revision);
        self.snapshot.mark_line_from(batch.first);
        self.snapshot.trim_tombstones(self.max_tombstones);
        outcome
    }

    /// Everything up to `revision` has been delivered.
    pub fn progress(&mut self, revision: Revision) {
        self.snapshot.advance(revision);
    }

    /// What was opened from a file has been proven to be of this cluster's history.
    pub fn resumed(&mut self, cluster_id: u64) {
        let mut lineage = self.snapshot.lineage().clone();
        lineage.cluster_id = cluster_id;
        let revision = self.snapshot.version().revision;
        self.snapshot.set_position(lineage, revision);
    }

    /// Takes a higher generation whose version carries this store's very digest. `false` when it is not higher.
    pub fn adopt(&mut self, generation: Generation) -> bool {
        if generation <= self.snapshot.lineage().generation {
            return false;
        }
        let mut lineage = self.snapshot.lineage().clone();
        lineage.generation = generation;
        let revision = self.snapshot.version().revision;
        self.snapshot.start_history(lineage, revision);
        true
    }

    fn content_key(&mut self, relative: &Bytes) -> Option<Key> {
        content_key(relative).map_err(|why| *self.ignored.entry(Ignored::label(why)).or_default() += 1).ok()
    }
}

fn content_key(relative: &Bytes) -> Result<Key, Ignored> {
    match classify(relative) {
        Shape::Content(key) => Ok(key),
        Shape::Ignored(why) => Err(why),
    }
}

/// Whether a read brings the very resource that is held.
fn is_unchanged(held: &Resource, entry: &Entry) -> bool {
    held.mod_revision() == entry.mod_revision
        && held.create_revision() == entry.create_revision
        && held.value() == &entry.value
}

/// The revision since which a resource that a read brings is what it is.
fn changed_at(entry: &Entry, load: &Load) -> Revision {
    if mutant::planted("changed-at-is-mod-revision") {
        entry.mod_revision
    } else {
        load.revision.max(entry.mod_revision)
    }
}

fn resource(key: Key, entry: &Entry) -> Resource {
    Resource::new(key, entry.value.clone(), entry.create_revision, entry.mod_revision)
}

/// The version of a content at a place in a lineage.
#[must_use]
pub fn version_of(content: &Content, lineage: Lineage, revision: Revision) -> Version {
    Version { lineage, revision, digest: content.digest() }
}

#[cfg(test)]
mod tests;
