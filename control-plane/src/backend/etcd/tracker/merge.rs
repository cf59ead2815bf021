//! Changes that wait: the newest of each key only, so that waiting is bounded by the number of keys.

use std::collections::BTreeMap;

use bytes::Bytes;
use headwater_model::Revision;
use headwater_model::mutant::planted;

use crate::backend::{Batch, KeyEvent};

/// Whole revisions, merged by key.
#[derive(Clone, Debug, Default)]
pub(super) struct Merged {
    revision: Revision,
    first: Option<Revision>,
    /// The newest event of each key, with its place in the stream.
    newest: BTreeMap<Bytes, (u64, KeyEvent)>,
    taken: u64,
}

// === impl Merged ===

impl Merged {
    /// Takes a batch that follows all taken before.
    pub(super) fn take(&mut self, batch: Batch) {
        self.revision = self.revision.max(batch.revision);
        self.first.get_or_insert(batch.first);
        for event in batch.events {
            self.taken += 1;
            let deleted = matches!(event, KeyEvent::Delete { .. });
            if deleted && planted("came-and-went-is-nothing") && self.newest.remove(event.key()).is_some() {
                continue;
            }
            self.newest.insert(event.key().clone(), (self.taken, event));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.newest.is_empty()
    }

    /// One batch of all of it, in stream order.
    pub(super) fn into_batch(self) -> Batch {
        let mut events: Vec<_> = self.newest.into_values().collect();
        events.sort_by_key(|(place, _)| *place);
        let events = events.into_iter().map(|(_, event)| event).collect();
        Batch { revision: self.revision, first: self.first.unwrap_or(self.revision), events }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gone(key: &'static str, revision: u64) -> Batch {
        let event =
            KeyEvent::Delete { key: Bytes::from_static(key.as_bytes()), revision: Revision(revision) };
        Batch::new(Revision(revision), vec![event])
    }

    #[test]
    fn what_was_merged_says_where_it_began() {
        let mut merged = Merged::default();
        for (key, revision) in [("routes/1", 5), ("routes/2", 7), ("routes/1", 9)] {
            merged.take(gone(key, revision));
        }
        let batch = merged.into_batch();
        assert_eq!((batch.first, batch.revision), (Revision(5), Revision(9)));
        let events: Vec<_> = batch.events.iter().map(|event| (event.key(), event.revision().0)).collect();
        assert_eq!(events, [(&Bytes::from("routes/2"), 7), (&Bytes::from("routes/1"), 9)]);
    }
}
