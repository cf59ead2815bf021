//! What each field becomes, and what is refused. [`schema`] holds the list of all fields against these tests.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

mod inert;
mod route;
mod schema;
mod ssl;
mod upstream;

fn parsed(key: &str, value: &Value) -> Result<Typed, Invalid> {
    parse(&Key::new(key), value.to_string().as_bytes(), &Context::default())
}

/// The value, which must be usable, as a route.
fn route(value: Value) -> Arc<Route> {
    match parsed("routes/1", &value) {
        Ok(Typed::Route(route)) => route,
        other => panic!("{value}: {other:?}"),
    }
}

fn upstream(value: Value) -> Arc<Upstream> {
    match parsed("upstreams/1", &value) {
        Ok(Typed::Upstream(upstream)) => upstream,
        other => panic!("{value}: {other:?}"),
    }
}

/// The sentence that refuses the value.
fn refusal(key: &str, value: Value) -> String {
    parsed(key, &value).expect_err(&value.to_string()).to_string()
}

/// An object with these fields over the others; `null` takes a field away.
fn with(mut base: Value, fields: &Value) -> Value {
    let object = base.as_object_mut().unwrap();
    for (name, value) in fields.as_object().unwrap() {
        match value {
            Value::Null => object.remove(name),
            value => object.insert(name.clone(), value.clone()),
        };
    }
    base
}

#[test]
fn values_that_are_no_json_objects_are_refused() {
    let text =
        |bytes: &[u8]| parse(&Key::new("routes/1"), bytes, &Context::default()).unwrap_err().to_string();
    assert!(text(b"init_dir").starts_with("the value is not JSON ("), "{}", text(b"init_dir"));
    assert_eq!(text(b"[]"), "the value must be a JSON object");
    assert!(text(b"{\"uri\":\"/\xff\"}").starts_with("the value is not JSON ("));
}

#[test]
fn the_sentence_names_a_nested_field_by_its_path() {
    let value =
        json!({ "uri": "/", "upstream": { "nodes": [{ "host": "a", "weight": 1 }, { "host": "b" }] } });
    assert_eq!(refusal("routes/1", value), "field `upstream.nodes.1.weight` is missing; a value is required");
}

#[test]
fn the_sentence_is_one_line_of_bounded_length() {
    let value = json!({ "nodes": {}, "type": format!("a\n{}", "b".repeat(200)), "x\ny": 1 });
    assert!(refusal("upstreams/1", value).contains("`a bbb"));
    let long = refusal("upstreams/1", json!({ "nodes": {}, "x".repeat(10_000): 1 }));
    assert!(long.len() < 1_000, "{} characters", long.len());
}

#[test]
fn the_id_is_the_keys_and_the_values_is_ignored() {
    let value = json!({ "id": { "any": "thing" }, "nodes": {} });
    assert!(parsed("upstreams/1", &value).is_ok());
    assert!(refusal("upstreams/a/b", value.clone()).contains("field `id` is `a/b` by the key"));
    assert!(refusal(&format!("upstreams/{}", "x".repeat(65)), value).contains("field `id`"));
}

#[test]
fn meta_is_kept_and_times_are_checked() {
    let value = json!({
        "nodes": {}, "name": "n", "desc": "d", "labels": { "env": "prod" }, "create_time": 1, "update_time": 2.0,
    });
    let meta = upstream(value.clone()).meta.clone();
    assert_eq!((meta.name.as_deref(), meta.desc.as_deref()), (Some("n"), Some("d")));
    assert_eq!(meta.labels["env"], "prod");
    for (field, wrong) in [
        ("name", json!("")),
        ("desc", json!("x".repeat(257))),
        ("create_time", json!("1")),
        ("update_time", json!(1.5)),
    ] {
        let refusal = refusal("upstreams/1", with(value.clone(), &json!({ field: wrong })));
        assert!(refusal.starts_with(&format!("field `{field}` ")), "{refusal}");
    }
    let spaced = with(value, &json!({ "labels": { "env": "a b" } }));
    assert!(refusal("upstreams/1", spaced).starts_with("field `labels.env` "));
}

#[test]
fn references_are_what_a_value_is_served_with() {
    let typed = parsed("routes/1", &json!({ "uri": "/", "service_id": "s", "upstream_id": 7 })).unwrap();
    assert_eq!(references(&typed), [Key::new("services/s"), Key::new("upstreams/7")]);
    let typed = parsed("services/1", &json!({ "upstream_id": "u" })).unwrap();
    assert_eq!(references(&typed), [Key::new("upstreams/u")]);
    assert_eq!(references(&parsed("upstreams/1", &json!({ "nodes": {} })).unwrap()), []);
}

#[test]
fn stored_references_are_read_from_values_that_no_node_can_use_too() {
    for (key, value, expected) in [
        (
            "routes/1",
            json!({ "service_id": 1, "upstream_id": "u", "plugin_config_id": "p", "script": 7 }),
            vec!["services/1", "upstreams/u", "plugin_configs/p"],
        ),
        ("services/1", json!({ "upstream": { "tls": { "client_cert_id": "c" } } }), vec!["ssls/c"]),
        ("upstreams/1", json!({ "tls": { "client_cert_id": 3 } }), vec!["ssls/3"]),
        ("stream_routes/1", json!({ "protocol": { "superior_id": "2" } }), vec!["stream_routes/2"]),
        ("consumers/jack", json!({ "group_id": "g" }), vec!["consumer_groups/g"]),
        ("consumers/jack/credentials/c", json!({}), vec!["consumers/jack"]),
        ("ssls/1", json!({ "upstream_id": "u" }), vec![]),
        ("routes/1", json!("not an object"), vec![]),
    ] {
        let found = stored_references(&Key::new(key), value.to_string().as_bytes());
        assert_eq!(found, expected.into_iter().map(Key::new).collect::<Vec<_>>(), "{key}");
        for reference in found {
            assert!(
                referring_kinds(reference.kind()).contains(&Key::new(key).kind()),
                "{key} -> {reference}"
            );
        }
    }
}

const TEXTS: [&str; 9] =
    ["/a(*/*", "*", "[::1]:80", "10.0.0.0/8", "https", "-----BEGIN", "$env://X", "é\n", ""];

/// Any JSON, with texts that come near to what fields hold.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop::sample::select(&TEXTS[..]).prop_map(Value::from),
        ".{0,80}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        let name = prop::sample::select(
            &["host", "weight", "port", "connect", "send", "read", "verify", "_meta"][..],
        );
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(name, inner, 0..4).prop_map(|map| json!(map)),
        ]
    })
}

proptest! {
    #[test]
    fn no_value_makes_parsing_panic(pick in any::<prop::sample::Index>(), value in any_json()) {
        let bases = [
            ("routes/1", json!({ "uri": "/", "upstream": { "nodes": {} } })),
            ("services/1", json!({})),
            ("upstreams/1", json!({ "nodes": {} })),
            ("ssls/1", json!({ "sni": "a", "cert": "c", "key": "k" })),
        ];
        let fields: Vec<(&str, &str)> =
            schema::SCHEMAS.iter().flat_map(|(kind, fields)| fields.iter().map(move |field| (*kind, *field))).collect();
        let (kind, field) = pick.get(&fields);
        let (key, base) = bases.iter().find(|(key, _)| key.starts_with(kind)).unwrap();
        let mut object = base.clone();
        object[*field] = value;
        let text = object.to_string();
        let _ = stored_references(&Key::new(*key), text.as_bytes());
        if let Err(invalid) = parse(&Key::new(*key), text.as_bytes(), &Context::default()) {
            prop_assert!(!invalid.to_string().contains('\n'), "{}", invalid);
        }
    }
}
