//! Upstreams by name, through outages and moves of DNS.

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use headwater_data_plane::proxy::config::ProxyConfig;
use headwater_process::Supervisor;
use serde_json::{Value, json};

use crate::gateway::{Gateway, Scripted, eventually};
use crate::raw::get;
use crate::upstreams::{Upstream, ok};

/// What the resolver says at present; `None` is a failure.
type Said = Arc<Mutex<Option<Vec<IpAddr>>>>;

fn resolver(said: &Said) -> Arc<Scripted> {
    let said = Arc::clone(said);
    Arc::new(Scripted(Box::new(move |_| {
        said.lock().unwrap().clone().ok_or_else(|| io::Error::other("SERVFAIL"))
    })))
}

fn quick(config: &mut ProxyConfig) {
    config.resolver.refresh = Duration::from_millis(20);
    config.resolver.retry = Duration::from_millis(20);
}

fn route(port: u16) -> Value {
    json!({ "uri": "/*", "upstream": { "nodes": { format!("name.test:{port}"): 1 } } })
}

fn address(text: &str) -> Vec<IpAddr> {
    vec![text.parse().unwrap()]
}

#[tokio::test]
async fn an_outage_of_dns_is_no_outage_of_the_upstream() {
    let supervisor = Supervisor::new("test");
    let upstream = Upstream::saying(&supervisor, "fine").await;
    let said: Said = Arc::new(Mutex::new(Some(address("127.0.0.1"))));
    let gateway =
        Gateway::start_with(&[("routes/1", route(upstream.address.port()))], quick, resolver(&said)).await;
    assert_eq!(get(gateway.http, "/").await.text(), "fine", "the first request waits for the first answer");
    for outage in [None, Some(vec![])] {
        *said.lock().unwrap() = outage;
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(get(gateway.http, "/").await.text(), "fine");
    }
}

#[tokio::test]
async fn a_name_without_an_address_is_503_and_recovers() {
    let supervisor = Supervisor::new("test");
    let upstream = Upstream::saying(&supervisor, "fine").await;
    let said: Said = Arc::new(Mutex::new(None));
    let gateway =
        Gateway::start_with(&[("routes/1", route(upstream.address.port()))], quick, resolver(&said)).await;
    let answer = get(gateway.http, "/").await;
    assert_eq!(answer.status(), 503);
    assert!(!answer.text().contains("name.test"), "{}", answer.text());
    let line = gateway.log(1).await.remove(0);
    assert!(line["reason"].as_str().unwrap().contains("SERVFAIL"), "{line}");
    *said.lock().unwrap() = Some(address("127.0.0.1"));
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(get(gateway.http, "/").await.text(), "fine");
}

#[tokio::test]
async fn a_moved_name_moves_the_requests_and_closes_the_kept_connections() {
    let supervisor = Supervisor::new("test");
    let old = Upstream::saying(&supervisor, "old").await;
    let place = format!("127.0.0.2:{}", old.address.port());
    let new = Upstream::answering_at(&supervisor, &place, |_| ok("new")).await;
    let said: Said = Arc::new(Mutex::new(Some(address("127.0.0.1"))));
    let gateway =
        Gateway::start_with(&[("routes/1", route(old.address.port()))], quick, resolver(&said)).await;
    assert_eq!(get(gateway.http, "/").await.text(), "old");
    assert_eq!(gateway.upstreams.idle_connections(), 1);
    *said.lock().unwrap() = Some(address("127.0.0.2"));
    eventually(|| (gateway.upstreams.idle_connections() == 0).then_some(())).await;
    assert_eq!(get(gateway.http, "/").await.text(), "new");
    assert_eq!((old.requests(), new.requests()), (1, 1));
}

#[tokio::test]
async fn an_address_that_refuses_gives_way_to_the_names_others() {
    let supervisor = Supervisor::new("test");
    let upstream = Upstream::saying(&supervisor, "fine").await;
    let both = ["127.0.0.3", "127.0.0.1"].map(|text| text.parse().unwrap()).to_vec();
    let said: Said = Arc::new(Mutex::new(Some(both)));
    let gateway =
        Gateway::start_with(&[("routes/1", route(upstream.address.port()))], quick, resolver(&said)).await;
    for _ in 0..4 {
        assert_eq!(get(gateway.http, "/").await.text(), "fine");
    }
}
