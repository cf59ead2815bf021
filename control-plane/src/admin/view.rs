//! What admin must know of an environment. The environment's shell implements it; nothing here reaches into it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use headwater_model::guard::Removal;
use headwater_model::{Key, Revision, Version};
use headwater_proto::config::Approval;
use tokio::sync::watch;

use crate::backend::SourceState;
use crate::fleet::wait::{HeldAt, StoreFacts};
use crate::store::Snapshot;

mod running;

/// A window on a running environment.
#[async_trait]
pub trait EnvironmentView: Send + Sync {
    /// The configured name.
    fn name(&self) -> &Arc<str>;

    /// Everything at one moment.
    fn state(&self) -> EnvironmentState;

    /// Wakes when what is served differs. Other changes of the state wake nobody.
    fn wakes(&self) -> watch::Receiver<u64>;

    /// Silences the standing hold until the history changes again. `false` when nothing is held.
    async fn reject_hold(&self) -> bool;
}

/// An environment at one moment.
#[derive(Clone, Debug)]
pub struct EnvironmentState {
    /// Whether a complete state was loaded once, or opened whole from the file.
    pub complete: bool,
    /// The newest state; it always follows the source. Reads and writes act on it.
    pub world: Snapshot,
    /// What nodes are served; another version than the world's while a jump is held.
    pub served: Version,
    /// What the source is doing.
    pub source: SourceState,
    /// How long ago the source was last proven alive.
    pub proof_age: Option<Duration>,
    /// The jump that is held.
    pub hold: Option<HeldJump>,
    /// Approvals that are known, expired ones included.
    pub approvals: Vec<Approval>,
    /// Keys that are no content, by reason.
    pub ignored: BTreeMap<&'static str, u64>,
}

/// A jump that the guard stopped at this replica.
#[derive(Clone, Debug)]
pub struct HeldJump {
    /// What is served meanwhile.
    pub from: Version,
    /// Where the jump leads.
    pub to: Version,
    /// Since when (Unix seconds).
    pub since_unix: u64,
    /// What it would remove.
    pub removal: Removal,
    /// Whether an operator rejected it.
    pub rejected: bool,
}

// === impl EnvironmentState ===

impl EnvironmentState {
    /// Why nothing can be written now, if so: the source is not proven alive.
    #[must_use]
    pub fn degraded(&self) -> Option<String> {
        if self.source.is_live() {
            return None;
        }
        let age = self.proof_age.map_or_else(
            || "never proven alive".to_owned(),
            |age| format!("last proven alive {} s ago", age.as_secs()),
        );
        let note = self.source.note.as_deref().map(|note| format!(": {note}")).unwrap_or_default();
        let stage = self.source.stage.label();
        Some(format!("the source {} is {stage}, {age}{note}", self.source.member))
    }

    /// The standing hold as a sentence.
    #[must_use]
    pub fn held(&self) -> Option<String> {
        self.hold.as_ref().map(HeldJump::sentence)
    }
}

impl StoreFacts for EnvironmentState {
    fn version(&self) -> Version {
        self.world.version().clone()
    }

    fn held(&self, key: &Key) -> Option<HeldAt> {
        self.world
            .held(key.as_str())
            .map(|held| HeldAt { mod_revision: held.resource.mod_revision(), changed_at: held.changed_at })
    }

    fn tombstone(&self, key: &Key) -> Option<Revision> {
        self.world.tombstone(key.as_str())
    }

    fn deletions_known_since(&self) -> Revision {
        self.world.deletions_known_since()
    }

    fn unproven_at(&self) -> Option<Revision> {
        self.world.unproven_at()
    }

    fn unproven_from(&self, at: Revision) -> Option<Revision> {
        self.world.unproven_from(at)
    }

    fn confirms(&self, version: &Version) -> bool {
        self.world.confirms(version)
    }

    fn hold(&self) -> Option<String> {
        self.held()
    }
}

// === impl HeldJump ===

impl HeldJump {
    /// Names this very jump: where it starts and the history it leads to. It stays the same while the new world
    /// goes on changing.
    #[must_use]
    pub fn id(&self) -> String {
        jump_id(&self.from, &self.to)
    }

    /// What is held, as a sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let rejected = if self.rejected { " and was rejected" } else { "" };
        format!(
            "the jump from {} to {} {}; it is held since {} (Unix){rejected}, nodes are served {}",
            self.from, self.to, self.removal, self.since_unix, self.from
        )
    }
}

/// The id of a jump between two versions.
#[must_use]
pub fn jump_id(from: &Version, to: &Version) -> String {
    format!(
        "{:x}.{}.{}-{:x}.{}",
        from.lineage.cluster_id,
        from.lineage.generation,
        from.revision,
        to.lineage.cluster_id,
        to.lineage.generation
    )
}
