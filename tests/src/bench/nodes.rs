//! The process of simulated nodes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use anyhow::Result;
use dashmap::DashMap;
use headwater_process::{Policy, Supervisor};
use tokio::sync::Semaphore;

use super::child::{Answer, Order, Parent};
use super::clock;
use super::load;
use super::node::{Held, Node, Shared, Watcher};
use super::options::Nodes;
use super::tally::Tally;
use super::truth::Truth;

/// Nodes that join at a time; the backlog of a listener is bounded.
const JOINING: usize = 64;

/// The pause between two looks at all nodes.
const PAUSE: Duration = Duration::from_millis(20);

/// Differences that are told.
const TOLD: usize = 5;

/// Runs the nodes until the parent is done.
///
/// # Errors
/// When the parent cannot be talked to.
pub async fn run(options: Nodes) -> Result<()> {
    let tally = Arc::new(Tally::new(options.count)?);
    let received = tally.clone();
    let shared = Arc::new(Shared {
        replica: options.replica,
        environment: load::ENVIRONMENT,
        name: "bench",
        watcher: Watcher(Box::new(move |staged| {
            let stamps = staged.changes.puts.iter().map(|put| load::stamp(put.value()));
            received.received(stamps, clock::nanoseconds());
        })),
        values: DashMap::new(),
        starting: Arc::new(Semaphore::new(JOINING)),
        lost: AtomicU64::new(0),
    });
    let supervisor = Supervisor::new("nodes");
    let mut all: Vec<Held> = Vec::new();
    for number in 0..options.count {
        let (node, held) = Node::new(number, shared.clone());
        all.push(held);
        supervisor.spawn("node", Policy::best_effort(), node.run());
    }
    reached(&all, 0).await;
    let mut parent = Parent::new();
    parent.tell(&Answer::Ready).await?;
    while let Some(order) = parent.order().await? {
        let answer = match order {
            Order::Settle(revision) => {
                reached(&all, revision).await;
                let figures = tally.figures();
                figures.map(|figures| Answer::Settled(figures, shared.lost.load(Ordering::Relaxed)))
            }
            Order::Compare => compare(&options.etcd, &all).await,
            Order::Send { .. } | Order::Read => Err(anyhow::anyhow!("nodes only hold and compare")),
        };
        parent.tell(&answer.unwrap_or_else(|error| Answer::Failed(format!("{error:#}")))).await?;
    }
    Ok(())
}

/// Waits until every node holds this revision or a later one; the parent has the deadline.
async fn reached(all: &[Held], revision: u64) {
    let has = |held: &Held| {
        let held = held.lock().unwrap_or_else(PoisonError::into_inner);
        held.as_ref().is_some_and(|(version, _)| version.revision.0 >= revision)
    };
    while !all.iter().all(has) {
        tokio::time::sleep(PAUSE).await;
    }
}

async fn compare(etcd: &str, all: &[Held]) -> Result<Answer> {
    let truth = Truth::read(etcd).await?;
    let differences = all.iter().enumerate().filter_map(|(number, held)| {
        let held = held.lock().unwrap_or_else(PoisonError::into_inner);
        let difference = match &*held {
            Some((_, content)) => truth.difference(content),
            None => Some("it holds nothing".to_owned()),
        };
        difference.map(|difference| format!("node {number}: {difference}"))
    });
    let differences = differences.take(TOLD).collect();
    Ok(Answer::Compared(truth.len(), differences))
}
