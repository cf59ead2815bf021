//! The fleet: which nodes there are, and whether a version is applied on all of them.
//!
//! [`registry`] and [`wait`] are pure; this shell gives them a clock, one writer and readers. Sessions tell what
//! happened through one bounded channel; the writer takes in what has gathered, publishes once, and lets more gather,
//! so that a thousand acknowledgements cost a few wake-ups and each row is copied once a publication. Readers clone
//! the published registry, which shares structure.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use headwater_process::{Policy, Supervisor};
use headwater_proto::config::Hello;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

pub mod registry;
pub mod wait;

pub use registry::{Expected, FleetEvent, Happened, Registry, Row, RowId, RowState};

use registry::ForgetError;

/// Events that may wait for the writer. A session that finds the channel full waits: it is one of the writer's
/// own causes, and slows down by itself.
const QUEUE: usize = 4096;
/// Events taken in before one publication: all that may wait.
const BATCH: usize = QUEUE;
/// The pause after a publication in which events gather. Each publication makes the next one copy what it changes, so
/// at a fleet's pace they must not be one an event; an answer to a wait is later by this at most.
const GATHER: Duration = Duration::from_millis(10);
/// How often rows that ended long ago are looked for.
const EXPIRE_EVERY: Duration = Duration::from_secs(30);
/// How long a request to the writer may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// A handle on the registry; a clone is the same fleet.
#[derive(Clone, Debug)]
pub struct Fleet {
    told: mpsc::Sender<Told>,
    published: watch::Receiver<Registry>,
    zero: Instant,
}

/// The writer does not answer: the process is ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the registry of nodes has ended: the process is shutting down")]
pub struct Ended;

/// Why a node was not forgotten.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotForgotten {
    /// The registry says no.
    #[error(transparent)]
    Refused(#[from] ForgetError),
    /// The registry does not answer.
    #[error(transparent)]
    Ended(#[from] Ended),
}

#[derive(Debug)]
enum Told {
    Event(FleetEvent),
    Forget(RowId, oneshot::Sender<Result<(), ForgetError>>),
}

// === impl Fleet ===

impl Fleet {
    /// Starts the writer of a replica's registry, with the nodes that were expected before a restart.
    #[must_use]
    pub fn start(
        replica: &str,
        lost_retention: Duration,
        expected: impl IntoIterator<Item = Expected>,
        supervisor: &Supervisor,
    ) -> Self {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let mut registry = Registry::new(replica, lost_retention, unix);
        for expected in expected {
            registry.expect(expected, Duration::ZERO);
        }
        let (told, inbox) = mpsc::channel(QUEUE);
        let (publish, published) = watch::channel(registry.clone());
        let zero = Instant::now();
        let writer = Writer { registry, publish, zero };
        supervisor.spawn("fleet registry", Policy::essential().dropped_on_cancel(), writer.run(inbox));
        Self { told, published, zero }
    }

    /// Tells what happened on a connection; waits while the queue is full.
    ///
    /// # Errors
    /// When the process is ending.
    pub async fn tell(&self, event: FleetEvent) -> Result<(), Ended> {
        self.told.send(Told::Event(event)).await.map_err(|_| Ended)
    }

    /// Tells without waiting; gives the event back when the queue is full or the process is ending.
    ///
    /// # Errors
    /// The event, to be told again.
    pub fn try_tell(&self, event: FleetEvent) -> Result<(), Box<FleetEvent>> {
        self.told.try_send(Told::Event(event)).map_err(|error| match error.into_inner() {
            Told::Event(event) => Box::new(event),
            Told::Forget(..) => unreachable!("the message sent was an event"),
        })
    }

    /// The registry now: an immutable view.
    #[must_use]
    pub fn registry(&self) -> Registry {
        self.published.borrow().clone()
    }

    /// Wakes at every publication.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<Registry> {
        self.published.clone()
    }

    /// Whether the set of rejects that a hello counts and hashes is known already.
    #[must_use]
    pub fn knows_rejects(&self, hello: &Hello) -> bool {
        self.published.borrow().knows_rejects(hello)
    }

    /// Expects a lost node no longer.
    ///
    /// # Errors
    /// When it is connected, not known, or the process is ending.
    pub async fn forget(&self, row: RowId) -> Result<(), NotForgotten> {
        let (answer, answered) = oneshot::channel();
        self.told.send(Told::Forget(row, answer)).await.map_err(|_| Ended)?;
        let answered = tokio::time::timeout(ANSWER_WITHIN, answered).await;
        answered.map_err(|_| Ended)?.map_err(|_| Ended)?.map_err(NotForgotten::Refused)
    }

    /// Time since the registry's start: the `now` of its rows.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.zero.elapsed()
    }
}

struct Writer {
    registry: Registry,
    publish: watch::Sender<Registry>,
    zero: Instant,
}

// === impl Writer ===

impl Writer {
    async fn run(mut self, mut inbox: mpsc::Receiver<Told>) {
        let mut batch = Vec::new();
        let mut expire = tokio::time::interval(EXPIRE_EVERY);
        loop {
            tokio::select! {
                count = inbox.recv_many(&mut batch, BATCH) => {
                    if count == 0 {
                        return;
                    }
                    let now = self.zero.elapsed();
                    let answers: Vec<_> = batch.drain(..).filter_map(|told| self.take(told, now)).collect();
                    self.publish.send_replace(self.registry.clone());
                    for (answer, result) in answers {
                        // Whoever asked may have gone; the row is forgotten all the same.
                        let _ = answer.send(result);
                    }
                    tokio::time::sleep(GATHER).await;
                }
                _ = expire.tick() => {
                    self.registry.expire(self.zero.elapsed());
                    self.publish.send_replace(self.registry.clone());
                }
            }
        }
    }

    fn take(&mut self, told: Told, now: Duration) -> Option<ForgetAnswer> {
        match told {
            Told::Event(event) => {
                self.registry.apply(event, now);
                None
            }
            Told::Forget(row, answer) => Some((answer, self.registry.forget(&row))),
        }
    }
}

type ForgetAnswer = (oneshot::Sender<Result<(), ForgetError>>, Result<(), ForgetError>);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn forgetting_an_unknown_node_is_an_error_and_the_writer_goes_on() {
        let supervisor = Supervisor::new("test");
        let seen = Expected {
            row: RowId { node_id: "n1".into(), instance: "a".into() },
            environment: "default".into(),
            seen_unix: 0,
        };
        let fleet = Fleet::start("r1", registry::LOST_RETENTION, [seen.clone()], &supervisor);
        assert_eq!(fleet.registry().counts().lost, 1);
        let unknown = RowId { node_id: "n1".into(), instance: "b".into() };
        assert!(matches!(fleet.forget(unknown).await, Err(NotForgotten::Refused(ForgetError::Unknown(_)))));
        fleet.forget(seen.row).await.unwrap();
        assert_eq!(fleet.registry().rows().count(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn lost_nodes_are_dropped_when_their_retention_is_over() {
        let supervisor = Supervisor::new("test");
        let seen = Expected {
            row: RowId { node_id: "n1".into(), instance: "a".into() },
            environment: "default".into(),
            seen_unix: 0,
        };
        let fleet = Fleet::start("r1", Duration::from_secs(60), [seen], &supervisor);
        tokio::time::sleep(Duration::from_secs(59)).await;
        assert_eq!(fleet.registry().rows().count(), 1);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(fleet.registry().rows().count(), 0);
    }
}
