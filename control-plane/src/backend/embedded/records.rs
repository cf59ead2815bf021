//! What the embedded store's file says, and the store that it says it of.
//!
//! A group is one of: an opening; one revision; or, after a rewrite, an opening, a base with its entries, and the
//! revisions since. Invariant: a group that cannot be understood changes nothing.

use bytes::Bytes;
use headwater_model::Revision;
use prost::Message;

use super::mvcc::{Event, EventKind, Identity, KeyValue, Limits, Mvcc, State};

/// One record.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Record {
    #[prost(oneof = "Kind", tags = "1, 2, 3, 4")]
    kind: Option<Kind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Kind {
    #[prost(message, tag = "1")]
    Opened(Opened),
    /// A base at this revision follows.
    #[prost(uint64, tag = "2")]
    Base(u64),
    #[prost(message, tag = "3")]
    Entry(Entry),
    #[prost(message, tag = "4")]
    Revision(Changes),
}

#[derive(Clone, PartialEq, Message)]
struct Opened {
    /// Drawn once, when the file was made.
    #[prost(uint64, tag = "1")]
    cluster_id: u64,
    /// How often the file was opened for writing, this time included.
    #[prost(uint64, tag = "2")]
    opens: u64,
}

#[derive(Clone, PartialEq, Message)]
struct Entry {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
    #[prost(uint64, tag = "3")]
    create_revision: u64,
    #[prost(uint64, tag = "4")]
    mod_revision: u64,
    #[prost(uint64, tag = "5")]
    version: u64,
}

#[derive(Clone, PartialEq, Message)]
struct Changes {
    #[prost(uint64, tag = "1")]
    revision: u64,
    #[prost(message, repeated, tag = "2")]
    changes: Vec<Change>,
}

#[derive(Clone, PartialEq, Message)]
struct Change {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    /// Absent for a deletion.
    #[prost(bytes = "bytes", optional, tag = "2")]
    value: Option<Bytes>,
}

/// What has been read of a file so far.
#[derive(Clone, Debug)]
pub(super) struct Loader {
    limits: Limits,
    opened: Option<(u64, u64)>,
    store: Option<Mvcc>,
    /// A base whose entries are being read.
    base: Option<State>,
}

/// Why a group cannot be taken, in words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Misread(String);

// === impl Record ===

impl Record {
    /// The file is opened for the `opens`th time.
    pub(super) const fn opened(cluster_id: u64, opens: u64) -> Self {
        Self { kind: Some(Kind::Opened(Opened { cluster_id, opens })) }
    }

    /// What one revision did.
    pub(super) fn revision(revision: Revision, events: &[Event]) -> Self {
        let change = |event: &Event| Change {
            key: event.kv.key.clone(),
            value: (event.kind == EventKind::Put).then(|| event.kv.value.clone()),
        };
        Self {
            kind: Some(Kind::Revision(Changes {
                revision: revision.0,
                changes: events.iter().map(change).collect(),
            })),
        }
    }

    /// A whole store: its content at `base` and what every revision since did.
    ///
    /// `base` must be a revision that the store can be read at.
    pub(super) fn whole(store: &Mvcc, base: Revision) -> impl Iterator<Item = Self> {
        let entries = store.state_at(base).map(|state| state.entries).unwrap_or_default();
        let entries = entries.into_iter().map(|kv| Self { kind: Some(Kind::Entry(Entry::of(kv))) });
        let since = store.events_from(base.next()).map(|(revision, events)| Self::revision(revision, events));
        std::iter::once(Self { kind: Some(Kind::Base(base.0)) }).chain(entries).chain(since)
    }
}

impl Entry {
    fn of(kv: KeyValue) -> Self {
        Self {
            key: kv.key,
            value: kv.value,
            create_revision: kv.create_revision.0,
            mod_revision: kv.mod_revision.0,
            version: kv.version,
        }
    }

    fn into_key_value(self) -> KeyValue {
        KeyValue {
            key: self.key,
            value: self.value,
            create_revision: Revision(self.create_revision),
            mod_revision: Revision(self.mod_revision),
            version: self.version,
        }
    }
}

// === impl Loader ===

impl Loader {
    pub(super) const fn new(limits: Limits) -> Self {
        Self { limits, opened: None, store: None, base: None }
    }

    /// Takes one group, whole or not at all.
    pub(super) fn take(&mut self, group: &[Vec<u8>]) -> Result<(), Misread> {
        let kinds = group.iter().map(|record| decode(record)).collect::<Result<Vec<_>, _>>()?;
        self.check(&kinds)?;
        kinds.into_iter().for_each(|kind| self.record(kind));
        self.finish_base();
        Ok(())
    }

    /// Whether every record stands where it makes sense.
    fn check(&self, kinds: &[Kind]) -> Result<(), Misread> {
        let mut opened = self.opened.is_some();
        let mut head = self.store.as_ref().map_or(1, |store| store.revision().0);
        let mut base = false;
        for kind in kinds {
            match kind {
                Kind::Opened(_) => opened = true,
                _ if !opened => return Err(Misread("a record comes before an opening".to_owned())),
                Kind::Base(revision) => (base, head) = (true, *revision),
                Kind::Entry(_) if base => {}
                Kind::Entry(_) => return Err(Misread("an entry comes without a base".to_owned())),
                Kind::Revision(changes) if changes.revision > head && !changes.changes.is_empty() => {
                    (base, head) = (false, changes.revision);
                }
                Kind::Revision(changes) => {
                    let revision = changes.revision;
                    return Err(Misread(format!("revision {revision} does not follow revision {head}")));
                }
            }
        }
        Ok(())
    }

    /// Whether nothing was taken so far.
    pub(super) const fn is_empty(&self) -> bool {
        self.opened.is_none()
    }

    /// The cluster id and how often the file was opened, if it ever was.
    pub(super) const fn opened(&self) -> Option<(u64, u64)> {
        self.opened
    }

    /// The store, if the file holds one.
    pub(super) fn into_store(self) -> Option<Mvcc> {
        self.store
    }

    fn record(&mut self, kind: Kind) {
        match kind {
            Kind::Opened(Opened { cluster_id, opens }) => {
                self.opened = Some((cluster_id, opens));
                self.store.get_or_insert_with(|| Mvcc::new(identity(cluster_id), self.limits));
            }
            Kind::Base(revision) => {
                self.base = Some(State { revision: Revision(revision), entries: Vec::new() });
            }
            Kind::Entry(entry) => {
                if let Some(base) = &mut self.base {
                    base.entries.push(entry.into_key_value());
                }
            }
            Kind::Revision(Changes { revision, changes }) => {
                self.finish_base();
                let events: Vec<Event> =
                    changes.into_iter().map(|change| change.into_event(revision)).collect();
                if let Some(store) = &mut self.store {
                    store.replay(Revision(revision), &events);
                }
            }
        }
    }

    fn finish_base(&mut self) {
        if let (Some(state), Some((cluster_id, _))) = (self.base.take(), self.opened) {
            self.store = Some(Mvcc::from_state(identity(cluster_id), self.limits, state));
        }
    }
}

impl Change {
    fn into_event(self, revision: u64) -> Event {
        let kind = if self.value.is_some() { EventKind::Put } else { EventKind::Delete };
        let value = self.value.unwrap_or_default();
        Event {
            kind,
            kv: KeyValue { key: self.key, value, mod_revision: Revision(revision), ..KeyValue::default() },
        }
    }
}

fn decode(record: &[u8]) -> Result<Kind, Misread> {
    let record =
        Record::decode(record).map_err(|error| Misread(format!("a record cannot be read: {error}")))?;
    record.kind.ok_or_else(|| Misread("a record is of an unknown kind".to_owned()))
}

/// There is one member and no election.
pub(super) const fn identity(cluster_id: u64) -> Identity {
    Identity { cluster_id, member_id: cluster_id, raft_term: 1 }
}
