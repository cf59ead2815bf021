//! Changes etcd at a steady rate: puts, deletions, transactions, the same bytes again, values nobody can read, and
//! keys that are no content.
//!
//! It never asks what came of a write: the history is told by the log alone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use etcd_client::{Client, ConnectOptions, Error, Txn, TxnOp};
use headwater_process::{Policy, Supervisor};
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::history::PREFIX;
use crate::simulation::random::Random;

/// For a member to take a write; then another is asked.
const ANSWER: Duration = Duration::from_secs(1);
/// Between two looks at what is under way.
const PAUSE: Duration = Duration::from_millis(50);
/// Operations of a transaction at most.
const OPERATIONS_MAX: u64 = 8;
/// Keys of a transaction while etcd is filled.
const FILL: usize = 25;
/// Writes under way at a time: one after the other would be slower than the rate on a busy machine. Each lane has keys
/// of its own, so that it knows what they hold.
const LANES: u64 = 4;

/// Writes until it is dropped, except while it is told to be quiet.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<Shared>,
    supervisor: Supervisor,
}

#[derive(Debug, Default)]
struct Shared {
    quiet: AtomicBool,
    /// Lanes that are about to write, or do.
    writing: AtomicU64,
    written: AtomicU64,
}

/// A key in full, and its new value; nothing deletes it.
type Operation = (String, Option<Vec<u8>>);

/// Draws what is written.
#[derive(Debug)]
struct Drawing {
    random: Random,
    /// Keys of its own.
    keys: u64,
    lane: u64,
    /// The value of each key that is there, as far as it was drawn.
    values: BTreeMap<String, Vec<u8>>,
}

// === impl Writer ===

impl Writer {
    /// Fills etcd with so many keys, and then writes `rate` times a second to whichever member takes it.
    ///
    /// # Errors
    /// When etcd is not filled.
    pub async fn start(endpoints: Vec<String>, seed: u64, rate: u64, keys: u64) -> Result<Self> {
        let (shared, supervisor) = (Arc::new(Shared::default()), Supervisor::new("writer"));
        let mut client = connect(&endpoints[0]).await.context("connect to etcd")?;
        for lane in 0..LANES {
            // Other numbers than those of the faults.
            let random = Random::new(!seed ^ lane);
            let mut drawing = Drawing { random, keys: keys / LANES, lane, values: BTreeMap::new() };
            let all: Vec<Operation> = (0..drawing.keys)
                .map(|number| {
                    let key = drawing.named(number);
                    drawing.put(key)
                })
                .collect();
            for part in all.chunks(FILL) {
                commit(&mut client, part.to_vec()).await.context("fill etcd")?;
            }
            let pace = Duration::from_secs(LANES) / u32::try_from(rate).unwrap_or(u32::MAX);
            let writing = write(endpoints.clone(), Arc::clone(&shared), pace, drawing);
            supervisor.spawn("write", Policy::best_effort().dropped_on_cancel(), writing);
        }
        Ok(Self { shared, supervisor })
    }

    /// Stops, and waits until nothing is under way.
    pub async fn quiet(&self) {
        self.shared.quiet.store(true, Ordering::SeqCst);
        while self.shared.writing.load(Ordering::SeqCst) > 0 {
            sleep(PAUSE).await;
        }
    }

    /// Goes on.
    pub fn resume(&self) {
        self.shared.quiet.store(false, Ordering::SeqCst);
    }

    /// How many writes etcd has confirmed.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.shared.written.load(Ordering::Relaxed)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.supervisor.cancel();
    }
}

async fn write(endpoints: Vec<String>, shared: Arc<Shared>, pace: Duration, mut drawing: Drawing) {
    let mut ticks = interval(pace);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut members = endpoints.iter().cycle();
    let mut client: Option<Client> = None;
    loop {
        ticks.tick().await;
        shared.writing.fetch_add(1, Ordering::SeqCst);
        if !shared.quiet.load(Ordering::SeqCst) {
            if client.is_none() {
                let member = members.next().expect("there is a member");
                client = connect(member).await;
            }
            let operations = drawing.operations();
            if written(client.as_mut(), operations).await {
                shared.written.fetch_add(1, Ordering::Relaxed);
            } else {
                client = None;
            }
        }
        shared.writing.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn written(client: Option<&mut Client>, operations: Vec<Operation>) -> bool {
    let Some(client) = client else { return false };
    matches!(timeout(ANSWER, commit(client, operations)).await, Ok(Ok(())))
}

async fn connect(endpoint: &str) -> Option<Client> {
    let options = ConnectOptions::new().with_connect_timeout(ANSWER).with_require_leader(true);
    timeout(ANSWER, Client::connect([endpoint], Some(options))).await.ok()?.ok()
}

async fn commit(client: &mut Client, operations: Vec<Operation>) -> Result<(), Error> {
    let operations: Vec<TxnOp> = operations
        .into_iter()
        .map(|(key, value)| match value {
            Some(value) => TxnOp::put(key, value, None),
            None => TxnOp::delete(key, None),
        })
        .collect();
    client.txn(Txn::new().and_then(operations)).await.map(drop)
}

// === impl Drawing ===

impl Drawing {
    /// One transaction.
    fn operations(&mut self) -> Vec<Operation> {
        let key = self.key();
        match self.random.below(100) {
            0..=54 => vec![self.put(key)],
            55..=66 => vec![self.delete(key)],
            67..=76 => vec![self.again(key)],
            77..=91 => self.several(),
            92..=93 => vec![self.unreadable(key)],
            94..=96 => vec![self.no_content()],
            _ => vec![(format!("/another/{}", self.random.below(100)), Some(b"x".to_vec()))],
        }
    }

    /// A route or an upstream; half of the routes point to an upstream that may not be there.
    fn put(&mut self, key: String) -> Operation {
        let mut value = match key.split_once('/') {
            Some(("routes", id)) if self.random.one_in(2) => {
                json!({"uri": format!("/{id}/*"), "upstream_id": (3 * self.random.below(self.keys)).to_string()})
            }
            Some(("routes", id)) => {
                let upstream = json!({"type": "roundrobin", "nodes": {"127.0.0.1:80": 1}});
                json!({"uri": format!("/{id}/*"), "upstream": upstream})
            }
            _ => json!({"type": "roundrobin", "nodes": {"127.0.0.1:80": 1, "127.0.0.1:81": 2}}),
        };
        // The number keeps two puts of a key from being equal by chance.
        let mut text = self.random.next().to_string();
        text.push_str(&"x".repeat(self.padding()));
        value["desc"] = text.into();
        self.take(key, value.to_string().into_bytes())
    }

    /// Mostly small, few large.
    fn padding(&mut self) -> usize {
        let bytes = match self.random.below(100) {
            0..=89 => self.random.between(50, 400),
            90..=98 => self.random.between(1000, 4000),
            _ => self.random.between(10_000, 30_000),
        };
        usize::try_from(bytes).unwrap_or_default()
    }

    /// The bytes that are there already, as far as is known.
    fn again(&mut self, key: String) -> Operation {
        match self.values.get(&key).cloned() {
            Some(value) => self.take(key, value),
            None => self.put(key),
        }
    }

    fn unreadable(&mut self, key: String) -> Operation {
        let values = [&b"{"[..], b"", b"\xff\xfe", b"[1]", b"{\"uri\":7}"];
        let value = self.random.pick(&values).to_vec();
        self.take(key, value)
    }

    /// What an APISIX leaves below its prefix beside content.
    fn no_content(&mut self) -> Operation {
        let key = *self.random.pick(&["routes/", "data_plane/server_info/1", "gen_id", "upstreams/"]);
        (format!("{PREFIX}{key}"), Some(b"init_dir".to_vec()))
    }

    fn delete(&mut self, key: String) -> Operation {
        self.values.remove(&key);
        (format!("{PREFIX}{key}"), None)
    }

    /// Several keys at once; etcd takes each key of a transaction once.
    fn several(&mut self) -> Vec<Operation> {
        let mut operations = BTreeMap::new();
        for _ in 0..self.random.between(2, OPERATIONS_MAX) {
            let key = self.key();
            let (key, value) = if self.random.one_in(4) { self.delete(key) } else { self.put(key) };
            operations.insert(key, value);
        }
        operations.into_iter().collect()
    }

    fn key(&mut self) -> String {
        let number = self.random.below(self.keys);
        self.named(number)
    }

    /// The key of a number of its own.
    fn named(&self, number: u64) -> String {
        let number = number * LANES + self.lane;
        if number.is_multiple_of(3) { format!("upstreams/{number}") } else { format!("routes/{number}") }
    }

    fn take(&mut self, key: String, value: Vec<u8>) -> Operation {
        self.values.insert(key.clone(), value.clone());
        (format!("{PREFIX}{key}"), Some(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_every_kind_of_change_and_the_same_ones_again() {
        let drawn = || {
            let mut drawing = Drawing { random: Random::new(3), keys: 50, lane: 1, values: BTreeMap::new() };
            (0..2000).map(|_| drawing.operations()).collect::<Vec<_>>()
        };
        let all = drawn();
        assert_eq!(all, drawn());
        let of = |holds: &dyn Fn(&Operation) -> bool| all.iter().flatten().filter(|it| holds(it)).count();
        let below = |it: &Operation, kind: &str| it.0.starts_with(&format!("{PREFIX}{kind}/"));
        assert!(of(&|it| below(it, "routes") && it.1.is_some()) > 500);
        assert!(of(&|it| it.1.is_none()) > 200, "deletions");
        assert!(of(&|it| it.1.as_ref().is_some_and(|value| value.len() < 10 && below(it, "routes"))) > 10);
        assert!(of(&|it| it.1.as_ref().is_some_and(|value| value.len() > 10_000)) > 5);
        assert!(of(&|it| it.0.starts_with("/another/")) > 20);
        assert!(all.iter().any(|operations| operations.len() > 5));
        // The same bytes again.
        let mut last: BTreeMap<&str, &Option<Vec<u8>>> = BTreeMap::new();
        let again = all.iter().flatten().filter(|(key, value)| {
            value.is_some() && last.insert(key, value) == Some(value) && key.contains("/routes/")
        });
        assert!(again.count() > 20);
    }
}
