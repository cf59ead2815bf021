//! Clients that watch etcd through its JSON gateway (`POST /v3/watch`), APISIX's way.

use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf, Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::Deserialize;

use super::clock;
use super::load::{self, PREFIX};
use super::options::Watchers;
use super::receivers::Receivers;

#[derive(Debug, Deserialize)]
struct Line {
    result: Answer,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Answer {
    created: bool,
    canceled: bool,
    events: Vec<Event>,
}

#[derive(Debug, Deserialize)]
struct Event {
    #[serde(rename = "type", default)]
    kind: Option<String>,
    kv: Pair,
}

#[derive(Debug, Deserialize)]
struct Pair {
    mod_revision: String,
    #[serde(default)]
    value: String,
}

/// Runs the clients until the parent is done.
///
/// # Errors
/// When the parent cannot be talked to.
pub async fn run(options: Watchers) -> Result<()> {
    let address = options.etcd.trim_start_matches("http://").to_owned();
    Receivers::new(address, options.count)?.run(watch).await
}

async fn watch(all: Arc<Receivers>, receiver: usize) -> Result<()> {
    let mut starting = Some(all.place().await?);
    let socket = tokio::net::TcpStream::connect(&all.address).await.context("connect")?;
    socket.set_nodelay(true)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(socket)).await.context("speak HTTP")?;
    let heard = async {
        let answer = sender.send_request(request(&all.address)?).await.context("ask")?;
        ensure!(answer.status().is_success(), "the gateway answers {}", answer.status());
        let (mut body, mut buffer) = (answer.into_body(), BytesMut::new());
        loop {
            let answer = line(&mut body, &mut buffer).await?.result;
            ensure!(!answer.canceled, "the watch was cancelled");
            if answer.created {
                all.is_ready();
                drop(starting.take());
            }
            take(&all, receiver, &answer)?;
        }
    };
    // The connection is driven here too, so that a client is one task.
    tokio::select! {
        ended = heard => ended,
        ended = connection => bail!("the gateway closed the connection: {ended:?}"),
    }
}

fn request(host: &str) -> Result<http::Request<Full<Bytes>>> {
    let create = serde_json::json!({"create_request": {
        "key": STANDARD.encode(format!("{PREFIX}/")),
        "range_end": STANDARD.encode(format!("{PREFIX}0")),
    }});
    let request = http::Request::post("/v3/watch").header("host", host);
    request.body(Full::new(Bytes::from(create.to_string()))).context("build the request")
}

async fn line(body: &mut Incoming, buffer: &mut BytesMut) -> Result<Line> {
    loop {
        if let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
            let line = buffer.split_to(end);
            buffer.advance(1);
            return serde_json::from_slice(&line).context("read a line");
        }
        let frame = body.frame().await.context("the gateway ended the watch")?.context("receive")?;
        buffer.extend_from_slice(frame.data_ref().context("a frame without data")?);
    }
}

fn take(all: &Receivers, receiver: usize, answer: &Answer) -> Result<()> {
    let mut stamps = Vec::new();
    let mut newest = None;
    for event in &answer.events {
        newest = newest.max(Some(event.kv.mod_revision.parse().context("a revision")?));
        if event.kind.as_deref() != Some("DELETE") {
            stamps.push(load::stamp(&STANDARD.decode(&event.kv.value).context("a value in base64")?));
        }
    }
    if let Some(newest) = newest {
        all.tally.received(stamps, clock::nanoseconds());
        all.reached(receiver, newest);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_gateway_are_read() {
        let created = r#"{"result":{"header":{"revision":"7"},"created":true}}"#;
        assert!(serde_json::from_str::<Line>(created).unwrap().result.created);
        let value = STANDARD.encode(load::value(1, 300, 42));
        let put = format!(r#"{{"result":{{"events":[{{"kv":{{"mod_revision":"9","value":"{value}"}}}}]}}}}"#);
        let answer = serde_json::from_str::<Line>(&put).unwrap().result;
        let all = Receivers::new(String::new(), 1).unwrap();
        take(&all, 0, &answer).unwrap();
        assert_eq!(all.tally.figures().unwrap().deliveries, 1);
    }
}
