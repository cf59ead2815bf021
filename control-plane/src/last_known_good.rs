//! The replica's last known good of one environment: the file from which it starts, and which is the degraded start
//! when the source is away.
//!
//! It must never know where a state came from. It holds what the store, the hold and the registry need to go on as if
//! the process had not ended, and every key below the prefix, content or not, which the content proof is over.
//! Everything blocks; callers use a thread of their own.
//!
//! The file is kept in step by groups: [`LastKnownGood::append`] for complete revisions, [`LastKnownGood::save_full`]
//! after a full read or whenever the caller is in doubt. Both change a copy in memory (structure shared) and write what
//! differs from the file, so a group that a full disk refused is made up for by the next one. Invariant: each group in
//! the file leads to a content whose digest is its version's; the first one that does not is cut off at opening with
//! all that follows.

mod record;
mod rows;
mod state;

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use headwater_durable::{Fault, Format, Kept, Keys};
use headwater_model::{Content, Digest, Generation, Key, Lineage, Resource, Revision, Version};
use imbl::OrdMap;

use crate::fleet::registry::RowId;
use crate::store::Gap;
use state::State;

/// Rises when the meaning of records changes; a file of another format is set aside.
const FORMAT: u32 = 1;

/// Everything that a replica keeps of an environment. Cloning is cheap and shares structure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// The newest state of the source.
    pub world: World,
    /// The keys below the prefix that are not content, relative to it.
    pub others: OrdMap<Bytes, Marks>,
    /// The hold that stands.
    pub hold: Option<SavedHold>,
    /// The fleet's rows.
    pub roster: OrdMap<RowId, RosterRow>,
}

/// A state of the source, as the store sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct World {
    /// Lineage (cluster id and generation too), safe revision and digest.
    pub version: Version,
    /// All resources.
    pub content: Content,
    /// Of each resource, the larger of its mod revision and the revision of the reload that brought its present hash.
    pub changed_at: OrdMap<Key, Revision>,
    /// Deleted keys and the revisions of their deletions.
    pub tombstones: OrdMap<Key, Revision>,
    /// Every deletion after this revision is among the tombstones.
    pub deletions_known_since: Revision,
    /// The reloads that are remembered, oldest first.
    pub gaps: Vec<Gap>,
}

/// What the content proof needs of a key that is not content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marks {
    /// The revision at which it last came into being.
    pub create_revision: Revision,
    /// The revision of its last write.
    pub mod_revision: Revision,
    /// Its value, where the replica itself needs it: of an approval. Else empty.
    pub value: Bytes,
}

/// A jump that the mass-deletion guard stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedHold {
    /// What is served: the state from before the jump.
    pub frozen: World,
    /// Since when (Unix seconds).
    pub since_unix: u64,
    /// Whether an operator silenced it.
    pub rejected: bool,
}

/// A process of a node, as far as it is known after a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RosterRow {
    /// When a frame of it was last heard (Unix seconds).
    pub last_seen_unix: u64,
    /// The version it served then.
    pub applied: Option<Version>,
    /// Whether it said that it ends.
    pub left: bool,
    /// Whether an operator said to expect it no longer.
    pub forgotten: bool,
}

/// What changed since the last group, with complete revisions only. Deletions are applied before puts.
#[derive(Clone, Debug)]
pub struct Group {
    /// The version that it leads to: safe revision and digest.
    pub version: Version,
    /// As in [`World`], at that version.
    pub deletions_known_since: Revision,
    /// As in [`World`], at that version.
    pub gaps: Vec<Gap>,
    /// Deleted keys with the revisions of their deletions. A key that was never held becomes a tombstone all the same.
    pub deletes: Vec<(Key, Revision)>,
    /// New and replaced resources with their `changed_at`. A tombstone of the key is dropped.
    pub puts: Vec<(Arc<Resource>, Revision)>,
    /// Keys that are not content: written, or gone.
    pub others: Vec<(Bytes, Option<Marks>)>,
    /// What became of the hold.
    pub hold: HoldChange,
    /// Rows of the fleet: new or changed, or gone.
    pub roster: Vec<(RowId, Option<RosterRow>)>,
}

/// What a group does to the hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HoldChange {
    /// It is as before.
    #[default]
    None,
    /// It stands like this from now on.
    Stands(Box<SavedHold>),
    /// It has ended.
    Ended,
}

/// What was in the file.
#[derive(Debug)]
pub struct Opened {
    /// The state, proven by its digests; nothing when the file held none.
    pub saved: Option<Saved>,
    /// What was wrong with the file and what was done about it, a sentence each.
    pub faults: Vec<String>,
    /// Whether this process writes the file. If not, see [`LastKnownGood::take_over`].
    pub writer: bool,
}

/// Why something could not be kept. The file is as before.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file could not be read, written or synced. The change is remembered: the next append or save writes it.
    #[error("last known good: {0}")]
    File(#[from] headwater_durable::Error),
    /// A group does not lead to the version it names, or a content is not its version's. Nothing is remembered of it:
    /// save the whole state.
    #[error("last known good: the content's digest {content} is not that of version {version:?}")]
    Digest {
        /// The version that was named.
        version: Version,
        /// The digest of the content found.
        content: Digest,
    },
    /// The lineage is of another prefix than the file.
    #[error("last known good: a state of prefix {given:?} cannot go into the file of {own:?}")]
    Prefix {
        /// The state's.
        given: Arc<str>,
        /// The file's.
        own: Arc<str>,
    },
}

/// The open file.
#[derive(Debug)]
pub struct LastKnownGood {
    kept: Kept<State>,
    /// What is to be in the file: at least what is in it.
    wanted: State,
    /// Tombstones that are known no longer are dropped when there are more than this.
    prune_above: usize,
}

// === impl World ===

impl World {
    /// Nothing, at revision zero of generation zero.
    #[must_use]
    pub fn empty(prefix: Arc<str>) -> Self {
        let lineage = Lineage { cluster_id: 0, prefix, generation: Generation(0) };
        Self {
            version: Version { lineage, revision: Revision::ZERO, digest: Digest::EMPTY },
            content: Content::new(),
            changed_at: OrdMap::new(),
            tombstones: OrdMap::new(),
            deletions_known_since: Revision::ZERO,
            gaps: Vec::new(),
        }
    }

    fn check(&self, prefix: &Arc<str>) -> Result<(), Error> {
        if self.version.lineage.prefix != *prefix {
            return Err(Error::Prefix { given: self.version.lineage.prefix.clone(), own: prefix.clone() });
        }
        if self.content.digest() != self.version.digest {
            return Err(Error::Digest { version: self.version.clone(), content: self.content.digest() });
        }
        Ok(())
    }

    fn apply(&mut self, group: &Group) {
        for (key, revision) in &group.deletes {
            self.content.delete(key.as_str());
            self.changed_at.remove(key);
            self.tombstones.insert(key.clone(), *revision);
        }
        for (resource, changed_at) in &group.puts {
            self.tombstones.remove(resource.key());
            self.changed_at.insert(resource.key().clone(), *changed_at);
            self.content.put(resource.clone());
        }
        self.version = group.version.clone();
        self.deletions_known_since = group.deletions_known_since;
        self.gaps.clone_from(&group.gaps);
    }

    fn prune(&mut self) {
        let since = self.deletions_known_since;
        let gone = |(key, revision): (&Key, &Revision)| (*revision <= since).then(|| key.clone());
        let gone: Vec<Key> = self.tombstones.iter().filter_map(gone).collect();
        for key in gone {
            self.tombstones.remove(&key);
        }
    }
}

// === impl Saved ===

impl Saved {
    /// Nothing of a prefix.
    #[must_use]
    pub fn empty(prefix: Arc<str>) -> Self {
        Self { world: World::empty(prefix), others: OrdMap::new(), hold: None, roster: OrdMap::new() }
    }

    pub(crate) fn apply(&mut self, group: &Group) {
        self.world.apply(group);
        for (key, marks) in &group.others {
            match marks {
                Some(marks) => drop(self.others.insert(key.clone(), marks.clone())),
                None => drop(self.others.remove(key)),
            }
        }
        for (id, row) in &group.roster {
            match row {
                Some(row) => drop(self.roster.insert(id.clone(), row.clone())),
                None => drop(self.roster.remove(id)),
            }
        }
        match &group.hold {
            HoldChange::None => {}
            HoldChange::Stands(hold) => self.hold = Some(SavedHold::clone(hold)),
            HoldChange::Ended => self.hold = None,
        }
    }
}

// === impl Error ===

impl Error {
    /// Whether the disk is full.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self, Self::File(error) if error.is_full())
    }
}

// === impl LastKnownGood ===

impl LastKnownGood {
    /// Opens the file of an environment's prefix; it need not exist, and whatever its bytes are, what is whole in it is
    /// found. With keys it is encrypted, and brought under the first of them at once.
    ///
    /// # Errors
    /// When the device fails to read. Anything else is among [`Opened::faults`].
    pub fn open(path: &Path, prefix: &str, keys: &Keys) -> Result<(Self, Opened), Error> {
        let format = Format::new("replica-lkg", FORMAT);
        let (kept, faults) = Kept::open(path, format, keys, State::empty(prefix.into()))?;
        let wanted: State = kept.written().clone();
        let saved = wanted.present.then(|| wanted.saved.clone());
        let opened = Opened { saved, faults: sentences(&faults), writer: kept.is_writer() };
        Ok((Self { kept, wanted, prune_above: 0 }, opened))
    }

    /// Adds a group. It survives a power cut after the next [`LastKnownGood::sync`].
    ///
    /// # Errors
    /// When the group does not lead to its version, this process is not the file's writer, or it cannot be written.
    pub fn append(&mut self, group: &Group) -> Result<(), Error> {
        let mut saved = self.wanted.saved.clone();
        saved.apply(group);
        self.save(saved)
    }

    /// Brings the file to a state, whatever it holds now, at the cost of the difference.
    ///
    /// # Errors
    /// When a content is not its version's, this process is not the file's writer, or it cannot be written.
    pub fn save_full(&mut self, saved: &Saved) -> Result<(), Error> {
        self.save(saved.clone())
    }

    fn save(&mut self, mut saved: Saved) -> Result<(), Error> {
        let prefix = self.wanted.prefix();
        saved.world.check(prefix)?;
        if let Some(hold) = &saved.hold {
            hold.frozen.check(prefix)?;
        }
        if saved.world.tombstones.len() > self.prune_above {
            saved.world.prune();
            self.prune_above = 2 * saved.world.tombstones.len() + 1024;
        }
        self.wanted = State { saved, present: true };
        Ok(self.kept.save(&self.wanted)?)
    }

    /// Brings what was saved to the disk (`fdatasync`).
    ///
    /// # Errors
    /// When the operating system refuses. What was saved since the last success is in doubt until the next save and
    /// sync.
    pub fn sync(&mut self) -> Result<(), Error> {
        Ok(self.kept.sync()?)
    }

    /// The state that was asked for last, whether or not it could be written.
    #[must_use]
    pub const fn saved(&self) -> &Saved {
        &self.wanted.saved
    }

    /// The version in the file; revision zero when it holds none.
    #[must_use]
    pub const fn version(&self) -> &Version {
        &self.kept.written().saved.world.version
    }

    /// Whether this process writes the file.
    #[must_use]
    pub const fn is_writer(&self) -> bool {
        self.kept.is_writer()
    }

    /// The file's size in bytes; nothing while another process writes it.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        self.kept.bytes()
    }

    /// Becomes the writer when the process that was has ended, and gives the file's faults; `None` when nothing
    /// changed. The file then holds that process's state: save the whole own one.
    ///
    /// # Errors
    /// When the lock or the file cannot be read.
    pub fn take_over(&mut self) -> Result<Option<Vec<String>>, Error> {
        let faults = self.kept.take_over()?;
        Ok(faults.as_deref().map(sentences))
    }
}

fn sentences(faults: &[Fault]) -> Vec<String> {
    faults.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests;
