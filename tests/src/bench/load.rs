//! What is written to etcd: routes of one size, each bearing the moment its put began.

use std::time::Duration;

use anyhow::{Context, Result};
use etcd_client::{Client, Txn, TxnOp};
use futures_util::StreamExt;
use hdrhistogram::Histogram;
use tokio_stream::wrappers::IntervalStream;

use super::clock;
use super::options::Fleet;

/// The key prefix of the environment.
pub const PREFIX: &str = "/apisix";

/// The name of the environment.
pub const ENVIRONMENT: &str = "bench";

/// What stands before the moment in a value.
const BEFORE_STAMP: &str = r#"{"labels":{"put":""#;

/// The digits of a moment; any `u64` fits.
const STAMP: usize = 20;

/// Puts in one transaction while the prefix is filled; etcd takes 128 operations, and 1.5 MiB.
const FILL: u64 = 100;

/// Puts that may be waiting for etcd's answer.
const WAITING_PUTS: usize = 1024;

/// What the puts of a phase were like.
#[derive(Debug)]
pub struct Written {
    /// etcd's revision after the last one.
    pub last_revision: u64,
    /// How long each took, in nanoseconds.
    pub latency: Histogram<u64>,
}

/// The key of a resource, in full.
#[must_use]
pub fn key(resource: u64) -> String {
    format!("{PREFIX}/routes/{resource:07}")
}

/// The value of a resource whose put begins at `nanoseconds`, as long as asked.
#[must_use]
pub fn value(resource: u64, bytes: u64, nanoseconds: u64) -> String {
    let head = format!(r#"{BEFORE_STAMP}{nanoseconds:020}"}},"uri":"/bench/{resource:07}","desc":""#);
    let tail = r#"","upstream":{"type":"roundrobin","nodes":{"127.0.0.1:1980":1}}}"#;
    let padding = usize::try_from(bytes).unwrap_or(usize::MAX).saturating_sub(head.len() + tail.len());
    let mut value = head;
    value.extend(std::iter::repeat_n('x', padding));
    value.push_str(tail);
    value
}

/// The moment a value bears; 0 where it was there before anything was measured.
#[must_use]
pub fn stamp(value: &[u8]) -> u64 {
    let digits = value.get(BEFORE_STAMP.len()..BEFORE_STAMP.len() + STAMP);
    digits.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok()).unwrap_or_default()
}

/// Fills the prefix with the resources, and with the placeholders that APISIX leaves.
///
/// # Errors
/// When etcd does not take them.
pub async fn fill(client: &mut Client, resources: u64, value_bytes: u64) -> Result<()> {
    for kind in ["routes", "services", "upstreams", "ssls"] {
        client.put(format!("{PREFIX}/{kind}/"), "init_dir", None).await.context("fill etcd")?;
    }
    let numbers: Vec<u64> = (0..resources).collect();
    for group in numbers.chunks(usize::try_from(FILL).unwrap_or(1)) {
        // A transaction is at most 1.5 MiB, so large values go alone.
        let together = if value_bytes > 8192 { 1 } else { group.len() };
        for part in group.chunks(together) {
            let puts: Vec<TxnOp> = part
                .iter()
                .map(|number| TxnOp::put(key(*number), value(*number, value_bytes, 0), None))
                .collect();
            client.txn(Txn::new().and_then(puts)).await.context("fill etcd")?;
        }
    }
    Ok(())
}

/// Puts values at the rate asked for, and answers when etcd has taken the last.
///
/// # Errors
/// When etcd does not take one.
pub async fn update(client: &Client, options: &Fleet) -> Result<Written> {
    let ticks = IntervalStream::new(tokio::time::interval(options.pace()));
    let numbers = futures_util::stream::iter(0..options.updates);
    let mut puts = std::pin::pin!(
        ticks
            .zip(numbers)
            .map(|(_, number)| {
                let mut client = client.clone();
                let resource = number % options.resources;
                async move {
                    let began = clock::nanoseconds();
                    let put = client.put(key(resource), value(resource, options.value_bytes, began), None);
                    let answer = put.await.context("put a value")?;
                    let revision = answer.header().context("an answer without header")?.revision();
                    anyhow::Ok((revision, clock::nanoseconds() - began))
                }
            })
            .buffer_unordered(WAITING_PUTS)
    );
    let mut written = Written { last_revision: 0, latency: Histogram::new(3).context("a histogram")? };
    let mut told = tokio::time::Instant::now();
    let mut done = 0_u64;
    while let Some(put) = puts.next().await {
        let (revision, took) = put?;
        written.last_revision = written.last_revision.max(u64::try_from(revision)?);
        written.latency.record(took)?;
        done += 1;
        if told.elapsed() >= Duration::from_secs(5) {
            told = tokio::time::Instant::now();
            eprintln!("bench: {done} of {} values put", options.updates);
        }
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_a_route_of_the_size_asked_for_and_bears_its_moment() {
        let text = value(7, 1024, u64::MAX);
        assert_eq!((text.len(), stamp(text.as_bytes())), (1024, u64::MAX));
        let parsed: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(parsed["uri"], "/bench/0000007");
        assert_eq!(stamp(b"init_dir"), 0);
    }
}
