//! What the shell (or the simulation) tells the tracker, and what the tracker asks of it.
//!
//! Every question carries the number of the attempt it belongs to and every answer brings it back: an answer to
//! an attempt that has been given up is dropped unread, so nothing of a dead stream can ever move anything.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use headwater_model::{Digest, Generation, Revision};

use crate::backend::{Entry, KeyEvent, SourceEvent};

/// The bounds and periods of one tracker. Durations are wall time, sizes are bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How many members there are to try, at least 1: a round over all of them is quick, the next one is not.
    pub members: u32,
    /// How often progress is asked for once it has been answered.
    pub progress_interval: Duration,
    /// Without any frame for so long the stream is dead, whatever TCP says.
    pub liveness_timeout: Duration,
    /// The limit until the first frame after a resume with something to catch up; doubled per failure.
    pub catch_up_timeout: Duration,
    /// With etcd's head further ahead than this, everything is read instead of resuming.
    pub resume_span: u64,
    /// How often the stream is reopened where progress is never answered.
    pub reopen_interval: Duration,
    /// From [`Action::Connect`] to [`Input::Connected`].
    pub connect_timeout: Duration,
    /// For the header check, and from opening the watch to its created response.
    pub check_timeout: Duration,
    /// For the content proof, which scans the prefix on the server.
    pub proof_timeout: Duration,
    /// For one page of a load.
    pub page_timeout: Duration,
    /// The keys of a page; halved when a page is too big.
    pub page_keys: u32,
    /// The bytes of one change put together from fragments (W13).
    pub assembly_bytes: usize,
    /// How often a load whose revision was compacted under it starts over before it counts as a failure.
    pub load_restarts: u32,
    /// The wait before the second of the two reads that prove a rewind.
    pub doubt: Duration,
    /// How long the other members have to say whether they agree; who does not answer in it has no say.
    pub others_timeout: Duration,
    /// The shortest wait before another try.
    pub backoff_min: Duration,
    /// The longest.
    pub backoff_max: Duration,
    /// Follow a member whose release must not be believed.
    pub allow_unsafe_etcd: bool,
    /// The release to assume where Status is denied.
    pub assume_version: Option<String>,
}

/// The number of an attempt: one connection, check, proof, load and stream belong to one attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attempt(pub u64);

/// What happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// Time has passed: at least [`next_wake`](super::Tracker::next_wake) is due.
    Tick,
    /// [`Action::Connect`] was carried out.
    Connected {
        /// Of the question.
        attempt: Attempt,
        /// What the member says of itself.
        member: Member,
    },
    /// The answer to [`Action::CheckHeader`].
    HeaderChecked {
        /// Of the question.
        attempt: Attempt,
        /// Of a linearizable read on the member of the watch connection.
        header: Header,
    },
    /// The answer to [`Action::Prove`].
    ProofAnswered {
        /// Of the question.
        attempt: Attempt,
        /// What was found.
        proof: Proof,
    },
    /// The answer to [`Action::AskOthers`].
    OthersAnswered {
        /// Of the question.
        attempt: Attempt,
        /// Of those that answered in time.
        answers: Vec<Testimony>,
    },
    /// The answer to [`Action::ReadPage`].
    PageRead {
        /// Of the question.
        attempt: Attempt,
        /// The page.
        page: Page,
    },
    /// A response of the watch stream, exactly as it came.
    WatchResponse {
        /// Of the stream.
        attempt: Attempt,
        /// The response.
        response: WatchResponse,
    },
    /// The watch stream ended, by an error or not.
    WatchEnded {
        /// Of the stream.
        attempt: Attempt,
        /// Why.
        failure: Failure,
    },
    /// Connecting, a check, a proof or a page failed.
    CallFailed {
        /// Of the question.
        attempt: Attempt,
        /// Why.
        failure: Failure,
    },
    /// Everything is to be read again.
    Reload {
        /// Who asks and why.
        reason: String,
        /// The lowest generation that it is to be of, zero for none.
        generation: Generation,
    },
}

/// What the shell has to do, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Have the watch connection to the member in turn (open it where there is none) and ask for its Status.
    Connect {
        /// To be given back.
        attempt: Attempt,
    },
    /// Read linearizably on the watch connection: only the header matters.
    CheckHeader {
        /// To be given back.
        attempt: Attempt,
    },
    /// Compare what is held with the member's state at a revision, on the watch connection.
    Prove {
        /// To be given back.
        attempt: Attempt,
        /// What to ask.
        question: ProofQuestion,
    },
    /// Ask every other member how its history compares with what is held, each on a connection of its own.
    AskOthers {
        /// To be given back.
        attempt: Attempt,
        /// What to ask, as in [`Action::Prove`].
        question: ProofQuestion,
        /// Who has not answered by then is left out.
        within: Duration,
    },
    /// Read a page of the whole prefix; not on the watch connection.
    ReadPage {
        /// To be given back.
        attempt: Attempt,
        /// `None` for the first page: linearizable, and its header's revision pins all others.
        revision: Option<Revision>,
        /// Only keys after this one.
        after: Option<Bytes>,
        /// At most so many.
        limit: u32,
    },
    /// Open the watch stream with one watcher over the prefix, fragments and progress notifications on.
    OpenWatch {
        /// To be given back.
        attempt: Attempt,
        /// The first revision wanted.
        start: Revision,
        /// To be asked for; a member answers with it, a proxy does not.
        watch_id: i64,
    },
    /// Ask for progress on the stream of this attempt.
    RequestProgress {
        /// Whose stream.
        attempt: Attempt,
    },
    /// Give up everything that belongs to this attempt: its calls and its stream.
    Drop {
        /// What to give up.
        attempt: Attempt,
    },
    /// Whose fault the last attempt's end was: decides on the connection and the member.
    Blame(Blame),
    /// Tell the environment.
    Emit(SourceEvent),
}

/// Whose fault the end of an attempt was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Blame {
    /// This stream's alone: the connection and the member stay.
    Stream,
    /// Nothing came: the connection and the member change unless another stream on it had a frame lately.
    Silence,
    /// The connection's or the member's: another one.
    Member,
    /// The token's: authenticate again before the next try.
    Token,
}

/// What a member says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// As configured.
    pub endpoint: String,
    /// Its release.
    pub version: MemberVersion,
    /// Of the Status header; zero when Status was denied.
    pub cluster_id: u64,
    /// Of the Status header; zero when Status was denied.
    pub member_id: u64,
    /// A learner refuses watches.
    pub learner: bool,
    /// Whether it knows a leader.
    pub has_leader: bool,
}

/// A member's release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberVersion {
    /// As Status gives it.
    Known(String),
    /// Status was denied to this user: not the same as old.
    Denied(String),
}

/// The header of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The cluster.
    pub cluster_id: u64,
    /// The member that answered.
    pub member_id: u64,
    /// What it certifies depends on the kind of answer (facts 1.2).
    pub revision: Revision,
    /// The raft term.
    pub raft_term: u64,
}

/// The content proof's question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProofQuestion {
    /// Which keys are there at this revision, written when,
    pub revision: Revision,
    /// and what is this key (none when nothing is held)?
    pub key: Option<Bytes>,
}

/// The content proof's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// Of the answers.
    pub header: Header,
    /// How many keys there are below the prefix at the revision.
    pub count: u64,
    /// The sum of their [`key_hash`]es.
    pub keys: Digest,
    /// The key asked for, as it was at the revision.
    pub newest: Option<Found>,
}

/// What another member answered when this one said that the history was replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Testimony {
    /// As configured.
    pub endpoint: String,
    /// Of a linearizable read.
    pub header: Header,
    /// `None` where the revision asked for is compacted, or still to come.
    pub proof: Option<Proof>,
}

/// A key as a proof found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The revision at which it came into being.
    pub create_revision: Revision,
    /// The revision of its last write.
    pub mod_revision: Revision,
    /// See [`value_hash`].
    pub value: Digest,
}

/// A page of a load.
#[derive(Clone, Debug)]
pub struct Page {
    /// Its revision matters on the first page only.
    pub header: Header,
    /// In key order.
    pub entries: Vec<Entry>,
    /// Whether more follow.
    pub more: bool,
}

/// A response of the watch stream.
#[derive(Clone, Debug, Default)]
pub struct WatchResponse {
    /// Present in every response.
    pub header: Header,
    /// The watcher, or −1 for all of the stream.
    pub watch_id: i64,
    /// The watcher was registered (or refused, when cancelled as well).
    pub created: bool,
    /// The watcher is no more.
    pub cancelled: bool,
    /// Above zero: cancelled because this is the oldest revision that may be watched.
    pub compact_revision: Revision,
    /// Why, in words; empty for a compaction.
    pub cancel_reason: String,
    /// More parts of the same change follow.
    pub fragment: bool,
    /// In revision order.
    pub events: Vec<KeyEvent>,
    /// The size of the message.
    pub bytes: usize,
}

/// Why something failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What it means.
    pub fault: Fault,
    /// What was said.
    pub message: String,
}

/// What a failure means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The connection broke or could not be made.
    Transport,
    /// No answer in time.
    Timeout,
    /// The revision asked for is no longer kept.
    Compacted,
    /// The revision asked for lies ahead of the member's own.
    Future,
    /// The answer is above the decode limit.
    TooLarge,
    /// The member has no leader, or is a learner.
    NoLeader,
    /// The token is no longer accepted.
    Token,
    /// The user may not do that.
    Denied,
    /// Anything else.
    Other,
}

/// What a content proof compares of each key. A count would not do: where a history was replaced by one with as many
/// deletions, of other keys, it says the same.
#[must_use]
pub fn key_hash(key: &[u8], create_revision: Revision, mod_revision: Revision) -> Digest {
    Digest::of_resource("", create_revision.0, mod_revision.0, key)
}

/// What a value is remembered by.
#[must_use]
pub fn value_hash(value: &[u8]) -> Digest {
    Digest::of_bytes(value)
}

// === impl Settings ===

impl Default for Settings {
    fn default() -> Self {
        Self {
            members: 1,
            progress_interval: Duration::from_secs(5),
            liveness_timeout: Duration::from_secs(15),
            catch_up_timeout: Duration::from_secs(60),
            resume_span: 100_000,
            reopen_interval: Duration::from_secs(60),
            connect_timeout: Duration::from_secs(5),
            check_timeout: Duration::from_secs(5),
            proof_timeout: Duration::from_secs(30),
            page_timeout: Duration::from_secs(30),
            page_keys: 5_000,
            assembly_bytes: 256 << 20,
            load_restarts: 5,
            doubt: Duration::from_secs(1),
            others_timeout: Duration::from_secs(5),
            backoff_min: Duration::from_millis(100),
            backoff_max: Duration::from_secs(15),
            allow_unsafe_etcd: false,
            assume_version: None,
        }
    }
}

// === impl Failure ===

impl Failure {
    /// A failure of this meaning.
    #[must_use]
    pub fn new(fault: Fault, message: impl Into<String>) -> Self {
        Self { fault, message: message.into() }
    }

    /// Whether another connection may have another answer: to another member, or with a new token.
    #[must_use]
    pub const fn is_of_the_connection(&self) -> bool {
        matches!(
            self.fault,
            Fault::Transport | Fault::NoLeader | Fault::Timeout | Fault::Token | Fault::Denied
        )
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
