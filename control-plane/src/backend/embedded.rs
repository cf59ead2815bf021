//! The embedded store: one replica without an etcd, with one durable file.
//!
//! The store itself is the pure [`mvcc`] model, with etcd's limits. Reads and the watch use an immutable picture of
//! it; writes go through the one owner of the file and are seen once they are durable. One store serves one
//! environment: its keys are relative to the environment's prefix.
//!
//! It is its own proof of life: there is nothing between it and its watch that could fail in silence.
//!
//! A damaged file is cut off at its last whole group or set aside and named by [`headwater_durable`]; the store
//! goes on with what is whole. With keys it is encrypted; it is rewritten at an opening that finds it under another
//! one, or plain. Since that may be less than what nodes have seen, every opening counts, and the
//! environment's generation rises with it ([`EmbeddedStore::generation`]).

mod access;
pub mod mvcc;
mod records;
mod source;
#[cfg(test)]
mod tests;
mod writer;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use headwater_durable::{Error, Format, Judgement, Keys, Log, Opened};
use headwater_model::{Generation, Revision};
use headwater_process::Supervisor;
use headwater_process::supervisor::Policy;
use tokio::sync::mpsc;

use self::mvcc::{Limits, Mvcc};
use self::records::{Loader, Record};
pub use self::source::EmbeddedSource;
use self::writer::{Job, Past, Shared, WAITING, Writer};

/// An open store; a clone is the same store.
#[derive(Clone, Debug)]
pub struct EmbeddedStore {
    shared: Arc<Shared>,
    /// Towards the owner of the file, or why there is none.
    jobs: Result<mpsc::Sender<Job>, String>,
    file: String,
    cluster_id: u64,
    opens: u64,
    faults: Vec<String>,
    progress_interval: Duration,
}

/// Where a store is kept.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The file; its directory is made where it is missing.
    pub file: PathBuf,
    /// The keys under which it is encrypted; plain without any.
    pub keys: Keys,
    /// How often the source says that everything was delivered.
    pub progress_interval: Duration,
}

/// The file is there and cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the embedded store cannot be opened: {0}")]
pub struct OpenError(#[from] Error);

// === impl EmbeddedStore ===

impl EmbeddedStore {
    /// Opens the store in its file, or makes both. Its writer runs under `supervisor`. Must be called inside a
    /// tokio runtime; reading the file blocks.
    ///
    /// # Errors
    /// When the file is there and cannot be read for a fault of the device. A damaged or a locked file is no error:
    /// see [`EmbeddedStore::faults`].
    pub fn open(settings: &Settings, supervisor: &Supervisor) -> Result<Self, OpenError> {
        let (opened, loader) = read(settings)?;
        let mut faults: Vec<String> = opened.faults.iter().map(ToString::to_string).collect();
        let (cluster_id, opens) = loader.opened().unwrap_or_else(|| (rand::random::<u64>().max(1), 0));
        let empty = || Mvcc::new(records::identity(cluster_id), Limits::ETCD);
        let mut store = loader.into_store().unwrap_or_else(empty);
        Past::DEFAULT.forget(&mut store);
        let opens = opens + 1;
        let log = opened.log.ok_or_else(|| faults.join("; "));
        let log = log.and_then(|log| count(log, cluster_id, opens, &store));
        let shared = Arc::new(Shared::new(store));
        let jobs = match log {
            Ok(log) => {
                let (sender, receiver) = mpsc::channel(WAITING);
                let base_bytes = log.bytes();
                let (past, shared) = (Past::DEFAULT, Arc::clone(&shared));
                let writer = Writer { log, cluster_id, opens, base_bytes, past, shared };
                supervisor.spawn("embedded-store", Policy::essential(), writer.run(receiver));
                Ok(sender)
            }
            Err(why) => {
                let why = format!("the embedded store's file cannot be written: {why}");
                faults.push(why.clone());
                Err(why)
            }
        };
        let file = settings.file.display().to_string();
        for fault in &faults {
            tracing::warn!(%file, %fault, "the embedded store");
        }
        Ok(Self {
            shared,
            jobs,
            file,
            cluster_id,
            opens,
            faults,
            progress_interval: settings.progress_interval,
        })
    }

    /// The source of the environment this store serves.
    #[must_use]
    pub fn source(&self) -> EmbeddedSource {
        EmbeddedSource::of(self)
    }

    /// What the environment's generation must be at least: it rises with every opening of the file, for an opening
    /// may have cut off what nodes have seen.
    #[must_use]
    pub const fn generation(&self) -> Generation {
        Generation(self.opens - 1)
    }

    /// What was wrong with the file at its opening and was dealt with, in sentences.
    #[must_use]
    pub fn faults(&self) -> &[String] {
        &self.faults
    }
}

/// Reads the file's groups.
fn read(settings: &Settings) -> Result<(Opened, Loader), Error> {
    let mut loader = Loader::new(Limits::ETCD);
    let mut take = |group: &[Vec<u8>]| match loader.take(group) {
        Ok(()) => Judgement::Take,
        Err(misread) if loader.is_empty() => {
            Judgement::SetAside { reason: "unreadable", why: misread.to_string() }
        }
        Err(misread) => Judgement::Refuse(misread.to_string()),
    };
    let opened = Log::open(&settings.file, Format::new("embedded", 1), &settings.keys, &mut take)?;
    Ok((opened, loader))
}

/// Writes this opening down, before anything is served from it. A file that is not under the first key is rewritten
/// for it; while it cannot be, nothing is written.
fn count(mut log: Log, cluster_id: u64, opens: u64, store: &Mvcc) -> Result<Log, String> {
    let record = Record::opened(cluster_id, opens);
    let counted = if log.is_outdated() {
        let base = store.compacted().max(Revision(1));
        log.rewrite(|group| writer::write_whole(group, &record, store, base))
    } else {
        log.append(|group| writer::write(group, &record))
    };
    counted.and_then(|()| log.sync()).map(|()| log).map_err(|error| error.to_string())
}
