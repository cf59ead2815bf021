//! The owner of the embedded store's file: writes go through it, one after the other.
//!
//! Invariant: nothing is seen by a reader, a watch or the writer's caller before it is durable. A batch of
//! transactions shares one sync. When the disk refuses, nothing of the batch has happened.

use std::sync::Arc;

use arc_swap::ArcSwap;
use headwater_durable::{Error, GroupWriter, Log};
use headwater_model::Revision;
use prost::Message;
use tokio::sync::{mpsc, oneshot, watch};

use super::mvcc::{Mvcc, MvccError, Txn, TxnResponse};
use super::records::Record;

/// How many transactions share one sync at most.
const BATCH: usize = 64;

/// How many transactions may wait.
pub(super) const WAITING: usize = 256;

/// How much of the past is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Past {
    /// How many revisions are kept below the head, for whoever resumes or reads a past state.
    pub(super) revisions: u64,
    /// The garbage a file may hold beside twice what it held after its last rewrite.
    pub(super) garbage_bytes: u64,
}

/// A transaction and who waits for its outcome.
pub(super) struct Job {
    pub(super) txn: Txn,
    pub(super) reply: oneshot::Sender<Outcome>,
}

/// What became of a transaction.
pub(super) type Outcome = Result<TxnResponse, Refused>;

/// Why a transaction was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    /// The store's rules.
    #[error(transparent)]
    Store(#[from] MvccError),
    /// The disk is full, or the file may not be written.
    #[error("{0}")]
    ReadOnly(String),
    /// The disk failed; nothing was written.
    #[error("{0}")]
    Failed(String),
    /// The disk failed in a way that leaves open what a later opening will find.
    #[error("{0}")]
    Unknown(String),
}

/// The store that readers see, and where they hear of a new one.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) store: ArcSwap<Mvcc>,
    pub(super) head: watch::Sender<Revision>,
}

/// The file and what is known of it.
pub(super) struct Writer {
    pub(super) log: Log,
    pub(super) cluster_id: u64,
    pub(super) opens: u64,
    /// The size of the file after its last rewrite.
    pub(super) base_bytes: u64,
    pub(super) past: Past,
    pub(super) shared: Arc<Shared>,
}

// === impl Shared ===

impl Shared {
    pub(super) fn new(store: Mvcc) -> Self {
        let head = watch::Sender::new(store.revision());
        Self { store: ArcSwap::from_pointee(store), head }
    }

    fn publish(&self, store: Mvcc) {
        let revision = store.revision();
        self.store.store(Arc::new(store));
        self.head.send_replace(revision);
    }
}

// === impl Writer ===

impl Writer {
    /// Serves jobs until nobody can send any more. The disk is used on a thread for blocking work.
    pub(super) async fn run(mut self, mut jobs: mpsc::Receiver<Job>) {
        let mut batch = Vec::with_capacity(BATCH);
        while jobs.recv_many(&mut batch, BATCH).await > 0 {
            let taken = std::mem::take(&mut batch);
            let work = tokio::task::spawn_blocking(move || {
                self.carry_out(taken);
                self
            });
            match work.await {
                Ok(writer) => self = writer,
                // The jobs' callers have seen their reply dropped; later ones find the queue closed.
                Err(panicked) => return tracing::error!(%panicked, "the embedded store's writer has ended"),
            }
        }
    }

    /// Carries out a batch and answers everybody in it.
    pub(super) fn carry_out(&mut self, jobs: Vec<Job>) {
        let before = self.shared.store.load_full();
        let mut after = Mvcc::clone(&before);
        let (replies, mut outcomes): (Vec<_>, Vec<Outcome>) =
            jobs.into_iter().map(|job| (job.reply, after.txn(&job.txn).map_err(Refused::from))).unzip();
        if after.revision() > before.revision() {
            match self.write(before.revision(), &mut after) {
                Ok(()) => {
                    self.past.forget(&mut after);
                    self.tidy(&mut after);
                    self.shared.publish(after);
                }
                Err(refused) => {
                    let undone = outcomes.iter_mut().filter(|outcome| outcome.is_ok());
                    undone.for_each(|outcome| *outcome = Err(refused.clone()));
                }
            }
        }
        for (reply, outcome) in replies.into_iter().zip(outcomes) {
            // Whoever no longer waits has said "unknown" itself.
            let _ = reply.send(outcome);
        }
    }

    /// Makes what came after `head` durable.
    fn write(&mut self, head: Revision, after: &mut Mvcc) -> Result<(), Refused> {
        if self.log.is_suspect() {
            return self.rewrite(after);
        }
        let appended = self.append(head, after);
        match appended.and_then(|()| self.log.sync()) {
            Ok(()) => Ok(()),
            // Whether the batch is on the disk cannot be known any more: a new file decides it.
            Err(error) if self.log.is_suspect() => {
                tracing::warn!(%error, "the embedded store's file is written anew");
                self.rewrite(after)
            }
            Err(error) => Err(Refused::of(&error)),
        }
    }

    /// Rewrites a file of which most is garbage. What it held is durable either way.
    fn tidy(&mut self, store: &mut Mvcc) {
        if self.log.bytes() <= 2 * self.base_bytes + self.past.garbage_bytes {
            return;
        }
        if let Err(error) = self.rewrite(store) {
            tracing::warn!(%error, "the embedded store's file cannot be made smaller");
            self.base_bytes = self.log.bytes();
        }
    }

    fn append(&mut self, head: Revision, after: &Mvcc) -> Result<(), Error> {
        let mut records =
            after.events_from(head.next()).map(|(revision, events)| Record::revision(revision, events));
        // One group: a disk that fills up in the middle takes none of the batch.
        self.log.append(|group| records.try_for_each(|record| write(group, &record)))
    }

    /// Replaces the file by one that holds the store without most of its past.
    fn rewrite(&mut self, store: &mut Mvcc) -> Result<(), Refused> {
        let oldest = store.revision().0.saturating_sub(self.past.revisions);
        let base = Revision(oldest).max(store.compacted()).max(Revision(1));
        let opened = Record::opened(self.cluster_id, self.opens);
        let was_suspect = self.log.is_suspect();
        let written = self.log.rewrite(|group| write_whole(group, &opened, store, base));
        match written {
            Ok(()) => {
                self.base_bytes = self.log.bytes();
                if base > store.compacted() {
                    store.compact(base).map_err(Refused::Store)?;
                }
                Ok(())
            }
            Err(error) if was_suspect || self.log.is_suspect() => Err(Refused::Unknown(error.to_string())),
            Err(error) => Err(Refused::of(&error)),
        }
    }
}

// === impl Past ===

impl Past {
    pub(super) const DEFAULT: Self = Self { revisions: 10_000, garbage_bytes: 16 << 20 };

    /// Bounds the past that is kept in memory. The file may keep more until it is rewritten.
    pub(super) fn forget(self, store: &mut Mvcc) {
        let head = store.revision().0;
        if head.saturating_sub(store.compacted().0) > 2 * self.revisions {
            let oldest = Revision(head - self.revisions);
            store.compact(oldest).expect("it lies between the compacted and the current revision");
        }
    }
}

// === impl Refused ===

impl Refused {
    fn of(error: &Error) -> Self {
        match error {
            error if error.is_full() => Self::ReadOnly(error.to_string()),
            error @ Error::ReadOnly { .. } => Self::ReadOnly(error.to_string()),
            error => Self::Failed(error.to_string()),
        }
    }
}

/// Writes one record into a group.
pub(super) fn write(group: &mut GroupWriter<'_>, record: &Record) -> Result<(), Error> {
    group.record(&record.encode_to_vec())
}

/// Writes a whole store into a group: what a rewritten file holds.
pub(super) fn write_whole(
    group: &mut GroupWriter<'_>,
    opened: &Record,
    store: &Mvcc,
    base: Revision,
) -> Result<(), Error> {
    write(group, opened)?;
    Record::whole(store, base).try_for_each(|record| write(group, &record))
}
