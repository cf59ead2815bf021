//! Every field of the four kinds' schemas is honoured by a named test or refused by name.

use std::path::Path;

use super::*;

/// APISIX's schemas: every field that a kind may have.
pub(super) const SCHEMAS: [(&str, &[&str]); 4] = [
    (
        "routes",
        &[
            "uri",
            "uris",
            "host",
            "hosts",
            "remote_addr",
            "remote_addrs",
            "methods",
            "priority",
            "vars",
            "filter_func",
            "script",
            "script_id",
            "plugins",
            "plugin_config_id",
            "upstream",
            "upstream_id",
            "service_id",
            "timeout",
            "enable_websocket",
            "status",
            "id",
            "name",
            "desc",
            "labels",
            "create_time",
            "update_time",
        ],
    ),
    (
        "services",
        &[
            "plugins",
            "upstream",
            "upstream_id",
            "script",
            "enable_websocket",
            "hosts",
            "id",
            "name",
            "desc",
            "labels",
            "create_time",
            "update_time",
        ],
    ),
    (
        "upstreams",
        &[
            "nodes",
            "service_name",
            "discovery_type",
            "discovery_args",
            "type",
            "hash_on",
            "key",
            "retries",
            "retry_timeout",
            "timeout",
            "scheme",
            "pass_host",
            "upstream_host",
            "keepalive_pool",
            "tls",
            "checks",
            "id",
            "name",
            "desc",
            "labels",
            "create_time",
            "update_time",
        ],
    ),
    (
        "ssls",
        &[
            "type",
            "cert",
            "key",
            "sni",
            "snis",
            "certs",
            "keys",
            "client",
            "status",
            "ssl_protocols",
            "id",
            "desc",
            "labels",
            "create_time",
            "update_time",
        ],
    ),
];

const HERE: &str = "crates/model/src/resources/tests";
const ROUTING: &str = "data-plane/src/routing/tests.rs";
const COMPILE: &str = "data-plane/src/compile/tests.rs";

/// What a field's values come to. A field may have values of both sorts.
enum Fate {
    /// The file, below the workspace, and the name of the test that shows it.
    Honoured(String, &'static str),
    /// A value, and the path that the refusal names.
    Refused(Value, &'static str),
}

fn here(file: &str, test: &'static str) -> Fate {
    Fate::Honoured(format!("{HERE}{file}"), test)
}

fn by(file: &str, test: &'static str) -> Fate {
    Fate::Honoured(file.to_owned(), test)
}

fn meta(field: &str) -> Option<Fate> {
    match field {
        "id" => Some(here(".rs", "the_id_is_the_keys_and_the_values_is_ignored")),
        "name" | "desc" | "labels" | "create_time" | "update_time" => {
            Some(here(".rs", "meta_is_kept_and_times_are_checked"))
        }
        _ => None,
    }
}

fn route(field: &str) -> Vec<Fate> {
    use Fate::Refused;
    match field {
        "uri" | "uris" => vec![
            here("/route.rs", "exactly_one_of_uri_and_uris_is_required"),
            by(ROUTING, "each_of_several_uris_matches"),
        ],
        "host" | "hosts" => vec![
            here("/route.rs", "hosts_are_lower_cased_and_checked"),
            by(ROUTING, "hosts_go_from_exact_over_longest_wildcard_and_star_to_none"),
        ],
        "remote_addr" | "remote_addrs" => vec![
            here("/route.rs", "remote_addrs_are_addresses_or_networks"),
            by(ROUTING, "remote_addr_is_a_condition"),
        ],
        "methods" => vec![by(ROUTING, "methods_are_a_condition_and_none_means_any")],
        "priority" => vec![by(ROUTING, "priority_orders_routes_with_one_literal")],
        "status" => vec![by(COMPILE, "status_0_leaves_a_route_out")],
        "timeout" => vec![by(COMPILE, "timeout_of_the_route_is_handed_on")],
        "upstream" => vec![by(COMPILE, "inline_upstream_of_a_route_clears_the_services_upstream_id")],
        "upstream_id" => vec![by(COMPILE, "upstream_id_goes_before_inline_on_one_route")],
        "service_id" => vec![by(COMPILE, "a_route_without_upstream_takes_its_services")],
        "vars" => vec![nothing_asked(), Refused(json!([["arg_a", "==", "b"]]), "vars")],
        "plugins" => vec![nothing_asked(), Refused(json!({ "cors": {} }), "plugins.cors")],
        "enable_websocket" => vec![nothing_asked(), Refused(json!(true), "enable_websocket")],
        "filter_func" => vec![Refused(json!("function(vars) return true end"), "filter_func")],
        "script" => vec![Refused(json!("return function() end"), "script")],
        "script_id" => vec![Refused(json!("s"), "script_id")],
        "plugin_config_id" => vec![Refused(json!("p"), "plugin_config_id")],
        _ => Vec::new(),
    }
}

fn nothing_asked() -> Fate {
    here("/route.rs", "disabled_plugins_empty_vars_and_websocket_off_ask_for_nothing")
}

fn service(field: &str) -> Vec<Fate> {
    match field {
        "hosts" => vec![by(COMPILE, "hosts_of_a_service_feed_its_routes_without_hosts")],
        "upstream" => vec![by(COMPILE, "a_route_without_upstream_takes_its_services")],
        "upstream_id" => vec![by(COMPILE, "upstream_id_goes_before_inline_on_one_service")],
        "plugins" | "script" | "enable_websocket" => route(field),
        _ => Vec::new(),
    }
}

fn upstream(field: &str) -> Vec<Fate> {
    use Fate::Refused;
    match field {
        "nodes" => vec![
            here("/upstream.rs", "nodes_as_a_map_stand_in_the_order_of_their_keys"),
            here("/upstream.rs", "nodes_as_an_array_keep_their_order"),
            Refused(
                json!([{ "host": "a", "weight": 1 }, { "host": "b", "weight": 1, "priority": 1 }]),
                "nodes.1.priority",
            ),
        ],
        "retries" => vec![here("/upstream.rs", "retries_are_a_count")],
        "timeout" => vec![here("/upstream.rs", "timeout_of_an_upstream_is_read")],
        "scheme" => vec![here("/upstream.rs", "ports_follow_the_scheme"), Refused(json!("grpc"), "scheme")],
        "pass_host" | "upstream_host" => vec![here("/upstream.rs", "pass_host_says_which_host_is_asked_for")],
        "type" => vec![balancer(), Refused(json!("chash"), "type")],
        "hash_on" | "key" => vec![balancer()],
        "service_name" | "discovery_type" => vec![Refused(json!("x"), field_name(field))],
        "discovery_args" => vec![Refused(json!({}), "discovery_args")],
        "checks" => vec![Refused(json!({ "active": {} }), "checks")],
        "keepalive_pool" => vec![Refused(json!({ "size": 1 }), "keepalive_pool")],
        "retry_timeout" => vec![inert_setting(), Refused(json!(1), "retry_timeout")],
        "tls" => vec![
            inert_setting(),
            Refused(json!({ "verify": true }), "tls.verify"),
            Refused(json!({ "client_cert_id": "c" }), "tls.client_cert_id"),
            Refused(json!({ "client_cert": "c" }), "tls.client_cert"),
            Refused(json!({ "client_key": "k" }), "tls.client_key"),
        ],
        _ => Vec::new(),
    }
}

fn field_name(field: &str) -> &'static str {
    if field == "service_name" { "service_name" } else { "discovery_type" }
}

fn balancer() -> Fate {
    here("/upstream.rs", "round_robin_is_the_balancer_and_hashing_fields_are_inert_beside_it")
}

fn inert_setting() -> Fate {
    here("/upstream.rs", "what_changes_nothing_is_accepted")
}

fn ssl(field: &str) -> Vec<Fate> {
    use Fate::Refused;
    match field {
        "type" => vec![here("/ssl.rs", "a_client_object_needs_no_name_and_stays_unused")],
        "cert" | "key" => vec![
            here("/ssl.rs", "a_key_must_belong_to_its_certificate"),
            Refused(json!("$secret://vault/1/x"), if field == "cert" { "cert" } else { "key" }),
        ],
        "certs" | "keys" => vec![here("/ssl.rs", "further_pairs_stand_beside_the_first")],
        "sni" | "snis" => vec![
            here("/ssl.rs", "names_are_one_or_many_lower_cased_without_a_trailing_dot"),
            by(
                "data-plane/src/compile/tests/names.rs",
                "a_wildcard_takes_one_label_and_nothing_else_is_tried",
            ),
        ],
        "status" => vec![by(
            "data-plane/src/compile/tests/names.rs",
            "objects_that_are_off_or_for_upstreams_are_not_shown",
        )],
        "ssl_protocols" => {
            vec![
                here("/ssl.rs", "protocols_are_tls_1_2_and_1_3"),
                Refused(json!(["TLSv1.1"]), "ssl_protocols.0"),
            ]
        }
        "client" => vec![Refused(json!({ "ca": "c" }), "client")],
        _ => Vec::new(),
    }
}

#[test]
fn every_field_is_honoured_by_a_named_test_or_refused_by_name() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (kind, fields) in SCHEMAS {
        let (fates, base): (fn(&str) -> Vec<Fate>, Value) = match kind {
            "routes" => (route, json!({ "uri": "/", "upstream": { "nodes": {} } })),
            "services" => (service, json!({})),
            "upstreams" => (upstream, json!({ "nodes": {} })),
            _ => (ssl, super::ssl::base()),
        };
        for field in fields {
            let all: Vec<_> = meta(field).into_iter().chain(fates(field)).collect();
            assert!(!all.is_empty(), "{kind}.{field} is neither honoured nor refused");
            for fate in all {
                check(&workspace, kind, field, &base, fate);
            }
        }
        let unknown = parsed(&format!("{kind}/1"), &with(base, &json!({ "no_such_field": 1 }))).unwrap_err();
        assert_eq!(unknown.field, "no_such_field", "{kind}");
    }
}

fn check(workspace: &Path, kind: &str, field: &str, base: &Value, fate: Fate) {
    match fate {
        Fate::Honoured(file, test) => {
            let text = std::fs::read_to_string(workspace.join(&file)).unwrap();
            assert!(
                text.contains(&format!("#[test]\nfn {test}()")),
                "{kind}.{field}: no test {test} in {file}"
            );
        }
        Fate::Refused(value, path) => {
            let invalid =
                parsed(&format!("{kind}/1"), &with(base.clone(), &json!({ field: value }))).unwrap_err();
            assert_eq!(invalid.field, path, "{kind}.{field}");
            assert!(invalid.problem.contains("; "), "{kind}.{field}: the refusal names no cure: {invalid}");
        }
    }
}
