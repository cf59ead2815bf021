//! Whether the store's history contains a version, judged by the version's keys. Pure.
//!
//! `changed_at` alone would say yes too easily: a reload after a restore brings an older value at a new `changed_at`.
//! So a held key must also have been *written* at the version or later.

use headwater_model::{Key, Revision};

use super::{Expectation, StoreFacts, Wait};

/// What the store shows of a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum History {
    /// It is part of this history.
    Contains,
    /// The store has not come that far.
    NotReached,
    /// It is not part of this history, for this reason.
    Replaced(String),
    /// It can no longer be told, for this reason.
    Unknown(String),
}

/// Judges by lineage first, then by each key.
#[must_use]
pub fn judge(question: &Wait, store: &impl StoreFacts) -> History {
    let version = store.version();
    if let Some(cluster) = question.cluster_id.filter(|cluster| *cluster != version.lineage.cluster_id) {
        return History::Replaced(format!(
            "the version is of cluster {cluster:x}, the environment is of cluster {:x} now",
            version.lineage.cluster_id
        ));
    }
    let generation = version.lineage.generation;
    if question.generation < generation {
        return History::Replaced(format!(
            "the version is of generation {}, the environment went back in its history and is in generation \
             {generation}: read the resources again",
            question.generation
        ));
    }
    if (question.generation, question.revision) > version.position() {
        return History::NotReached;
    }
    question
        .keys
        .iter()
        .map(|(key, expectation)| of_key(question.revision, key, *expectation, store))
        .find(|history| *history != History::Contains)
        .unwrap_or(History::Contains)
}

/// The revision that a node must have reached.
///
/// That of the version; but where a full read that could not be tied to what was known before lies above it, a node may
/// stand at a state that has lost the version. Then what shows that the version's keys were written or deleted later
/// is what the node must have.
#[must_use]
pub(super) fn reach(question: &Wait, store: &impl StoreFacts) -> Revision {
    if store.unproven_at().is_none_or(|at| question.revision >= at) {
        return question.revision;
    }
    let shown = question.keys.iter().filter_map(|(key, _)| {
        store.held(key).map(|held| held.mod_revision).or_else(|| store.tombstone(key))
    });
    shown.fold(question.revision, Revision::max)
}

fn of_key(at: Revision, key: &Key, expectation: Expectation, store: &impl StoreFacts) -> History {
    if let Some(held) = store.held(key) {
        let contradicted = held.mod_revision == at && expectation == Expectation::Delete;
        let written = held.mod_revision;
        if written < at || held.changed_at < at || contradicted {
            return History::Replaced(format!("{key} was last written at {written}, not at {at} or later"));
        }
        return match store.unproven_from(held.changed_at).filter(|_| held.changed_at > at) {
            // All was known up to there, and then the key was found otherwise, but not written since.
            Some(known) if written <= known => History::Replaced(format!(
                "{key} is another one now at {written}, a revision that was known up to {known}"
            )),
            // A later write that such a read brought may be one of a history without the version.
            Some(_) if written > at => History::Unknown(format!(
                "{key} was found written at {written} by a full read at {} that could not be tied to what was known \
                 before",
                held.changed_at
            )),
            _ => History::Contains,
        };
    }
    match store.tombstone(key) {
        Some(deleted) if store.unproven_from(deleted).is_some() && deleted > at => History::Unknown(format!(
            "{key} was found gone by a full read at {deleted} that could not be tied to what was known before"
        )),
        Some(deleted) if deleted > at => History::Contains,
        Some(deleted) if deleted == at && expectation != Expectation::Put => History::Contains,
        Some(deleted) => {
            History::Replaced(format!("{key} was last deleted at {deleted}, not written at {at} or later"))
        }
        None if at <= store.deletions_known_since() => History::Unknown(format!(
            "deletions are known only after revision {}, and {key} is not there",
            store.deletions_known_since()
        )),
        None => History::Replaced(format!("{key} is not there, and was not deleted since {at}")),
    }
}
