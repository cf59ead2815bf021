//! What a gateway must refuse, so that nothing is read one way here and another way behind it.

use headwater_process::Supervisor;

use crate::gateway::{Gateway, route_to};
use crate::raw::{Message, Raw};
use crate::upstreams::Upstream;

/// Writes `bytes` to a gateway before an upstream; answers all messages that come back and how many requests arrived.
async fn send(bytes: &str) -> (Vec<Message>, usize) {
    let supervisor = Supervisor::new("test");
    let upstream = Upstream::saying(&supervisor, "arrived").await;
    let gateway = Gateway::start(&[("routes/1", route_to(&[upstream.address]))]).await;
    let mut raw = Raw::connect(gateway.http).await;
    raw.write(bytes).await;
    let mut answers = Vec::new();
    while let Some(answer) = raw.message().await {
        answers.push(answer);
        if answers.last().unwrap().header("connection") != Some("close") {
            // Only what was refused ends the connection; a request that says so ends the others.
            continue;
        }
        assert!(raw.ended().await, "after a refusal nothing more may be answered");
        break;
    }
    (answers, upstream.requests())
}

async fn is_refused(bytes: &str, status: u16) {
    let (answers, arrived) = send(bytes).await;
    let statuses: Vec<u16> = answers.iter().map(Message::status).collect();
    assert_eq!(statuses, [status], "{bytes:?}");
    assert_eq!(arrived, 0, "{bytes:?}");
}

#[tokio::test]
async fn length_and_encoding_together() {
    for head in
        ["Content-Length: 5\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked\r\nContent-Length: 5"]
    {
        is_refused(&format!("POST / HTTP/1.1\r\nHost: a\r\n{head}\r\n\r\n0\r\n\r\n"), 400).await;
    }
}

#[tokio::test]
async fn more_than_one_length() {
    for head in [
        "Content-Length: 3\r\nContent-Length: 4",
        "Content-Length: 3\r\nContent-Length: 3",
        "Content-Length: 3, 3",
        "Content-Length: +3",
        "Content-Length: -1",
        "Content-Length: 0x3",
        "Content-Length: 3 3",
    ] {
        is_refused(&format!("POST / HTTP/1.1\r\nHost: a\r\n{head}\r\n\r\nabc"), 400).await;
    }
}

#[tokio::test]
async fn encodings_that_are_not_chunked_alone() {
    for head in [
        "Transfer-Encoding: gzip",
        "Transfer-Encoding: chunked, gzip",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: \x0bchunked",
    ] {
        is_refused(&format!("POST / HTTP/1.1\r\nHost: a\r\n{head}\r\n\r\n0\r\n\r\n"), 400).await;
    }
}

#[tokio::test]
async fn folded_headers_and_names_with_blanks() {
    for head in [
        "X-A: 1\r\n  2",
        "X-A: 1\r\n\t2",
        "X-A : 1",
        " X-A: 1",
        "X A: 1",
        "X-A",
        "Content-Length : 3",
        "X-A: a\0b",
    ] {
        is_refused(&format!("GET / HTTP/1.1\r\nHost: a\r\n{head}\r\n\r\n"), 400).await;
    }
}

#[tokio::test]
async fn hosts_that_are_missing_or_contradictory() {
    is_refused("GET / HTTP/1.1\r\nConnection: close\r\n\r\n", 400).await;
    is_refused("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\nConnection: close\r\n\r\n", 400).await;
    is_refused("GET / HTTP/1.1\r\nHost: a b\r\nConnection: close\r\n\r\n", 400).await;
}

#[tokio::test]
async fn paths_that_lead_out_or_cannot_be_decoded() {
    for path in ["/../x", "/a/%2e%2e/%2e%2e/x", "/%zz", "/a%00b"] {
        is_refused(&format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"), 400).await;
    }
}

#[tokio::test]
async fn a_head_that_is_too_large() {
    let long = "x".repeat(70_000);
    is_refused(&format!("GET / HTTP/1.1\r\nHost: a\r\nX-Long: {long}\r\n\r\n"), 431).await;
    let many: String = (0..300).map(|number| format!("X-{number}: 1\r\n")).collect();
    is_refused(&format!("GET / HTTP/1.1\r\nHost: a\r\n{many}\r\n"), 431).await;
}

#[tokio::test]
async fn methods_and_upgrades_that_are_not_served() {
    is_refused("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\nConnection: close\r\n\r\n", 405).await;
    is_refused("TRACE / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 405).await;
    is_refused("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", 501).await;
    is_refused("POST / HTTP/1.1\r\nHost: a\r\nExpect: 200-ok\r\nContent-Length: 1\r\n\r\n", 417).await;
}

#[tokio::test]
async fn a_bad_chunk_never_becomes_a_whole_request() {
    for body in [
        "zz\r\nabc\r\n0\r\n\r\n",
        "3\r\nabcdef\r\n0\r\n\r\n",
        "-1\r\n",
        "3 4\r\nabc\r\n0\r\n\r\n",
        "fffffffffffffffff\r\n",
    ] {
        let bytes = format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
        let (answers, arrived) = send(&bytes).await;
        let statuses: Vec<u16> = answers.iter().map(Message::status).collect();
        assert_eq!(statuses, [400], "{body:?}");
        assert_eq!(arrived, 0, "{body:?}");
    }
}

#[tokio::test]
async fn a_refused_request_in_a_pipeline_ends_it_and_what_was_before_is_served() {
    let (answers, arrived) = send(
        "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n\
         POST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 34\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n\
         GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n",
    )
    .await;
    let statuses: Vec<u16> = answers.iter().map(Message::status).collect();
    assert_eq!(statuses, [200, 400]);
    assert_eq!(arrived, 1);
}

#[tokio::test]
async fn plain_pipelines_and_chunked_bodies_are_served() {
    let (answers, arrived) = send(
        "POST /1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;ext=1\r\nabc\r\n0\r\n\r\n\
         POST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc\
         GET /3 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    )
    .await;
    let statuses: Vec<u16> = answers.iter().map(Message::status).collect();
    assert_eq!(statuses, [200, 200, 200]);
    assert_eq!(arrived, 3);
}
