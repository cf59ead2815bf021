//! What a request resolves to, and the law between whole tables and sequences of changes.

use headwater_model::Revision;
use headwater_model::resources::{Context, Governs, Upstream, parse};
use http::{Method, StatusCode};

use super::*;

mod law;
mod names;

/// A registry whose live side is the holder with its definition.
struct Plain;

/// Holder and definition.
type Live = (Key, Arc<Upstream>);

impl Registry for Plain {
    type Upstream = Live;

    fn upstream(&self, holder: &Key, definition: &Arc<Upstream>) -> Live {
        (holder.clone(), definition.clone())
    }
}

fn served(key: &str, json: &str) -> Served {
    let key = Key::new(key);
    let typed = parse(&key, json.as_bytes(), &Context::default()).unwrap();
    let resource = Resource::new(key, json.as_bytes().to_vec().into(), Revision(1), Revision(1));
    Served { resource: Arc::new(resource), typed, kept: None }
}

/// A value retained with what it refers to.
fn retained(key: &str, json: &str, references: &[(&str, &str)]) -> Served {
    let references = references.iter().map(|(key, json)| (Key::new(*key), served(key, json))).collect();
    Served { kept: Some(Arc::new(Kept { references })), ..served(key, json) }
}

fn put(values: &[(&str, &str)]) -> EffectiveChanges {
    EffectiveChanges {
        puts: values.iter().map(|(key, json)| served(key, json)).collect(),
        ..Default::default()
    }
}

fn delete(key: &str) -> EffectiveChanges {
    EffectiveChanges { deletes: vec![Key::new(key)], ..Default::default() }
}

fn refuse(key: &str, reason: &str) -> EffectiveChanges {
    EffectiveChanges { refused: vec![(Key::new(key), reason.to_owned())], ..Default::default() }
}

fn after(table: &Table<Live>, changes: &EffectiveChanges) -> Table<Live> {
    table.apply(changes, &Plain).0
}

fn table(values: &[(&str, &str)]) -> Table<Live> {
    after(&Table::empty(), &put(values))
}

fn matched(table: &Table<Live>, host: &str, path: &str) -> Option<Arc<Matched<Live>>> {
    let facts = RequestFacts { host: Some(host), path, method: &Method::GET, remote: [127, 0, 0, 1].into() };
    match table.match_request(&facts) {
        Match::Route(matched) => Some(matched),
        Match::NotFound => None,
    }
}

/// The holder of the upstream that `GET /` resolves to, or the answer's status.
fn upstream(table: &Table<Live>) -> Result<String, u16> {
    let matched = matched(table, "h", "/").unwrap();
    matched.upstream.as_ref().map(|(holder, _)| holder.to_string()).map_err(|error| error.status.as_u16())
}

fn reason(table: &Table<Live>) -> String {
    matched(table, "h", "/").unwrap().upstream.as_ref().unwrap_err().reason.to_string()
}

const NODES: &str = r#"{"nodes":{"a:1":1}}"#;

// === merging ===

#[test]
fn upstream_id_goes_before_inline_on_one_route() {
    let table = table(&[
        ("upstreams/u", NODES),
        ("routes/r", r#"{"uri":"/","upstream_id":"u","upstream":{"nodes":{"b:1":1}}}"#),
    ]);
    assert_eq!(upstream(&table), Ok("upstreams/u".to_owned()));
}

#[test]
fn upstream_id_goes_before_inline_on_one_service() {
    let table = table(&[
        ("upstreams/u", NODES),
        ("services/s", r#"{"upstream_id":"u","upstream":{"nodes":{"b:1":1}}}"#),
        ("routes/r", r#"{"uri":"/","service_id":"s"}"#),
    ]);
    assert_eq!(upstream(&table), Ok("upstreams/u".to_owned()));
}

#[test]
fn inline_upstream_of_a_route_clears_the_services_upstream_id() {
    let table = table(&[
        ("upstreams/u", NODES),
        ("services/s", r#"{"upstream_id":"u"}"#),
        ("routes/r", r#"{"uri":"/","service_id":"s","upstream":{"nodes":{"b:1":1}}}"#),
    ]);
    assert_eq!(upstream(&table), Ok("routes/r".to_owned()));
}

#[test]
fn upstream_id_of_a_route_goes_before_its_services_inline_upstream() {
    let table = table(&[
        ("upstreams/u", NODES),
        ("services/s", r#"{"upstream":{"nodes":{"b:1":1}}}"#),
        ("routes/r", r#"{"uri":"/","service_id":"s","upstream_id":"u"}"#),
    ]);
    assert_eq!(upstream(&table), Ok("upstreams/u".to_owned()));
}

#[test]
fn a_route_without_upstream_takes_its_services() {
    let table = table(&[
        ("services/s", r#"{"upstream":{"nodes":{"b:1":1}}}"#),
        ("routes/r", r#"{"uri":"/","service_id":"s"}"#),
    ]);
    assert_eq!(upstream(&table), Ok("services/s".to_owned()));
    let matched = matched(&table, "h", "/").unwrap();
    assert_eq!((matched.route_id(), matched.service_id()), ("r", Some("s")));
    assert!(matched.service.is_some());
}

#[test]
fn ids_as_numbers_and_as_text_are_the_same() {
    let table = table(&[("upstreams/7", NODES), ("routes/r", r#"{"uri":"/","upstream_id":7}"#)]);
    assert_eq!(upstream(&table), Ok("upstreams/7".to_owned()));
}

#[test]
fn timeout_of_the_route_is_handed_on() {
    let table = table(&[(
        "routes/r",
        r#"{"uri":"/","upstream":{"nodes":{"b:1":1}},"timeout":{"connect":1,"send":2,"read":3}}"#,
    )]);
    let timeout = matched(&table, "h", "/").unwrap().timeout.unwrap();
    assert_eq!(timeout.read.as_secs(), 3);
}

#[test]
fn a_missing_upstream_is_502_and_no_upstream_or_no_nodes_503() {
    for (route, status, named) in [
        (r#"{"uri":"/","upstream_id":"u"}"#, 502, "upstreams/u does not exist"),
        (r#"{"uri":"/","plugins":{}}"#, 503, "has no upstream"),
        (r#"{"uri":"/","upstream":{"nodes":[]}}"#, 503, "without nodes"),
    ] {
        let table = table(&[("routes/r", route)]);
        assert_eq!(upstream(&table), Err(status), "{route}");
        assert!(reason(&table).contains(named), "{}", reason(&table));
    }
}

#[test]
fn a_missing_service_is_404_and_its_routes_match_any_host() {
    let table = table(&[("routes/r", r#"{"uri":"/","service_id":"s"}"#)]);
    assert_eq!(upstream(&table), Err(404));
    assert!(reason(&table).contains("services/s does not exist"));
}

#[test]
fn status_0_leaves_a_route_out() {
    let off = r#"{"uri":"/","status":0,"upstream":{"nodes":{}}}"#;
    let table = table(&[("routes/r", off)]);
    assert!(matched(&table, "h", "/").is_none());
    let on = after(&table, &put(&[("routes/r", &off.replace('0', "1"))]));
    assert!(matched(&on, "h", "/").is_some());
    assert!(matched(&after(&on, &put(&[("routes/r", off)])), "h", "/").is_none());
}

// === hosts of services ===

#[test]
fn hosts_of_a_service_feed_its_routes_without_hosts() {
    let table = table(&[
        ("services/s", r#"{"hosts":["A.com"],"upstream":{"nodes":{"b:1":1}}}"#),
        ("routes/own", r#"{"uri":"/","host":"own.com","service_id":"s"}"#),
        ("routes/lent", r#"{"uri":"/","service_id":"s"}"#),
    ]);
    let id =
        |table: &Table<Live>, host| matched(table, host, "/").map(|matched| matched.route_id().to_owned());
    assert_eq!(id(&table, "a.com").as_deref(), Some("lent"));
    assert_eq!(id(&table, "own.com").as_deref(), Some("own"));
    assert_eq!(id(&table, "b.com"), None);

    let (moved, stats) = table.apply(&put(&[("services/s", r#"{"hosts":["b.com"]}"#)]), &Plain);
    assert_eq!((stats.services, stats.moved, stats.routes), (1, 1, 0));
    assert_eq!(id(&moved, "a.com"), None);
    assert_eq!(id(&moved, "b.com").as_deref(), Some("lent"));
    assert_eq!(id(&table, "a.com").as_deref(), Some("lent"), "the table before is as it was");

    let without = after(&moved, &delete("services/s"));
    assert_eq!(id(&without, "any.org").as_deref(), Some("lent"));
}

// === rejected and retained ===

#[test]
fn a_reference_to_a_rejected_value_is_503_with_the_reason() {
    let both =
        table(&[("routes/r", r#"{"uri":"/","service_id":"s"}"#), ("services/s", r#"{"upstream_id":"u"}"#)]);
    for key in ["upstreams/u", "services/s"] {
        let refused = after(&both, &refuse(key, "field `nodes` is missing"));
        assert_eq!(upstream(&refused), Err(503));
        assert_eq!(reason(&refused), format!("{key} cannot be used: field `nodes` is missing"));
    }
    let refused = after(&both, &refuse("upstreams/u", "no"));
    assert_eq!(upstream(&after(&refused, &put(&[("upstreams/u", NODES)]))), Ok("upstreams/u".to_owned()));
    assert_eq!(upstream(&after(&refused, &delete("upstreams/u"))), Err(502));
}

#[test]
fn a_value_rejected_with_nothing_in_its_place_is_served_no_more() {
    let table = table(&[("routes/r", r#"{"uri":"/","upstream":{"nodes":{}}}"#)]);
    assert!(matched(&after(&table, &refuse("routes/r", "no")), "h", "/").is_none());
}

#[test]
fn a_retained_route_uses_what_is_live_and_else_what_it_keeps() {
    let mut changes = put(&[("upstreams/u", r#"{"nodes":{"live:1":1}}"#)]);
    changes.puts.push(retained("routes/r", r#"{"uri":"/","upstream_id":"u"}"#, &[("upstreams/u", NODES)]));
    let live = after(&Table::empty(), &changes);
    let host = |table: &Table<Live>| {
        matched(table, "h", "/").unwrap().upstream.as_ref().unwrap().1.nodes[0].host.clone()
    };
    assert_eq!(host(&live), "live");
    assert_eq!(host(&after(&live, &delete("upstreams/u"))), "a");
    assert_eq!(host(&after(&live, &refuse("upstreams/u", "no"))), "a");
}

#[test]
fn a_retained_route_keeps_its_service_with_hosts_and_upstream() {
    let route = r#"{"uri":"/","service_id":"s"}"#;
    let service = r#"{"hosts":["a.com"],"upstream_id":"u"}"#;
    let kept = retained("routes/r", route, &[("services/s", service), ("upstreams/u", NODES)]);
    let changes = EffectiveChanges { puts: vec![kept], ..Default::default() };
    let table = after(&Table::empty(), &changes);
    let found = matched(&table, "a.com", "/").unwrap();
    assert_eq!(found.upstream.as_ref().unwrap().0.as_str(), "upstreams/u");
    assert!(matched(&table, "b.com", "/").is_none());
    // A service that is served is the one that counts, and it has kept nothing.
    let live = after(&table, &put(&[("services/s", service)]));
    assert_eq!(
        matched(&live, "a.com", "/").unwrap().upstream.as_ref().unwrap_err().status,
        StatusCode::BAD_GATEWAY
    );
}

#[test]
fn a_retained_service_keeps_its_upstream() {
    let mut changes = put(&[("routes/r", r#"{"uri":"/","service_id":"s"}"#)]);
    changes.puts.push(retained("services/s", r#"{"upstream_id":"u"}"#, &[("upstreams/u", NODES)]));
    assert_eq!(upstream(&after(&Table::empty(), &changes)), Ok("upstreams/u".to_owned()));
}

// === governing ===

#[test]
fn an_enabled_global_rule_refuses_everything_while_it_stands() {
    let table = table(&[("global_rules/1", r#"{"plugins":{"limit-req":{}}}"#)]);
    let refusal = table.refusal().unwrap();
    assert_eq!(refusal.key.as_str(), "global_rules/1");
    assert!(refusal.reason.contains("plugins.limit-req"), "{}", refusal.reason);
    assert!(after(&table, &put(&[("global_rules/1", r#"{"plugins":{}}"#)])).refusal().is_none());
    assert!(after(&table, &delete("global_rules/1")).refusal().is_none());
    let typed = Typed::Governing(Governs { plugins: Vec::new(), reason: "why".to_owned() });
    assert_ne!(served("global_rules/1", r#"{"plugins":{"p":{}}}"#).typed, typed);
}

// === what a change costs ===

#[test]
fn equal_values_are_not_compiled_again() {
    let values = [
        ("upstreams/u", NODES),
        ("services/s", r#"{"upstream_id":"u"}"#),
        ("routes/r", r#"{"uri":"/","service_id":"s"}"#),
    ];
    let (_, stats) = table(&values).apply(&put(&values), &Plain);
    assert_eq!(stats, CompileStats::default());
}

/// Every kind of change that says one thing, at two sizes of a table in which all share one upstream and one service.
#[test]
fn one_change_compiles_the_same_whatever_the_size_of_the_table() {
    let cost = |size: usize| {
        let mut values =
            put(&[("upstreams/u", NODES), ("services/s", r#"{"upstream_id":"u","hosts":["a.com"]}"#)]);
        values.puts.extend((0..size).map(|n| {
            served(
                &format!("routes/{n}"),
                &format!(r#"{{"uri":"/{n}/*","service_id":"s","priority":{}}}"#, n % 3),
            )
        }));
        let table = after(&Table::empty(), &values);
        assert_eq!(table.routes(), size);
        [
            put(&[("upstreams/u", r#"{"nodes":{"b:1":1}}"#)]),
            put(&[("services/s", r#"{"desc":"x","upstream_id":"u","hosts":["a.com"]}"#)]),
            put(&[("routes/5", r#"{"uri":"/other","service_id":"s"}"#)]),
            put(&[("routes/new", r#"{"uri":"/5/*","service_id":"s"}"#)]),
            delete("routes/5"),
            delete("upstreams/u"),
            refuse("upstreams/u", "no"),
        ]
        .map(|changes| table.apply(&changes, &Plain).1)
    };
    let small = cost(10);
    assert_eq!(small.map(|stats| stats.total()), [1, 1, 1, 1, 0, 0, 0]);
    assert_eq!(small, cost(100_000));
}
