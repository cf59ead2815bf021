//! Going back: snapshots and what a restore makes of them; and a store from a state that was kept in a file.

use std::sync::Arc;

use bytes::Bytes;
use headwater_model::Revision;
use imbl::OrdMap;

use super::history::{History, Record};
use super::{Event, EventKind, Identity, KeyValue, Limits, Mvcc};

/// A store at a moment, with the history it kept. Cheap to take and to keep.
#[derive(Clone, Debug)]
pub struct Snapshot {
    identity: Identity,
    revision: Revision,
    compacted: Revision,
    keys: OrdMap<Bytes, Arc<History>>,
    log: OrdMap<Revision, Arc<[Event]>>,
}

/// How a snapshot is put back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restore {
    /// Other ids than the snapshot's: a restore under another cluster token or other peer addresses.
    pub identity: Option<Identity>,
    /// `--bump-revision` with `--mark-compacted`: the revision rises by this much, and everything below it counts
    /// as compacted, so that every client has to read again.
    pub bump: Option<u64>,
}

/// The content of a store at one revision, without its history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The revision; everything before it is compacted.
    pub revision: Revision,
    /// In key order.
    pub entries: Vec<KeyValue>,
}

// === impl Snapshot ===

impl Snapshot {
    /// The revision it was taken at.
    #[must_use]
    pub const fn revision(&self) -> Revision {
        self.revision
    }

    /// The ids it was taken under.
    #[must_use]
    pub const fn identity(&self) -> Identity {
        self.identity
    }
}

// === impl Mvcc ===

impl Mvcc {
    /// The store as it is, without its streams.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            identity: self.identity,
            revision: self.revision,
            compacted: self.compacted,
            keys: self.keys.clone(),
            log: self.log.clone(),
        }
    }

    /// Becomes what the snapshot was. Every stream is closed.
    pub fn restore(&mut self, snapshot: &Snapshot, how: Restore) {
        let Snapshot { identity, revision, compacted, keys, log } = snapshot.clone();
        self.identity = how.identity.unwrap_or(identity);
        (self.revision, self.compacted) = (revision, compacted);
        (self.keys, self.log) = (keys, log);
        self.streams.clear();
        if let Some(bump) = how.bump {
            self.revision = Revision(revision.0 + bump);
            if self.revision > self.compacted {
                self.drop_below(self.revision);
            }
        }
    }

    /// The content at a revision.
    ///
    /// # Errors
    /// As a [range](Mvcc::range) at it.
    pub fn state_at(&self, revision: Revision) -> Result<State, super::MvccError> {
        let everything = super::Interval::from_request(Bytes::from_static(&[0]), Bytes::from_static(&[0]));
        let entries = self.range(&super::RangeRequest::of(everything).at(revision))?.entries;
        Ok(State { revision, entries })
    }

    /// A store that begins with a state.
    #[must_use]
    pub fn from_state(identity: Identity, limits: Limits, state: State) -> Self {
        let mut store = Self::new(identity, limits);
        store.revision = state.revision;
        store.compacted = state.revision;
        for entry in state.entries {
            let KeyValue { key, value, create_revision, mod_revision, version } = entry;
            let record = Record { create_revision, mod_revision, version, value: Some(value) };
            store.keys.insert(key, Arc::new(History::of(record)));
        }
        store
    }

    /// Carries out a revision again, as it was recorded. False, and nothing is done, when it does not follow the
    /// current one.
    pub fn replay(&mut self, revision: Revision, events: &[Event]) -> bool {
        if revision <= self.revision || events.is_empty() {
            return false;
        }
        let mut replayed = Vec::with_capacity(events.len());
        for event in events {
            let key = &event.kv.key;
            let history = Arc::make_mut(self.keys.entry(key.clone()).or_default());
            match event.kind {
                EventKind::Put => {
                    let written = history.put(revision, event.kv.value.clone()).live(key);
                    replayed.extend(written.map(|kv| Event { kind: EventKind::Put, kv }));
                }
                EventKind::Delete => {
                    history.delete(revision);
                    replayed.push(Event::deletion(key.clone(), revision));
                }
            }
        }
        self.finish(revision, replayed);
        true
    }
}
