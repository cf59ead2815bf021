//! What operators can do, independent of how they ask: read, write, validate, wait, approve.
//!
//! Use cases only. [`grpc`] is one way to them; nothing here knows messages or status codes of a protocol. A write
//! is one transaction of the backend, after validation by the very function a node decides with, and its answer
//! names the version to wait for. Nothing is written that no operator asked for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::fleet::Fleet;

pub mod access;
pub mod environment;
pub mod form;
pub mod grpc;
pub mod holds;
pub mod metrics;
pub mod reading;
pub mod refusal;
pub mod status;
pub mod validation;
pub mod view;
pub mod waiting;
pub mod writing;

pub use access::{Access, Role};
pub use environment::Environment;
pub use refusal::Refusal;
pub use view::{EnvironmentState, EnvironmentView, HeldJump};

/// Everything an operator's request needs; a clone of the `Arc` around it serves every listener.
#[derive(Debug)]
pub struct Admin {
    environments: BTreeMap<Arc<str>, Arc<Environment>>,
    fleet: Fleet,
    replica: ReplicaInfo,
}

/// What a replica says of itself.
#[derive(Clone, Debug)]
pub struct ReplicaInfo {
    /// Its configured id.
    pub id: Arc<str>,
    /// When it started (Unix seconds).
    pub started_unix: u64,
    /// How often a node is heard at least.
    pub heartbeat: Duration,
    /// How long an approval covers when the operator does not say.
    pub approval_retention: Duration,
    /// The other replicas it is configured with. With any, waits are refused: only one replica's nodes are known.
    pub peers: Vec<String>,
}

// === impl Admin ===

impl Admin {
    /// The use cases over these environments and this fleet.
    #[must_use]
    pub fn new(
        environments: impl IntoIterator<Item = Environment>,
        fleet: Fleet,
        replica: ReplicaInfo,
    ) -> Self {
        let environments = environments
            .into_iter()
            .map(|environment| (environment.name().clone(), Arc::new(environment)))
            .collect();
        Self { environments, fleet, replica }
    }

    /// An environment by name; without a name the only one.
    ///
    /// # Errors
    /// When there is none of that name, or several and no name.
    pub fn environment(&self, name: &str) -> Result<&Arc<Environment>, Refusal> {
        let only = self.environments.values().next().filter(|_| self.environments.len() == 1);
        let found = if name.is_empty() { only } else { self.environments.get(name) };
        found.ok_or_else(|| Refusal::UnknownEnvironment {
            asked: name.to_owned(),
            known: self.environments.keys().map(ToString::to_string).collect(),
        })
    }

    /// The environments of that name, or all without a name.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn environments(&self, name: &str) -> Result<Vec<&Arc<Environment>>, Refusal> {
        if name.is_empty() {
            return Ok(self.environments.values().collect());
        }
        self.environment(name).map(|environment| vec![environment])
    }

    /// The nodes.
    #[must_use]
    pub const fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// The replica.
    #[must_use]
    pub const fn replica(&self) -> &ReplicaInfo {
        &self.replica
    }
}

/// Unix seconds now: for times that are stored or shown, never for deadlines.
fn unix_now() -> u64 {
    unix_now_ms() / 1000
}

/// Unix milliseconds now, likewise.
fn unix_now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
