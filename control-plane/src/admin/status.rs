//! What a replica, its environments and their sources are doing, for people and for alerts.

use std::collections::BTreeMap;
use std::sync::Arc;

use headwater_model::Key;

use super::environment::Environment;
use super::view::EnvironmentState;
use super::{Admin, ReplicaInfo, unix_now};
use crate::fleet::{Registry, RowState};

/// The whole of it.
#[derive(Clone, Debug)]
pub struct Status {
    /// The replica.
    pub replica: ReplicaInfo,
    /// Now (Unix seconds).
    pub now_unix: u64,
    /// By name.
    pub environments: Vec<EnvironmentStatus>,
}

/// One environment.
#[derive(Clone, Debug)]
pub struct EnvironmentStatus {
    /// Its name.
    pub name: Arc<str>,
    /// Its state.
    pub state: EnvironmentState,
    /// Resources by kind.
    pub kinds: BTreeMap<&'static str, u64>,
    /// Nodes with an open session.
    pub live: usize,
    /// Nodes that are lost and expected.
    pub lost: usize,
    /// Live nodes that applied what is served.
    pub current: usize,
    /// Keys that nodes cannot use.
    pub rejects: Vec<RejectSummary>,
}

/// One key that some nodes cannot use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectSummary {
    /// The key.
    pub key: Key,
    /// Why, as one of them says.
    pub reason: Arc<str>,
    /// The newest rejected mod revision.
    pub mod_revision: u64,
    /// How many nodes reject it.
    pub nodes: u64,
    /// How many of them serve an older value in its place.
    pub retained: u64,
    /// Since when the first of them does (Unix seconds).
    pub since_unix: u64,
}

// === impl Admin ===

impl Admin {
    /// The status now.
    #[must_use]
    pub fn status(&self) -> Status {
        let registry = self.fleet().registry();
        let now = self.fleet().now();
        let environments = self
            .environments
            .values()
            .map(|environment| EnvironmentStatus::of(environment, &registry, now))
            .collect();
        Status { replica: self.replica().clone(), now_unix: unix_now(), environments }
    }
}

// === impl EnvironmentStatus ===

impl EnvironmentStatus {
    fn of(environment: &Environment, registry: &Registry, now: std::time::Duration) -> Self {
        let state = environment.view().state();
        let kinds = state.world.kinds().collect();
        let name = environment.name().clone();
        let expected: Vec<_> = registry.expected(Some(environment.name()), now).collect();
        let live = expected.iter().filter(|row| row.state == RowState::Live);
        let current = live.clone().filter(|row| row.applied.as_ref() == Some(&state.served)).count();
        let mut rejects: BTreeMap<Key, RejectSummary> = BTreeMap::new();
        for reject in expected.iter().flat_map(|row| row.rejects.values()) {
            let summary = rejects.entry(reject.key.clone()).or_insert_with(|| RejectSummary {
                key: reject.key.clone(),
                reason: reject.reason.clone(),
                mod_revision: 0,
                nodes: 0,
                retained: 0,
                since_unix: reject.since_unix,
            });
            summary.nodes += 1;
            summary.retained += u64::from(reject.served.is_some());
            summary.since_unix = summary.since_unix.min(reject.since_unix);
            if reject.mod_revision.0 >= summary.mod_revision {
                summary.mod_revision = reject.mod_revision.0;
                summary.reason = reject.reason.clone();
            }
        }
        let live = live.count();
        Self {
            name,
            kinds,
            live,
            lost: expected.len() - live,
            current,
            rejects: rejects.into_values().collect(),
            state,
        }
    }
}
