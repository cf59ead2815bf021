//! The revisions of one key.

use bytes::Bytes;
use headwater_model::Revision;

use super::KeyValue;

/// What one revision did to a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) create_revision: Revision,
    pub(super) mod_revision: Revision,
    /// How often the key was written since it came into being.
    pub(super) version: u64,
    /// `None` is a deletion.
    pub(super) value: Option<Bytes>,
}

/// The records of one key, oldest first, at most one for a revision.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    records: Vec<Record>,
}

// === impl Record ===

impl Record {
    /// The key with its value, unless it is a deletion.
    pub(super) fn live(&self, key: &Bytes) -> Option<KeyValue> {
        Some(KeyValue {
            key: key.clone(),
            value: self.value.clone()?,
            create_revision: self.create_revision,
            mod_revision: self.mod_revision,
            version: self.version,
        })
    }
}

// === impl History ===

impl History {
    /// A history of one record: a key as a state read from a file gives it.
    pub(super) fn of(record: Record) -> Self {
        Self { records: vec![record] }
    }

    /// The key as it was at `revision`, if it was there.
    pub(super) fn at(&self, revision: Revision) -> Option<&Record> {
        let after = self.records.partition_point(|record| record.mod_revision <= revision);
        self.records[..after].last().filter(|record| record.value.is_some())
    }

    /// Writes the key. One revision writes a key once.
    pub(super) fn put(&mut self, revision: Revision, value: Bytes) -> &Record {
        let (create_revision, version) = match self.at(revision) {
            Some(record) => (record.create_revision, record.version + 1),
            None => (revision, 1),
        };
        self.push(Record { create_revision, mod_revision: revision, version, value: Some(value) })
    }

    /// Deletes the key. The caller has seen that it is there.
    pub(super) fn delete(&mut self, revision: Revision) {
        self.push(Record {
            create_revision: Revision::ZERO,
            mod_revision: revision,
            version: 0,
            value: None,
        });
    }

    /// Drops what no read at `revision` or later can see, except a deletion at exactly `revision`: a watch may
    /// start there. Says whether anything is left.
    pub(super) fn compact(&mut self, revision: Revision) -> bool {
        let after = self.records.partition_point(|record| record.mod_revision <= revision);
        if let Some(last) = after.checked_sub(1) {
            let seen = &self.records[last];
            let gone = seen.value.is_none() && seen.mod_revision < revision;
            self.records.drain(..if gone { after } else { last });
        }
        !self.records.is_empty()
    }

    fn push(&mut self, record: Record) -> &Record {
        debug_assert!(self.records.last().is_none_or(|last| last.mod_revision < record.mod_revision));
        self.records.push(record);
        &self.records[self.records.len() - 1]
    }
}
