//! The health listener: `/livez`, `/readyz`, `/metrics` and `/status/config`.

use std::sync::Arc;

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use headwater_model::Version;
use headwater_process::{Policy, health};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::Parts;
use crate::admin::Admin;
use crate::admin::status::{EnvironmentStatus, Status};

/// Serves until the drain is over: readiness is asked for during it.
pub(super) fn serve(socket: TcpListener, parts: &Parts, admin: Arc<Admin>, registry: Registry) {
    let router = router(admin).merge(health::router(parts.readiness.clone(), Arc::new(registry)));
    let policy = Policy::essential().dropped_on_cancel();
    parts.supervisor.spawn("health", policy, async move { axum::serve(socket, router).await });
}

fn router(admin: Arc<Admin>) -> Router {
    Router::new().route("/status/config", get(status)).with_state(admin)
}

async fn status(State(admin): State<Arc<Admin>>) -> Json<Value> {
    Json(document(&admin.status()))
}

fn document(status: &Status) -> Value {
    json!({
        "replica": &*status.replica.id,
        "build": env!("CARGO_PKG_VERSION"),
        "started_unix": status.replica.started_unix,
        "now_unix": status.now_unix,
        "environments": status.environments.iter().map(environment).collect::<Vec<_>>(),
    })
}

fn environment(status: &EnvironmentStatus) -> Value {
    let state = &status.state;
    let rejects: Vec<Value> = status
        .rejects
        .iter()
        .map(|reject| {
            json!({
                "key": reject.key.as_str(),
                "reason": &*reject.reason,
                "mod_revision": reject.mod_revision,
                "nodes": reject.nodes,
                "retained": reject.retained,
                "since_unix": reject.since_unix,
            })
        })
        .collect();
    json!({
        "name": &*status.name,
        "prefix": &*state.world.lineage().prefix,
        "complete": state.complete,
        "version": version(state.world.version()),
        "serving": version(&state.served),
        "source": {
            "stage": state.source.stage.label(),
            "member": state.source.member,
            "server_version": state.source.server_version,
            "note": state.source.note,
            "proof_age_ms": state.proof_age.map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
        },
        "resources": state.world.content().len(),
        "ignored": state.ignored,
        "held": state.held(),
        "degraded": state.degraded(),
        "nodes": {"live": status.live, "current": status.current, "lost": status.lost},
        "rejects": rejects,
    })
}

fn version(version: &Version) -> Value {
    json!({
        "cluster_id": format!("{:x}", version.lineage.cluster_id),
        "generation": version.lineage.generation.0,
        "revision": version.revision.0,
        "digest": version.digest.to_string(),
    })
}
