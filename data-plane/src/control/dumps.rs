//! Dumps of what is held and what is served, key by key; loopback by default.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use headwater_model::Kind;
use serde_json::{Value, json};

use super::{Sources, redaction, version};
use crate::sync::applier::View;

/// The kinds that are served, by the name of their list and of one of them.
const KINDS: [(&str, &str, Kind); 4] = [
    ("/v1/routes", "/v1/route/{id}", Kind::Routes),
    ("/v1/services", "/v1/service/{id}", Kind::Services),
    ("/v1/upstreams", "/v1/upstream/{id}", Kind::Upstreams),
    ("/v1/ssls", "/v1/ssl/{id}", Kind::Ssls),
];

/// `/v1/routes`, `/v1/route/{id}` and so on for services, upstreams and ssls, and `/config_dump` for everything.
pub fn dumps(sources: Sources) -> Router {
    let mut router = Router::new().route("/config_dump", get(all));
    for (list, one, kind) in KINDS {
        let listed = move |State(sources): State<Sources>| async move {
            let view = sources.views.load_full();
            Json(Value::Array(view.keys(Some(kind)).map(|key| view.describe(&key)).collect()))
        };
        let single = move |State(sources): State<Sources>, Path(id): Path<String>| async move {
            let view = sources.views.load_full();
            let key = format!("{}/{id}", kind.name());
            match view.holds(&key) {
                true => (StatusCode::OK, Json(view.describe(&key))),
                false => (StatusCode::NOT_FOUND, Json(json!({ "error": format!("{key} is not held") }))),
            }
        };
        router = router.route(list, get(listed)).route(one, get(single));
    }
    router.with_state(sources)
}

async fn all(State(sources): State<Sources>) -> Json<Value> {
    let view = sources.views.load_full();
    let resources: Vec<Value> = view.keys(None).map(|key| view.describe(&key)).collect();
    Json(json!({
        "version": view.version.as_ref().map(version),
        "settings": serde_json::to_value(&*sources.config).unwrap_or_default(),
        "status": sources.describe(),
        "resources": resources,
    }))
}

// === impl View ===

impl View {
    /// The keys that are held, all or those of a kind, in order. A served key is always held.
    fn keys(&self, kind: Option<Kind>) -> impl Iterator<Item = String> {
        let keys = self.content.iter().map(|resource| resource.key());
        keys.filter(move |key| kind.is_none_or(|kind| key.kind() == kind)).map(|key| key.as_str().to_owned())
    }

    fn holds(&self, key: &str) -> bool {
        self.content.get(key).is_some()
    }

    /// One key: what is held (raw), and what is served (effective) where that differs.
    fn describe(&self, key: &str) -> Value {
        let held = self.content.get(key);
        let served = self.served.get(key);
        let retained = served.filter(|served| served.kept.is_some());
        let reject = self.rejects.iter().find(|reject| reject.key.as_str() == key);
        json!({
            "key": key,
            "create_revision": held.map(|held| held.create_revision().0),
            "mod_revision": held.map(|held| held.mod_revision().0),
            "value": held.map(|held| redaction::value(held)),
            "state": match (served.is_some(), retained.is_some(), reject.is_some()) {
                (true, true, _) => "retained",
                (_, _, true) => "rejected",
                _ => "served",
            },
            "reason": reject.map(|reject| reject.reason.clone()),
            "since_unix": reject.map(|reject| reject.since_unix),
            "effective": retained.map(|served| json!({
                "mod_revision": served.resource.mod_revision().0,
                "value": redaction::value(&served.resource),
                "kept_references": served.kept.iter().flat_map(|kept| kept.references.keys())
                    .map(headwater_model::Key::as_str).collect::<Vec<_>>(),
            })),
        })
    }
}
