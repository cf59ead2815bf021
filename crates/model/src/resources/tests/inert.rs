//! Kinds that serve nothing by themselves.

use super::*;

#[test]
fn a_global_rule_governs_while_a_plugin_of_it_is_enabled() {
    let rule = json!({ "plugins": { "b": {}, "a": { "_meta": { "disable": true } }, "c": {} } });
    let Ok(Typed::Governing(governs)) = parsed("global_rules/1", &rule) else { panic!("{rule}") };
    assert_eq!(governs.plugins, ["b", "c"]);
    assert!(governs.reason.starts_with("field `plugins.b` cannot be honoured yet"), "{}", governs.reason);
    assert!(governs.reason.contains("allow the rule by name"));
    for inert in [json!({ "plugins": {} }), json!({ "plugins": { "a": { "_meta": { "disable": true } } } })] {
        assert_eq!(parsed("global_rules/1", &inert), Ok(Typed::Inert));
    }
    assert!(refusal("global_rules/1", json!({})).starts_with("field `plugins` is missing"));
    assert!(refusal("global_rules/1", json!({ "plugins": {}, "name": "n" })).contains("is not a field of"));
}

#[test]
fn valid_values_of_inert_kinds_serve_nothing() {
    for (key, value) in [
        ("consumers/jack", json!({ "username": "jack", "group_id": "g", "plugins": { "key-auth": {} } })),
        ("consumers/jack/credentials/c", json!({ "name": "n", "plugins": { "key-auth": { "key": "k" } } })),
        ("consumer_groups/g", json!({ "plugins": {}, "name": "n" })),
        ("plugin_configs/p", json!({ "plugins": { "a": {} }, "name": "" })),
        ("plugin_metadata/file-logger", json!({ "anything": 1 })),
        ("plugins", json!([{ "name": "a" }, { "name": "b", "stream": true }])),
        ("protos/1", json!({ "content": "syntax = \"proto3\";" })),
        ("secrets/vault/1", json!({ "uri": "http://v", "prefix": "kv", "token": "t" })),
        ("secrets/aws/1", json!({ "access_key_id": "a", "secret_access_key": "s", "region": "r" })),
        ("secrets/gcp/1", json!({ "auth_file": "/f", "ssl_verify": false })),
        (
            "secrets/gcp/2",
            json!({ "auth_config": { "client_email": "e", "private_key": "k", "project_id": "p", "scope": [] } }),
        ),
        ("services/s/graphql_cost_decorations/d", json!({ "field_path": "a.b", "add_value": 2 })),
        ("stream_routes/1", json!({ "server_port": 9100, "upstream": { "nodes": {}, "type": "chash" } })),
        ("routes_old/1", json!("anything at all")),
    ] {
        assert_eq!(parsed(key, &value), Ok(Typed::Inert), "{key}");
    }
}

#[test]
fn broken_values_of_inert_kinds_are_told() {
    for (key, value, field) in [
        ("consumers/jack", json!({}), "username"),
        ("consumers/jack", json!({ "username": "a b" }), "username"),
        ("consumers/jack", json!({ "username": "jack", "name": "n" }), "name"),
        ("consumers/jack/credentials/c", json!({ "plugins": { "a": {}, "b": {} } }), "plugins"),
        ("consumer_groups/g", json!({}), "plugins"),
        ("plugin_configs/p", json!({ "plugins": { "a": 1 } }), "plugins.a"),
        ("plugins", json!([{ "stream": true }]), "0.name"),
        ("protos/1", json!({}), "content"),
        ("secrets/vault/1", json!({ "uri": "u", "prefix": "p" }), "token"),
        ("secrets/aws/1", json!({ "access_key_id": "a", "secret_access_key": "s", "token": "t" }), "token"),
        ("secrets/gcp/1", json!({}), "auth_config"),
        ("services/s/graphql_cost_decorations/d", json!({ "field_path": "a", "mul_value": -1 }), "mul_value"),
        ("stream_routes/1", json!({ "server_port": 0 }), "server_port"),
        ("stream_routes/1", json!({ "uri": "/" }), "uri"),
    ] {
        assert_eq!(parsed(key, &value).unwrap_err().field, field, "{key} {value}");
    }
    assert!(parsed("plugin_metadata/p", &json!([])).is_err());
    assert!(parsed("secrets/other/1", &json!({})).is_err());
}
