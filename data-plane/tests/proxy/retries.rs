//! When a request is sent once more, and when never: every row counts what arrives at upstreams.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use headwater_process::Supervisor;
use serde_json::{Value, json};
use socket2::SockRef;
use tokio::io::AsyncReadExt;

use crate::gateway::{Gateway, route_to, route_with};
use crate::raw::{Raw, exchange, get};
use crate::upstreams::{Upstream, nobody, ok};

/// How an upstream fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Nobody listens.
    Refuses,
    /// Accepts and resets without reading.
    ResetsUnread,
    /// Reads the whole request, then resets.
    ResetsAfterRequest,
    /// Answers 502.
    Answers502,
}

fn reset(raw: Raw) {
    let lingers_not = SockRef::from(&raw.stream).set_linger(Some(std::time::Duration::ZERO));
    assert!(lingers_not.is_ok());
}

/// Three faulty nodes; answers the status the client got and how many tries arrived (connections, for faults before a request
/// is read).
async fn row(fault: Fault, retries: Option<u32>, method: &str) -> (u16, usize) {
    let supervisor = Supervisor::new("test");
    let arrivals = Arc::new(AtomicUsize::new(0));
    let mut nodes: Vec<SocketAddr> = Vec::new();
    for _ in 0..3 {
        if fault == Fault::Refuses {
            nodes.push(nobody());
            continue;
        }
        let arrivals = Arc::clone(&arrivals);
        let upstream = Upstream::start(&supervisor, move |mut raw, _| {
            let arrivals = Arc::clone(&arrivals);
            async move {
                if fault == Fault::ResetsUnread {
                    arrivals.fetch_add(1, Ordering::SeqCst);
                    return reset(raw);
                }
                if raw.message().await.is_none() {
                    return;
                }
                arrivals.fetch_add(1, Ordering::SeqCst);
                if fault == Fault::ResetsAfterRequest {
                    return reset(raw);
                }
                raw.write("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 3\r\n\r\nbad").await;
            }
        })
        .await;
        nodes.push(upstream.address);
    }
    let more = retries.map_or_else(|| json!({}), |retries| json!({ "retries": retries }));
    let gateway = Gateway::start(&[("routes/1", route_with(&nodes, &more))]).await;
    let body = if method == "POST" { "Content-Length: 4\r\n\r\nbody" } else { "\r\n" };
    let request = format!("{method} / HTTP/1.1\r\nHost: a\r\n{body}");
    let answer = exchange(gateway.http, &request).await.unwrap();
    let line = gateway.log(1).await.remove(0);
    let tries = line["upstream"].as_array().unwrap().len();
    if fault == Fault::Refuses {
        return (answer.status(), tries);
    }
    let arrived = arrivals.load(Ordering::SeqCst);
    assert_eq!(tries, arrived, "the log tells each try: {line}");
    (answer.status(), arrived)
}

#[tokio::test]
async fn the_table_of_faults_and_methods() {
    use Fault::{Answers502, Refuses, ResetsAfterRequest, ResetsUnread};
    for (fault, retries, method, tries) in [
        (Refuses, Some(0), "GET", 1),
        (Refuses, Some(2), "GET", 3),
        (Refuses, Some(1), "POST", 2),
        (Refuses, None, "POST", 3),
        (Refuses, Some(9), "POST", 3),
        (ResetsUnread, Some(0), "GET", 1),
        (ResetsUnread, Some(2), "GET", 3),
        (ResetsUnread, Some(2), "POST", 1),
        (ResetsAfterRequest, Some(0), "GET", 1),
        (ResetsAfterRequest, Some(2), "GET", 3),
        (ResetsAfterRequest, Some(2), "POST", 1),
        (Answers502, Some(0), "GET", 1),
        (Answers502, Some(2), "GET", 1),
        (Answers502, Some(2), "POST", 1),
    ] {
        assert_eq!(row(fault, retries, method).await, (502, tries), "{fault:?} {retries:?} {method}");
    }
}

#[tokio::test]
async fn a_put_whose_body_was_begun_is_not_sent_again() {
    assert_eq!(row(Fault::ResetsAfterRequest, Some(2), "PUT").await, (502, 3), "no body yet");
    let supervisor = Supervisor::new("test");
    let resetting = Upstream::start(&supervisor, |mut raw, requests| async move {
        if raw.message().await.is_some() {
            requests.fetch_add(1, Ordering::SeqCst);
        }
        reset(raw);
    })
    .await;
    let healthy = Upstream::saying(&supervisor, "fine").await;
    let route = json!({ "uri": "/*", "upstream": { "nodes": [node(&resetting, 1), node(&healthy, 0)] }});
    let gateway = Gateway::start(&[("routes/1", route)]).await;
    let request = "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody";
    assert_eq!(exchange(gateway.http, request).await.unwrap().status(), 502);
    assert_eq!((resetting.requests(), healthy.requests()), (1, 0));
}

fn node(upstream: &Upstream, weight: u32) -> Value {
    json!({ "host": upstream.address.ip().to_string(), "port": upstream.address.port(), "weight": weight })
}

#[tokio::test]
async fn the_next_node_answers_for_one_that_refuses() {
    let supervisor = Supervisor::new("test");
    let healthy = Upstream::saying(&supervisor, "fine").await;
    let gateway = Gateway::start(&[("routes/1", route_to(&[nobody(), healthy.address]))]).await;
    for _ in 0..10 {
        let request = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody";
        assert_eq!(exchange(gateway.http, request).await.unwrap().text(), "fine");
    }
    assert_eq!(healthy.requests(), 10);
}

#[tokio::test]
async fn a_lone_node_is_tried_again_itself() {
    let more = json!({ "retries": 2 });
    let gateway = Gateway::start(&[("routes/1", route_with(&[nobody()], &more))]).await;
    assert_eq!(get(gateway.http, "/").await.status(), 502);
    assert_eq!(gateway.log(1).await[0]["upstream"].as_array().unwrap().len(), 3);
}

/// Serves one request and closes the connection without saying so beforehand.
async fn one_and_out(supervisor: &Supervisor) -> Upstream {
    Upstream::start(supervisor, |mut raw, requests| async move {
        if raw.message().await.is_some() {
            requests.fetch_add(1, Ordering::SeqCst);
            raw.write(ok("fine")).await;
        }
    })
    .await
}

#[tokio::test]
async fn kept_connections_that_ended_cost_no_request_whatever_the_method() {
    let supervisor = Supervisor::new("test");
    let upstream = one_and_out(&supervisor).await;
    let more = json!({ "retries": 0 });
    let gateway = Gateway::start(&[("routes/1", route_with(&[upstream.address], &more))]).await;
    for number in 0..40 {
        let method = if number % 2 == 0 { "GET" } else { "POST" };
        let request = format!("{method} / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
        let answer = exchange(gateway.http, &request).await.unwrap();
        assert_eq!(answer.text(), "fine", "request {number}");
        // The end of the connection arrives before the next request.
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    assert_eq!(upstream.requests(), 40);
}

#[tokio::test]
async fn a_post_that_a_kept_connection_swallowed_is_not_sent_again() {
    let supervisor = Supervisor::new("test");
    // The second request on a connection is read and then the connection reset.
    let upstream = Upstream::start(&supervisor, |mut raw, requests| async move {
        raw.message().await;
        raw.write(ok("fine")).await;
        if raw.message().await.is_some() {
            requests.fetch_add(1, Ordering::SeqCst);
        }
        reset(raw);
    })
    .await;
    let gateway = Gateway::start(&[("routes/1", route_to(&[upstream.address]))]).await;
    assert_eq!(get(gateway.http, "/").await.text(), "fine");
    let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(exchange(gateway.http, post).await.unwrap().status(), 502);
    assert_eq!((upstream.requests(), upstream.connections()), (1, 1));
    // The same with GET: once more, over a new connection, though `retries` is 0 for a lone node.
    assert_eq!(get(gateway.http, "/").await.text(), "fine");
    assert_eq!(get(gateway.http, "/").await.text(), "fine");
    assert_eq!((upstream.requests(), upstream.connections()), (2, 3));
}

#[tokio::test]
async fn an_answer_to_a_request_half_sent_is_passed_and_its_connection_not_reused() {
    let supervisor = Supervisor::new("test");
    let upstream = Upstream::start(&supervisor, |mut raw, _| async move {
        raw.head().await;
        raw.write("HTTP/1.1 413 Content Too Large\r\nContent-Length: 4\r\n\r\nfull").await;
        // Whatever else comes is read, so that nothing is reset.
        let mut rest = Vec::new();
        let _ = raw.stream.read_to_end(&mut rest).await;
    })
    .await;
    let gateway = Gateway::start(&[("routes/1", route_to(&[upstream.address]))]).await;
    let mut raw = Raw::connect(gateway.http).await;
    raw.write("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nbegin").await;
    let answer = raw.message().await.unwrap();
    assert_eq!((answer.status(), answer.text().as_str()), (413, "full"));
    assert_eq!(get(gateway.http, "/").await.status(), 413);
    assert_eq!(upstream.connections(), 2);
}
