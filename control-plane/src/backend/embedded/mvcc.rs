//! etcd's store as a model: revisions, transactions, ranges, compaction and watches. Pure.
//!
//! It is the core of the embedded store, the model behind the fake etcd and the etcd of the simulation. What it
//! answers is what a correct etcd (3.6.2 and later) answers, down to the headers that certify nothing; faults are
//! added by the caller around it: it may drop, delay or swallow what [`Mvcc::poll`] gives, close streams, or go
//! back to a snapshot.
//!
//! Not modelled: leases, nested transactions, sort orders, previous values and filters of watches, authentication,
//! and the bound of 512 watchers a pass.
//!
//! The invariant: a revision, once given, says the same for ever. A read at a revision that is kept, the events of
//! a watch that passes it and a later snapshot all agree on what the store was at that revision.

mod history;
mod interval;
mod range;
mod snapshot;
#[cfg(test)]
mod tests;
mod transaction;
mod watch;
mod wire;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use headwater_model::Revision;
use imbl::OrdMap;

use self::history::History;
pub use self::interval::Interval;
pub use self::range::{RangeRequest, RangeResponse};
pub use self::snapshot::{Restore, Snapshot, State};
pub use self::transaction::{Comparison, Op, OpAnswer, Relation, Target, Txn, TxnResponse};
use self::watch::Stream;
pub use self::watch::{CreateWatch, First, StreamId, WatchRequest, WatchResponse};

/// The store.
#[derive(Clone, Debug)]
pub struct Mvcc {
    identity: Identity,
    limits: Limits,
    revision: Revision,
    /// Zero when nothing was ever compacted.
    compacted: Revision,
    keys: OrdMap<Bytes, Arc<History>>,
    /// What each kept revision did, in the order of the transaction's operations.
    log: OrdMap<Revision, Arc<[Event]>>,
    streams: BTreeMap<StreamId, Stream>,
    next_stream: u64,
}

/// Who answers: what every header carries beside the revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster.
    pub cluster_id: u64,
    /// The member.
    pub member_id: u64,
    /// The raft term.
    pub raft_term: u64,
}

/// Bounds, as etcd has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Operations (and comparisons) of a transaction: `--max-txn-ops`.
    pub txn_operations: usize,
    /// Bytes of a request: `--max-request-bytes`.
    pub request_bytes: usize,
    /// A watch response of so many bytes or more is split where the watcher asked for it.
    pub fragment_bytes: usize,
    /// How many distinct revisions one pass gives a watcher that catches up.
    pub revisions_per_pass: usize,
    /// How many responses wait in a stream before its watchers fall behind.
    pub stream_responses: usize,
}

/// The header of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The cluster.
    pub cluster_id: u64,
    /// The member.
    pub member_id: u64,
    /// What it says depends on the answer; of a watch that was cancelled by compaction it is zero.
    pub revision: Revision,
    /// The raft term.
    pub raft_term: u64,
}

/// A key as a revision holds it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyValue {
    /// The key.
    pub key: Bytes,
    /// Its value; empty for a deletion and where only keys were asked for.
    pub value: Bytes,
    /// The revision at which it last came into being; zero for a deletion.
    pub create_revision: Revision,
    /// The revision of its last write, or of its deletion.
    pub mod_revision: Revision,
    /// How often it was written since it came into being; zero for a deletion.
    pub version: u64,
}

/// What one revision did to one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Written or deleted.
    pub kind: EventKind,
    /// The key after it.
    pub kv: KeyValue,
}

/// Written or deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The key was written.
    Put,
    /// The key was deleted.
    Delete,
}

/// Why a request was refused; the texts are etcd's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MvccError {
    /// Below the compacted revision.
    #[error("etcdserver: mvcc: required revision has been compacted")]
    Compacted {
        /// What was asked for.
        requested: Revision,
        /// The oldest that may be asked for.
        compacted: Revision,
    },
    /// Above the current revision.
    #[error("etcdserver: mvcc: required revision is a future revision")]
    Future {
        /// What was asked for.
        requested: Revision,
        /// The current one.
        current: Revision,
    },
    /// Above the number of operations.
    #[error("etcdserver: too many operations in txn request")]
    TooManyOperations {
        /// The largest of comparisons, operations on success and operations on failure.
        operations: usize,
        /// The limit.
        limit: usize,
    },
    /// Above the size of a request.
    #[error("etcdserver: request is too large")]
    TooLarge {
        /// The size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// A key was written twice, or written and deleted.
    #[error("etcdserver: duplicate key given in txn request")]
    DuplicateKey {
        /// The key.
        key: Bytes,
    },
    /// A key was empty.
    #[error("etcdserver: key is not provided")]
    EmptyKey,
}

// === impl Mvcc ===

impl Mvcc {
    /// An empty store. Its revision is 1, as etcd's is before the first write.
    #[must_use]
    pub fn new(identity: Identity, limits: Limits) -> Self {
        Self {
            identity,
            limits,
            revision: Revision(1),
            compacted: Revision::ZERO,
            keys: OrdMap::new(),
            log: OrdMap::new(),
            streams: BTreeMap::new(),
            next_stream: 0,
        }
    }

    /// The current revision.
    #[must_use]
    pub const fn revision(&self) -> Revision {
        self.revision
    }

    /// The oldest revision that may be read or watched from; zero when nothing was compacted.
    #[must_use]
    pub const fn compacted(&self) -> Revision {
        self.compacted
    }

    /// The header of an answer given now.
    #[must_use]
    pub const fn header(&self) -> Header {
        self.header_at(self.revision)
    }

    /// Who answers.
    #[must_use]
    pub const fn identity(&self) -> Identity {
        self.identity
    }

    /// Another leader was elected: headers carry a higher term from now on.
    pub const fn raise_term(&mut self) {
        self.identity.raft_term += 1;
    }

    /// What the revisions from `first` on did, oldest first.
    pub fn events_from(&self, first: Revision) -> impl Iterator<Item = (Revision, &[Event])> {
        self.log.range(first..).map(|(revision, events)| (*revision, events.as_ref()))
    }

    /// Drops what only reads below `revision` can see. Watchers in sync do not notice.
    ///
    /// # Errors
    /// [`MvccError::Compacted`] at or below what was compacted before, [`MvccError::Future`] above the current
    /// revision.
    pub fn compact(&mut self, revision: Revision) -> Result<(), MvccError> {
        if revision <= self.compacted {
            return Err(MvccError::Compacted { requested: revision, compacted: self.compacted });
        }
        if revision > self.revision {
            return Err(MvccError::Future { requested: revision, current: self.revision });
        }
        self.drop_below(revision);
        Ok(())
    }

    fn drop_below(&mut self, revision: Revision) {
        self.compacted = revision;
        let (below, at, mut kept) = self.log.split_lookup(&revision);
        for event in below.values().chain(&at).flat_map(|events| events.iter()) {
            let key = &event.kv.key;
            let Some(history) = self.keys.get_mut(key) else { continue };
            if !Arc::make_mut(history).compact(revision) {
                self.keys.remove(key);
            }
        }
        if let Some(events) = at {
            kept.insert(revision, events);
        }
        self.log = kept;
    }

    const fn header_at(&self, revision: Revision) -> Header {
        let Identity { cluster_id, member_id, raft_term } = self.identity;
        Header { cluster_id, member_id, revision, raft_term }
    }
}

// === impl Limits ===

impl Limits {
    /// etcd's defaults.
    pub const ETCD: Self = Self {
        txn_operations: 128,
        request_bytes: 1536 << 10,
        fragment_bytes: (1536 + 512) << 10,
        revisions_per_pass: 1000,
        stream_responses: 128,
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self::ETCD
    }
}

// === impl Event ===

impl Event {
    fn deletion(key: Bytes, revision: Revision) -> Self {
        Self { kind: EventKind::Delete, kv: KeyValue { key, mod_revision: revision, ..KeyValue::default() } }
    }
}
