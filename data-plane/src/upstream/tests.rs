use super::*;
use crate::upstream::resolver::SystemLookup;
use headwater_model::resources::Node as Server;

fn registry() -> Arc<Upstreams> {
    let supervisor = Supervisor::new("test");
    Upstreams::new(supervisor, Arc::new(SystemLookup::default()), ResolverConfig::default()).unwrap()
}

fn definition(hosts: &[&str]) -> Arc<resources::Upstream> {
    let server = |host: &&str| Server { host: (*host).to_owned(), port: 80, weight: 1 };
    Arc::new(resources::Upstream {
        meta: resources::Meta::default(),
        nodes: hosts.iter().map(server).collect(),
        scheme: Scheme::Http,
        pass_host: PassHost::Pass,
        retries: None,
        timeout: None,
    })
}

#[test]
fn an_equal_definition_of_the_same_holder_is_the_same_upstream() {
    let registry = registry();
    let (one, other) = (Key::new("upstreams/1"), Key::new("upstreams/2"));
    let first = registry.upstream(&one, &definition(&["10.0.0.1"]));
    let again = registry.upstream(&one, &definition(&["10.0.0.1"]));
    assert!(Arc::ptr_eq(&first, &again));
    let elsewhere = registry.upstream(&other, &definition(&["10.0.0.1"]));
    assert!(!Arc::ptr_eq(&first, &elsewhere));
    let changed = registry.upstream(&one, &definition(&["10.0.0.2"]));
    assert!(!Arc::ptr_eq(&first, &changed));
    let back = registry.upstream(&one, &definition(&["10.0.0.1"]));
    assert!(Arc::ptr_eq(&first, &back), "both stand while both are held");
}

#[test]
fn what_nobody_holds_is_let_go() {
    let registry = registry();
    let key = Key::new("upstreams/1");
    let held = registry.upstream(&key, &definition(&["10.0.0.1"]));
    drop(registry.upstream(&key, &definition(&["10.0.0.2"])));
    assert_eq!(registry.len(), 2);
    registry.sweep();
    assert_eq!(registry.len(), 1);
    drop(held);
    registry.sweep();
    assert!(registry.is_empty());
}

#[test]
fn retries_are_one_less_than_there_are_nodes_unless_said() {
    let registry = registry();
    let key = Key::new("upstreams/1");
    assert_eq!(registry.upstream(&key, &definition(&["10.0.0.1"])).retries(), 0);
    assert_eq!(registry.upstream(&key, &definition(&["10.0.0.1", "10.0.0.2", "10.0.0.3"])).retries(), 2);
    let mut said = (*definition(&["10.0.0.1"])).clone();
    said.retries = Some(5);
    assert_eq!(registry.upstream(&key, &Arc::new(said)).retries(), 5);
}

#[test]
fn the_tls_name_is_the_host_without_its_port() {
    let registry = registry();
    let key = Key::new("upstreams/1");
    let plain = registry.upstream(&key, &definition(&["10.0.0.1"]));
    let mut https = (*definition(&["10.0.0.1"])).clone();
    https.scheme = Scheme::Https;
    let https = registry.upstream(&key, &Arc::new(https));
    for (host, expected) in
        [("a.test:8443", "a.test"), ("a.test", "a.test"), ("[::1]:1", "::1"), ("10.0.0.1", "10.0.0.1")]
    {
        let host = HeaderValue::from_static(host);
        assert_eq!(https.tls_name(&host).as_deref(), Some(expected));
        assert_eq!(plain.tls_name(&host), None);
    }
}
