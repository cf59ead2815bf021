//! What an operator sees of the stream.

use std::sync::Arc;
use std::time::Duration;

use headwater_model::Version;
use headwater_proto::config::{Refused, RefusedWhy, Standing, TransferReason};

use super::{Protocol, Staging};

/// Where the connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// On the way to a replica.
    Dialling,
    /// A stream is open.
    Open,
    /// Ended for good.
    Stopped,
}

/// A transfer that was refused and not made good since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedTransfer {
    /// The report as it was sent.
    pub refused: Refused,
    /// Since when transfers are refused for this cause (Unix seconds).
    pub since_unix: u64,
}

/// Counts since the process start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Transfers taken.
    pub transfers: u64,
    /// Transfers refused.
    pub refused: u64,
    /// Transfers dropped because their base was held no longer.
    pub dropped: u64,
    /// Versions taken, with or without payload.
    pub versions: u64,
    /// Connections that ended with an error.
    pub connections_lost: u64,
}

/// The state of the stream at one moment.
#[derive(Clone, Debug)]
pub struct Status {
    /// Where the connection stands.
    pub phase: Phase,
    /// The index of the address dialled or connected to.
    pub address: usize,
    /// The number of the connection.
    pub connection: u64,
    /// The replica at the other end of the open stream.
    pub replica_id: Option<Arc<str>>,
    /// How far the replica last heard could be relied on.
    pub standing: Option<Standing>,
    /// What requests are served by.
    pub applied: Option<Version>,
    /// What the disk holds.
    pub durable: Option<Version>,
    /// How many resources are held, and the bytes of their values.
    pub resources: usize,
    /// The bytes of their values.
    pub value_bytes: u64,
    /// How long ago a frame of a replica came.
    pub hop_age: Option<Duration>,
    /// How long ago the source was proven alive, as far as is known here: the replica's age when it last told it,
    /// and the time since.
    pub source_age: Option<Duration>,
    /// Bytes of the transfer that is being received.
    pub receiving: Option<u64>,
    /// The version that is being published.
    pub publishing: Option<Version>,
    /// A refusal that stands.
    pub refused: Option<RefusedTransfer>,
    /// Since when replicas are behind what this node holds (Unix seconds).
    pub held_ahead_since_unix: Option<u64>,
    /// The last transfer taken and when (Unix seconds).
    pub last_transfer: Option<(TransferReason, u64)>,
    /// The last error and when (Unix seconds).
    pub last_error: Option<(Arc<str>, u64)>,
    /// Counts since the process start.
    pub counts: Counts,
}

/// What is kept for status beyond one connection.
#[derive(Debug, Default)]
pub(super) struct Record {
    proof_at: Option<Duration>,
    source: Option<(Duration, Duration)>,
    standing: Option<Standing>,
    refused: Option<RefusedTransfer>,
    ahead_since: Option<u64>,
    last_transfer: Option<(TransferReason, u64)>,
    last_error: Option<(Arc<str>, u64)>,
    counts: Counts,
}

// === impl Record ===

impl Record {
    pub(super) const fn proof(&mut self, now: Duration) {
        self.proof_at = Some(now);
    }

    pub(super) const fn source_proof(&mut self, now: Duration, age: Duration) {
        self.source = Some((now, age));
    }

    pub(super) const fn stands(&mut self, standing: Standing) {
        self.standing = Some(standing);
    }

    pub(super) fn ahead(&mut self, unix: u64) {
        self.ahead_since.get_or_insert(unix);
    }

    pub(super) const fn not_ahead(&mut self) {
        self.ahead_since = None;
    }

    pub(super) const fn transferred(&mut self, reason: TransferReason, unix: u64) {
        self.counts.transfers += 1;
        self.last_transfer = Some((reason, unix));
    }

    /// A version was taken: what was refused before is made good.
    pub(super) fn taken(&mut self) {
        self.counts.versions += 1;
        self.refused = None;
    }

    pub(super) const fn dropped(&mut self) {
        self.counts.dropped += 1;
    }

    pub(super) fn refused(&mut self, refused: &Refused, unix: u64) {
        self.counts.refused += 1;
        let before = self.refused.take().filter(|before| before.refused.why == refused.why);
        let since_unix = before.map_or(unix, |before| before.since_unix);
        self.refused = Some(RefusedTransfer { refused: refused.clone(), since_unix });
    }

    /// Whether exactly this version was refused last, other than as a claim: it needs no second report.
    pub(super) fn has_refused(&self, version: &Version) -> bool {
        self.refused
            .as_ref()
            .is_some_and(|last| last.refused.target == *version && last.refused.why != RefusedWhy::Mismatch)
    }

    pub(super) fn error(&mut self, why: &str, unix: u64) {
        self.counts.connections_lost += 1;
        self.last_error = Some((why.into(), unix));
    }
}

// === impl Protocol ===

impl Protocol {
    /// The state now.
    #[must_use]
    pub fn status(&self, now: Duration) -> Status {
        Status {
            phase: self.link.phase(),
            address: self.link.address(),
            connection: self.link.connection(),
            replica_id: self.peer.replica_id.clone(),
            standing: self.record.standing,
            applied: self.applied.clone(),
            durable: self.durable.clone(),
            resources: self.content.len(),
            value_bytes: self.content.value_bytes(),
            hop_age: self.record.proof_at.map(|proof| now.saturating_sub(proof)),
            source_age: self.record.source.map(|(told, age)| age + now.saturating_sub(told)),
            receiving: self.staging.as_ref().map(Staging::bytes),
            publishing: self.publishing.as_ref().map(|staged| staged.version.clone()),
            refused: self.record.refused.clone(),
            held_ahead_since_unix: self.record.ahead_since,
            last_transfer: self.record.last_transfer,
            last_error: self.record.last_error.clone(),
            counts: self.record.counts,
        }
    }
}
