//! Which resources a resource names, and which kinds may name a kind.

use serde_json::Value;

use super::Typed;
use crate::key::{Key, Kind};

/// The resources that a usable value is served with, in the order in which they are looked up.
#[must_use]
pub fn references(typed: &Typed) -> Vec<Key> {
    match typed {
        Typed::Route(route) => route.service_id.iter().chain(&route.upstream_id).cloned().collect(),
        Typed::Service(service) => service.upstream_id.iter().cloned().collect(),
        Typed::Upstream(_) | Typed::Ssl(_) | Typed::Inert | Typed::Governing(_) => Vec::new(),
    }
}

/// The kinds whose resources may name one of `kind`: where a writer has to look before it deletes one.
#[must_use]
pub const fn referring_kinds(kind: Kind) -> &'static [Kind] {
    match kind {
        Kind::Services => &[Kind::Routes, Kind::StreamRoutes],
        Kind::Upstreams => &[Kind::Routes, Kind::Services, Kind::StreamRoutes],
        Kind::PluginConfigs => &[Kind::Routes],
        Kind::ConsumerGroups => &[Kind::Consumers],
        Kind::Consumers => &[Kind::Credentials],
        Kind::StreamRoutes => &[Kind::StreamRoutes],
        Kind::Ssls => &[Kind::Upstreams, Kind::Routes, Kind::Services],
        _ => &[],
    }
}

/// The resources that a stored value names, usable or not: read straight from the JSON, so that a value which no
/// node can use still protects what it names. A value that is no JSON object names nothing but what its key does.
#[must_use]
pub fn stored_references(key: &Key, value: &[u8]) -> Vec<Key> {
    let value: Value = serde_json::from_slice(value).unwrap_or_default();
    let at = |pointer: &str, directory: &str| named(value.pointer(pointer)?, directory);
    let client_certificates =
        [at("/tls/client_cert_id", "ssls"), at("/upstream/tls/client_cert_id", "ssls")].into_iter().flatten();
    let keys = match key.kind() {
        Kind::Routes => vec![
            at("/service_id", "services"),
            at("/upstream_id", "upstreams"),
            at("/plugin_config_id", "plugin_configs"),
        ],
        Kind::Services => vec![at("/upstream_id", "upstreams")],
        Kind::StreamRoutes => vec![
            at("/service_id", "services"),
            at("/upstream_id", "upstreams"),
            at("/protocol/superior_id", "stream_routes"),
        ],
        Kind::Consumers => vec![at("/group_id", "consumer_groups")],
        Kind::Credentials => {
            vec![key.id().split('/').next().map(|user| Key::new(format!("consumers/{user}")))]
        }
        Kind::Upstreams => Vec::new(),
        _ => return Vec::new(),
    };
    keys.into_iter().flatten().chain(client_certificates).collect()
}

/// The key of an upstream's id.
pub(super) fn upstream_key(id: String) -> Key {
    Key::new(format!("upstreams/{id}"))
}

/// The key of a service's id.
pub(super) fn service_key(id: String) -> Key {
    Key::new(format!("services/{id}"))
}

/// Ids are text or numbers, and `1` and `"1"` are the same.
fn named(id: &Value, directory: &str) -> Option<Key> {
    let id = match id {
        Value::String(id) => id.clone(),
        Value::Number(id) => id.to_string(),
        _ => return None,
    };
    Some(Key::new(format!("{directory}/{id}")))
}
