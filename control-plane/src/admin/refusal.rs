//! Why a request was not carried out: one sentence with the cure, and a stable word for scripts.

use headwater_model::{Key, Revision};

use crate::admin::validation::Fault;
use crate::backend::{CommitError, ReadError};
use crate::fleet::NotForgotten;

/// A request that was not carried out. Nothing was written, except where said.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No environment of that name.
    #[error("{}", unknown_environment(asked, known))]
    UnknownEnvironment {
        /// As asked.
        asked: String,
        /// Those there are.
        known: Vec<String>,
    },
    /// The environment holds nothing yet.
    #[error("the environment {name} is not loaded yet: {why}; try again when `status` shows it complete")]
    NotComplete {
        /// Its name.
        name: String,
        /// What its source is doing.
        why: String,
    },
    /// The request itself is wrong.
    #[error("{0}")]
    BadRequest(String),
    /// Values that no node could use, or that break a reference: all of them.
    #[error("{}", faults(.0))]
    Invalid(Vec<Fault>),
    /// No such resource.
    #[error("{key} does not exist")]
    NotFound {
        /// The key.
        key: Key,
    },
    /// Something refers to what would be deleted.
    #[error("{key} is in use by {}: delete or repoint {} first", shortened(by, *count), if *count == 1 { "it" } else { "them" })]
    InUse {
        /// What would be deleted.
        key: Key,
        /// Who refers to it, the first few.
        by: Vec<Key>,
        /// How many do.
        count: usize,
    },
    /// The resource is not what the caller thinks.
    #[error("{key} {}: read it again and repeat the change", mismatch(*expected, *found))]
    Conflict {
        /// The key.
        key: Key,
        /// The mod revision that was given; zero for "must not exist".
        expected: Revision,
        /// The one there is; nothing when the key does not exist.
        found: Option<Revision>,
    },
    /// Others wrote at the same time, again and again.
    #[error("the configuration was changed by others during every one of {tries} tries: try again")]
    Contended {
        /// How often it was tried.
        tries: u32,
    },
    /// Above the limits of one transaction.
    #[error("{0}")]
    TooLarge(String),
    /// The source is not proven alive, so nothing may be decided on this replica's state.
    #[error(
        "this replica does not write now: {0}; ask another replica, or try again when `status` shows the source live"
    )]
    Degraded(String),
    /// The backend does not answer; nothing was sent.
    #[error("the source cannot be reached: {0}")]
    Unavailable(String),
    /// The store is out of space.
    #[error("the store is read-only: {0}; nodes go on serving, and reads work")]
    ReadOnly(String),
    /// The backend refused this replica.
    #[error("the source refused: {0}; check the replica's credentials and their permissions")]
    BackendRefused(String),
    /// The write was sent and the reply was lost; it was looked up and not found.
    #[error("the outcome of the write is unknown: {0}")]
    OutcomeUnknown(String),
    /// This replica cannot answer for the whole fleet.
    #[error(
        "this replica is configured with peers ({}) whose nodes it does not know: waiting over several replicas is \
         not built yet; ask each replica for its nodes, or configure one replica without peers",
        .0.join(", ")
    )]
    Peers(Vec<String>),
    /// Nothing is held, or another jump than the one named.
    #[error("{0}")]
    NoSuchHold(String),
    /// There is no watch to record.
    #[error("the environment {0} is an embedded store: it has no watch whose responses could be recorded")]
    NoRecorder(String),
    /// The node cannot be forgotten.
    #[error(transparent)]
    Node(#[from] NotForgotten),
}

// === impl Refusal ===

impl Refusal {
    /// The stable word.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::UnknownEnvironment { .. } => "unknown_environment",
            Self::NotComplete { .. } => "not_complete",
            Self::BadRequest(_) => "bad_request",
            Self::Invalid(_) => "invalid",
            Self::NotFound { .. } => "not_found",
            Self::InUse { .. } => "in_use",
            Self::Conflict { .. } => "conflict",
            Self::Contended { .. } => "contended",
            Self::TooLarge(_) => "too_large",
            Self::Degraded(_) => "degraded",
            Self::Unavailable(_) => "unavailable",
            Self::ReadOnly(_) => "read_only",
            Self::BackendRefused(_) => "backend_refused",
            Self::OutcomeUnknown(_) => "outcome_unknown",
            Self::Peers(_) => "peers",
            Self::NoSuchHold(_) => "no_such_hold",
            Self::NoRecorder(_) => "no_recorder",
            Self::Node(_) => "node",
        }
    }
}

impl From<ReadError> for Refusal {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Refused(why) => Self::BackendRefused(why),
            other => Self::Unavailable(other.to_string()),
        }
    }
}

/// For those errors of a commit that end it; conflicts and unknown outcomes are looked into first.
impl From<CommitError> for Refusal {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Conflict => Self::Contended { tries: 1 },
            CommitError::Unavailable(why) => Self::Unavailable(why),
            CommitError::Unknown(why) => Self::OutcomeUnknown(why),
            CommitError::ReadOnly(why) => Self::ReadOnly(why),
            CommitError::TooLarge(why) => Self::TooLarge(why),
            CommitError::Refused(why) => Self::BackendRefused(why),
        }
    }
}

fn unknown_environment(asked: &str, known: &[String]) -> String {
    let known = known.join(", ");
    if asked.is_empty() {
        format!("this replica serves several environments: name one of {known}")
    } else {
        format!("this replica serves no environment {asked:?}: it serves {known}")
    }
}

fn faults(faults: &[Fault]) -> String {
    let sentences: Vec<String> = faults.iter().map(ToString::to_string).collect();
    sentences.join("\n")
}

fn shortened(by: &[Key], count: usize) -> String {
    let names: Vec<&str> = by.iter().map(Key::as_str).collect();
    let more = count.saturating_sub(by.len());
    let rest = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("{}{rest}", names.join(", "))
}

fn mismatch(expected: Revision, found: Option<Revision>) -> String {
    match (expected, found) {
        (Revision::ZERO, Some(found)) => format!("exists already (mod revision {found})"),
        (expected, Some(found)) => format!("is at mod revision {found}, not at {expected}"),
        (expected, None) => format!("does not exist, and was expected at mod revision {expected}"),
    }
}
