//! Whether a version is applied on the fleet: the answer to "is my change live everywhere?". Pure.
//!
//! The rule: V is applied on a node when the node stands at V or later, none of V's keys is among its rejects, and
//! the store shows that this history contains V for each of the keys: it holds the key as written at V or later, or
//! remembers its deletion at V or later. Where the store shows the opposite the history was replaced; where it no
//! longer can tell, it says so. A wait is never answered yes on a guess.
//!
//! It must never know streams or clocks, nor who asks.

use std::sync::Arc;
use std::time::Duration;

use headwater_model::{Generation, Key, Revision, Version, mutant};
use headwater_proto::config::RefusedWhy;

use super::registry::{Registry, Row, RowId, RowState};

mod history;

#[cfg(test)]
mod tests;

pub use history::{History, judge};

/// Heartbeats after a replica's start during which nodes may still be on their way back to it.
pub const HEARTBEATS_TO_RETURN: u32 = 2;

/// The question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The environment asked about.
    pub environment: Arc<str>,
    /// The cluster that committed the version, when the asker knows it.
    pub cluster_id: Option<u64>,
    /// The version's generation.
    pub generation: Generation,
    /// The version's revision.
    pub revision: Revision,
    /// The keys that the version wrote, with what it did to each. Empty: by revision alone.
    pub keys: Vec<(Key, Expectation)>,
    /// Whether the version must also be on the nodes' disks.
    pub durable: bool,
}

/// What the version did to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Expectation {
    /// It wrote the key.
    Put,
    /// It deleted the key.
    Delete,
    /// The asker does not say.
    Either,
}

/// What the store knows, of one immutable snapshot.
pub trait StoreFacts {
    /// Where the store stands.
    fn version(&self) -> Version;
    /// The mod revision of a held key, and when the store learned of its present value.
    fn held(&self, key: &Key) -> Option<HeldAt>;
    /// When a key that is not held was deleted, if that is still known.
    fn tombstone(&self, key: &Key) -> Option<Revision>;
    /// Every deletion after this revision is known.
    fn deletions_known_since(&self) -> Revision;
    /// The revision of the newest reload whose continuity could not be proven.
    fn unproven_at(&self) -> Option<Revision>;
    /// Up to where everything was known before the reload of this revision, if its continuity could not be proven.
    fn unproven_from(&self, at: Revision) -> Option<Revision>;
    /// Whether a version is what the store is known to have had at its revision.
    fn confirms(&self, version: &Version) -> bool;
    /// The sentence of a standing hold, if a jump is held by the mass-deletion guard.
    fn hold(&self) -> Option<String>;
}

/// When a held key was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldAt {
    /// The revision of the last write.
    pub mod_revision: Revision,
    /// The larger of that and the revision of the reload that brought the present value.
    pub changed_at: Revision,
}

/// The replica's own time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// Now.
    pub now: Duration,
    /// When nodes could first join.
    pub started_at: Duration,
    /// How often a node is heard at least.
    pub heartbeat: Duration,
}

/// The answer at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The answer in one word.
    pub outcome: Outcome,
    /// The same as a sentence.
    pub sentence: String,
    /// Every expected node, in order of id and instance.
    pub nodes: Vec<NodeAnswer>,
    /// What else the asker should know.
    pub notes: Vec<String>,
}

/// The answer in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// Applied on every expected node, and there is at least one.
    Applied,
    /// Not yet, and it may come by itself.
    Pending,
    /// No node is expected: there is nobody it could be applied on.
    NoNodes,
    /// The replica started too recently to know who belongs to the fleet.
    CannotSayYet,
    /// The store no longer knows what happened at that revision.
    CannotSay,
    /// The version's history is not the present one.
    HistoryReplaced,
    /// A node cannot use what the version wrote, and every other one has it.
    Refused,
    /// The guard holds a jump: an operator approves or rejects it.
    Held,
}

/// One node's part of the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAnswer {
    /// Who.
    pub row: RowId,
    /// Whether a second process is live under the same node id.
    pub duplicate: bool,
    /// Where it stands to the question.
    pub standing: Standing,
    /// What it applied last, as far as is known.
    pub applied: Option<Version>,
}

/// Where a node stands to the question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Applied.
    Applied,
    /// It cannot use what the version wrote.
    Refused {
        /// The first key of the version that it rejects.
        key: Key,
        /// Why.
        reason: Arc<str>,
    },
    /// It stands at an earlier version, or at one that this replica has not come to itself.
    Behind,
    /// It applied the version; its disk does not have it yet.
    NotDurable,
    /// It has not said yet which keys it cannot use.
    RejectsUnknown,
    /// It is lost.
    NotHeardFrom {
        /// For how long.
        lost_for: Duration,
        /// Why its session ended.
        reason: Arc<str>,
    },
    /// Its own guard holds a jump.
    Held {
        /// What it would remove, in a sentence.
        detail: Arc<str>,
    },
}

/// The versions at which a node counts.
struct Range {
    from: Revision,
    to: Version,
}

/// Answers the question at `clock.now`.
#[must_use]
pub fn evaluate(question: &Wait, registry: &Registry, store: &impl StoreFacts, clock: Clock) -> Answer {
    let range = Range { from: history::reach(question, store), to: store.version() };
    let nodes: Vec<NodeAnswer> = registry
        .expected(Some(&question.environment), clock.now)
        .map(|row| NodeAnswer {
            row: row.id.clone(),
            duplicate: registry.is_duplicate(row),
            standing: standing(question, &range, store, row, clock.now),
            applied: row.applied.clone(),
        })
        .collect();
    let (outcome, sentence) = decide(question, store, clock, &nodes);
    Answer { outcome, sentence, notes: notes(question, store, &nodes), nodes }
}

fn decide(question: &Wait, store: &impl StoreFacts, clock: Clock, nodes: &[NodeAnswer]) -> (Outcome, String) {
    match judge(question, store) {
        History::Replaced(why) => return (Outcome::HistoryReplaced, format!("history replaced: {why}")),
        History::Unknown(why) => return (Outcome::CannotSay, format!("cannot say: {why}")),
        History::NotReached => {
            let at = store.version();
            let sentence = format!("this replica stands at {at} and has not seen {} yet", question.shown());
            return (Outcome::Pending, sentence);
        }
        History::Contains => {}
    }
    if let Some(hold) = store.hold() {
        return (Outcome::Held, format!("held: approve or reject: {hold}"));
    }
    if clock.is_too_early() {
        let sentence = "cannot say yet: this replica has just started, nodes may still be coming back";
        return (Outcome::CannotSayYet, sentence.into());
    }
    of_nodes(question, nodes)
}

fn of_nodes(question: &Wait, nodes: &[NodeAnswer]) -> (Outcome, String) {
    if nodes.is_empty() {
        let sentence = "no node is expected: the version is applied nowhere".into();
        return (Outcome::NoNodes, sentence);
    }
    let count = |matches: fn(&Standing) -> bool| nodes.iter().filter(|node| matches(&node.standing)).count();
    let applied = count(|standing| *standing == Standing::Applied);
    let refused = count(|standing| matches!(standing, Standing::Refused { .. }));
    let held = count(|standing| matches!(standing, Standing::Held { .. }));
    let (all, version) = (nodes.len(), question.shown());
    if applied == all {
        return (Outcome::Applied, format!("{version} is applied on {all} of {all} nodes"));
    }
    if applied + refused == all {
        return (Outcome::Refused, format!("{version} is refused by {refused} of {all} nodes"));
    }
    if applied + refused + held == all {
        let sentence = format!("held: approve or reject: {held} of {all} nodes hold a jump");
        return (Outcome::Held, sentence);
    }
    (Outcome::Pending, format!("{version} is applied on {applied} of {all} nodes"))
}

fn standing(question: &Wait, range: &Range, store: &impl StoreFacts, row: &Row, now: Duration) -> Standing {
    if let RowState::Lost { since, reason } = &row.state {
        return Standing::NotHeardFrom { lost_for: now.saturating_sub(*since), reason: reason.clone() };
    }
    // A node may come with a version of a history that this replica never knew, and a lineage does not tell.
    let counts = |version: Option<&Version>| {
        range.contains(version) && version.is_some_and(|version| store.confirms(version))
    };
    if !counts(row.applied.as_ref()) {
        return match &row.refused {
            Some(refused) if refused.why == RefusedWhy::Held => {
                Standing::Held { detail: refused.detail.clone() }
            }
            _ => Standing::Behind,
        };
    }
    if !mutant::planted("wait-ignores-rejects") {
        if !row.rejects_known {
            return Standing::RejectsUnknown;
        }
        if let Some(reject) = question.keys.iter().find_map(|(key, _)| row.rejects.get(key)) {
            return Standing::Refused { key: reject.key.clone(), reason: reject.reason.clone() };
        }
    }
    if question.durable && !counts(row.durable.as_ref()) {
        return Standing::NotDurable;
    }
    Standing::Applied
}

fn notes(question: &Wait, store: &impl StoreFacts, nodes: &[NodeAnswer]) -> Vec<String> {
    let mut notes = Vec::new();
    if question.keys.is_empty() {
        notes.push("asked by revision alone: refusals of keys since overwritten are not seen".into());
    }
    for (key, _) in &question.keys {
        if store.held(key).is_some_and(|held| held.mod_revision > question.revision) {
            notes.push(format!("{key} has been overwritten since: the nodes serve the later value"));
        } else if store.tombstone(key).is_some_and(|at| at > question.revision) {
            notes.push(format!("{key} has been deleted since"));
        }
    }
    for node in nodes.iter().filter(|node| node.duplicate) {
        notes.push(format!(
            "two processes are live under the node id {}: both count (instance {})",
            node.row.node_id, node.row.instance
        ));
    }
    notes
}

// === impl Range ===

impl Range {
    /// Revisions compare within the store's lineage only: a node of another cluster or generation may stand at any
    /// number. What lies above the store is not known to be of its history.
    fn contains(&self, version: Option<&Version>) -> bool {
        version.is_some_and(|version| {
            version.lineage == self.to.lineage
                && version.revision >= self.from
                && version.revision <= self.to.revision
        })
    }
}

// === impl Wait ===

impl Wait {
    /// The version as `generation.revision`.
    #[must_use]
    pub fn shown(&self) -> String {
        format!("{}.{}", self.generation, self.revision)
    }
}

// === impl Clock ===

impl Clock {
    fn is_too_early(&self) -> bool {
        self.now.saturating_sub(self.started_at) < self.heartbeat * HEARTBEATS_TO_RETURN
    }
}

// === impl Outcome ===

impl Outcome {
    /// Whether waiting longer cannot change the answer without somebody acting.
    #[must_use]
    pub const fn is_final(self) -> bool {
        match self {
            Self::Pending | Self::NoNodes | Self::CannotSayYet => false,
            Self::Applied | Self::CannotSay | Self::HistoryReplaced | Self::Refused | Self::Held => true,
        }
    }

    /// The outcome as a label.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Pending => "pending",
            Self::NoNodes => "no_nodes",
            Self::CannotSayYet => "cannot_say_yet",
            Self::CannotSay => "cannot_say",
            Self::HistoryReplaced => "history_replaced",
            Self::Refused => "refused",
            Self::Held => "held",
        }
    }
}
