//! The process of clients that watch etcd themselves, as gateways do today.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use etcd_client::{Client, EventType, WatchOptions};

use super::clock;
use super::load::{self, PREFIX};
use super::options::Watchers;
use super::receivers::Receivers;

/// Runs the clients until the parent is done.
///
/// # Errors
/// When the parent cannot be talked to.
pub async fn run(options: Watchers) -> Result<()> {
    Receivers::new(options.etcd, options.count)?.run(watch).await
}

async fn watch(all: Arc<Receivers>, receiver: usize) -> Result<()> {
    let starting = all.place().await?;
    let mut client = Client::connect([&all.address], None).await.context("connect")?;
    let options = WatchOptions::new().with_prefix();
    let mut stream = client.watch(format!("{PREFIX}/"), Some(options)).await.context("watch")?;
    // The first answer says that the watch is there: whatever is put from now on comes.
    let first = stream.message().await.context("receive")?;
    anyhow::ensure!(first.is_some_and(|response| response.created()), "the watch was not created");
    all.is_ready();
    drop(starting);
    while let Some(response) = stream.message().await.context("receive")? {
        if response.canceled() {
            bail!("cancelled: {}", response.cancel_reason());
        }
        let puts = response.events().iter().filter(|event| event.event_type() == EventType::Put);
        let stamps: Vec<u64> = puts.filter_map(|put| Some(load::stamp(put.kv()?.value()))).collect();
        let newest = response.events().iter().filter_map(|event| Some(event.kv()?.mod_revision())).max();
        all.tally.received(stamps, clock::nanoseconds());
        if let Some(newest) = newest.and_then(|newest| u64::try_from(newest).ok()) {
            all.reached(receiver, newest);
        }
    }
    bail!("etcd closed the stream")
}
