//! What waits while the environment is slow. Pure.
//!
//! The stream is read on whatever the environment does (W14): a blocked reader would become a slow watcher on
//! etcd. So what waits is merged: changes by key and whole revisions, progress and state to the latest, and a full
//! read swallows the changes before it. It is bounded by the number of keys, and what comes out leads to the same
//! content, deletions, safe revision and generation as what went in.

use headwater_model::Revision;

use super::merge::Merged;
use crate::backend::{Continuity, Load, SourceEvent, SourceState};

/// Holds back what the environment's channel has no room for.
#[derive(Debug, Default)]
pub struct Outbox {
    resumed: Option<u64>,
    load: Option<Load>,
    changes: Merged,
    progress: Option<Revision>,
    state: Option<SourceState>,
}

// === impl Outbox ===

impl Outbox {
    /// Takes an event that follows all taken before.
    pub fn push(&mut self, event: SourceEvent) {
        match event {
            SourceEvent::Resumed { cluster_id } => self.resumed = Some(cluster_id),
            SourceEvent::Loaded(load) => self.push_load(load),
            SourceEvent::Batch(batch) => {
                self.changes.take(batch);
                self.progress = None;
            }
            SourceEvent::Progress(revision) => self.progress = Some(revision),
            SourceEvent::State(state) => self.state = Some(state),
        }
    }

    /// Gives the next event, in stream order.
    pub fn pop(&mut self) -> Option<SourceEvent> {
        if let Some(cluster_id) = self.resumed.take() {
            return Some(SourceEvent::Resumed { cluster_id });
        }
        if let Some(load) = self.load.take() {
            return Some(SourceEvent::Loaded(load));
        }
        if !self.changes.is_empty() {
            return Some(SourceEvent::Batch(std::mem::take(&mut self.changes).into_batch()));
        }
        if let Some(revision) = self.progress.take() {
            return Some(SourceEvent::Progress(revision));
        }
        self.state.take().map(SourceEvent::State)
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.resumed.is_none()
            && self.load.is_none()
            && self.changes.is_empty()
            && self.progress.is_none()
            && self.state.is_none()
    }

    fn push_load(&mut self, mut load: Load) {
        if let Some(earlier) = self.load.take() {
            load.continuity = joined(earlier.continuity, load.continuity);
            load.generation = load.generation.max(earlier.generation);
        }
        self.load = Some(load);
        self.changes = Merged::default();
        self.progress = None;
    }
}

/// How the second of two reads connects to what was held before the first.
fn joined(first: Continuity, second: Continuity) -> Continuity {
    match (first, second) {
        (Continuity::First, _) => Continuity::First,
        (_, rewound @ Continuity::Rewound { .. }) | (rewound @ Continuity::Rewound { .. }, _) => rewound,
        (Continuity::Unproven, _) | (_, Continuity::Unproven) => Continuity::Unproven,
        (Continuity::Proven, second) => second,
    }
}
