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

use std::collections::HashSet;
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
        // What is there already stays where it is, so that a reload costs what differs beside looking at it all.
        let afresh = rewound || !self.loaded;
        let mut next =
            if afresh { Snapshot::starting_at(lineage.clone(), load.revision) } else { before.clone() };
        let mut outcome = Outcome { published: false, put: 0, deleted: 0, kept: 0 };
        let mut survived = 0;
        self.ignored.clear();
        for entry in &load.entries {
            let Some(key) = self.content_key(&entry.key) else { continue };
            let fresh = resource(key, entry);
            let held = before.held(fresh.key().as_str());
            survived += usize::from(held.is_some());
            match held.filter(|held| held.resource.hash() == fresh.hash()) {
                Some(held) => {
                    if afresh {
                        next.put(held.resource.clone(), load.revision);
                    } else {
                        next.forget_tombstone(fresh.key());
                    }
                    outcome.kept += 1;
                }
                None => {
                    let changed_at = if mutant::planted("changed-at-is-mod-revision") {
                        fresh.mod_revision()
                    } else {
                        load.revision.max(fresh.mod_revision())
                    };
                    next.put(Arc::new(fresh), changed_at);
                    outcome.put += 1;
                }
            }
        }
        let vanished = if afresh {
            vanished(&before, |key| next.held(key.as_str()).is_some())
        } else if survived == before.content().len() {
            Vec::new()
        } else {
            let keys = load.entries.iter().filter_map(|entry| content_key(&entry.key).ok());
            let loaded: HashSet<Key> = keys.collect();
            vanished(&before, |key| loaded.contains(key))
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
        self.snapshot.mark_line();
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

/// The keys that were there before and are not there any more.
fn vanished(before: &Snapshot, is_there: impl Fn(&Key) -> bool) -> Vec<Key> {
    let keys = before.content().iter().map(|resource| resource.key());
    keys.filter(|key| !is_there(key)).cloned().collect()
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
