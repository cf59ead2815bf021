//! One test for each rule of precedence, and the index against a naive matcher.

use headwater_model::resources::{self, Typed};

use super::*;

mod naive;

/// A route's JSON with an upstream added, parsed as a node would.
fn route(key: &str, json: &str) -> (Key, Arc<Route>) {
    let key = Key::new(key);
    let mut value: serde_json::Value = serde_json::from_str(json).unwrap();
    value["upstream"] = serde_json::json!({ "nodes": {} });
    match resources::parse(&key, value.to_string().as_bytes(), &resources::Context::default()).unwrap() {
        Typed::Route(route) => (key, route),
        other => panic!("{other:?}"),
    }
}

fn table(routes: &[(&str, &str)]) -> Router {
    let mut router = Router::default();
    for (id, json) in routes {
        let (key, route) = route(&format!("routes/{id}"), json);
        router.insert(&key, &route, &route.hosts);
    }
    router
}

fn facts<'a>(host: &'a str, path: &'a str) -> RequestFacts<'a> {
    RequestFacts { host: Some(host), path, method: &Method::GET, remote: [127, 0, 0, 1].into() }
}

/// The id of the route that takes `GET path`, or nothing.
fn get(router: &Router, host: &str, path: &str) -> String {
    found(router, &facts(host, path))
}

fn found(router: &Router, facts: &RequestFacts<'_>) -> String {
    router.find(facts).map(|hit| hit.key.id().to_owned()).unwrap_or_default()
}

// === uris ===

#[test]
fn exact_uri_beats_any_prefix_whatever_the_priority() {
    let router = table(&[("p", r#"{"uri":"/foo*","priority":9}"#), ("e", r#"{"uri":"/foo","priority":-9}"#)]);
    assert_eq!(get(&router, "h", "/foo"), "e");
    assert_eq!(get(&router, "h", "/foox"), "p");
}

#[test]
fn longer_prefix_beats_a_shorter_one_whatever_the_priority() {
    let router = table(&[("s", r#"{"uri":"/a*","priority":9}"#), ("l", r#"{"uri":"/ab*","priority":-9}"#)]);
    assert_eq!(get(&router, "h", "/abc"), "l");
    assert_eq!(get(&router, "h", "/ac"), "s");
}

#[test]
fn priority_orders_routes_with_one_literal() {
    let router = table(&[("1", r#"{"uri":"/a"}"#), ("2", r#"{"uri":"/a","priority":1}"#)]);
    assert_eq!(get(&router, "h", "/a"), "2");
    let router = table(&[("1", r#"{"uri":"/a/*"}"#), ("2", r#"{"uri":"/a/*","priority":1}"#)]);
    assert_eq!(get(&router, "h", "/a/b"), "2");
}

#[test]
fn longer_pattern_goes_first_at_equal_priority() {
    let router = table(&[("1", r#"{"uri":"/a*"}"#), ("2", r#"{"uri":"/a*longer"}"#)]);
    assert_eq!(get(&router, "h", "/ab"), "2");
}

#[test]
fn key_order_breaks_ties() {
    let router = table(&[("2", r#"{"uri":"/a"}"#), ("10", r#"{"uri":"/a"}"#)]);
    assert_eq!(get(&router, "h", "/a"), "10");
}

#[test]
fn the_search_goes_on_to_shorter_prefixes_when_conditions_fail() {
    let router = table(&[
        ("root", r#"{"uri":"/*"}"#),
        ("exact", r#"{"uri":"/a/b","methods":["POST"]}"#),
        ("long", r#"{"uri":"/a/*","methods":["POST"]}"#),
    ]);
    assert_eq!(get(&router, "h", "/a/b"), "root");
}

#[test]
fn each_of_several_uris_matches() {
    let router = table(&[("1", r#"{"uris":["/a","/b/*"]}"#)]);
    assert_eq!(get(&router, "h", "/a"), "1");
    assert_eq!(get(&router, "h", "/b/c"), "1");
    assert_eq!(router.find(&facts("h", "/b/c")).unwrap().pattern().as_str(), "/b/*");
}

#[test]
fn a_star_takes_no_text_as_well() {
    let router = table(&[("1", r#"{"uri":"/foo*"}"#), ("2", r#"{"uri":"/bar/*"}"#)]);
    for (path, id) in
        [("/foo", "1"), ("/foobar", "1"), ("/foo/x", "1"), ("/bar/", "2"), ("/bar/x/y", "2"), ("/bar", "")]
    {
        assert_eq!(get(&router, "h", path), id, "{path}");
    }
}

#[test]
fn exact_is_neither_with_a_slash_nor_in_another_case() {
    let router = table(&[("1", r#"{"uri":"/foo"}"#)]);
    assert_eq!(get(&router, "h", "/foo"), "1");
    assert_eq!(get(&router, "h", "/foo/"), "");
    assert_eq!(get(&router, "h", "/Foo"), "");
}

#[test]
fn a_star_that_begins_a_segment_needs_what_follows_it() {
    let router = table(&[("1", r#"{"uri":"/a/*/c"}"#), ("2", r#"{"uri":"/b/*name/c"}"#)]);
    for (path, id) in
        [("/a/x/c", "1"), ("/a/x/y/c", "1"), ("/a//c", "1"), ("/a/x/d", ""), ("/b/x/c", "2"), ("/b/x", "")]
    {
        assert_eq!(get(&router, "h", path), id, "{path}");
    }
}

#[test]
fn special_characters_before_such_a_star_do_not_match_themselves() {
    let router =
        table(&[("1", r#"{"uri":"/a+b/*"}"#), ("2", r#"{"uri":"/x(1)/*"}"#), ("3", r#"{"uri":"/c+d*"}"#)]);
    assert_eq!(get(&router, "h", "/a+b/c"), "");
    assert_eq!(get(&router, "h", "/x(1)/c"), "");
    assert_eq!(get(&router, "h", "/c+dx"), "3", "a star inside a segment asks for no second look");
}

#[test]
fn a_star_inside_a_segment_ignores_what_follows_it() {
    let router = table(&[("1", r#"{"uri":"/blog/foo*bar"}"#)]);
    assert_eq!(get(&router, "h", "/blog/foo/other"), "1");
}

#[test]
fn a_colon_is_literal() {
    let router = table(&[("1", r#"{"uri":"/a/:id"}"#)]);
    assert_eq!(get(&router, "h", "/a/:id"), "1");
    assert_eq!(get(&router, "h", "/a/7"), "");
}

#[test]
fn bytes_beyond_ascii_pass_the_second_look() {
    let router = table(&[("1", r#"{"uri":"/ä/*/ö"}"#)]);
    assert_eq!(get(&router, "h", "/ä/€/ö"), "1");
    assert_eq!(get(&router, "h", "/ä/€/o"), "");
}

// === hosts ===

#[test]
fn hosts_go_from_exact_over_longest_wildcard_and_star_to_none() {
    let all = [
        ("exact", r#"{"uri":"/*","host":"a.foo.com"}"#),
        ("long", r#"{"uri":"/*","host":"*.foo.com"}"#),
        ("short", r#"{"uri":"/*","host":"*.com"}"#),
        ("star", r#"{"uri":"/*","host":"*"}"#),
        ("none", r#"{"uri":"/*"}"#),
    ];
    for (from, (id, _)) in all.iter().enumerate() {
        assert_eq!(get(&table(&all[from..]), "a.foo.com", "/"), *id);
    }
}

#[test]
fn host_specificity_outranks_uri_and_priority() {
    let router = table(&[
        ("exact", r#"{"uri":"/*","host":"a.com","priority":-9}"#),
        ("none", r#"{"uri":"/a","priority":9}"#),
    ]);
    assert_eq!(get(&router, "a.com", "/a"), "exact");
}

#[test]
fn a_host_without_a_match_falls_through_to_the_next() {
    let router = table(&[
        ("exact", r#"{"uri":"/x","host":"a.foo.com"}"#),
        ("long", r#"{"uri":"/*","host":"*.foo.com","methods":["POST"]}"#),
        ("short", r#"{"uri":"/y","host":"*.com"}"#),
        ("none", r#"{"uri":"/*"}"#),
    ]);
    assert_eq!(get(&router, "a.foo.com", "/x"), "exact");
    assert_eq!(get(&router, "a.foo.com", "/y"), "short");
    assert_eq!(get(&router, "a.foo.com", "/z"), "none");
}

#[test]
fn wildcards_span_labels_and_need_their_dot() {
    let router = table(&[("dot", r#"{"uri":"/*","host":"*.foo.com"}"#)]);
    for (host, id) in [("a.foo.com", "dot"), ("a.b.foo.com", "dot"), ("foo.com", ""), ("afoo.com", "")] {
        assert_eq!(get(&router, host, "/"), id, "{host}");
    }
    let router = table(&[("none", r#"{"uri":"/*","host":"*foo.com"}"#)]);
    for (host, id) in [("a.foo.com", "none"), ("foo.com", "none"), ("afoo.com", "none"), ("foo.org", "")] {
        assert_eq!(get(&router, host, "/"), id, "{host}");
    }
}

#[test]
fn hosts_with_a_port_never_match() {
    let router = table(&[("1", r#"{"uri":"/*","host":"a.com:80"}"#)]);
    assert_eq!(get(&router, "a.com", "/"), "");
}

#[test]
fn hosts_compare_in_lower_case() {
    let router = table(&[("1", r#"{"uri":"/*","hosts":["A.Com","*.B.com"]}"#)]);
    assert_eq!(get(&router, "a.COM", "/"), "1");
    assert_eq!(get(&router, "x.b.COM", "/"), "1");
}

#[test]
fn a_request_without_a_host_takes_star_and_routes_without_hosts() {
    let none = RequestFacts { host: None, ..facts("", "/") };
    let router = table(&[("star", r#"{"uri":"/*","host":"*"}"#), ("none", r#"{"uri":"/*"}"#)]);
    assert_eq!(found(&router, &none), "star");
    let router = table(&[("exact", r#"{"uri":"/*","host":"a.com"}"#), ("none", r#"{"uri":"/*"}"#)]);
    assert_eq!(found(&router, &none), "none");
}

#[test]
fn the_matched_pattern_is_told_as_written() {
    let router = table(&[("1", r#"{"uri":"/a*","hosts":["*.foo.com","b.com"]}"#)]);
    assert_eq!(router.find(&facts("x.foo.com", "/ab")).unwrap().host.to_string(), "*.foo.com");
    assert_eq!(router.find(&facts("b.com", "/ab")).unwrap().host.to_string(), "b.com");
}

// === conditions ===

#[test]
fn methods_are_a_condition_and_none_means_any() {
    let router = table(&[
        ("post", r#"{"uri":"/a","methods":["POST","PURGE"]}"#),
        ("any", r#"{"uri":"/b","methods":[]}"#),
    ]);
    let with = |name: &str, path| {
        let method = Method::from_bytes(name.as_bytes()).unwrap();
        found(&router, &RequestFacts { method: &method, ..facts("h", path) })
    };
    assert_eq!(with("POST", "/a"), "post");
    assert_eq!(with("PURGE", "/a"), "post");
    assert_eq!(with("GET", "/a"), "");
    assert_eq!(with("BREW", "/a"), "", "a method that no route can list");
    assert_eq!(with("BREW", "/b"), "any");
}

#[test]
fn remote_addr_is_a_condition() {
    let router = table(&[
        ("one", r#"{"uri":"/a","remote_addr":"10.0.0.1"}"#),
        ("many", r#"{"uri":"/a","remote_addrs":["10.1.2.3/16","fd00::/8"]}"#),
    ]);
    for (remote, id) in [
        ("10.0.0.1", "one"),
        ("::ffff:10.0.0.1", "one"),
        ("10.1.9.9", "many"),
        ("fd12::1", "many"),
        ("10.0.0.2", ""),
        ("fe80::1", ""),
    ] {
        let facts = RequestFacts { remote: remote.parse().unwrap(), ..facts("h", "/a") };
        assert_eq!(found(&router, &facts), id, "{remote}");
    }
}

// === the index as a whole ===

#[test]
fn removing_leaves_nothing_behind() {
    let mut router = table(&[("1", r#"{"uris":["/a","/b/*"],"hosts":["a.com","*.b.com"]}"#)]);
    assert_eq!(router.len(), 4);
    let (key, route) = route("routes/1", r#"{"uris":["/a","/b/*"],"hosts":["a.com","*.b.com"]}"#);
    router.remove(&key, &route, &route.hosts);
    assert!(router.is_empty());
}
