//! What an environment shows its sessions: one immutable value, replaced whole.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use headwater_model::guard::Removal;
use headwater_model::{Revision, Version};
use headwater_proto::config::{Approval, Standing};
use imbl::OrdMap;

use super::transfer::Transfers;
use crate::backend::SourceState;
use crate::store::Snapshot;

/// What is served now, what the store holds, and how far it can be relied on.
#[derive(Clone, Debug)]
pub struct Publication {
    /// What nodes are brought to: the newest state, or the one from before a held jump.
    pub serving: Arc<Snapshot>,
    /// The newest state of the store.
    pub world: Arc<Snapshot>,
    /// Whether there is a complete state to serve.
    pub complete: bool,
    /// The jump that is held.
    pub hold: Option<HeldJump>,
    /// Keys that are no content, with create and mod revision: an audit compares them too.
    pub others: OrdMap<Bytes, (Revision, Revision)>,
    /// Keys of the last load that were no content, by reason.
    pub ignored: std::collections::BTreeMap<&'static str, u64>,
    /// The approvals that are known.
    pub approvals: Arc<[Approval]>,
    /// What the source is doing.
    pub source: SourceState,
    /// When the source was last proven alive (on the clock of `now`); nothing before the first proof.
    pub last_proof: Option<Duration>,
    /// Since when there is no proof of life (Unix seconds), while there is none.
    pub degraded_since: Option<u64>,
    /// The encoded transfers to `serving`, shared by all sessions.
    pub transfers: Arc<Transfers>,
}

/// A held jump, from `serving` to `world`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldJump {
    /// Since when (Unix seconds).
    pub since_unix: u64,
    /// What it would remove.
    pub removal: Removal,
    /// Whether an operator rejected it.
    pub rejected: bool,
}

// === impl Publication ===

impl Publication {
    /// Whether the source is proven alive.
    #[must_use]
    pub const fn is_live(&self) -> bool {
        self.complete && self.degraded_since.is_none()
    }

    /// The version nodes are brought to.
    #[must_use]
    pub fn target(&self) -> &Version {
        self.serving.version()
    }

    /// The newest revision held.
    #[must_use]
    pub fn head(&self) -> Revision {
        self.world.version().revision
    }

    /// How far what is served can be relied on.
    #[must_use]
    pub fn standing(&self) -> Standing {
        match (self.degraded_since, self.hold.map(|hold| hold.since_unix)) {
            (Some(since_unix), _) => Standing::Degraded { since_unix },
            (None, Some(since_unix)) => Standing::Held { since_unix },
            (None, None) => Standing::Live,
        }
    }

    /// How long ago the source was last proven alive; since the start when it never was.
    #[must_use]
    pub fn proof_age(&self, now: Duration) -> Duration {
        now.saturating_sub(self.last_proof.unwrap_or_default())
    }

    /// The approval that covers a jump from `from` to what is served.
    #[must_use]
    pub fn approval(&self, from: &Version, now_unix: u64) -> Option<&Approval> {
        self.approvals.iter().find(|approval| approval.covers(from, self.target(), now_unix))
    }
}
