//! One atomic request: conditions, then one of two lists of operations, at one revision.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use headwater_model::Revision;

use super::{
    Event, EventKind, Header, Interval, KeyValue, Mvcc, MvccError, RangeRequest, RangeResponse, wire,
};

/// A transaction. Transactions inside transactions and leases are not modelled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Txn {
    /// All must hold for `success` to be done.
    pub compares: Vec<Comparison>,
    /// Done when all comparisons hold.
    pub success: Vec<Op>,
    /// Done otherwise.
    pub failure: Vec<Op>,
}

/// A condition: every key of the interval satisfies it. An interval without keys is judged as one key of which all
/// numbers are zero, and never satisfies a comparison of values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// Which keys.
    pub interval: Interval,
    /// What of them is compared, with what.
    pub target: Target,
    /// How it must compare.
    pub relation: Relation,
}

/// What is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// How often the key was written since it came into being.
    Version(u64),
    /// The revision at which it came into being.
    Create(Revision),
    /// The revision of its last write.
    Mod(Revision),
    /// Its value.
    Value(Bytes),
}

/// How the key's side must compare to the request's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// The same.
    Equal,
    /// Not the same.
    NotEqual,
    /// The key's is greater.
    Greater,
    /// The key's is less.
    Less,
}

/// An operation of a transaction; each sees what those before it did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Writes a key.
    Put {
        /// The key.
        key: Bytes,
        /// Its value.
        value: Bytes,
    },
    /// Deletes every key of an interval.
    DeleteRange(Interval),
    /// Reads.
    Range(RangeRequest),
}

/// The answer of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxnResponse {
    /// The revision after it: its own when it changed something, the unchanged current one when not.
    pub header: Header,
    /// Whether the comparisons held.
    pub succeeded: bool,
    /// One for each operation done.
    pub answers: Vec<OpAnswer>,
}

/// The answer of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpAnswer {
    /// Written; the key as it was before, if it was there.
    Put {
        /// Before the write.
        previous: Option<KeyValue>,
    },
    /// The keys as they were before they were deleted.
    Deleted {
        /// Before the deletion, in key order.
        previous: Vec<KeyValue>,
    },
    /// What was read.
    Range(RangeResponse),
}

// === impl Txn ===

impl Txn {
    /// One write without a condition.
    #[must_use]
    pub fn put(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        Self::all([Op::Put { key: key.into(), value: value.into() }])
    }

    /// One deletion without a condition.
    #[must_use]
    pub fn delete(key: impl Into<Bytes>) -> Self {
        Self::all([Op::DeleteRange(Interval::single(key.into()))])
    }

    /// Operations without a condition.
    #[must_use]
    pub fn all(operations: impl IntoIterator<Item = Op>) -> Self {
        Self { success: operations.into_iter().collect(), ..Self::default() }
    }
}

// === impl Comparison ===

impl Comparison {
    fn holds_for(&self, entry: &KeyValue) -> bool {
        let order = match &self.target {
            Target::Version(version) => entry.version.cmp(version),
            Target::Create(revision) => entry.create_revision.cmp(revision),
            Target::Mod(revision) => entry.mod_revision.cmp(revision),
            Target::Value(value) => entry.value.cmp(value),
        };
        match self.relation {
            Relation::Equal => order == Ordering::Equal,
            Relation::NotEqual => order != Ordering::Equal,
            Relation::Greater => order == Ordering::Greater,
            Relation::Less => order == Ordering::Less,
        }
    }
}

// === impl Mvcc ===

impl Mvcc {
    /// Carries out a transaction and tells the watchers in sync of it.
    ///
    /// # Errors
    /// Nothing is done then: above the limits, an empty key, a key written twice, or a read inside it at a revision
    /// that is compacted or still to come.
    pub fn txn(&mut self, txn: &Txn) -> Result<TxnResponse, MvccError> {
        self.check(txn)?;
        let succeeded = txn.compares.iter().all(|comparison| self.holds(comparison));
        let operations = if succeeded { &txn.success } else { &txn.failure };
        for operation in operations {
            if let Op::Range(request) = operation {
                self.check_range(request)?;
            }
        }
        let revision = self.revision.next();
        let mut events = Vec::new();
        let answers =
            operations.iter().map(|operation| self.apply(operation, revision, &mut events)).collect();
        self.finish(revision, events);
        Ok(TxnResponse { header: self.header_at(self.revision), succeeded, answers })
    }

    /// Writes one key and gives the revision.
    ///
    /// # Errors
    /// As [`Mvcc::txn`].
    pub fn put(&mut self, key: impl Into<Bytes>, value: impl Into<Bytes>) -> Result<Revision, MvccError> {
        self.txn(&Txn::put(key, value)).map(|answer| answer.header.revision)
    }

    /// Deletes one key and gives the revision; of a key that is not there, the current one.
    ///
    /// # Errors
    /// As [`Mvcc::txn`].
    pub fn delete(&mut self, key: impl Into<Bytes>) -> Result<Revision, MvccError> {
        self.txn(&Txn::delete(key)).map(|answer| answer.header.revision)
    }

    fn check(&self, txn: &Txn) -> Result<(), MvccError> {
        let operations = txn.compares.len().max(txn.success.len()).max(txn.failure.len());
        let limit = self.limits.txn_operations;
        if operations > limit {
            return Err(MvccError::TooManyOperations { operations, limit });
        }
        let (bytes, limit) = (wire::txn(txn), self.limits.request_bytes);
        if bytes > limit {
            return Err(MvccError::TooLarge { bytes, limit });
        }
        if txn.compares.iter().any(|comparison| comparison.interval.key().is_empty()) {
            return Err(MvccError::EmptyKey);
        }
        check_operations(&txn.success)?;
        check_operations(&txn.failure)
    }

    fn holds(&self, comparison: &Comparison) -> bool {
        let found = self.read(&RangeRequest::of(comparison.interval.clone()), self.revision).entries;
        if found.is_empty() {
            let nothing = KeyValue::default();
            return !matches!(comparison.target, Target::Value(_)) && comparison.holds_for(&nothing);
        }
        found.iter().all(|entry| comparison.holds_for(entry))
    }

    fn apply(&mut self, operation: &Op, revision: Revision, events: &mut Vec<Event>) -> OpAnswer {
        match operation {
            Op::Put { key, value } => {
                let history = Arc::make_mut(self.keys.entry(key.clone()).or_default());
                let previous = history.at(revision).and_then(|record| record.live(key));
                let written = history.put(revision, value.clone()).live(key);
                events.extend(written.map(|kv| Event { kind: EventKind::Put, kv }));
                OpAnswer::Put { previous }
            }
            Op::DeleteRange(interval) => {
                let previous = self.read(&RangeRequest::of(interval.clone()), revision).entries;
                for KeyValue { key, .. } in &previous {
                    if let Some(history) = self.keys.get_mut(key) {
                        Arc::make_mut(history).delete(revision);
                    }
                    events.push(Event::deletion(key.clone(), revision));
                }
                OpAnswer::Deleted { previous }
            }
            Op::Range(request) => {
                let current = if events.is_empty() { self.revision } else { revision };
                OpAnswer::Range(self.read(request, current))
            }
        }
    }

    /// A transaction without effect moves nothing.
    pub(super) fn finish(&mut self, revision: Revision, events: Vec<Event>) {
        if events.is_empty() {
            return;
        }
        let events: Arc<[Event]> = events.into();
        self.notify(revision, &events);
        self.revision = revision;
        self.log.insert(revision, events);
    }
}

/// No empty key, and no key is both written twice or written and deleted: which one wins would not be defined.
fn check_operations(operations: &[Op]) -> Result<(), MvccError> {
    let deleted: Vec<&Interval> = operations
        .iter()
        .filter_map(|operation| if let Op::DeleteRange(interval) = operation { Some(interval) } else { None })
        .collect();
    let mut written = BTreeSet::new();
    for operation in operations {
        match operation {
            Op::Put { key, .. } if key.is_empty() => return Err(MvccError::EmptyKey),
            Op::Put { key, .. } => {
                if !written.insert(key) || deleted.iter().any(|interval| interval.contains(key)) {
                    return Err(MvccError::DuplicateKey { key: key.clone() });
                }
            }
            Op::DeleteRange(interval) if interval.key().is_empty() => return Err(MvccError::EmptyKey),
            Op::Range(request) if request.interval.key().is_empty() => return Err(MvccError::EmptyKey),
            Op::DeleteRange(_) | Op::Range(_) => {}
        }
    }
    Ok(())
}
