//! What all processes of receivers share: who has which message, and the answers to the parent.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use headwater_process::{Policy, Supervisor};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::child::{Answer, Order, Parent};
use super::tally::Tally;
use super::{beat, clock};

/// Receivers that connect at a time; the backlog of a listener is bounded.
const JOINING: usize = 64;

/// The pause between two looks at all receivers.
pub const PAUSE: Duration = Duration::from_millis(20);

/// What the receivers of one process share.
#[derive(Debug)]
pub struct Receivers {
    /// Where they connect to.
    pub address: String,
    /// When which value was received.
    pub tally: Tally,
    /// By receiver: the number of the newest message it has.
    reached: Vec<AtomicU64>,
    starting: Semaphore,
    ready: AtomicU64,
    lost: AtomicU64,
}

// === impl Receivers ===

impl Receivers {
    /// Of so many.
    ///
    /// # Errors
    /// When there is no memory for their figures.
    pub fn new(address: String, count: u64) -> Result<Arc<Self>> {
        Ok(Arc::new(Self {
            address,
            tally: Tally::new(count)?,
            reached: (0..count).map(|_| AtomicU64::new(0)).collect(),
            starting: Semaphore::new(JOINING),
            ready: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }))
    }

    /// To be held while connecting.
    ///
    /// # Errors
    /// Never: nobody closes it.
    pub async fn place(&self) -> Result<SemaphorePermit<'_>> {
        self.starting.acquire().await.context("nobody closes it")
    }

    /// A receiver is connected, and gets whatever is sent from now on.
    pub fn is_ready(&self) {
        self.ready.fetch_add(1, Ordering::Relaxed);
    }

    /// A receiver has everything up to this number.
    pub fn reached(&self, receiver: usize, number: u64) {
        self.reached[receiver].store(number, Ordering::Relaxed);
    }

    /// A receiver has a message of a contender.
    pub fn received(&self, receiver: usize, message: &[u8]) {
        let (number, due) = beat::read(message);
        self.tally.received([due], clock::nanoseconds());
        self.reached(receiver, number);
    }

    /// Runs them all until the parent is done.
    ///
    /// # Errors
    /// When the parent cannot be talked to.
    pub async fn run<F>(self: &Arc<Self>, receive: impl Fn(Arc<Self>, usize) -> F) -> Result<()>
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        let supervisor = Supervisor::new("receivers");
        for receiver in 0..self.reached.len() {
            let (all, receiving) = (self.clone(), receive(self.clone(), receiver));
            supervisor.spawn("receiver", Policy::best_effort(), async move {
                let ended = receiving.await;
                if all.lost.fetch_add(1, Ordering::Relaxed) == 0 {
                    eprintln!("bench: a receiver has ended: {ended:?}");
                }
            });
        }
        while self.ready.load(Ordering::Relaxed) < self.reached.len() as u64 {
            tokio::time::sleep(PAUSE).await;
        }
        let mut parent = Parent::new();
        parent.tell(&Answer::Ready).await?;
        while let Some(order) = parent.order().await? {
            let Order::Settle(last) = order else { bail!("these receivers keep nothing to compare") };
            while !self.reached.iter().all(|reached| reached.load(Ordering::Relaxed) >= last) {
                tokio::time::sleep(PAUSE).await;
            }
            let figures = self.tally.figures();
            let answer = figures.map(|figures| Answer::Settled(figures, self.lost.load(Ordering::Relaxed)));
            parent.tell(&answer.unwrap_or_else(|error| Answer::Failed(format!("{error:#}")))).await?;
        }
        Ok(())
    }
}
