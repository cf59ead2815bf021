//! Who may keep whom waiting, and for how long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use headwater_process::Supervisor;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;

use crate::gateway::{Gateway, eventually, route_with};
use crate::raw::{Raw, exchange, get};
use crate::upstreams::{Upstream, ok};

/// A route with these limits, in seconds.
fn limited(upstream: &Upstream, connect: f64, send: f64, read: f64) -> Value {
    let timeout = json!({ "connect": connect, "send": send, "read": read });
    route_with(&[upstream.address], &json!({ "timeout": timeout }))
}

/// Reads requests and says nothing.
async fn silent(supervisor: &Supervisor) -> Upstream {
    Upstream::start(supervisor, |mut raw, _| async move {
        let mut sink = Vec::new();
        let _ = raw.stream.read_to_end(&mut sink).await;
    })
    .await
}

/// Accepts and reads nothing.
async fn deaf(supervisor: &Supervisor) -> Upstream {
    Upstream::start(supervisor, |raw, _| async move {
        let _held = raw;
        std::future::pending::<()>().await;
    })
    .await
}

#[tokio::test]
async fn an_upstream_that_does_not_answer_is_504() {
    let supervisor = Supervisor::new("test");
    let upstream = silent(&supervisor).await;
    let gateway = Gateway::start(&[("routes/1", limited(&upstream, 5.0, 5.0, 0.1))]).await;
    assert_eq!(get(gateway.http, "/").await.status(), 504);
    assert_eq!(gateway.log(1).await[0]["error"], "read_timeout");
}

#[tokio::test]
async fn the_routes_time_limits_go_before_the_upstreams() {
    let supervisor = Supervisor::new("test");
    let upstream = silent(&supervisor).await;
    let mut route = limited(&upstream, 60.0, 60.0, 60.0);
    route["timeout"] = json!({ "connect": 5, "send": 5, "read": 0.1 });
    let gateway = Gateway::start(&[("routes/1", route)]).await;
    assert_eq!(get(gateway.http, "/").await.status(), 504);
}

#[tokio::test]
async fn an_upstream_that_takes_nothing_is_504() {
    let supervisor = Supervisor::new("test");
    let upstream = deaf(&supervisor).await;
    let gateway = Gateway::start(&[("routes/1", limited(&upstream, 5.0, 0.3, 60.0))]).await;
    let raw = Raw::connect(gateway.http).await;
    let (mut reading, mut writing) = raw.stream.into_split();
    let big = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", 1 << 28);
    let write = async {
        use tokio::io::AsyncWriteExt;
        let _ = writing.write_all(big.as_bytes()).await;
        let part = vec![0; 1 << 16];
        while writing.write_all(&part).await.is_ok() {}
        // The gateway ends the connection after its answer, which may still be unread.
        std::future::pending::<()>().await;
    };
    let read = async {
        let mut answer = vec![0; 32];
        reading.read_exact(&mut answer).await.unwrap();
        String::from_utf8(answer).unwrap()
    };
    let answer = tokio::select! {
        answer = read => answer,
        () = write => unreachable!("it never ends"),
    };
    assert!(answer.starts_with("HTTP/1.1 504 "), "{answer}");
}

#[tokio::test]
async fn an_answer_that_stalls_is_cut_off() {
    let supervisor = Supervisor::new("test");
    let upstream = Upstream::start(&supervisor, |mut raw, _| async move {
        raw.message().await;
        raw.write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc").await;
        std::future::pending::<()>().await;
    })
    .await;
    let gateway = Gateway::start(&[("routes/1", limited(&upstream, 5.0, 5.0, 0.1))]).await;
    let mut raw = Raw::connect(gateway.http).await;
    raw.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(raw.message().await, None);
    let line = gateway.log(1).await.remove(0);
    assert_eq!((&line["status"], &line["error"]), (&json!(200), &json!("read_timeout")));
}

#[tokio::test]
async fn an_answer_slower_than_the_limit_in_all_but_not_in_a_part_is_whole() {
    let supervisor = Supervisor::new("test");
    let upstream = Upstream::start(&supervisor, |mut raw, _| async move {
        raw.message().await;
        raw.write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n").await;
        for _ in 0..10 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            raw.write("x").await;
        }
    })
    .await;
    let gateway = Gateway::start(&[("routes/1", limited(&upstream, 5.0, 5.0, 0.7))]).await;
    assert_eq!(get(gateway.http, "/").await.text(), "xxxxxxxxxx");
}

#[tokio::test]
async fn a_client_that_does_not_send_its_body_is_408_and_costs_no_retry() {
    let supervisor = Supervisor::new("test");
    let upstream = silent(&supervisor).await;
    let resources = [("routes/1", limited(&upstream, 5.0, 5.0, 5.0))];
    let gateway =
        Gateway::start_set(&resources, |config| config.limits.body_timeout = Duration::from_millis(100))
            .await;
    let answer =
        exchange(gateway.http, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc").await.unwrap();
    assert_eq!((answer.status(), upstream.connections()), (408, 1));
}

#[tokio::test]
async fn a_client_that_goes_away_takes_its_request_with_it() {
    let supervisor = Supervisor::new("test");
    let cut = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&cut);
    let upstream = Upstream::start(&supervisor, move |mut raw, requests| {
        let seen = Arc::clone(&seen);
        async move {
            raw.message().await;
            requests.fetch_add(1, Ordering::SeqCst);
            // The answer never comes; the gateway's end of the connection is what is waited for.
            if raw.ended().await {
                seen.store(true, Ordering::SeqCst);
            }
        }
    })
    .await;
    let gateway = Gateway::start(&[("routes/1", limited(&upstream, 5.0, 60.0, 60.0))]).await;
    for request in [
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc".to_owned(),
    ] {
        cut.store(false, Ordering::SeqCst);
        let before = upstream.requests();
        let mut raw = Raw::connect(gateway.http).await;
        raw.write(&request).await;
        eventually(|| (upstream.requests() > before).then_some(())).await;
        drop(raw);
        eventually(|| cut.load(Ordering::SeqCst).then_some(())).await;
    }
    let lines = gateway.log(2).await;
    assert!(lines.iter().all(|line| line["status"] == 499 && line["error"] == "client_gone"), "{lines:#?}");
}

#[tokio::test]
async fn a_client_that_goes_away_in_its_body_or_in_the_answer_cuts_the_upstream() {
    let supervisor = Supervisor::new("test");
    let cut = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&cut);
    let upstream = Upstream::start(&supervisor, move |mut raw, requests| {
        let seen = Arc::clone(&seen);
        async move {
            raw.head().await;
            requests.fetch_add(1, Ordering::SeqCst);
            use tokio::io::AsyncWriteExt;
            let _ = raw.stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
            let mut part = vec![b'x'; 0x4000];
            part.extend_from_slice(b"\r\n");
            while raw.stream.write_all(b"4000\r\n").await.is_ok() && raw.stream.write_all(&part).await.is_ok()
            {
            }
            seen.store(true, Ordering::SeqCst);
        }
    })
    .await;
    let gateway = Gateway::start(&[("routes/1", limited(&upstream, 5.0, 60.0, 60.0))]).await;
    for request in
        ["GET / HTTP/1.1\r\nHost: a\r\n\r\n", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nabc"]
    {
        cut.store(false, Ordering::SeqCst);
        let mut raw = Raw::connect(gateway.http).await;
        raw.write(request).await;
        assert_eq!(raw.head().await.unwrap().status(), 200);
        drop(raw);
        eventually(|| cut.load(Ordering::SeqCst).then_some(())).await;
    }
}

#[tokio::test]
async fn clients_without_a_request_are_let_go() {
    let supervisor = Supervisor::new("test");
    let upstream = Upstream::saying(&supervisor, "fine").await;
    let resources = [("routes/1", limited(&upstream, 5.0, 5.0, 5.0))];
    let gateway = Gateway::start_set(&resources, |config| {
        config.limits.idle_timeout = Duration::from_millis(200);
        config.limits.header_timeout = Duration::from_millis(400);
    })
    .await;
    // After a request, before the first one, within a head.
    let mut after = Raw::connect(gateway.http).await;
    after.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(after.message().await.unwrap().text(), "fine");
    assert!(after.ended().await);
    assert!(Raw::connect(gateway.http).await.ended().await);
    let mut within = Raw::connect(gateway.http).await;
    within.write("GET / HTTP/1.1\r\nHost:").await;
    while within.message().await.is_some() {}
    // And an HTTP/2 client that says no more than hello.
    let mut hello = Raw::connect(gateway.http).await;
    hello.write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await;
    let mut sink = Vec::new();
    let ended = tokio::time::timeout(Duration::from_secs(10), hello.stream.read_to_end(&mut sink)).await;
    ended.expect("it is let go").unwrap();
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_for_a_place() {
    let supervisor = Supervisor::new("test");
    let upstream = Upstream::answering(&supervisor, |_| ok("fine")).await;
    let resources = [("routes/1", limited(&upstream, 5.0, 5.0, 5.0))];
    let gateway = Gateway::start_set(&resources, |config| {
        config.limits.connections = 1;
        config.https = config.http.clone();
    })
    .await;
    let mut first = Raw::connect(gateway.http).await;
    first.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(first.message().await.unwrap().text(), "fine");
    let mut second = Raw::connect(gateway.http).await;
    second.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let began = Instant::now();
    let waiting = tokio::time::timeout(Duration::from_millis(200), second.message()).await;
    assert!(waiting.is_err(), "it is served before a place is free, after {:?}", began.elapsed());
    drop(first);
    assert_eq!(second.message().await.unwrap().text(), "fine");
}
