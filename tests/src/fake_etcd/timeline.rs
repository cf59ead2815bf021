//! What really happened in the fake, kept apart from its store: compaction and restores take nothing from it.

use std::collections::BTreeMap;

use headwater_control_plane::backend::embedded::mvcc::{Event, EventKind};

use crate::follower::Held;

/// One line of history after the other; each restore begins a new one that shares what was before the snapshot.
#[derive(Clone, Debug)]
pub struct Timeline {
    prefix: Vec<u8>,
    histories: Vec<History>,
}

/// What each revision did below the prefix.
#[derive(Clone, Debug, Default)]
pub struct History {
    changes: BTreeMap<u64, Vec<Done>>,
    head: u64,
}

/// What happened to one key, relative to the prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// The key.
    pub key: Vec<u8>,
    /// What it holds since; `None`: it was deleted.
    pub held: Option<Held>,
}

// === impl Timeline ===

impl Timeline {
    /// An empty one that keeps what happens below `<prefix>/`.
    #[must_use]
    pub fn new(prefix: &str) -> Self {
        Self {
            prefix: format!("{prefix}/").into_bytes(),
            histories: vec![History { head: 1, ..History::default() }],
        }
    }

    /// A revision was committed.
    pub fn committed(&mut self, revision: u64, events: &[Event]) {
        let done = events.iter().filter_map(|event| {
            let key = event.kv.key.strip_prefix(self.prefix.as_slice())?.to_vec();
            let kv = &event.kv;
            let held = (event.kind == EventKind::Put)
                .then(|| (kv.value.to_vec(), kv.create_revision.0, kv.mod_revision.0));
            Some(Done { key, held })
        });
        let done: Vec<Done> = done.collect();
        let history = self.histories.last_mut().expect("there is always one");
        history.head = revision;
        history.changes.insert(revision, done);
    }

    /// The store went back to a revision; what follows is another history.
    pub fn restored(&mut self, to: u64) {
        let last = self.histories.last().expect("there is always one");
        let changes = last.changes.range(..=to).map(|(revision, done)| (*revision, done.clone())).collect();
        self.histories.push(History { changes, head: to });
    }

    /// All histories, the present one last.
    #[must_use]
    pub fn histories(&self) -> &[History] {
        &self.histories
    }

    /// The present content below the prefix.
    #[must_use]
    pub fn content(&self) -> BTreeMap<Vec<u8>, Held> {
        let last = self.histories.last().expect("there is always one");
        last.state_at(last.head)
    }
}

// === impl History ===

impl History {
    /// The newest revision.
    #[must_use]
    pub const fn head(&self) -> u64 {
        self.head
    }

    /// The content after a revision.
    #[must_use]
    pub fn state_at(&self, revision: u64) -> BTreeMap<Vec<u8>, Held> {
        let mut state = BTreeMap::new();
        for Done { key, held } in self.changes.range(..=revision).flat_map(|(_, done)| done) {
            match held {
                Some(held) => state.insert(key.clone(), held.clone()),
                None => state.remove(key),
            };
        }
        state
    }

    /// What a revision did.
    #[must_use]
    pub fn done_at(&self, revision: u64) -> &[Done] {
        self.changes.get(&revision).map_or(&[], Vec::as_slice)
    }
}
