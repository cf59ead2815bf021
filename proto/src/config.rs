//! The messages of the second hop as both planes see them.
//!
//! Node to replica: [`NodeMessage`]. Replica to node: [`ReplicaMessage`]. Encoding and decoding live in
//! [`convert`](crate::convert); the legal order stands in `PROTOCOL.md`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use headwater_model::{Change, Digest, Generation, Key, Lineage, Resource, Revision, Version, mutant};

/// What a node says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeMessage {
    /// First on a stream, and only there.
    Hello(Hello),
    /// A version is applied, or durable.
    Ack(Ack),
    /// What the node cannot use. Sent before the acknowledgement of the version it was found in.
    Rejects(Rejects),
    /// A transfer was not taken; the node keeps what it has.
    Refused(Refused),
    /// Proof of life while a transfer is received or applied.
    Receiving {
        /// Bytes of the transfer so far.
        bytes: u64,
    },
    /// Asks for an older, usable value of a rejected key.
    Fallback(FallbackRequest),
    /// The answer to progress.
    Alive,
    /// Last on a stream.
    Bye(Bye),
}

/// What a replica says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplicaMessage {
    /// First on a stream, and only there.
    Welcome(Welcome),
    /// A part of a transfer.
    Part(TransferPart),
    /// Proof of life that also says what was delivered. Never inside a transfer.
    Progress(Progress),
    /// The answer to a fallback request.
    Fallback(FallbackAnswer),
    /// Asks the node for its whole set of rejects.
    RejectsPlease,
    /// Last on a stream.
    Goaway(Goaway),
}

/// Who a node is and what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The protocol's number.
    pub protocol: u32,
    /// The configured id of the node.
    pub node_id: Arc<str>,
    /// Random per process start.
    pub instance: Arc<str>,
    /// Counts the instance's connections, from 1.
    pub connection: u64,
    /// The environment it belongs to.
    pub environment: Arc<str>,
    /// Free labels.
    pub labels: BTreeMap<String, String>,
    /// The program's version.
    pub build: Arc<str>,
    /// How the node computes digests.
    pub digest_scheme: u32,
    /// What it holds; nothing when it is empty.
    pub held: Option<Version>,
    /// Whether an empty node takes content from a replica without proof of life of its source.
    pub accept_degraded: bool,
    /// How many keys it rejects.
    pub rejects_count: u64,
    /// The hash of that set: [`Reject::set_hash`].
    pub rejects_hash: Digest,
}

/// What is applied and what the disk holds.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Ack {
    /// The version requests are served by now.
    pub applied: Option<Version>,
    /// The newest version that survives a power cut.
    pub durable: Option<Version>,
}

/// One rejected key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reject {
    /// The key.
    pub key: Key,
    /// The mod revision of the rejected value.
    pub mod_revision: Revision,
    /// Why, in a sentence naming the field.
    pub reason: Arc<str>,
    /// The mod revision of what is served in its place, if anything is.
    pub served: Option<Revision>,
    /// Since when the key is rejected without a pause (Unix seconds).
    pub since_unix: u64,
    /// How many other keys it takes along.
    pub governs: u64,
}

/// A set of rejects, or changes to it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Rejects {
    /// Whether this replaces what was known.
    pub full: bool,
    /// New or changed rejects.
    pub rejected: Vec<Reject>,
    /// Keys that are no longer rejected.
    pub cleared: Vec<Key>,
}

/// Why a transfer was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RefusedWhy {
    /// The mass-deletion guard holds it until it is approved.
    Held,
    /// The content it leads to has another digest than promised.
    Mismatch,
    /// It is above a limit of the node.
    OverLimit,
}

/// A transfer that was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Where it would have led (or what progress claimed).
    pub target: Version,
    /// Why.
    pub why: RefusedWhy,
    /// What the node holds and keeps.
    pub held: Option<Version>,
    /// How many resources it holds.
    pub held_resources: u64,
    /// How many the transfer would remove.
    pub removed_resources: u64,
    /// A sentence.
    pub detail: Arc<str>,
}

/// Asks for an older value of a rejected key that is served by nothing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FallbackRequest {
    /// The key.
    pub key: Key,
    /// Its create revision: an older life of the key is no fallback.
    pub create_revision: Revision,
    /// The rejected mod revision; the answer lies below.
    pub below: Revision,
}

/// The end of a stream, said by the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bye {
    /// The process ends: the row is expected no longer.
    Leaving,
    /// The node goes on at another replica.
    Moving,
}

/// How far what a replica serves can be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The source is proven alive.
    Live,
    /// No proof of life of the source since then (Unix seconds).
    Degraded {
        /// Unix seconds.
        since_unix: u64,
    },
    /// A jump is held since then; what is served is from before it.
    Held {
        /// Unix seconds.
        since_unix: u64,
    },
}

/// The replica's first message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The configured id of the replica.
    pub replica_id: Arc<str>,
    /// How often it sends progress.
    pub heartbeat: Duration,
    /// The largest frame it sends.
    pub max_message_bytes: u64,
    /// How far it can be relied on.
    pub standing: Standing,
    /// What it serves.
    pub serving: Version,
}

/// An operator's word that a jump may remove what it removes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    /// Its id: the last segment of its key.
    pub id: Arc<str>,
    /// The lineage jumped from.
    pub from: Lineage,
    /// The highest base revision it covers.
    pub base_at_most: Revision,
    /// The lineage jumped to.
    pub to: Lineage,
    /// When it ends (Unix seconds).
    pub expires_unix: u64,
}

/// What a transfer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TransferReason {
    /// Within proven history.
    Step,
    /// The node holds nothing.
    First,
    /// The bytes of a step, across a reload whose continuity could not be proven.
    Reloaded,
    /// The replica's tombstones do not reach back to the node's revision.
    TooOld,
    /// The node holds content of another cluster or prefix.
    OtherLineage,
    /// The history went back.
    Rewound,
    /// Digests differ where they must not.
    Divergence,
}

/// The start of a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begin {
    /// The digest of the content the changes apply to; nothing when they are all of the target's content.
    pub base: Option<Digest>,
    /// What results.
    pub target: Version,
    /// What for.
    pub reason: TransferReason,
    /// The approval that covers it, when the guard would hold it.
    pub approval: Option<Approval>,
    /// How many changes follow.
    pub changes: u64,
    /// How many bytes of values follow.
    pub bytes: u64,
}

/// A part of a transfer. A small transfer is one part with both ends.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct TransferPart {
    /// On the first part.
    pub begin: Option<Begin>,
    /// Deletions come before puts over the whole transfer.
    pub changes: Vec<Change>,
    /// On the last part.
    pub last: bool,
}

/// Proof of life that says what was delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The version whose transfer (if it needed one) precedes this message on the stream; nothing when the node
    /// holds nothing and nothing was sent.
    pub delivered: Option<Version>,
    /// The newest revision the replica holds.
    pub head: Revision,
    /// How long ago the replica's source was last proven alive.
    pub source_proof_age: Duration,
    /// How far the replica can be relied on.
    pub standing: Standing,
}

/// An older value of a rejected key, or that there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FallbackAnswer {
    /// The key.
    pub key: Key,
    /// Its create revision.
    pub create_revision: Revision,
    /// The mod revision it was asked below; used only while exactly this one is still rejected.
    pub rejected: Revision,
    /// The value; nothing when there is none.
    pub found: Option<Arc<Resource>>,
}

/// Why a replica ends a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GoawayReason {
    /// The replica is draining: go to another one.
    Draining,
    /// It serves no environment of this name.
    UnknownEnvironment,
    /// The node's identity or token does not allow it.
    NotAllowed,
    /// It does not know the node's digest scheme.
    DigestScheme,
    /// The environment is not complete yet.
    NotReady,
    /// A message was out of order or invalid.
    Protocol,
    /// Three heartbeats without a frame of the node.
    Silent,
    /// The node's generation is above the replica's and cannot be checked ("not yet").
    GenerationAhead,
    /// No byte of a transfer was taken for too long.
    TransferStalled,
    /// The replica is full.
    TooManyNodes,
}

/// The end of a stream, said by the replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Goaway {
    /// Why.
    pub reason: GoawayReason,
    /// A sentence.
    pub detail: Arc<str>,
}

// === impl Reject ===

impl Reject {
    /// The hash of a set of rejects, whatever its order: what Hello carries.
    #[must_use]
    pub fn set_hash<'a>(rejects: impl IntoIterator<Item = &'a Self>) -> Digest {
        rejects.into_iter().fold(Digest::EMPTY, |sum, reject| {
            let served = reject.served.unwrap_or_default();
            sum.plus(Digest::of_resource(
                reject.key.as_str(),
                served.0,
                reject.mod_revision.0,
                reject.reason.as_bytes(),
            ))
        })
    }
}

// === impl Approval ===

impl Approval {
    /// Whether it covers a jump between these versions at this time (Unix seconds).
    #[must_use]
    pub fn covers(&self, from: &Version, to: &Version, now_unix: u64) -> bool {
        let bases = self.from == from.lineage && from.revision <= self.base_at_most;
        (bases && self.to == to.lineage || mutant::planted("approval-for-any-jump"))
            && now_unix < self.expires_unix
    }
}

// === impl TransferReason ===

impl TransferReason {
    /// Whether it is a jump: guarded, and not a step.
    #[must_use]
    pub const fn is_jump(self) -> bool {
        !matches!(self, Self::Step)
    }

    /// The reason as a label and in status.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::First => "first",
            Self::Reloaded => "reloaded",
            Self::TooOld => "too_old",
            Self::OtherLineage => "other_lineage",
            Self::Rewound => "rewound",
            Self::Divergence => "divergence",
        }
    }
}

impl RefusedWhy {
    /// The reason as a label and in status.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Mismatch => "mismatch",
            Self::OverLimit => "over_limit",
        }
    }
}

impl GoawayReason {
    /// The reason as a label and in status.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Draining => "draining",
            Self::UnknownEnvironment => "unknown_environment",
            Self::NotAllowed => "not_allowed",
            Self::DigestScheme => "digest_scheme",
            Self::NotReady => "not_ready",
            Self::Protocol => "protocol",
            Self::Silent => "silent",
            Self::GenerationAhead => "generation_ahead",
            Self::TransferStalled => "transfer_stalled",
            Self::TooManyNodes => "too_many_nodes",
        }
    }
}

// === impl Hello ===

impl Hello {
    /// The generation of what the node holds.
    #[must_use]
    pub fn held_generation(&self) -> Option<Generation> {
        self.held.as_ref().map(|held| held.lineage.generation)
    }
}
