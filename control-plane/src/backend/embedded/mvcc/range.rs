//! Reading a range at a revision.

use headwater_model::Revision;

use super::{Header, Interval, KeyValue, Mvcc, MvccError};

/// A range read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeRequest {
    /// Which keys.
    pub interval: Interval,
    /// At which revision; zero for the current one.
    pub revision: Revision,
    /// At most so many keys; zero for all.
    pub limit: usize,
    /// Answer keys without values.
    pub keys_only: bool,
    /// Answer no keys, only their number.
    pub count_only: bool,
    /// Only keys last written at this revision or later; `count` does not change by it.
    pub min_mod_revision: Revision,
}

/// The answer of a range read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeResponse {
    /// Its revision is always the store's current one, whatever revision was read.
    pub header: Header,
    /// In key order.
    pub entries: Vec<KeyValue>,
    /// Whether the limit cut keys off.
    pub more: bool,
    /// All keys of the interval at the revision, whatever limit and filter say.
    pub count: usize,
}

// === impl RangeRequest ===

impl RangeRequest {
    /// Everything in the interval, now.
    #[must_use]
    pub const fn of(interval: Interval) -> Self {
        Self {
            interval,
            revision: Revision::ZERO,
            limit: 0,
            keys_only: false,
            count_only: false,
            min_mod_revision: Revision::ZERO,
        }
    }

    /// The same at a revision.
    #[must_use]
    pub fn at(self, revision: Revision) -> Self {
        Self { revision, ..self }
    }

    /// The same with a limit.
    #[must_use]
    pub fn limit(self, limit: usize) -> Self {
        Self { limit, ..self }
    }
}

// === impl Mvcc ===

impl Mvcc {
    /// Reads a range.
    ///
    /// # Errors
    /// [`MvccError::EmptyKey`]; [`MvccError::Compacted`] below the compacted revision (at it a read is legal);
    /// [`MvccError::Future`] above the current one.
    pub fn range(&self, request: &RangeRequest) -> Result<RangeResponse, MvccError> {
        self.check_range(request)?;
        Ok(self.read(request, self.revision))
    }

    pub(super) fn check_range(&self, request: &RangeRequest) -> Result<(), MvccError> {
        if request.interval.key().is_empty() {
            return Err(MvccError::EmptyKey);
        }
        if request.revision == Revision::ZERO {
            return Ok(());
        }
        if request.revision > self.revision {
            return Err(MvccError::Future { requested: request.revision, current: self.revision });
        }
        if request.revision < self.compacted {
            return Err(MvccError::Compacted { requested: request.revision, compacted: self.compacted });
        }
        Ok(())
    }

    /// Reads with `current` standing for "now": inside a transaction that has written, its own revision.
    pub(super) fn read(&self, request: &RangeRequest, current: Revision) -> RangeResponse {
        let revision = if request.revision == Revision::ZERO { current } else { request.revision };
        let limit = if request.limit == 0 { usize::MAX } else { request.limit };
        let mut answer = RangeResponse {
            header: self.header_at(self.revision),
            entries: Vec::new(),
            more: false,
            count: 0,
        };
        if request.interval.is_empty() {
            return answer;
        }
        for (key, history) in self.keys.range::<_, bytes::Bytes>(request.interval.bounds()) {
            let Some(record) = history.at(revision) else { continue };
            answer.count += 1;
            if request.count_only || record.mod_revision < request.min_mod_revision {
                continue;
            }
            if answer.entries.len() == limit {
                answer.more = true;
                continue;
            }
            let mut entry = record.live(key).expect("a history answers live records only");
            if request.keys_only {
                entry.value = bytes::Bytes::new();
            }
            answer.entries.push(entry);
        }
        answer
    }
}
