//! Many simulated nodes in one process, what they hold, and when they received it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use anyhow::Result;
use dashmap::DashMap;
use headwater_process::{Policy, Supervisor};
use tokio::sync::Semaphore;

use super::clock;
use super::load;
use super::node::{Held, Node, Shared, Watcher};
use super::tally::{Figures, Tally};
use super::truth::Truth;

/// Nodes that join at a time; the backlog of a listener is bounded.
const JOINING: usize = 64;

/// The pause between two looks at all nodes.
const PAUSE: Duration = Duration::from_millis(20);

/// Differences that are told.
const TOLD: usize = 5;

/// Running nodes. Dropped, they end.
#[derive(Debug)]
pub struct Crowd {
    shared: Arc<Shared>,
    tally: Arc<Tally>,
    held: Vec<Held>,
    supervisor: Supervisor,
}

// === impl Crowd ===

impl Crowd {
    /// So many nodes of the replica at `host:port`.
    ///
    /// # Errors
    /// When there is no memory for their figures.
    pub fn start(replica: &str, count: u64) -> Result<Self> {
        let tally = Arc::new(Tally::new(count)?);
        let received = tally.clone();
        let shared = Arc::new(Shared {
            replica: replica.to_owned(),
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
        let mut all = Vec::new();
        for number in 0..count {
            let (node, held) = Node::new(number, shared.clone());
            all.push(held);
            supervisor.spawn("node", Policy::best_effort().dropped_on_cancel(), node.run());
        }
        Ok(Self { shared, tally, held: all, supervisor })
    }

    /// Waits until every node holds this revision or a later one; the caller has the deadline.
    pub async fn reached(&self, revision: u64) {
        let has = |held: &Held| {
            let held = held.lock().unwrap_or_else(PoisonError::into_inner);
            held.as_ref().is_some_and(|(version, _)| version.revision.0 >= revision)
        };
        while !self.held.iter().all(has) {
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Compares every node with etcd; answers how many resources there are, and the first differences.
    ///
    /// # Errors
    /// When etcd does not answer.
    pub async fn compare(&self, etcd: &str) -> Result<(usize, Vec<String>)> {
        let truth = Truth::read(etcd).await?;
        let differences = self.held.iter().enumerate().filter_map(|(number, held)| {
            let held = held.lock().unwrap_or_else(PoisonError::into_inner);
            let difference = match &*held {
                Some((_, content)) => truth.difference(content),
                None => Some("it holds nothing".to_owned()),
            };
            difference.map(|difference| format!("node {number}: {difference}"))
        });
        let differences = differences.take(TOLD).collect();
        Ok((truth.len(), differences))
    }

    /// When values were received.
    ///
    /// # Errors
    /// When none was.
    pub fn figures(&self) -> Result<Figures> {
        self.tally.figures()
    }

    /// How often a connection was lost or could not be opened.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.shared.lost.load(Ordering::Relaxed)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.supervisor.cancel();
    }
}
