//! The hold: a jump of the source that the mass-deletion guard stopped, and the approvals that let it pass.
//!
//! Pure. The store always follows the source; a hold only decides what is *served*. While one stands, the content
//! from before the jump is frozen and served, judged again at every commit. It dissolves when the new world removes
//! less than the guard's threshold, or when an approval covers the jump. Rejecting silences it until the lineage
//! changes again: it stands, but is no longer announced as waiting for an answer.

use std::collections::BTreeMap;
use std::sync::Arc;

use headwater_model::guard::Removal;
use headwater_model::{Lineage, Version, mutant};
use headwater_proto::config::Approval;

use crate::store::Snapshot;

/// The hold of one environment.
#[derive(Debug, Default)]
pub struct Hold {
    standing: Option<Standing>,
    approvals: BTreeMap<Arc<str>, Approval>,
}

/// A hold that stands.
#[derive(Clone, Debug)]
pub struct Standing {
    /// What is served: the state from before the jump.
    pub frozen: Snapshot,
    /// Since when (Unix seconds).
    pub since_unix: u64,
    /// What the jump would remove, as judged last.
    pub removal: Removal,
    /// Where it leads.
    pub to: Version,
    /// Whether an operator rejected it.
    pub rejected: bool,
}

/// What a judgement did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judged {
    /// Nothing is held, nothing was.
    Open,
    /// A hold began.
    Began(Removal),
    /// The hold stands on.
    Stands,
    /// The hold ended: the new world removes less than the threshold.
    Dissolved,
    /// The hold ended, or never began, by this approval.
    Approved(Arc<str>),
}

// === impl Hold ===

impl Hold {
    /// A hold that goes on from a file, with the approvals that were known.
    #[must_use]
    pub fn resume(standing: Option<Standing>, approvals: impl IntoIterator<Item = Approval>) -> Self {
        let approvals = approvals.into_iter().map(|approval| (approval.id.clone(), approval));
        Self { standing, approvals: approvals.collect() }
    }

    /// The hold that stands, if one does.
    #[must_use]
    pub const fn standing(&self) -> Option<&Standing> {
        self.standing.as_ref()
    }

    /// What is served, given the newest state.
    #[must_use]
    pub fn serving<'a>(&'a self, world: &'a Snapshot) -> &'a Snapshot {
        self.standing.as_ref().map_or(world, |standing| &standing.frozen)
    }

    /// All approvals that are known, by id.
    #[must_use]
    pub const fn approvals(&self) -> &BTreeMap<Arc<str>, Approval> {
        &self.approvals
    }

    /// An approval was read from the source.
    pub fn approve(&mut self, approval: Approval) {
        self.approvals.insert(approval.id.clone(), approval);
    }

    /// An approval is gone from the source. What it let pass is not taken back.
    pub fn withdraw(&mut self, id: &str) {
        self.approvals.remove(id);
    }

    /// Forgets all approvals: a full read brings those that exist.
    pub fn clear_approvals(&mut self) {
        self.approvals.clear();
    }

    /// An operator rejects the jump: silent until the lineage changes. `false` when nothing is held.
    pub const fn reject(&mut self) -> bool {
        match &mut self.standing {
            Some(standing) => {
                standing.rejected = true;
                true
            }
            None => false,
        }
    }

    /// Judges the newest state. `served` is what was served before the change and `jump` says whether the change
    /// was a jump (a reload whose continuity is not proven); ordinary commits only matter while a hold stands.
    pub fn judge(&mut self, served: &Snapshot, world: &Snapshot, jump: bool, now_unix: u64) -> Judged {
        let Some(standing) = &mut self.standing else {
            return if jump { self.judge_jump(served, world, now_unix) } else { Judged::Open };
        };
        let to = world.version().clone();
        if standing.to.lineage != to.lineage {
            standing.rejected = false;
        }
        standing.to = to;
        standing.removal = Removal::between(standing.frozen.content(), world.content());
        if !standing.removal.is_held() {
            self.standing = None;
            return Judged::Dissolved;
        }
        let from = standing.frozen.version().clone();
        match self.covering(&from, world.version(), now_unix) {
            Some(approval) => {
                let id = approval.id.clone();
                self.standing = None;
                Judged::Approved(id)
            }
            None => Judged::Stands,
        }
    }

    /// The approval that covers a jump, if there is one.
    #[must_use]
    pub fn covering(&self, from: &Version, to: &Version, now_unix: u64) -> Option<&Approval> {
        self.approvals.values().find(|approval| approval.covers(from, to, now_unix))
    }

    fn judge_jump(&mut self, served: &Snapshot, world: &Snapshot, now_unix: u64) -> Judged {
        let removal = Removal::between(served.content(), world.content());
        if !removal.is_held() || mutant::planted("guard-off-for-reloaded") && same_history(served, world) {
            return Judged::Open;
        }
        if let Some(approval) = self.covering(served.version(), world.version(), now_unix) {
            return Judged::Approved(approval.id.clone());
        }
        self.standing = Some(Standing {
            frozen: served.clone(),
            since_unix: now_unix,
            removal,
            to: world.version().clone(),
            rejected: false,
        });
        Judged::Began(removal)
    }
}

fn same_history(a: &Snapshot, b: &Snapshot) -> bool {
    a.lineage() == b.lineage()
}

/// The approval an operator would have to give for a jump between these versions.
#[must_use]
pub fn approval_for(id: Arc<str>, from: &Version, to: &Lineage, expires_unix: u64) -> Approval {
    Approval { id, from: from.lineage.clone(), base_at_most: from.revision, to: to.clone(), expires_unix }
}

#[cfg(test)]
mod tests;
