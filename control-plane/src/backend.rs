//! Where configuration comes from and where writes go: what every backend offers to an environment.
//!
//! A [`Source`] holds the environment's only watch and tells its story, in order, through one bounded channel; an
//! environment's single writer listens. A [`Reader`] answers questions beside the watch (the head, a past state);
//! nothing it answers may ever move the safe revision. [`Commit`] carries out one transaction.
//!
//! Keys here are relative to `<prefix>/`, as bytes, and include those that are not content: the content proof is
//! over all of them.

pub mod embedded;
pub mod etcd;

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use headwater_model::{Generation, Revision};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// One key with its value, as a range read gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Relative to `<prefix>/`.
    pub key: Bytes,
    /// Exactly as stored.
    pub value: Bytes,
    /// The revision at which the key last came into being.
    pub create_revision: Revision,
    /// The revision of the last write.
    pub mod_revision: Revision,
}

/// One change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyEvent {
    /// The key was written.
    Put(Entry),
    /// The key was deleted at this revision.
    Delete {
        /// Relative to `<prefix>/`.
        key: Bytes,
        /// The revision of the deletion.
        revision: Revision,
    },
}

/// How a full read connects to what was held before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Continuity {
    /// Nothing was held before: no memory, no file.
    First,
    /// The content proof held: the same history, read again because it was too far behind to be followed.
    Proven,
    /// The content proof could not be made (compacted): most likely the same history, but it may be a restore.
    Unproven,
    /// The history went back, or is another one: proven by two reads, and no other member that answered denied it.
    /// The generation rises.
    Rewound {
        /// What proved it, in a sentence.
        evidence: String,
    },
}

/// A complete state at one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// The cluster it was read from.
    pub cluster_id: u64,
    /// The pinned revision: the entries are exactly its state, and it is the new safe revision.
    pub revision: Revision,
    /// Every key below the prefix, in key order.
    pub entries: Vec<Entry>,
    /// How it connects to what was held.
    pub continuity: Continuity,
    /// The lowest generation that it may be of: the one that a [reload](SourceCommand::Reload) was asked for with,
    /// zero else.
    pub generation: Generation,
}

/// Complete revisions of the watch stream in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The last revision contained, and the new safe revision.
    pub revision: Revision,
    /// The first revision contained: of what was held from there up to `revision` nothing is known where the two are
    /// not the same, for of each key only the newest event may be here.
    pub first: Revision,
    /// In revision order; one revision is never split over two batches.
    pub events: Vec<KeyEvent>,
}

// === impl Batch ===

impl Batch {
    /// Events as the stream had them, none left out, up to `revision`.
    #[must_use]
    pub fn new(revision: Revision, events: Vec<KeyEvent>) -> Self {
        let first = events.first().map_or(revision, KeyEvent::revision);
        Self { revision, first, events }
    }
}

/// What a source tells its environment, in stream order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceEvent {
    /// A full read. Installed as a whole, before any later event.
    Loaded(Load),
    /// What was held (from the last known good file) was proven to be of the same history, and the watch goes on
    /// from its revision.
    Resumed {
        /// The cluster that was proven to hold it.
        cluster_id: u64,
    },
    /// Changes.
    Batch(Batch),
    /// Everything up to this revision has been delivered: a trusted progress response of the stream in use.
    Progress(Revision),
    /// The source's state changed.
    State(SourceState),
}

/// What a source is doing, for status, logs and for the rule that a replica without proof of life of its source
/// changes nothing on a node that holds content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceState {
    /// The stage it is in.
    pub stage: Stage,
    /// The member (or file) it follows or tries, as configured.
    pub member: String,
    /// The member's version, when known.
    pub server_version: Option<String>,
    /// Why it is not live, or what is special about it, in a sentence with the cure where there is one.
    pub note: Option<String>,
}

/// The stages of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Waiting before the next try.
    BackingOff,
    /// Opening the connection, asking for version and head.
    Connecting,
    /// Checking that what is held is of this history.
    Proving,
    /// Reading everything.
    Loading,
    /// The watch is created and delivers what was missed; no frame has come yet.
    CatchingUp,
    /// The watch is proven alive within its liveness limit.
    Live,
    /// The member must not be followed (version gate, proxy, identity); the note says why.
    Refused,
    /// The source has ended for good (process shutting down).
    Stopped,
}

/// What a source may resume from: the last known good of the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResumePoint {
    /// The cluster the state was read from.
    pub cluster_id: u64,
    /// Its safe revision.
    pub revision: Revision,
    /// Every key below the prefix, content or not, in key order.
    pub keys: Vec<KeyRevisions>,
}

/// What the content proof needs of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRevisions {
    /// Relative to `<prefix>/`.
    pub key: Bytes,
    /// The revision at which it last came into being.
    pub create_revision: Revision,
    /// The revision of its last write.
    pub mod_revision: Revision,
    /// Its value, where it is kept: that of content. Two histories may have written a key at the same revisions.
    pub value: Option<Bytes>,
}

/// A request to a running source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceCommand {
    /// Read everything again (an audit or a divergence asks for it).
    Reload {
        /// Who asks and why, for the log.
        reason: String,
        /// The lowest generation that what is read is to be of, zero for none. The read begins after the request then,
        /// whatever is being read already: nothing from before may be told under a new generation.
        generation: Generation,
    },
}

/// Holds the only watch of one environment.
#[async_trait]
pub trait Source: Send {
    /// Runs until stopped; never ends by itself for a fault of the world.
    ///
    /// Events go to `events` in order. The channel is bounded; a source that finds it full goes on reading its
    /// stream and merges what it holds back by key and whole revisions (W14).
    async fn run(
        self: Box<Self>,
        resume: Option<ResumePoint>,
        events: mpsc::Sender<SourceEvent>,
        commands: mpsc::Receiver<SourceCommand>,
        stop: CancellationToken,
    );
}

/// The newest revision as a linearizable read answers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The cluster that answered.
    pub cluster_id: u64,
    /// Its revision.
    pub revision: Revision,
}

/// Reads beside the watch. Every call has a deadline of its own.
#[async_trait]
pub trait Reader: Send + Sync {
    /// The head as each member says that answers in time, linearizable; empty when none does.
    async fn heads(&self) -> Vec<Head>;

    /// One key now (linearizable), with the head at which it was read.
    async fn get(&self, key: &[u8]) -> Result<(Option<Entry>, Head), ReadError>;

    /// One key as it was at `revision`.
    async fn get_at(&self, key: &[u8], revision: Revision) -> Result<Option<Entry>, ReadError>;

    /// All keys that start with `directory` (relative, with its slash) now, in key order.
    async fn list(&self, directory: &[u8]) -> Result<(Vec<Entry>, Head), ReadError>;

    /// The whole prefix exactly at `revision`, in key order.
    async fn state_at(&self, revision: Revision) -> Result<Vec<Entry>, ReadError>;
}

/// Carries out writes.
#[async_trait]
pub trait Commit: Send + Sync {
    /// Commits one transaction, or says why not.
    async fn commit(&self, transaction: Transaction) -> Result<Committed, CommitError>;
}

/// One atomic write: all comparisons hold, or nothing is done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// What must hold.
    pub compares: Vec<Compare>,
    /// What is done then. At most 128 together with the comparisons' own limit of 128 (etcd's `--max-txn-ops`).
    pub operations: Vec<Operation>,
}

/// A condition of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compare {
    /// The key's mod revision is this one; zero means that the key does not exist.
    ModRevision {
        /// Relative to `<prefix>/`.
        key: Bytes,
        /// The expected mod revision.
        is: Revision,
    },
    /// The key exists.
    Exists {
        /// Relative to `<prefix>/`.
        key: Bytes,
    },
    /// No key that starts with `directory` was written after `revision`.
    NoneWrittenSince {
        /// Relative, with its slash.
        directory: Bytes,
        /// The revision of the read that the check was made on.
        revision: Revision,
    },
}

/// A write of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Writes a key.
    Put {
        /// Relative to `<prefix>/`.
        key: Bytes,
        /// The value.
        value: Bytes,
    },
    /// Deletes a key.
    Delete {
        /// Relative to `<prefix>/`.
        key: Bytes,
    },
}

/// What a successful commit answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The cluster that committed.
    pub cluster_id: u64,
    /// The revision of the transaction.
    pub revision: Revision,
    /// For each operation, whether the key existed before.
    pub existed: Vec<bool>,
}

/// Why a read failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// No answer: the backend is away, slow, or without a leader.
    #[error("the backend gave no answer within {}: {cause}", humantime(.after))]
    Unavailable {
        /// What happened.
        cause: String,
        /// How long it was waited for.
        after: Duration,
    },
    /// The revision is older than what is kept.
    #[error("revision {revision} has been compacted; the oldest kept is {oldest}")]
    Compacted {
        /// The revision asked for.
        revision: Revision,
        /// The oldest that may be asked for (zero when the backend does not say).
        oldest: Revision,
    },
    /// The revision lies ahead of the backend's own.
    #[error("revision {revision} lies ahead of the backend's head {head}")]
    Future {
        /// The revision asked for.
        revision: Revision,
        /// The backend's head (zero when it does not say).
        head: Revision,
    },
    /// The backend refused: credentials, permissions, or a member that must not be used.
    #[error("the backend refused: {0}")]
    Refused(String),
}

/// Why a commit failed. Nothing was written, except where said.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// A comparison did not hold.
    #[error("a condition of the write did not hold: the configuration has changed since it was read")]
    Conflict,
    /// The backend is away; nothing was sent.
    #[error("the backend cannot be written now: {0}")]
    Unavailable(String),
    /// The request was sent and no answer came: it may or may not have been carried out.
    #[error("the outcome of the write is unknown: {0}")]
    Unknown(String),
    /// Out of space (etcd's NOSPACE alarm): reads go on.
    #[error("the store is read-only: {0}")]
    ReadOnly(String),
    /// Above the backend's limits.
    #[error("the write is above the backend's limits: {0}")]
    TooLarge(String),
    /// The backend refused: credentials or permissions.
    #[error("the backend refused the write: {0}")]
    Refused(String),
}

fn humantime(after: &Duration) -> String {
    format!("{:.1} s", after.as_secs_f64())
}

// === impl KeyEvent ===

impl KeyEvent {
    /// The key, relative to `<prefix>/`.
    #[must_use]
    pub const fn key(&self) -> &Bytes {
        match self {
            Self::Put(entry) => &entry.key,
            Self::Delete { key, .. } => key,
        }
    }

    /// The revision of the change.
    #[must_use]
    pub const fn revision(&self) -> Revision {
        match self {
            Self::Put(entry) => entry.mod_revision,
            Self::Delete { revision, .. } => *revision,
        }
    }
}

// === impl SourceState ===

impl SourceState {
    /// Whether the source is proven alive.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.stage == Stage::Live
    }
}

// === impl Stage ===

impl Stage {
    /// The stage as a label and in status.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::BackingOff => "backing_off",
            Self::Connecting => "connecting",
            Self::Proving => "proving",
            Self::Loading => "loading",
            Self::CatchingUp => "catching_up",
            Self::Live => "live",
            Self::Refused => "refused",
            Self::Stopped => "stopped",
        }
    }
}
