//! What the replica should know about this node's rejects: a mirror of the verdict's, for the hello and for answers.

use std::collections::{BTreeMap, BTreeSet};

use headwater_model::{Digest, Key, Revision};
use headwater_proto::config::{FallbackAnswer, FallbackRequest, Reject, Rejects};
use headwater_proto::limits::MAX_FALLBACKS;

/// How many rejects go into one frame: even with the longest keys and reasons it stays below the frame limit.
const PER_FRAME: usize = 512;

/// The rejects as last told by the verdict, and the fallbacks that are wanted.
#[derive(Debug, Default)]
pub(super) struct Mirror {
    rejects: BTreeMap<Key, Reject>,
    wanted: BTreeMap<Key, FallbackRequest>,
    /// Those of them that were not asked for on this connection yet.
    due: BTreeSet<Key>,
    /// What was asked for on this connection and is not answered: the key, and its rejected revision.
    under_way: BTreeSet<(Key, Revision)>,
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
        for request in requests {
            self.due.insert(request.key.clone());
            self.wanted.insert(request.key.clone(), request);
        }
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

    /// What to ask for now. However many are wanted, only so many are under way at a time: the replica drops what is
    /// beyond its limit, and a queue of frames that overflows ends the connection, which would begin with the same.
    pub(super) fn ask(&mut self) -> Vec<FallbackRequest> {
        let mut asked = Vec::new();
        while self.under_way.len() < MAX_FALLBACKS
            && let Some(key) = self.due.pop_first()
        {
            let Some(request) = self.wanted.get(&key) else { continue };
            if self.under_way.insert((key, request.below)) {
                asked.push(request.clone());
            }
        }
        asked
    }

    /// An answer came, whatever it says.
    pub(super) fn answered(&mut self, answer: &FallbackAnswer) {
        self.under_way.remove(&(answer.key.clone(), answer.rejected));
    }

    /// The next connection begins anew.
    pub(super) fn forget_stream(&mut self) {
        self.under_way.clear();
        self.due = self.wanted.keys().cloned().collect();
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
