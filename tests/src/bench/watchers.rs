//! The process of clients that watch etcd themselves, as gateways do today.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use etcd_client::{Client, EventType, WatchOptions};
use headwater_process::{Policy, Supervisor};
use tokio::sync::Semaphore;

use super::child::{Answer, Order, Parent};
use super::clock;
use super::load::{self, PREFIX};
use super::options::Watchers;
use super::tally::Tally;

/// Clients that connect at a time.
const JOINING: usize = 64;

/// The pause between two looks at all clients.
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Debug)]
struct Shared {
    etcd: String,
    tally: Tally,
    starting: Semaphore,
    ready: AtomicU64,
    lost: AtomicU64,
}

/// Runs the clients until the parent is done.
///
/// # Errors
/// When the parent cannot be talked to.
pub async fn run(options: Watchers) -> Result<()> {
    let shared = Arc::new(Shared {
        etcd: options.etcd,
        tally: Tally::new(options.count)?,
        starting: Semaphore::new(JOINING),
        ready: AtomicU64::new(0),
        lost: AtomicU64::new(0),
    });
    let supervisor = Supervisor::new("watchers");
    let mut reached: Vec<Arc<AtomicU64>> = Vec::new();
    for _ in 0..options.count {
        let revision = Arc::new(AtomicU64::new(0));
        reached.push(revision.clone());
        let shared = shared.clone();
        supervisor.spawn("watcher", Policy::best_effort(), async move {
            let ended = watch(&shared, &revision).await;
            if shared.lost.fetch_add(1, Ordering::Relaxed) == 0 {
                eprintln!("bench: a client lost its watch: {ended:?}");
            }
        });
    }
    while shared.ready.load(Ordering::Relaxed) < options.count {
        tokio::time::sleep(PAUSE).await;
    }
    let mut parent = Parent::new();
    parent.tell(&Answer::Ready).await?;
    while let Some(order) = parent.order().await? {
        let Order::Settle(last) = order else { bail!("watching clients keep nothing to compare") };
        while !reached.iter().all(|revision| revision.load(Ordering::Relaxed) >= last) {
            tokio::time::sleep(PAUSE).await;
        }
        let figures = shared.tally.figures();
        let answer = figures.map(|figures| Answer::Settled(figures, shared.lost.load(Ordering::Relaxed)));
        parent.tell(&answer.unwrap_or_else(|error| Answer::Failed(format!("{error:#}")))).await?;
    }
    Ok(())
}

async fn watch(shared: &Shared, reached: &AtomicU64) -> Result<()> {
    let starting = shared.starting.acquire().await.context("nobody closes it")?;
    let mut client = Client::connect([&shared.etcd], None).await.context("connect")?;
    let options = WatchOptions::new().with_prefix();
    let mut stream = client.watch(format!("{PREFIX}/"), Some(options)).await.context("watch")?;
    // The first answer says that the watch is there: whatever is put from now on comes.
    let first = stream.message().await.context("receive")?;
    anyhow::ensure!(first.is_some_and(|response| response.created()), "the watch was not created");
    shared.ready.fetch_add(1, Ordering::Relaxed);
    drop(starting);
    while let Some(response) = stream.message().await.context("receive")? {
        if response.canceled() {
            bail!("cancelled: {}", response.cancel_reason());
        }
        let puts = response.events().iter().filter(|event| event.event_type() == EventType::Put);
        let stamps: Vec<u64> = puts.filter_map(|put| Some(load::stamp(put.kv()?.value()))).collect();
        let newest = response.events().iter().filter_map(|event| Some(event.kv()?.mod_revision())).max();
        shared.tally.received(stamps, clock::nanoseconds());
        if let Some(newest) = newest.and_then(|newest| u64::try_from(newest).ok()) {
            reached.store(newest, Ordering::Relaxed);
        }
    }
    bail!("etcd closed the stream")
}
