//! Keeps the last known good of an environment off the writer's path.
//!
//! The writer hands over jobs through a bounded queue; a thread of its own writes and syncs them. When the disk is
//! slower than the source, what waits is merged into one job that keeps everything. A file that cannot be written is
//! reported and written whole at the next job; it never stops the environment.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;

use bytes::Bytes;
use headwater_model::Revision;
use headwater_proto::config::Approval;
use imbl::OrdMap;
use tokio::sync::{mpsc, oneshot};

use super::core::{Core, Keep};
use crate::hold::Standing;
use crate::store::Snapshot;

/// How many jobs may wait for the disk.
const QUEUE: usize = 64;

/// Where jobs are written: the last known good file.
pub trait File: Send + 'static {
    /// Writes one job and syncs it.
    ///
    /// # Errors
    /// A sentence naming the file and the cure; what is held is then written whole at the next job.
    fn write(&mut self, job: &Job) -> Result<(), String>;
}

/// One thing to keep, with the state it belongs to.
#[derive(Debug)]
pub struct Job {
    /// What changed.
    pub keep: Keep,
    /// The newest state of the store.
    pub snapshot: Snapshot,
    /// Keys that are no content.
    pub others: OrdMap<Bytes, (Revision, Revision)>,
    /// The hold that stands.
    pub hold: Option<Standing>,
    /// The approvals that are known.
    pub approvals: BTreeMap<Arc<str>, Approval>,
}

/// The queue to the thread that owns the file.
#[derive(Debug)]
pub struct Keeper {
    jobs: mpsc::Sender<Job>,
    behind: bool,
    ended: oneshot::Receiver<()>,
}

// === impl Job ===

impl Job {
    /// A job about the present state.
    #[must_use]
    pub fn new(keep: Keep, core: &Core) -> Self {
        let others = core.others().clone();
        let hold = core.hold().standing().cloned();
        let approvals = core.hold().approvals().clone();
        Self { keep, snapshot: core.store().snapshot().clone(), others, hold, approvals }
    }
}

// === impl Keeper ===

impl Keeper {
    /// Starts the thread that owns a file.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(environment: &str, file: impl File) -> std::io::Result<Self> {
        let (jobs, queue) = mpsc::channel(QUEUE);
        let (end, ended) = oneshot::channel();
        let environment = environment.to_owned();
        thread::Builder::new().name(format!("keeper {environment}")).spawn(move || {
            write_all(&environment, file, queue);
            // Whoever waits for the end may have gone.
            let _ = end.send(());
        })?;
        Ok(Self { jobs, behind: false, ended })
    }

    /// Hands over a job. With a full queue the job is dropped, and the next one that fits keeps everything.
    pub fn keep(&mut self, keep: Keep, core: &Core) {
        let keep = if self.behind { Keep::Everything } else { keep };
        self.behind = self.jobs.try_send(Job::new(keep, core)).is_err();
    }

    /// Waits until everything that was handed over is written.
    pub async fn close(self) {
        drop(self.jobs);
        let _ = self.ended.await;
    }
}

fn write_all(environment: &str, mut file: impl File, mut queue: mpsc::Receiver<Job>) {
    let mut failed = false;
    while let Some(mut job) = queue.blocking_recv() {
        if failed && job.keep != Keep::Everything {
            // Only a whole job mends a file that missed one; the writer sends one at the next reload at the latest.
            job.keep = Keep::Everything;
        }
        match file.write(&job) {
            Ok(()) if failed => {
                failed = false;
                tracing::info!(environment, "the last known good is written again");
            }
            Ok(()) => {}
            Err(error) => {
                if !std::mem::replace(&mut failed, true) {
                    tracing::error!(environment, error, "the last known good is not kept: serving goes on");
                }
            }
        }
    }
}
