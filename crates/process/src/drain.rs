//! How listeners and connections come to rest: stop accepting, finish what is under way, and after a grace period
//! drop the rest.
//!
//! A [`DrainTrigger`] is kept by whoever ends the process; each listener and connection has a [`DrainWatcher`]; each
//! piece of work that should be finished holds a [`DrainBlocker`]. The phases are observable
//! ([`DrainTrigger::phases`]) and only move forward: serving, draining, perhaps forced, drained.

use std::convert::Infallible;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

/// Where a drain stands. Ordered: a later phase is greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Nothing asked for.
    Serving,
    /// Accept nothing new, finish what is under way.
    Draining,
    /// The grace period is over: drop what is under way.
    Forced,
    /// Nothing is under way.
    Drained,
}

/// Starts the drain; the owner of it.
#[derive(Debug)]
pub struct DrainTrigger {
    phase: watch::Sender<Phase>,
    /// Kept until the drain starts, so that blockers can be made from weak senders.
    blockers: Option<mpsc::Sender<Infallible>>,
    released: mpsc::Receiver<Infallible>,
}

/// Learns of the drain. Holds nothing up.
#[derive(Debug, Clone)]
pub struct DrainWatcher {
    phase: watch::Receiver<Phase>,
    blockers: mpsc::WeakSender<Infallible>,
}

/// Holds the drain up until dropped.
#[derive(Debug, Clone)]
pub struct DrainBlocker {
    _released_on_drop: mpsc::Sender<Infallible>,
}

/// How a drain ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drained {
    /// All work was finished within the grace period.
    Gracefully,
    /// The grace period ended first; work was dropped.
    ByForce,
}

/// A trigger and the first watcher.
#[must_use]
pub fn drain() -> (DrainTrigger, DrainWatcher) {
    let (phase, phases) = watch::channel(Phase::Serving);
    let (blockers, released) = mpsc::channel(1);
    let watcher = DrainWatcher { phase: phases, blockers: blockers.downgrade() };
    (DrainTrigger { phase, blockers: Some(blockers), released }, watcher)
}

// === impl DrainTrigger ===

impl DrainTrigger {
    /// Drains: waits up to `grace` for the blockers, then forces, and waits up to `force` more for those who obey.
    pub async fn drain(mut self, grace: Duration, force: Duration) -> Drained {
        self.phase.send_replace(Phase::Draining);
        drop(self.blockers.take());
        let ended = if tokio::time::timeout(grace, self.released.recv()).await.is_ok() {
            Drained::Gracefully
        } else {
            self.phase.send_replace(Phase::Forced);
            let _ = tokio::time::timeout(force, self.released.recv()).await;
            Drained::ByForce
        };
        self.phase.send_replace(Phase::Drained);
        ended
    }

    /// The phases as they come.
    #[must_use]
    pub fn phases(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }
}

// === impl DrainWatcher ===

impl DrainWatcher {
    /// Waits until the drain has started. If the trigger is dropped without a drain, work goes on: never returns.
    pub async fn draining(&mut self) {
        self.reached(Phase::Draining).await;
    }

    /// Waits until what is under way should be dropped.
    pub async fn forced(&mut self) {
        self.reached(Phase::Forced).await;
    }

    /// The phase now.
    #[must_use]
    pub fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Something to hold while work is under way; `None` once all is drained: start nothing.
    #[must_use]
    pub fn block(&self) -> Option<DrainBlocker> {
        self.blockers.upgrade().map(|sender| DrainBlocker { _released_on_drop: sender })
    }

    async fn reached(&mut self, phase: Phase) {
        if self.phase.wait_for(|now| *now >= phase).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(10);
    const FORCE: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn nothing_under_way_drains_at_once() {
        let (trigger, mut watcher) = drain();
        assert_eq!(watcher.phase(), Phase::Serving);
        let began = tokio::time::Instant::now();
        assert_eq!(trigger.drain(GRACE, FORCE).await, Drained::Gracefully);
        assert_eq!(began.elapsed(), Duration::ZERO);
        watcher.draining().await;
        assert_eq!(watcher.phase(), Phase::Drained);
        assert!(watcher.block().is_none(), "no work may start after the drain");
    }

    #[tokio::test(start_paused = true)]
    async fn work_is_finished_within_the_grace_period() {
        let (trigger, mut watcher) = drain();
        let blocker = watcher.block().expect("serving");
        let work = async {
            watcher.draining().await;
            tokio::time::sleep(GRACE / 2).await;
            assert_eq!(watcher.phase(), Phase::Draining);
            drop(blocker);
        };
        let (ended, ()) = tokio::join!(trigger.drain(GRACE, FORCE), work);
        assert_eq!(ended, Drained::Gracefully);
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_does_not_end_is_forced_in_order() {
        let (trigger, mut watcher) = drain();
        let phases = trigger.phases();
        let blocker = watcher.block().expect("serving");
        let work = async move {
            let began = tokio::time::Instant::now();
            watcher.forced().await;
            assert_eq!(*phases.borrow(), Phase::Forced);
            assert_eq!(began.elapsed(), GRACE);
            drop(blocker);
        };
        let (ended, ()) = tokio::join!(trigger.drain(GRACE, FORCE), work);
        assert_eq!(ended, Drained::ByForce);
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_ignores_even_force_does_not_hold_up_the_end() {
        let (trigger, watcher) = drain();
        let _blocker = watcher.block().expect("serving");
        let began = tokio::time::Instant::now();
        assert_eq!(trigger.drain(GRACE, FORCE).await, Drained::ByForce);
        assert_eq!(began.elapsed(), GRACE + FORCE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_trigger_is_not_a_drain() {
        let (trigger, mut watcher) = drain();
        drop(trigger);
        assert!(tokio::time::timeout(GRACE, watcher.draining()).await.is_err());
    }
}
