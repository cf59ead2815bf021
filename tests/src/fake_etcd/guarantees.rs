//! etcd's guarantees for watches, checked over everything that a source told: filter, ordered, unique, atomic,
//! bookmarkable, resumable, is-create and reliable, and that nothing was certified which had not been delivered.
//!
//! All of it is judged from the record alone against what really happened in the fake; neither the source nor the
//! follower is asked. (Former values are never asked for, so there is nothing to say of prev-kv.)

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headwater_control_plane::backend::{Batch, Continuity, KeyEvent, Load, SourceEvent};

use super::timeline::{Done, Timeline};
use crate::follower::Held;

#[cfg(test)]
mod tests;

/// Follows a record.
struct Checker<'a> {
    timeline: &'a Timeline,
    /// The histories that all claims since the last full read fit; the record does not say which it is.
    candidates: Vec<usize>,
    held: BTreeMap<Vec<u8>, Held>,
    safe: u64,
    breaches: Vec<String>,
}

/// What is wrong with the record of a source that began with nothing; empty when all guarantees were kept.
#[must_use]
pub fn breaches(record: &[Arc<SourceEvent>], timeline: &Timeline) -> Vec<String> {
    let mut checker = Checker {
        timeline,
        candidates: (0..timeline.histories().len()).collect(),
        held: BTreeMap::new(),
        safe: 0,
        breaches: Vec::new(),
    };
    for event in record {
        match event.as_ref() {
            SourceEvent::Loaded(load) => checker.loaded(load),
            SourceEvent::Batch(batch) => checker.batch(batch),
            SourceEvent::Progress(revision) => checker.progress(revision.0),
            SourceEvent::Resumed { .. } | SourceEvent::State(_) => {}
        }
    }
    checker.breaches
}

// === impl Checker ===

impl Checker<'_> {
    fn loaded(&mut self, load: &Load) {
        let revision = load.revision.0;
        let (rewound, proven) = match load.continuity {
            Continuity::Rewound { .. } => (true, false),
            Continuity::Proven => (false, true),
            Continuity::First | Continuity::Unproven => (false, false),
        };
        if !rewound && revision < self.safe {
            self.breach(format!("bookmarkable: a load of {revision} after {}", self.safe));
        }
        if !proven {
            self.candidates = (0..self.timeline.histories().len()).collect();
        }
        self.held.clear();
        for entry in &load.entries {
            let held = (entry.value.to_vec(), entry.create_revision.0, entry.mod_revision.0);
            if self.held.insert(entry.key.to_vec(), held).is_some() {
                self.breach(format!("unique: {} twice in one load", String::from_utf8_lossy(&entry.key)));
            }
        }
        self.certified(revision, "a load");
    }

    fn batch(&mut self, batch: &Batch) {
        let (mut last, mut seen) = (self.safe, BTreeSet::new());
        if self.safe == 0 {
            self.breach("reliable: events before anything was read".to_owned());
        }
        for event in &batch.events {
            let revision = event.revision().0;
            if revision < last {
                self.breach(format!("ordered: {revision} after {last}"));
            }
            // What is certified is whole: a part of it that comes later was split from it, or is told twice.
            if revision <= self.safe {
                self.breach(format!("atomic, bookmarkable: an event of {revision} after {}", self.safe));
            }
            if !seen.insert((revision, event.key().clone())) {
                self.breach(format!("unique: {:?} twice at {revision}", event.key()));
            }
            last = revision;
            self.happened(event);
            self.apply(event);
        }
        if last != batch.revision.0 {
            self.breach(format!("bookmarkable: a batch to {last} says {}", batch.revision));
        }
        self.certified(batch.revision.0, "a batch");
    }

    fn progress(&mut self, revision: u64) {
        if revision < self.safe {
            self.breach(format!("bookmarkable: progress of {revision} after {}", self.safe));
        }
        if self.safe == 0 {
            self.breach("reliable: progress before anything was read".to_owned());
        }
        self.certified(revision, "progress");
    }

    /// Filter and is-create: exactly this happened to a key below the prefix at this revision.
    fn happened(&mut self, event: &KeyEvent) {
        let done = match event {
            KeyEvent::Put(entry) => Done {
                key: entry.key.to_vec(),
                held: Some((entry.value.to_vec(), entry.create_revision.0, entry.mod_revision.0)),
            },
            KeyEvent::Delete { key, .. } => Done { key: key.to_vec(), held: None },
        };
        let (timeline, revision) = (self.timeline, event.revision().0);
        let fits = |of: usize| timeline.histories()[of].done_at(revision).contains(&done);
        if !self.narrow(fits) {
            self.breach(format!("filter, is-create: {done:?} never happened at {revision}"));
        }
    }

    fn apply(&mut self, event: &KeyEvent) {
        match event {
            KeyEvent::Put(entry) => {
                let held = (entry.value.to_vec(), entry.create_revision.0, entry.mod_revision.0);
                self.held.insert(entry.key.to_vec(), held);
            }
            KeyEvent::Delete { key, .. } => {
                self.held.remove(key.as_ref());
            }
        }
    }

    /// Reliable, resumable, atomic: all that was told is the state at what is certified, no more and no less.
    fn certified(&mut self, revision: u64, by: &str) {
        self.safe = revision;
        let (timeline, held) = (self.timeline, std::mem::take(&mut self.held));
        let fits = |of: usize| {
            let history = &timeline.histories()[of];
            revision <= history.head() && history.state_at(revision) == held
        };
        if !self.narrow(fits) {
            self.breach(format!("reliable: {by} certified {revision}, and what was told is not its state"));
        }
        self.held = held;
    }

    /// Keeps the histories that fit; false, and all are kept, when none does.
    fn narrow(&mut self, fits: impl Fn(usize) -> bool) -> bool {
        let fitting: Vec<usize> = self.candidates.iter().copied().filter(|of| fits(*of)).collect();
        let any = !fitting.is_empty();
        if any {
            self.candidates = fitting;
        }
        any
    }

    fn breach(&mut self, what: String) {
        self.breaches.push(what);
    }
}
