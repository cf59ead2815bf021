//! The last known good on its own blocking thread: the newest state is saved every `persist_interval`, and told
//! durable after the disk has it.
//!
//! States in between are skipped, never queued. A file that another process holds is served from and taken over when
//! it is released; a full or failing disk is tried again, and said.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use headwater_durable::Keys;
use headwater_model::Version;
use headwater_process::{Policy, Supervisor};
use tokio::sync::{mpsc, watch};
use tracing::{info, warn};

use super::last_known_good::{self, Error, Group, LastKnownGood, Opened};
use super::verdict::Retained;

/// How long after a failure, or while another process holds the file, the next try is made.
const RETRY: Duration = Duration::from_secs(1);

/// What an operator sees of the file.
#[derive(Clone, Debug, Default)]
pub struct KeeperStatus {
    /// The file.
    pub path: PathBuf,
    /// Whether this process writes it.
    pub writer: bool,
    /// Its size in bytes, where this process writes it.
    pub bytes: Option<u64>,
    /// What was wrong with it when it was opened, and what was done.
    pub faults: Vec<String>,
    /// Why the newest state is not on the disk.
    pub error: Option<String>,
}

/// The handle of whoever has states to keep.
#[derive(Clone, Debug)]
pub struct Keeper {
    newest: watch::Sender<Option<Group>>,
    status: Arc<Mutex<KeeperStatus>>,
}

struct Writer {
    file: LastKnownGood,
    status: Arc<Mutex<KeeperStatus>>,
}

// === impl Keeper ===

impl Keeper {
    /// Opens the file, which blocks, and keeps what is given from then on. `durable` is told each version that the
    /// disk has.
    ///
    /// # Errors
    /// When the device fails to read.
    pub fn open(
        path: PathBuf,
        environment: &str,
        keys: &Keys,
        persist_interval: Duration,
        supervisor: &Supervisor,
        durable: mpsc::Sender<Version>,
    ) -> Result<(Self, Opened), Error> {
        let (file, opened) = LastKnownGood::open(&path, environment, keys)?;
        for fault in &opened.faults {
            warn!(file = %path.display(), "{fault}");
        }
        let status = KeeperStatus {
            path,
            writer: opened.writer,
            bytes: file.bytes(),
            faults: opened.faults.clone(),
            error: None,
        };
        let status = Arc::new(Mutex::new(status));
        let (newest, states) = watch::channel(None);
        let writer = Writer { file, status: status.clone() };
        supervisor.spawn(
            "last known good",
            Policy::best_effort(),
            keep(writer, states, persist_interval, durable, supervisor.token()),
        );
        Ok((Self { newest, status }, opened))
    }

    /// Gives the newest state. Never waits.
    pub fn keep(&self, group: Group) {
        self.newest.send_replace(Some(group));
    }

    /// The state of the file.
    #[must_use]
    pub fn status(&self) -> KeeperStatus {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Saves the newest state until the scope ends, and then once more.
async fn keep(
    mut writer: Writer,
    mut states: watch::Receiver<Option<Group>>,
    interval: Duration,
    durable: mpsc::Sender<Version>,
    ended: tokio_util::sync::CancellationToken,
) -> Result<(), tokio::task::JoinError> {
    loop {
        let last = tokio::select! {
            changed = states.changed() => changed.is_err(),
            () = ended.cancelled() => true,
        };
        if !last {
            tokio::select! {
                () = tokio::time::sleep(interval) => {}
                () = ended.cancelled() => {}
            }
        }
        let Some(group) = states.borrow_and_update().clone() else {
            if last {
                return Ok(());
            }
            continue;
        };
        let version = group.version.clone();
        let saved;
        (writer, saved) = tokio::task::spawn_blocking(move || {
            let saved = writer.save(&group);
            (writer, saved)
        })
        .await?;
        if saved {
            // Nobody listens any more at the very end.
            let _ = durable.send(version).await;
        }
        if last {
            return Ok(());
        }
        if !saved {
            tokio::select! {
                () = tokio::time::sleep(RETRY) => states.mark_changed(),
                () = ended.cancelled() => {}
            }
        }
    }
}

// === impl Writer ===

impl Writer {
    /// Whether the state is on the disk now.
    fn save(&mut self, group: &Group) -> bool {
        let result = self.try_save(group);
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        status.writer = self.file.is_writer();
        status.bytes = self.file.bytes();
        let error = match result {
            Ok(true) => None,
            Ok(false) => {
                Some("another process holds the file; this one writes when it is released".to_owned())
            }
            Err(error) => Some(error.to_string()),
        };
        if error != status.error {
            match &error {
                Some(error) => warn!(file = %status.path.display(), "not kept: {error}"),
                None => info!(file = %status.path.display(), "kept again"),
            }
        }
        status.error = error;
        status.error.is_none()
    }

    fn try_save(&mut self, group: &Group) -> Result<bool, Error> {
        if !self.file.is_writer() {
            self.file.take_over()?;
        }
        if !self.file.is_writer() {
            return Ok(false);
        }
        self.file.append(group)?;
        self.file.sync()?;
        Ok(true)
    }
}

impl From<Retained> for last_known_good::Retained {
    fn from(row: Retained) -> Self {
        let Retained { served, rejected, since_unix, references } = row;
        Self { served, rejected, since_unix, references }
    }
}

impl From<last_known_good::Retained> for Retained {
    fn from(row: last_known_good::Retained) -> Self {
        let last_known_good::Retained { served, rejected, since_unix, references } = row;
        Self { served, rejected, since_unix, references }
    }
}
