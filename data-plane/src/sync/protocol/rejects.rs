//! What the replica should know about this node's rejects: a mirror of the verdict's, for the hello and for answers.

use std::collections::{BTreeMap, BTreeSet};

use headwater_model::{Digest, Key};
use headwater_proto::config::{FallbackRequest, Reject, Rejects};
use headwater_proto::limits::MAX_FALLBACKS;

/// How many rejects go into one frame: even with the longest keys and reasons it stays below the frame limit.
const PER_FRAME: usize = 512;

/// The rejects as last told by the verdict, and the fallbacks that are wanted.
#[derive(Debug, Default)]
pub(super) struct Mirror {
    rejects: BTreeMap<Key, Reject>,
    wanted: BTreeMap<Key, FallbackRequest>,
    /// Of these, what this connection has not been asked for yet.
    unasked: BTreeSet<Key>,
    /// Requests of this connection that wait for their answer.
    unanswered: usize,
}

// === impl Mirror ===

impl Mirror {
    /// Takes the verdict's changes. A request stands as long as exactly its value is rejected and nothing is served.
    pub(super) fn take(&mut self, changes: &Rejects, requests: Vec<FallbackRequest>) {
        if changes.full {
            self.rejects.clear();
        }
        for key in &changes.cleared {
            self.rejects.remove(key);
        }
        for reject in &changes.rejected {
            self.rejects.insert(reject.key.clone(), reject.clone());
        }
        self.unasked.extend(requests.iter().map(|request| request.key.clone()));
        self.wanted.extend(requests.into_iter().map(|request| (request.key.clone(), request)));
        self.wanted.retain(|key, request| {
            self.rejects
                .get(key)
                .is_some_and(|reject| reject.served.is_none() && reject.mod_revision == request.below)
        });
    }

    pub(super) fn count(&self) -> u64 {
        self.rejects.len() as u64
    }

    pub(super) fn hash(&self) -> Digest {
        Reject::set_hash(self.rejects.values())
    }

    /// The whole set, in frames; one empty frame when there is none.
    pub(super) fn full(&self) -> Vec<Rejects> {
        let all =
            Rejects { full: true, rejected: self.rejects.values().cloned().collect(), cleared: Vec::new() };
        in_frames(all)
    }

    /// Another connection: everything that is wanted is to be asked for.
    pub(super) fn welcomed(&mut self) {
        self.unasked = self.wanted.keys().cloned().collect();
        self.unanswered = 0;
    }

    /// A request was answered, by a value or by none.
    pub(super) const fn answered(&mut self) {
        self.unanswered = self.unanswered.saturating_sub(1);
    }

    /// The next request, unless as many as the replica takes wait for their answer: a thousand at once would fill the
    /// queue to it, and again on the next connection.
    pub(super) fn next_request(&mut self) -> Option<FallbackRequest> {
        while self.unanswered < MAX_FALLBACKS {
            let key = self.unasked.pop_first()?;
            if let Some(request) = self.wanted.get(&key) {
                self.unanswered += 1;
                return Some(request.clone());
            }
        }
        None
    }
}

/// Cuts changes into frames, the first of which says whether it replaces what was known. Nothing for no change.
pub(super) fn in_frames(changes: Rejects) -> Vec<Rejects> {
    let Rejects { full, rejected, cleared } = changes;
    let cleared =
        cleared.chunks(PER_FRAME).map(|keys| Rejects { cleared: keys.to_vec(), ..Rejects::default() });
    let rejected = rejected
        .chunks(PER_FRAME)
        .map(|rejects| Rejects { rejected: rejects.to_vec(), ..Rejects::default() });
    let mut frames: Vec<Rejects> = cleared.chain(rejected).collect();
    if full && frames.is_empty() {
        frames.push(Rejects::default());
    }
    if let Some(first) = frames.first_mut() {
        first.full = full;
    }
    frames
}
