//! What a node needs next, from where it is and what is served.

use headwater_model::{Generation, Version, mutant};
use headwater_proto::config::TransferReason;

use crate::distribution::publication::Publication;
use crate::distribution::transfer::Plan;

/// What to do for a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing: it holds the very content that is served.
    Current,
    /// It does, and its version carries a higher generation.
    Adopt(Generation),
    /// Send this.
    Transfer(Plan),
    /// Nothing may be changed on it now.
    Wait(Waiting),
}

/// Why nothing is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    /// No proof of life of the source.
    Degraded,
    /// The node is ahead of this replica.
    Ahead,
    /// Its generation is above ours and its content is another.
    GenerationAhead,
    /// It has refused, and nothing has changed since.
    Refused,
}

/// Decides (DESIGN sections 5 and 6): what a step needs, and which jump it is otherwise.
pub(super) fn next(
    held: Option<&Version>,
    accept_degraded: bool,
    publication: &Publication,
    now_unix: u64,
) -> Next {
    let target = publication.target();
    let Some(held) = held else {
        return if publication.is_live() || accept_degraded {
            Next::Transfer(full(TransferReason::First, None, publication, now_unix))
        } else {
            Next::Wait(Waiting::Degraded)
        };
    };
    if !publication.is_live() && !mutant::planted("degraded-replica-changes-nodes") {
        return Next::Wait(Waiting::Degraded);
    }
    let (ours, theirs) = (target.lineage.generation, held.lineage.generation);
    let same_prefix = held.lineage.prefix == target.lineage.prefix;
    if held.digest == target.digest && same_prefix {
        return if theirs > ours { Next::Adopt(theirs) } else { Next::Current };
    }
    if theirs > ours {
        return Next::Wait(Waiting::GenerationAhead);
    }
    let jump = |reason| Next::Transfer(full(reason, Some(held), publication, now_unix));
    if held.lineage.cluster_id != target.lineage.cluster_id || !same_prefix {
        return jump(TransferReason::OtherLineage);
    }
    if theirs < ours {
        return jump(TransferReason::Rewound);
    }
    if held.revision > target.revision {
        return Next::Wait(Waiting::Ahead);
    }
    if held.revision == target.revision {
        return jump(TransferReason::Divergence);
    }
    let serving = &publication.serving;
    if held.revision < serving.deletions_known_since() || serving.is_unread(held.revision) {
        return jump(TransferReason::TooOld);
    }
    let unproven = serving.unproven_since(held.revision) && !mutant::planted("unproven-is-a-step");
    let reason = if unproven { TransferReason::Reloaded } else { TransferReason::Step };
    let mut plan = full(reason, Some(held), publication, now_unix);
    plan.base = Some((held.revision, held.digest));
    Next::Transfer(plan)
}

/// A plan for the full content.
pub(super) fn full(
    reason: TransferReason,
    held: Option<&Version>,
    publication: &Publication,
    now_unix: u64,
) -> Plan {
    let approval = held
        .filter(|_| reason.is_jump())
        .and_then(|held| publication.approval(held, now_unix))
        .map(|approval| approval.id.clone());
    Plan { base: None, reason, approval }
}
