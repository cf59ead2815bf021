//! What operators read from a node: its status and metrics on the health listener, dumps on the loopback listener.
//!
//! Reads the cells that the stream and the applier fill; it changes nothing. No page shows a secret.

mod dumps;
mod metrics;
mod redaction;

use std::sync::Arc;

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use headwater_model::Version;
use headwater_proto::config::Standing;
use serde_json::{Value, json};

use crate::config::NodeConfig;
use crate::sync::applier::Views;
use crate::sync::keeper::Keeper;
use crate::sync::protocol::{Phase, Status};
use crate::sync::stream::{Statuses, unix_now};
pub use dumps::dumps;

/// The cells that the pages read.
#[derive(Clone, Debug)]
pub struct Sources {
    /// The stream's status.
    pub statuses: Statuses,
    /// What is served.
    pub views: Views,
    /// The disk; nothing when it could not be opened.
    pub keeper: Option<Keeper>,
    /// The settings in effect.
    pub config: Arc<NodeConfig>,
    /// The random name of this start of the process, as replicas list it beside the node's id.
    pub instance: Arc<str>,
    /// When the process began to serve (Unix seconds).
    pub started_unix: u64,
    /// When the content that the disk gave was written (Unix seconds); nothing when it gave none.
    pub written_unix: Option<u64>,
}

/// `/status/config`: which version, how fresh, what is rejected, and why.
pub fn status(sources: Sources) -> Router {
    Router::new().route("/status/config", get(config)).with_state(sources)
}

async fn config(State(sources): State<Sources>) -> Json<Value> {
    Json(sources.describe())
}

// === impl Sources ===

impl Sources {
    fn describe(&self) -> Value {
        let status = self.statuses.load();
        let view = self.views.load();
        json!({
            "node_id": self.config.node_id,
            "instance": &*self.instance,
            "environment": self.config.environment,
            "started_unix": self.started_unix,
            "applied": status.applied.as_ref().map(version),
            "durable": status.durable.as_ref().map(version),
            "publishing": status.publishing.as_ref().map(version),
            "resources": status.resources,
            "value_bytes": status.value_bytes,
            "proof": {
                "replica_age_seconds": status.hop_age.map(|age| age.as_secs_f64()),
                "source_age_seconds": status.source_age.map(|age| age.as_secs_f64()),
                "stale_since_unix": self.stale_since(&status),
            },
            "stream": self.stream(&status),
            "rejected": view.rejects.iter().map(|reject| json!({
                "key": reject.key.as_str(),
                "mod_revision": reject.mod_revision.0,
                "reason": reject.reason,
                "served_mod_revision": reject.served.map(|revision| revision.0),
                "since_unix": reject.since_unix,
                "governs": reject.governs,
            })).collect::<Vec<_>>(),
            "hold": status.refused.as_ref().map(|held| json!({
                "why": held.refused.why.label(),
                "target": version(&held.refused.target),
                "held_resources": held.refused.held_resources,
                "removed_resources": held.refused.removed_resources,
                "detail": held.refused.detail,
                "since_unix": held.since_unix,
            })),
            "disk": self.disk(),
        })
    }

    /// Since when what is served is without proof; nothing while a live replica is on the line. After a start that
    /// has not reached anybody yet, the moment the file was written is the last that is known.
    fn stale_since(&self, status: &Status) -> Option<u64> {
        match (status.phase, status.standing, status.hop_age) {
            (Phase::Open, Some(Standing::Degraded { since_unix }), _) => Some(since_unix),
            (Phase::Open, Some(_), _) => None,
            (_, _, Some(age)) => Some(unix_now().saturating_sub(age.as_secs())),
            (_, _, None) => self.written_unix,
        }
    }

    fn stream(&self, status: &Status) -> Value {
        let counts = status.counts;
        json!({
            "phase": match status.phase {
                Phase::Dialling => "dialling",
                Phase::Open => "open",
                Phase::Stopped => "stopped",
            },
            "addresses": self.config.control_plane.addresses,
            "address": self.config.control_plane.addresses.get(status.address),
            "connection": status.connection,
            "replica_id": status.replica_id,
            "standing": status.standing.map(standing),
            "receiving_bytes": status.receiving,
            "held_ahead_since_unix": status.held_ahead_since_unix,
            "last_transfer": status.last_transfer.map(|(reason, unix)| json!({
                "reason": reason.label(), "unix": unix,
            })),
            "last_error": status.last_error.as_ref().map(|(error, unix)| json!({ "error": error, "unix": unix })),
            "transfers": counts.transfers,
            "transfers_refused": counts.refused,
            "transfers_dropped": counts.dropped,
            "versions": counts.versions,
            "connections_lost": counts.connections_lost,
        })
    }

    fn disk(&self) -> Value {
        let Some(keeper) = &self.keeper else {
            return json!({ "error": "the last known good could not be opened; the log says why" });
        };
        let status = keeper.status();
        json!({
            "path": status.path,
            "writer": status.writer,
            "bytes": status.bytes,
            "faults": status.faults,
            "error": status.error,
        })
    }
}

fn version(version: &Version) -> Value {
    json!({
        "cluster_id": format!("{:x}", version.lineage.cluster_id),
        "prefix": version.lineage.prefix,
        "generation": version.lineage.generation.0,
        "revision": version.revision.0,
        "digest": version.digest.to_string(),
    })
}

fn standing(standing: Standing) -> Value {
    match standing {
        Standing::Live => json!({ "state": "live" }),
        Standing::Degraded { since_unix } => json!({ "state": "degraded", "since_unix": since_unix }),
        Standing::Held { since_unix } => json!({ "state": "held", "since_unix": since_unix }),
    }
}
