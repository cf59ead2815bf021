//! What a gateway answers by the configuration it has, and what it tells of it.

use headwater_process::Supervisor;
use serde_json::{Value, json};

use crate::gateway::{Gateway, eventually, route_to, route_with};
use crate::raw::{exchange, get};
use crate::upstreams::{Upstream, nobody, ok};

fn reason(text: &str) -> String {
    let body: Value = serde_json::from_str(text).unwrap();
    body["error_msg"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn without_configuration_every_request_is_503_and_never_404() {
    let supervisor = Supervisor::new("test");
    let upstream = Upstream::saying(&supervisor, "fine").await;
    let gateway = Gateway::start(&[]).await;
    let answer = get(gateway.http, "/").await;
    assert_eq!(
        (answer.status(), reason(&answer.text()).as_str()),
        (503, "this node has no configuration yet")
    );
    gateway.apply(&[("routes/1", route_to(&[upstream.address]))]);
    assert_eq!(get(gateway.http, "/").await.text(), "fine");
}

#[tokio::test]
async fn a_governing_value_that_cannot_be_honoured_answers_every_request_with_its_reason() {
    let supervisor = Supervisor::new("test");
    let upstream = Upstream::saying(&supervisor, "fine").await;
    let rule = json!({ "id": "1", "plugins": { "ip-restriction": { "whitelist": ["10.0.0.0/8"] }}});
    let gateway =
        Gateway::start(&[("routes/1", route_to(&[upstream.address])), ("global_rules/1", rule)]).await;
    let answer = get(gateway.http, "/").await;
    assert_eq!(answer.status(), 503);
    assert!(answer.text().contains("ip-restriction"), "{}", answer.text());
    assert_eq!(upstream.requests(), 0);
}

#[tokio::test]
async fn what_a_route_lacks_is_told_with_the_status_of_apisix() {
    let gateway = Gateway::start(&[
        ("routes/1", json!({ "uri": "/id", "upstream_id": "none" })),
        ("routes/2", json!({ "uri": "/empty", "upstream": { "nodes": [] } })),
        ("routes/3", json!({ "uri": "/service", "service_id": "none" })),
    ])
    .await;
    for (path, status) in [("/id", 502), ("/empty", 503), ("/service", 404), ("/other", 404)] {
        assert_eq!(get(gateway.http, path).await.status(), status, "{path}");
    }
}

#[tokio::test]
async fn a_path_is_matched_decoded_and_normalised() {
    let supervisor = Supervisor::new("test");
    let upstream = Upstream::saying(&supervisor, "fine").await;
    let mut route = route_to(&[upstream.address]);
    route["uri"] = json!("/a b/c");
    let gateway = Gateway::start(&[("routes/1", route)]).await;
    for path in ["/a%20b/c", "/x/../a%20b//./c?q=/", "//a%20b/c"] {
        assert_eq!(get(gateway.http, path).await.status(), 200, "{path}");
    }
    assert_eq!(get(gateway.http, "/a%20b/c/").await.status(), 404);
}

#[tokio::test]
async fn a_version_that_keeps_an_upstream_keeps_its_connections() {
    let supervisor = Supervisor::new("test");
    let upstream = Upstream::saying(&supervisor, "fine").await;
    let resources = [("routes/1", route_to(&[upstream.address]))];
    let gateway = Gateway::start(&resources).await;
    for number in 0..10 {
        assert_eq!(get(gateway.http, "/").await.text(), "fine");
        let mut changed = resources.clone();
        changed[0].1["desc"] = json!(number.to_string());
        gateway.apply(&changed);
        gateway.upstreams.sweep();
    }
    assert_eq!(upstream.connections(), 1);
    assert_eq!(gateway.upstreams.len(), 1);
}

#[tokio::test]
async fn what_no_version_holds_any_more_is_let_go() {
    let supervisor = Supervisor::new("test");
    let upstream = Upstream::saying(&supervisor, "fine").await;
    let gateway = Gateway::start(&[("routes/1", route_to(&[upstream.address]))]).await;
    get(gateway.http, "/").await;
    eventually(|| (gateway.upstreams.idle_connections() == 1).then_some(())).await;
    gateway.apply(&[("routes/1", route_to(&[nobody()]))]);
    eventually(|| {
        gateway.upstreams.sweep();
        (gateway.upstreams.len() == 1 && gateway.upstreams.idle_connections() == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn every_request_is_one_line_of_json() {
    let supervisor = Supervisor::new("test");
    let upstream = Upstream::answering(&supervisor, |_| ok("hello")).await;
    let mut service_route = route_to(&[nobody(), upstream.address]);
    service_route["service_id"] = json!("s");
    let gateway = Gateway::start(&[("services/s", json!({})), ("routes/r", service_route)]).await;
    exchange(
        gateway.http,
        "POST /a?b HTTP/1.1\r\nHost: A.test:1\r\nUser-Agent: u\r\nX-Request-Id: i\r\nContent-Length: 2\r\n\r\nab",
    )
    .await
    .unwrap();
    let line = gateway.log(1).await.remove(0);
    for (name, value) in [
        ("scheme", json!("http")),
        ("protocol", json!("HTTP/1.1")),
        ("method", json!("POST")),
        ("host", json!("a.test")),
        ("uri", json!("/a?b")),
        ("status", json!(200)),
        ("bytes_in", json!(2)),
        ("bytes_out", json!(5)),
        ("complete", json!(true)),
        ("route", json!("r")),
        ("service", json!("s")),
        ("request_id", json!("i")),
        ("user_agent", json!("u")),
        ("version", json!("7")),
    ] {
        assert_eq!(line[name], value, "{name} in {line}");
    }
    assert!(line["client"].as_str().unwrap().starts_with("127.0.0.1:"));
    let tries = line["upstream"].as_array().unwrap();
    let last = tries.last().unwrap();
    assert_eq!((&last["address"], &last["status"]), (&json!(upstream.address.to_string()), &json!(200)));
    if let [first, _] = tries.as_slice() {
        assert_eq!(first["error"], json!("connect"));
    }
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_refused_announced_or_not() {
    let supervisor = Supervisor::new("test");
    let upstream = Upstream::saying(&supervisor, "fine").await;
    let resources = [("routes/1", route_with(&[upstream.address], &json!({})))];
    let gateway = Gateway::start_set(&resources, |config| config.limits.body_bytes = Some(10)).await;
    let announced = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\nabcdefghijk";
    assert_eq!(exchange(gateway.http, announced).await.unwrap().status(), 413);
    let chunked =
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nb\r\nabcdefghijk\r\n0\r\n\r\n";
    assert_eq!(exchange(gateway.http, chunked).await.unwrap().status(), 413);
    let fitting = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabcdefghij";
    assert_eq!(exchange(gateway.http, fitting).await.unwrap().status(), 200);
    assert_eq!(upstream.requests(), 1);
}
