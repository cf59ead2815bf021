//! What goes on to the upstream, and what comes back.

use std::net::SocketAddr;

use bytes::Bytes;
use headwater_process::Supervisor;
use http::{Request, Version};
use http_body_util::{BodyExt, Full};
use serde_json::json;

use crate::gateway::{Gateway, route_to, route_with};
use crate::http2;
use crate::raw::{Raw, exchange, get};
use crate::upstreams::{Upstream, ok};

async fn before(upstream: &Upstream) -> Gateway {
    Gateway::start(&[("routes/1", route_to(&[upstream.address]))]).await
}

#[tokio::test]
async fn the_request_line_and_headers_go_on_as_received() {
    let supervisor = Supervisor::new("test");
    let upstream = Upstream::mirror(&supervisor).await;
    let gateway = before(&upstream).await;
    let answer = exchange(
        gateway.http,
        "GET /a%2Fb/./c//d?x=%20&y HTTP/1.1\r\nHost: A.test:81\r\nX-Forwarded-For: 1.1.1.1\r\nX-A: 1\r\nX-A: 2\r\n\r\n",
    )
    .await
    .unwrap();
    let seen = answer.text();
    let port = gateway.http.port();
    let expected = format!(
        "GET /a%2Fb/./c//d?x=%20&y HTTP/1.1\nhost: A.test:81\nx-forwarded-for: 1.1.1.1, 127.0.0.1\n\
         x-a: 1\nx-a: 2\nx-forwarded-proto: http\nx-forwarded-port: {port}\nx-real-ip: 127.0.0.1\nx-forwarded-host: a.test\n\n"
    );
    let (mut seen, mut expected): (Vec<&str>, Vec<&str>) =
        (seen.lines().collect(), expected.lines().collect());
    seen.sort_unstable();
    expected.sort_unstable();
    assert_eq!(seen, expected);
    assert_eq!(answer.header("server"), Some("headwater"));
}

#[tokio::test]
async fn hop_by_hop_headers_end_here_and_connections_are_reused() {
    let supervisor = Supervisor::new("test");
    let upstream = Upstream::mirror(&supervisor).await;
    let gateway = before(&upstream).await;
    for _ in 0..20 {
        let answer = exchange(
            gateway.http,
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: close, X-Foo\r\nX-Foo: 1\r\nTE: trailers, gzip\r\n\
             Keep-Alive: timeout=1\r\nProxy-Connection: close\r\n\r\n",
        )
        .await
        .unwrap();
        let seen = answer.text();
        for name in ["connection:", "x-foo:", "keep-alive:", "proxy-connection:", "gzip"] {
            assert!(!seen.contains(name), "{name} in\n{seen}");
        }
        assert!(seen.contains("te: trailers"));
    }
    assert_eq!(upstream.connections(), 1, "the client's close is not the upstream's");
}

#[tokio::test]
async fn hop_by_hop_headers_of_answers_end_here() {
    let supervisor = Supervisor::new("test");
    let upstream = Upstream::answering(&supervisor, |_| {
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: X-Inner\r\nX-Inner: 1\r\nKeep-Alive: x\r\nX-Outer: 2\r\n\r\n"
            .to_owned()
    })
    .await;
    let gateway = before(&upstream).await;
    let answer = get(gateway.http, "/").await;
    assert_eq!((answer.header("x-inner"), answer.header("keep-alive")), (None, None));
    assert_eq!(answer.header("x-outer"), Some("2"));
}

#[tokio::test]
async fn pass_host_says_what_the_node_is_asked_for() {
    let supervisor = Supervisor::new("test");
    let upstream = Upstream::mirror(&supervisor).await;
    let node = upstream.address;
    for (more, expected) in [
        (json!({}), "client.test:99".to_owned()),
        (json!({ "pass_host": "pass" }), "client.test:99".to_owned()),
        (json!({ "pass_host": "node" }), node.to_string()),
        (json!({ "pass_host": "rewrite", "upstream_host": "Other.test" }), "Other.test".to_owned()),
    ] {
        let gateway = Gateway::start(&[("routes/1", route_with(&[node], &more))]).await;
        let answer = exchange(gateway.http, "GET / HTTP/1.1\r\nHost: client.test:99\r\n\r\n").await.unwrap();
        assert!(answer.text().contains(&format!("\nhost: {expected}\n")), "{more}: {}", answer.text());
    }
}

#[tokio::test]
async fn nodes_are_used_by_weight() {
    let supervisor = Supervisor::new("test");
    let heavy = Upstream::saying(&supervisor, "heavy").await;
    let light = Upstream::saying(&supervisor, "light").await;
    let idle = Upstream::saying(&supervisor, "idle").await;
    let route = json!({ "uri": "/*", "upstream": { "nodes": {
        heavy.address.to_string(): 3, light.address.to_string(): 1, idle.address.to_string(): 0,
    }}});
    let gateway = Gateway::start(&[("routes/1", route)]).await;
    for _ in 0..40 {
        assert_eq!(get(gateway.http, "/").await.status(), 200);
    }
    assert_eq!((heavy.requests(), light.requests(), idle.requests()), (30, 10, 0));
}

#[tokio::test]
async fn head_and_bodiless_answers_leave_the_connections_in_step() {
    let supervisor = Supervisor::new("test");
    let upstream =
        Upstream::answering(&supervisor, |request| match request.start.split(' ').nth(1).unwrap() {
            "/204" => "HTTP/1.1 204 No Content\r\n\r\n".to_owned(),
            "/304" => "HTTP/1.1 304 Not Modified\r\nETag: \"1\"\r\nContent-Length: 7\r\n\r\n".to_owned(),
            _ if request.start.starts_with("HEAD") => {
                "HTTP/1.1 200 OK\r\nContent-Length: 12345\r\n\r\n".to_owned()
            }
            _ => ok("whole"),
        })
        .await;
    let gateway = before(&upstream).await;
    let mut raw = Raw::connect(gateway.http).await;
    for _ in 0..3 {
        raw.write("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        let head = raw.head().await.unwrap();
        assert_eq!((head.status(), head.header("content-length")), (200, Some("12345")));
        raw.write("GET /204 HTTP/1.1\r\nHost: a\r\n\r\n").await;
        let head = raw.head().await.unwrap();
        assert_eq!((head.status(), head.header("content-length")), (204, None));
        raw.write("GET /304 HTTP/1.1\r\nHost: a\r\n\r\n").await;
        let head = raw.head().await.unwrap();
        assert_eq!((head.status(), head.header("etag")), (304, Some("\"1\"")));
        raw.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert_eq!(raw.message().await.unwrap().text(), "whole");
    }
    assert_eq!(upstream.connections(), 1);
    let lines = gateway.log(12).await;
    assert!(lines.iter().all(|line| line["complete"] == true), "{lines:#?}");
}

#[tokio::test]
async fn trailers_pass_in_both_directions() {
    let supervisor = Supervisor::new("test");
    let upstream = Upstream::answering(&supervisor, |request| {
        let seen = request.trailers.iter().find(|(name, _)| name == "x-sum").map(|(_, value)| value.as_str());
        let sum = seen.unwrap_or("none");
        format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Back\r\n\r\n3\r\nabc\r\n0\r\nX-Back: {sum}\r\n\r\n"
        )
    })
    .await;
    let gateway = before(&upstream).await;
    let answer = exchange(
        gateway.http,
        "POST / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n\
         2\r\nab\r\n0\r\nX-Sum: 7\r\n\r\n",
    )
    .await
    .unwrap();
    assert_eq!(answer.text(), "abc");
    assert_eq!(answer.trailers, [("x-back".to_owned(), "7".to_owned())]);
}

#[tokio::test]
async fn a_chunked_body_goes_on_even_with_get() {
    let supervisor = Supervisor::new("test");
    let upstream = Upstream::mirror(&supervisor).await;
    let gateway = before(&upstream).await;
    let answer = exchange(
        gateway.http,
        "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    )
    .await
    .unwrap();
    assert!(answer.text().ends_with("\n\nabc"), "{}", answer.text());
}

#[tokio::test]
async fn one_hundred_continue_comes_when_the_upstream_takes_the_body() {
    let supervisor = Supervisor::new("test");
    let upstream = Upstream::mirror(&supervisor).await;
    let gateway = before(&upstream).await;
    let mut raw = Raw::connect(gateway.http).await;
    raw.write("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n").await;
    assert_eq!(raw.head().await.unwrap().status(), 100);
    raw.write("abc").await;
    let answer = raw.message().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert!(!answer.text().contains("expect:"), "{}", answer.text());
    assert!(answer.text().ends_with("abc"));
}

#[tokio::test]
async fn a_request_without_a_route_gets_no_hundred_continue() {
    let gateway =
        Gateway::start(&[("routes/1", json!({ "uri": "/a", "upstream": { "nodes": { "127.0.0.1:1": 1 }}}))])
            .await;
    let mut raw = Raw::connect(gateway.http).await;
    raw.write("POST /b HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n").await;
    let answer = raw.message().await.unwrap();
    assert_eq!((answer.status(), answer.text().as_str()), (404, "{\"error_msg\":\"404 Route Not Found\"}\n"));
    assert_eq!(answer.header("content-type"), Some("application/json"));
}

#[tokio::test]
async fn an_http_1_0_client_is_answered_without_chunks_and_the_connection_ends() {
    let supervisor = Supervisor::new("test");
    let upstream = Upstream::answering(&supervisor, |_| {
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n".to_owned()
    })
    .await;
    let gateway = before(&upstream).await;
    let mut raw = Raw::connect(gateway.http).await;
    raw.write("GET / HTTP/1.0\r\n\r\n").await;
    let head = raw.head().await.unwrap();
    assert_eq!((head.status(), head.header("transfer-encoding")), (200, None));
    assert_eq!(raw.bytes(3).await.unwrap(), b"abc");
    assert!(raw.ended().await);
}

#[tokio::test]
async fn an_answer_that_ends_with_its_connection_is_passed_whole() {
    let supervisor = Supervisor::new("test");
    let upstream = Upstream::start(&supervisor, |mut raw, _| async move {
        raw.message().await;
        raw.write("HTTP/1.1 200 OK\r\n\r\nuntil the end").await;
    })
    .await;
    let gateway = before(&upstream).await;
    assert_eq!(get(gateway.http, "/").await.text(), "until the end");
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_never_passed_as_whole() {
    let supervisor = Supervisor::new("test");
    for partial in [
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n",
    ] {
        let upstream = Upstream::start(&supervisor, move |mut raw, _| async move {
            raw.message().await;
            raw.write(partial).await;
        })
        .await;
        let gateway = before(&upstream).await;
        let mut raw = Raw::connect(gateway.http).await;
        raw.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert_eq!(raw.message().await, None, "{partial:?}");
        let line = gateway.log(1).await.remove(0);
        assert_eq!((&line["error"], &line["complete"]), (&json!("reset"), &json!(false)), "{line}");
    }
}

#[tokio::test]
async fn an_http2_client_is_served_and_its_cookies_joined() {
    let supervisor = Supervisor::new("test");
    let upstream = Upstream::mirror(&supervisor).await;
    let gateway = before(&upstream).await;
    let mut client = http2::connect(&supervisor, gateway.http).await;
    let request = Request::post("http://a.test/path?q")
        .version(Version::HTTP_2)
        .header("cookie", "a=1")
        .header("cookie", "b=2")
        .body(Full::new(Bytes::from_static(b"body")))
        .unwrap();
    let answer = client.send_request(request).await.unwrap();
    assert_eq!(answer.status(), 200);
    let seen = answer.into_body().collect().await.unwrap().to_bytes();
    let seen = String::from_utf8(seen.to_vec()).unwrap();
    for expected in ["POST /path?q HTTP/1.1\n", "\nhost: a.test\n", "\ncookie: a=1; b=2\n", "\n\nbody"] {
        assert!(seen.contains(expected), "{expected:?} in\n{seen}");
    }
    let line = gateway.log(1).await.remove(0);
    assert_eq!((&line["protocol"], &line["bytes_in"]), (&json!("HTTP/2.0"), &json!(4)));
}

#[tokio::test]
async fn a_hundred_requests_at_a_time_over_one_http2_connection() {
    let supervisor = Supervisor::new("test");
    let upstream = Upstream::saying(&supervisor, "fine").await;
    let gateway = before(&upstream).await;
    let client = http2::connect(&supervisor, gateway.http).await;
    let requests = (0..100).map(|_| {
        let mut client = client.clone();
        async move {
            let request = Request::get("http://a.test/").body(Full::default()).unwrap();
            let answer = client.send_request(request).await.unwrap();
            answer.into_body().collect().await.unwrap().to_bytes()
        }
    });
    let answers = futures_util::future::join_all(requests).await;
    assert!(answers.iter().all(|answer| *answer == "fine"));
    assert_eq!(upstream.requests(), 100);
}

#[tokio::test]
async fn an_ipv6_node_is_reached_in_both_spellings() {
    let supervisor = Supervisor::new("test");
    let Ok(listener) = std::net::TcpListener::bind("[::1]:0") else {
        // A host without IPv6: there is nothing to reach.
        return;
    };
    let address: SocketAddr = listener.local_addr().unwrap();
    drop(listener);
    let upstream = Upstream::answering_at(&supervisor, &address.to_string(), |_| ok("six")).await;
    let port = upstream.address.port();
    for node in [
        json!({ "host": "::1", "port": port, "weight": 1 }),
        json!({ "host": "[::1]", "port": port, "weight": 1 }),
    ] {
        let route = json!({ "uri": "/*", "upstream": { "nodes": [node], "pass_host": "node" }});
        let gateway = Gateway::start(&[("routes/1", route)]).await;
        assert_eq!(get(gateway.http, "/").await.text(), "six");
    }
}
