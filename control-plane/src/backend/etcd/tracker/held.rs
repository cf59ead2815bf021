//! What has been delivered so far: every key below the prefix with its revisions, and the safe revision.

use std::collections::BTreeMap;

use bytes::Bytes;
use headwater_model::{Digest, Revision};

use super::input::{Found, Proof, ProofQuestion, Testimony, key_hash, value_hash};
use crate::backend::{Entry, KeyEvent, KeyRevisions, ResumePoint};

/// The revisions of one key. No value: the store keeps those.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Revisions {
    create: Revision,
    modified: Revision,
    /// `None` where only the revisions are known: the file keeps no values but those of content.
    value: Option<Digest>,
}

/// One history up to its safe revision.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) cluster_id: u64,
    /// The safe revision: the highest up to which every event is known to have been delivered.
    pub(super) revision: Revision,
    keys: BTreeMap<Bytes, Revisions>,
}

/// How a proof came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The same history up to the safe revision.
    Same,
    /// Another one, with the evidence in a sentence.
    Different(String),
}

// === impl Held ===

impl Held {
    /// From the last known good file.
    pub(super) fn from_resume(point: ResumePoint) -> Self {
        let revisions = |key: &KeyRevisions| Revisions {
            create: key.create_revision,
            modified: key.mod_revision,
            value: key.value.as_deref().map(value_hash),
        };
        let keys = point.keys.into_iter().map(|key| (key.key.clone(), revisions(&key))).collect();
        Self { cluster_id: point.cluster_id, revision: point.revision, keys }
    }

    /// From a full read, which is in key order. What was held before is gone through beside it: a key that is still
    /// there keeps its place, for most reads find most of the keys again.
    pub(super) fn from_entries(
        before: Option<Self>,
        cluster_id: u64,
        revision: Revision,
        entries: &[Entry],
    ) -> Self {
        let mut keys = before.map(|held| held.keys).unwrap_or_default();
        let (mut gone, mut come) = (Vec::new(), Vec::new());
        let mut there = keys.iter_mut().peekable();
        for entry in entries {
            while let Some((key, _)) = there.next_if(|(key, _)| **key < entry.key) {
                gone.push(key.clone());
            }
            match there.next_if(|(key, _)| **key == entry.key) {
                Some((_, revisions)) => *revisions = Revisions::of(entry),
                None => come.push(entry),
            }
        }
        gone.extend(there.map(|(key, _)| key.clone()));
        for key in &gone {
            keys.remove(key);
        }
        if keys.is_empty() {
            keys = come.into_iter().map(|entry| (entry.key.clone(), Revisions::of(entry))).collect();
        } else {
            keys.extend(come.into_iter().map(|entry| (entry.key.clone(), Revisions::of(entry))));
        }
        Self { cluster_id, revision, keys }
    }

    /// Takes over one event that was delivered.
    pub(super) fn apply(&mut self, event: &KeyEvent) {
        match event {
            KeyEvent::Put(entry) => {
                self.keys.insert(entry.key.clone(), Revisions::of(entry));
            }
            KeyEvent::Delete { key, .. } => {
                self.keys.remove(key);
            }
        }
    }

    /// Whether an event at or below the safe revision proves that it had not been delivered: what is held of its
    /// key is older than it. (A key that is absent may have been deleted later: that proves nothing.)
    pub(super) fn was_missed(&self, event: &KeyEvent) -> bool {
        self.keys.get(event.key()).is_some_and(|held| held.modified < event.revision())
    }

    /// Whether the event is one that was delivered before.
    pub(super) fn is_repeat(&self, event: &KeyEvent) -> bool {
        match (self.keys.get(event.key()), event) {
            (Some(held), _) => held.modified >= event.revision(),
            (None, KeyEvent::Delete { .. }) => true,
            (None, KeyEvent::Put(_)) => false,
        }
    }

    /// W7: what to ask a member before a watch is created on it.
    pub(super) fn question(&self) -> ProofQuestion {
        let newest = self.keys.iter().max_by_key(|(_, revisions)| revisions.modified);
        ProofQuestion { revision: self.revision, key: newest.map(|(key, _)| key.clone()) }
    }

    fn keys_digest(&self) -> Digest {
        let hashes = self.keys.iter().map(|(key, held)| key_hash(key, held.create, held.modified));
        hashes.fold(Digest::EMPTY, Digest::plus)
    }

    /// Whether another member holds this same history up to the safe revision. What it cannot tell any more is no yes.
    pub(super) fn is_kept_by(&self, other: &Testimony) -> bool {
        let proof = other.proof.as_ref().map(|proof| self.judge(proof));
        other.header.cluster_id == self.cluster_id && proof == Some(Verdict::Same)
    }

    /// W7: judges the answer to [`Held::question`].
    pub(super) fn judge(&self, proof: &Proof) -> Verdict {
        let held = self.keys.len() as u64;
        if proof.count != held {
            return Verdict::Different(format!(
                "etcd had {} keys at revision {}, {held} are held of it",
                proof.count, self.revision
            ));
        }
        if proof.keys != self.keys_digest() {
            return Verdict::Different(format!(
                "etcd had as many keys at revision {} as are held of it, but other ones, or written at other revisions",
                self.revision
            ));
        }
        let Some((key, revisions)) = self.keys.iter().max_by_key(|(_, revisions)| revisions.modified) else {
            return Verdict::Same;
        };
        if proof.newest.is_some_and(|found| revisions.agrees(&found)) {
            return Verdict::Same;
        }
        Verdict::Different(format!(
            "the newest key held, {} of revision {}, is another one in etcd at revision {}",
            String::from_utf8_lossy(key),
            revisions.modified,
            self.revision
        ))
    }
}

// === impl Revisions ===

impl Revisions {
    fn of(entry: &Entry) -> Self {
        Self {
            create: entry.create_revision,
            modified: entry.mod_revision,
            value: Some(value_hash(&entry.value)),
        }
    }

    fn agrees(&self, found: &Found) -> bool {
        self.create == found.create_revision
            && self.modified == found.mod_revision
            && self.value.is_none_or(|value| value == found.value)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Keys that are there, each with the revision of its one write.
    fn entries() -> impl Strategy<Value = Vec<Entry>> {
        proptest::collection::btree_map(0_u8..40, 1_u64..30, 0..40).prop_map(|keys| {
            let entry = |(key, at): (u8, u64)| Entry {
                key: Bytes::from(format!("routes/{key:02}")),
                value: Bytes::from(format!("{at}")),
                create_revision: Revision(at),
                mod_revision: Revision(at),
            };
            keys.into_iter().map(entry).collect()
        })
    }

    proptest! {
        #[test]
        fn a_read_leaves_nothing_of_what_was_held_before(before in entries(), read in entries()) {
            let before = Held::from_entries(None, 7, Revision(30), &before);
            let (kept, afresh) = (
                Held::from_entries(Some(before), 7, Revision(40), &read),
                Held::from_entries(None, 7, Revision(40), &read),
            );
            prop_assert_eq!(kept.keys, afresh.keys);
            prop_assert_eq!(kept.revision, Revision(40));
        }
    }
}
