//! The flight recorder (W32): the last responses of a watch as they came, without keys and values.
//!
//! When somebody asks how a gateway came to serve what it serves, the answer lies in what the member said, in which
//! order, and in what the tracker made of it. A ring of bounded length costs a fleet nothing and is there when needed.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use headwater_model::Revision;

use super::tracker::{Attempt, Failure, Header, WatchResponse};
use crate::backend::KeyEvent;

/// The records of one environment's watch; a record above the capacity pushes the oldest out.
#[derive(Debug)]
pub struct Recorder {
    capacity: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    written: u64,
    records: VecDeque<Record>,
}

/// One thing that happened on the watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Counts from one since the start of the replica, over all attempts.
    pub number: u64,
    /// When (Unix milliseconds).
    pub unix_ms: u64,
    /// The attempt it belongs to: one connection, proof, load and stream.
    pub attempt: Attempt,
    /// What it was.
    pub what: What,
    /// The safe revision after it was judged; nothing before the first full read.
    pub safe: Option<Revision>,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A watcher was asked for.
    Opening {
        /// From which revision on.
        start: Revision,
        /// Under which id.
        watch_id: i64,
    },
    /// The member answered.
    Response(Response),
    /// The stream is no more.
    Ended {
        /// Why, in words.
        why: String,
    },
}

/// A response without what it carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// Its header.
    pub header: Header,
    /// The watcher, or −1 for all of the stream.
    pub watch_id: i64,
    /// The watcher was registered.
    pub created: bool,
    /// The watcher is no more.
    pub cancelled: bool,
    /// The reason of a cancel, as the member put it.
    pub reason: String,
    /// Above zero: cancelled because this is the oldest revision that may be watched.
    pub compact_revision: Revision,
    /// More parts of the same change follow.
    pub fragment: bool,
    /// How many keys were put.
    pub puts: usize,
    /// How many keys were deleted.
    pub deletes: usize,
    /// The mod revisions of the first and the last event; nothing without events.
    pub revisions: Option<(Revision, Revision)>,
    /// The bytes of its keys and values.
    pub bytes: usize,
}

// === impl Recorder ===

impl Recorder {
    /// Keeps the last `capacity` records.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { capacity, kept: Mutex::default() }
    }

    /// Adds one, at the safe revision before it is judged. Gives its number.
    pub fn add(&self, unix_ms: u64, attempt: Attempt, what: What, safe: Option<Revision>) -> u64 {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.written += 1;
        let number = kept.written;
        kept.records.push_back(Record { number, unix_ms, attempt, what, safe });
        while kept.records.len() > self.capacity {
            kept.records.pop_front();
        }
        number
    }

    /// A record was judged.
    pub fn judged(&self, number: u64, safe: Option<Revision>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        // What its judgement has led to came after it.
        if let Some(record) = kept.records.iter_mut().rev().find(|record| record.number == number) {
            record.safe = safe;
        }
    }

    /// The newest `limit` records, oldest first, and how many have been written in all.
    #[must_use]
    pub fn last(&self, limit: usize) -> (Vec<Record>, u64) {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let skipped = kept.records.len().saturating_sub(limit);
        (kept.records.iter().skip(skipped).cloned().collect(), kept.written)
    }
}

// === impl What ===

impl What {
    /// One word for it.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Opening { .. } => "opening",
            Self::Ended { .. } => "ended",
            Self::Response(response) if response.cancelled => "cancelled",
            Self::Response(response) if response.created => "created",
            Self::Response(response) if response.revisions.is_some() => "events",
            Self::Response(_) => "progress",
        }
    }
}

impl From<&WatchResponse> for What {
    fn from(response: &WatchResponse) -> Self {
        let revision = |event: Option<&KeyEvent>| event.map(KeyEvent::revision);
        let (first, last) = (revision(response.events.first()), revision(response.events.last()));
        let deletes = response.events.iter().filter(|event| matches!(event, KeyEvent::Delete { .. })).count();
        Self::Response(Response {
            header: response.header,
            watch_id: response.watch_id,
            created: response.created,
            cancelled: response.cancelled,
            reason: response.cancel_reason.clone(),
            compact_revision: response.compact_revision,
            fragment: response.fragment,
            puts: response.events.len() - deletes,
            deletes,
            revisions: first.zip(last),
            bytes: response.bytes,
        })
    }
}

impl From<&Failure> for What {
    fn from(failure: &Failure) -> Self {
        Self::Ended { why: failure.message.clone() }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::backend::Entry;

    fn numbers((records, _): &(Vec<Record>, u64)) -> Vec<u64> {
        records.iter().map(|record| record.number).collect()
    }

    #[test]
    fn w32_the_newest_are_kept_in_order() {
        let recorder = Recorder::new(3);
        assert_eq!(recorder.last(10), (vec![], 0));
        for at in 1..=5 {
            let number = recorder.add(at, Attempt(1), What::Ended { why: "x".to_owned() }, None);
            recorder.judged(number, Some(Revision(at)));
        }
        let all = recorder.last(10);
        assert_eq!((numbers(&all), all.1), (vec![3, 4, 5], 5));
        assert_eq!(numbers(&recorder.last(2)), [4, 5]);
        assert_eq!(all.0[0].safe, Some(Revision(3)));
    }

    #[test]
    fn w32_a_response_is_recorded_by_its_shape_alone() {
        let header = Header { cluster_id: 1, member_id: 2, revision: Revision(9), raft_term: 3 };
        let response = WatchResponse {
            header,
            watch_id: 7,
            created: false,
            cancelled: false,
            compact_revision: Revision::ZERO,
            cancel_reason: String::new(),
            fragment: true,
            events: vec![
                KeyEvent::Put(Entry {
                    key: Bytes::from_static(b"ssls/secret"),
                    value: Bytes::from_static(b"private"),
                    create_revision: Revision(8),
                    mod_revision: Revision(8),
                }),
                KeyEvent::Delete { key: Bytes::from_static(b"routes/1"), revision: Revision(9) },
            ],
            bytes: 26,
        };
        let what = What::from(&response);
        assert_eq!(what.label(), "events");
        let What::Response(shape) = &what else { panic!("{what:?}") };
        assert_eq!((shape.puts, shape.deletes), (1, 1));
        assert_eq!(shape.revisions, Some((Revision(8), Revision(9))));
        let shown = format!("{what:?}");
        assert!(!shown.contains("secret") && !shown.contains("private"), "{shown}");
        let labels = [
            WatchResponse { events: vec![], ..response.clone() },
            WatchResponse { events: vec![], created: true, ..response.clone() },
            WatchResponse { events: vec![], created: true, cancelled: true, ..response },
        ]
        .map(|response| What::from(&response).label());
        assert_eq!(labels, ["progress", "created", "cancelled"]);
    }
}
