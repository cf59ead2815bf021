//! Routes and services.

use super::*;

fn base() -> Value {
    json!({ "uri": "/a", "upstream": { "nodes": {} } })
}

fn of(fields: Value) -> Arc<Route> {
    route(with(base(), &fields))
}

fn refused(fields: Value) -> String {
    refusal("routes/1", with(base(), &fields))
}

fn service(value: Value) -> Arc<Service> {
    match parsed("services/1", &value) {
        Ok(Typed::Service(service)) => service,
        other => panic!("{value}: {other:?}"),
    }
}

#[test]
fn defaults_of_a_route_are_filled() {
    let route = route(base());
    assert_eq!((route.priority, route.enabled, route.methods), (0, true, Methods::ANY));
    assert!(route.hosts.is_empty() && route.remote_addrs.is_empty());
    assert_eq!((&route.timeout, &route.upstream_id, &route.service_id), (&None, &None, &None));
}

#[test]
fn exactly_one_of_uri_and_uris_is_required() {
    let texts = |route: Arc<Route>| route.uris.iter().map(|uri| uri.as_str().to_owned()).collect::<Vec<_>>();
    assert_eq!(texts(of(json!({}))), ["/a"]);
    assert_eq!(texts(of(json!({ "uri": null, "uris": ["/b", "/c*"] }))), ["/b", "/c*"]);
    assert_eq!(refused(json!({ "uri": null })), "field `uri` is missing; give uri or uris");
    assert!(refused(json!({ "uris": ["/b"] })).starts_with("field `uris` stands beside `uri`"));
    assert!(refused(json!({ "uri": null, "uris": [] })).starts_with("field `uris` is empty"));
    assert!(refused(json!({ "uri": null, "uris": ["/b", "/b"] })).starts_with("field `uris.1` repeats"));
    assert!(refused(json!({ "uri": "" })).starts_with("field `uri` has 0 characters"));
    assert!(refused(json!({ "uri": "/".repeat(4097) })).starts_with("field `uri` has 4097 characters"));
}

#[test]
fn a_uri_that_is_a_broken_expression_is_refused() {
    let refusal = refused(json!({ "uri": "/a(/*" }));
    assert!(refusal.starts_with("field `uri` is read as a regular expression"), "{refusal}");
    assert!(refusal.contains("unclosed group"), "{refusal}");
    assert!(
        parsed("routes/1", &with(base(), &json!({ "uri": "/a(/b*" }))).is_ok(),
        "no star begins a segment"
    );
}

#[test]
fn hosts_are_lower_cased_and_checked() {
    assert_eq!(of(json!({ "host": "A.Com" })).hosts, ["a.com"]);
    assert_eq!(
        of(json!({ "hosts": ["*.A.com", "*", "[::1]", "b_c.d"] })).hosts,
        ["*.a.com", "*", "[::1]", "b_c.d"]
    );
    assert!(refused(json!({ "host": "a.*.com" })).starts_with("field `host` is `a.*.com`"));
    assert!(refused(json!({ "hosts": [] })).starts_with("field `hosts` is empty"));
    assert!(
        refused(json!({ "host": "a", "hosts": ["b"] })).starts_with("field `hosts` stands beside `host`")
    );
    assert!(refused(json!({ "hosts": ["a.com", "a.com"] })).starts_with("field `hosts.1` repeats"));
    assert_eq!(of(json!({ "hosts": ["a.com", "A.COM"] })).hosts, ["a.com"]);
}

#[test]
fn remote_addrs_are_addresses_or_networks() {
    let texts = |route: Arc<Route>| route.remote_addrs.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(texts(of(json!({ "remote_addr": "10.1.2.3/8" }))), ["10.0.0.0/8"]);
    assert_eq!(texts(of(json!({ "remote_addrs": ["10.0.0.1", "::1"] }))), ["10.0.0.1/32", "::1/128"]);
    assert!(refused(json!({ "remote_addr": "10.0.0" })).starts_with("field `remote_addr` is `10.0.0`"));
    assert!(refused(json!({ "remote_addrs": ["10.0.0.1/33"] })).starts_with("field `remote_addrs.0` is"));
}

#[test]
fn methods_are_ten_known_ones() {
    let methods = of(json!({ "methods": ["GET", "PURGE"] })).methods;
    assert!(
        methods.allow("GET") && methods.allow("PURGE") && !methods.allow("POST") && !methods.allow("get")
    );
    assert!(of(json!({ "methods": [] })).methods.allow("ANYTHING"));
    assert!(
        refused(json!({ "methods": ["get"] }))
            .starts_with("field `methods.0` is `get`; use one of GET, POST")
    );
    assert!(refused(json!({ "methods": ["GET", "GET"] })).starts_with("field `methods.1` repeats"));
}

#[test]
fn priority_is_any_whole_number() {
    assert_eq!(of(json!({ "priority": -7 })).priority, -7);
    assert_eq!(of(json!({ "priority": 3.0 })).priority, 3);
    assert!(refused(json!({ "priority": 1.5 })).starts_with("field `priority` must be a whole number"));
}

#[test]
fn status_is_0_or_1() {
    assert!(!of(json!({ "status": 0 })).enabled);
    assert!(of(json!({ "status": 1 })).enabled);
    assert!(refused(json!({ "status": 2 })).starts_with("field `status` is 2"));
}

#[test]
fn timeout_needs_its_three_parts() {
    let timeout =
        of(json!({ "timeout": { "connect": 0.5, "send": 2, "read": 3, "other": "open" } })).timeout.unwrap();
    assert_eq!(timeout.connect, Duration::from_millis(500));
    assert_eq!((timeout.send, timeout.read), (Duration::from_secs(2), Duration::from_secs(3)));
    assert!(
        refused(json!({ "timeout": { "connect": 1, "send": 1 } }))
            .starts_with("field `timeout.read` is missing")
    );
    let zero = json!({ "timeout": { "connect": 0, "send": 1, "read": 1 } });
    assert!(refused(zero).starts_with("field `timeout.connect` is 0"));
    let brief = of(json!({ "timeout": { "connect": 1e-9, "send": 1, "read": 1 } })).timeout.unwrap();
    assert_eq!(brief.connect, Duration::from_millis(1));
}

#[test]
fn a_route_needs_something_to_serve_it() {
    assert!(refused(json!({ "upstream": null })).starts_with("field `upstream` is missing; give upstream,"));
    for field in [json!({ "upstream_id": "u" }), json!({ "service_id": 1 }), json!({ "plugins": {} })] {
        of(with(json!({ "upstream": null }), &field));
    }
}

#[test]
fn ids_are_text_or_whole_numbers() {
    let route = of(json!({ "upstream_id": 7, "service_id": "a-b_c.d" }));
    assert_eq!(route.upstream_id, Some(Key::new("upstreams/7")));
    assert_eq!(route.service_id, Some(Key::new("services/a-b_c.d")));
    assert!(refused(json!({ "upstream_id": 0 })).starts_with("field `upstream_id` is 0"));
    assert!(refused(json!({ "service_id": "a b" })).starts_with("field `service_id` must be made of"));
    assert!(refused(json!({ "service_id": true })).starts_with("field `service_id` must be a string"));
}

#[test]
fn disabled_plugins_empty_vars_and_websocket_off_ask_for_nothing() {
    of(json!({ "plugins": { "limit-req": { "rate": 1, "_meta": { "disable": true } } } }));
    of(json!({ "vars": [], "enable_websocket": false }));
    let refusal = refused(json!({ "plugins": { "limit-req": { "_meta": { "disable": false } } } }));
    assert!(refusal.starts_with("field `plugins.limit-req` cannot be honoured yet: nodes run no plugins"));
    assert!(refused(json!({ "plugins": { "x": 1 } })).starts_with("field `plugins.x` must be a JSON object"));
}

#[test]
fn unknown_fields_are_refused_at_the_top_and_in_inline_upstreams() {
    assert_eq!(
        refused(json!({ "urii": 1 })),
        "field `urii` is not a field of a route; remove it or correct its name"
    );
    let nested = json!({ "upstream": { "nodes": {}, "node": 1 } });
    assert!(refused(nested).starts_with("field `upstream.node` is not a field of an upstream"));
}

#[test]
fn a_service_lends_hosts_and_upstream_and_needs_nothing() {
    let empty = service(json!({}));
    assert!(empty.hosts.is_empty() && empty.upstream.is_none() && empty.upstream_id.is_none());
    let full = service(json!({ "hosts": ["A.com"], "upstream_id": 1, "upstream": { "nodes": {} } }));
    assert_eq!(&*full.hosts, ["a.com"]);
    assert_eq!(full.upstream_id, Some(Key::new("upstreams/1")));
    assert!(full.upstream.is_some());
    assert!(refusal("services/1", json!({ "host": "a" })).contains("is not a field of a service"));
    assert!(refusal("services/1", json!({ "timeout": {} })).contains("is not a field of a service"));
}
