//! Upstreams and their nodes.

use super::*;

fn of(fields: Value) -> Arc<Upstream> {
    upstream(with(json!({ "nodes": {} }), &fields))
}

fn refused(fields: Value) -> String {
    refusal("upstreams/1", with(json!({ "nodes": {} }), &fields))
}

fn node(host: &str, port: u16, weight: u32) -> Node {
    Node { host: host.to_owned(), port, weight }
}

#[test]
fn defaults_of_an_upstream_are_filled() {
    let upstream = of(json!({}));
    assert_eq!((upstream.scheme, &upstream.pass_host), (Scheme::Http, &PassHost::Pass));
    assert_eq!((upstream.retries, upstream.timeout), (None, None));
}

#[test]
fn nodes_as_a_map_stand_in_the_order_of_their_keys() {
    let nodes = json!({ "nodes": { "b:81": 2, "a": 0, "[::1]:82": 1, "[::2]": 1, "10.0.0.1:83": 4 } });
    let expected =
        [node("10.0.0.1", 83, 4), node("::1", 82, 1), node("::2", 80, 1), node("a", 80, 0), node("b", 81, 2)];
    assert_eq!(of(nodes).nodes, expected);
}

#[test]
fn nodes_as_an_array_keep_their_order() {
    let nodes = json!({ "nodes": [
        { "host": "B.example", "port": 81, "weight": 2, "metadata": { "a": 1 }, "other": "open" },
        { "host": "[::1]", "weight": 1, "priority": 0 },
        { "host": "::2", "weight": 1 },
    ] });
    assert_eq!(of(nodes).nodes, [node("b.example", 81, 2), node("::1", 80, 1), node("::2", 80, 1)]);
    assert_eq!(node("::1", 1, 1).bracketed_host(), "[::1]");
    assert_eq!(node("a", 1, 1).bracketed_host(), "a");
}

#[test]
fn nodes_may_be_none_but_not_left_out() {
    assert!(of(json!({ "nodes": [] })).nodes.is_empty());
    assert!(refused(json!({ "nodes": null })).starts_with("field `nodes` is missing"));
}

#[test]
fn ports_follow_the_scheme() {
    assert_eq!(of(json!({ "scheme": "https", "nodes": { "a": 1 } })).nodes, [node("a", 443, 1)]);
    assert_eq!(of(json!({ "scheme": "https", "nodes": { "a": 1 } })).scheme, Scheme::Https);
    assert_eq!(
        of(json!({ "scheme": "http", "nodes": [{ "host": "a", "weight": 1 }] })).nodes,
        [node("a", 80, 1)]
    );
}

#[test]
fn nodes_that_name_no_server_are_refused() {
    for nodes in [
        json!({ "a:0": 1 }),
        json!({ "a:65536": 1 }),
        json!({ "a:": 1 }),
        json!({ "a:x": 1 }),
        json!({ "[::1": 1 }),
        json!({ "[::1]80": 1 }),
        json!({ "*": 1 }),
        json!({ "": 1 }),
        json!({ "a b": 1 }),
        json!({ "a": -1 }),
        json!({ "a": 1.5 }),
        json!([{ "host": "a" }]),
        json!([{ "weight": 1 }]),
        json!([{ "host": "a", "weight": 1, "port": 0 }]),
        json!([{ "host": "a:1:b", "weight": 1 }]),
        json!("a"),
    ] {
        let refusal = refused(json!({ "nodes": nodes }));
        assert!(refusal.starts_with("field `nodes"), "{nodes}: {refusal}");
    }
}

#[test]
fn priorities_of_nodes_must_be_one() {
    let nodes = |second: i64| {
        json!({ "nodes": [
            { "host": "a", "weight": 1, "priority": -1 }, { "host": "b", "weight": 1, "priority": second },
        ] })
    };
    assert_eq!(of(nodes(-1)).nodes.len(), 2);
    assert!(refused(nodes(0)).starts_with("field `nodes.1.priority` cannot be honoured yet"));
}

#[test]
fn pass_host_says_which_host_is_asked_for() {
    assert_eq!(of(json!({ "pass_host": "pass" })).pass_host, PassHost::Pass);
    assert_eq!(of(json!({ "pass_host": "node" })).pass_host, PassHost::Node);
    let rewrite = json!({ "pass_host": "rewrite", "upstream_host": "A.example" });
    assert_eq!(of(rewrite).pass_host, PassHost::Rewrite("A.example".to_owned()));
    assert_eq!(of(json!({ "upstream_host": "unused.example" })).pass_host, PassHost::Pass);
    assert!(refused(json!({ "pass_host": "rewrite" })).starts_with("field `upstream_host` is missing"));
    assert!(refused(json!({ "pass_host": "other" })).starts_with("field `pass_host` is `other`"));
    assert!(refused(json!({ "upstream_host": "a/b" })).starts_with("field `upstream_host` is `a/b`"));
    assert!(
        refused(json!({ "upstream_host": "*.a" })).starts_with("field `upstream_host` begins with a star")
    );
}

#[test]
fn retries_are_a_count() {
    assert_eq!(of(json!({ "retries": 0 })).retries, Some(0));
    assert_eq!(of(json!({ "retries": 3 })).retries, Some(3));
    assert!(refused(json!({ "retries": -1 })).starts_with("field `retries` is -1"));
}

#[test]
fn timeout_of_an_upstream_is_read() {
    let timeout = of(json!({ "timeout": { "connect": 1, "send": 2, "read": 3 } })).timeout.unwrap();
    assert_eq!(timeout.send, Duration::from_secs(2));
}

#[test]
fn round_robin_is_the_balancer_and_hashing_fields_are_inert_beside_it() {
    assert_eq!(of(json!({ "type": "roundrobin", "hash_on": "header", "key": "x" })), of(json!({})));
    for other in ["chash", "least_conn", "ewma", "mine"] {
        let refusal = refused(json!({ "type": other, "key": "x" }));
        assert!(refusal.starts_with("field `type` cannot be honoured yet"), "{refusal}");
    }
    assert!(refused(json!({ "hash_on": "other" })).starts_with("field `hash_on` is `other`"));
}

#[test]
fn what_changes_nothing_is_accepted() {
    assert_eq!(of(json!({ "tls": { "verify": false }, "retry_timeout": 0 })), of(json!({})));
    assert!(refused(json!({ "retry_timeout": -1 })).starts_with("field `retry_timeout` is negative"));
}
