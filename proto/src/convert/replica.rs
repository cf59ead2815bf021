//! What a replica says.

use std::time::Duration;

use headwater_model::{Digest, Revision};
use prost::Message;

use super::version::{
    self, change_from, digest_from, key_from, optional, prose, required, resource_from, text,
};
use super::{Invalid, bad};
use crate::config::{
    Begin, FallbackAnswer, Goaway, GoawayReason, Progress, ReplicaMessage, Standing, TransferPart,
    TransferReason, Welcome,
};
use crate::frame::Frame;
use crate::wire::config as wire;

impl ReplicaMessage {
    /// Encodes the message as one frame.
    #[must_use]
    pub fn encode(&self) -> Frame {
        use wire::replica_frame::Frame as F;
        let frame = match self {
            Self::Welcome(welcome) => F::Welcome(from_welcome(welcome)),
            Self::Part(part) => F::Part(wire::TransferPart {
                begin: part.begin.as_ref().map(begin),
                changes: part.changes.iter().map(version::change).collect(),
                last: part.last,
            }),
            Self::Progress(progress) => F::Progress(wire::Progress {
                delivered: progress.delivered.as_ref().map(version::version),
                head: progress.head.0,
                source_proof_age_ms: millis(progress.source_proof_age),
                standing: Some(standing(progress.standing)),
            }),
            Self::Fallback(answer) => F::Fallback(wire::FallbackAnswer {
                key: answer.key.as_str().to_owned(),
                create_revision: answer.create_revision.0,
                rejected_mod_revision: answer.rejected.0,
                found: answer.found.as_deref().map(version::resource),
            }),
            Self::RejectsPlease => F::RejectsPlease(wire::RejectsPlease {}),
            Self::Goaway(goaway) => F::Goaway(wire::Goaway {
                reason: goaway_reason(goaway.reason).into(),
                detail: goaway.detail.to_string(),
            }),
        };
        Frame(wire::ReplicaFrame { frame: Some(frame) }.encode_to_vec().into())
    }

    /// Decodes one frame.
    ///
    /// # Errors
    /// [`Invalid`] for anything that is no legal message.
    pub fn decode(frame: Frame) -> Result<Self, Invalid> {
        use wire::replica_frame::Frame as F;
        let frame = wire::ReplicaFrame::decode(frame.0)
            .map_err(|error| Invalid::Undecodable(error.to_string()))?
            .frame
            .ok_or(Invalid::Unknown)?;
        Ok(match frame {
            F::Welcome(welcome) => Self::Welcome(welcome_from(welcome)?),
            F::Part(part) => Self::Part(TransferPart {
                begin: part.begin.map(begin_from).transpose()?,
                changes: part.changes.into_iter().map(change_from).collect::<Result<_, _>>()?,
                last: part.last,
            }),
            F::Progress(progress) => Self::Progress(Progress {
                delivered: optional(progress.delivered)?,
                head: Revision(progress.head),
                source_proof_age: Duration::from_millis(progress.source_proof_age_ms),
                standing: standing_from(progress.standing)?,
            }),
            F::Fallback(answer) => Self::Fallback(FallbackAnswer {
                key: key_from(&answer.key, "fallback answer")?,
                create_revision: Revision(answer.create_revision),
                rejected: Revision(answer.rejected_mod_revision),
                found: answer.found.map(|found| resource_from(found, "fallback answer")).transpose()?,
            }),
            F::RejectsPlease(_) => Self::RejectsPlease,
            F::Goaway(goaway) => Self::Goaway(Goaway {
                reason: goaway_reason_from(goaway.reason())?,
                detail: prose(goaway.detail),
            }),
        })
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn from_welcome(welcome: &Welcome) -> wire::Welcome {
    wire::Welcome {
        replica_id: welcome.replica_id.to_string(),
        heartbeat_ms: millis(welcome.heartbeat),
        max_message_bytes: welcome.max_message_bytes,
        standing: Some(standing(welcome.standing)),
        serving: Some(version::version(&welcome.serving)),
    }
}

fn welcome_from(welcome: wire::Welcome) -> Result<Welcome, Invalid> {
    if welcome.heartbeat_ms == 0 {
        return Err(bad("welcome", "heartbeat", "is zero"));
    }
    Ok(Welcome {
        replica_id: text(welcome.replica_id, "welcome", "replica_id")?,
        heartbeat: Duration::from_millis(welcome.heartbeat_ms),
        max_message_bytes: welcome.max_message_bytes,
        standing: standing_from(welcome.standing)?,
        serving: required(welcome.serving, "welcome")?,
    })
}

fn standing(standing: Standing) -> wire::Standing {
    use wire::standing::Kind;
    let (kind, since_unix) = match standing {
        Standing::Live => (Kind::Live, 0),
        Standing::Degraded { since_unix } => (Kind::Degraded, since_unix),
        Standing::Held { since_unix } => (Kind::Held, since_unix),
    };
    wire::Standing { kind: kind.into(), since_unix }
}

fn standing_from(standing: Option<wire::Standing>) -> Result<Standing, Invalid> {
    use wire::standing::Kind;
    let standing = standing.ok_or(bad("standing", "kind", "is missing"))?;
    let since_unix = standing.since_unix;
    Ok(match standing.kind() {
        Kind::Live => Standing::Live,
        Kind::Degraded => Standing::Degraded { since_unix },
        Kind::Held => Standing::Held { since_unix },
        Kind::Unspecified => return Err(bad("standing", "kind", "is not known")),
    })
}

pub(super) fn begin(begin: &Begin) -> wire::Begin {
    use wire::begin::Reason;
    let reason = match begin.reason {
        TransferReason::Step => Reason::Step,
        TransferReason::First => Reason::First,
        TransferReason::Reloaded => Reason::Reloaded,
        TransferReason::TooOld => Reason::TooOld,
        TransferReason::OtherLineage => Reason::OtherLineage,
        TransferReason::Rewound => Reason::Rewound,
        TransferReason::Divergence => Reason::Divergence,
    };
    wire::Begin {
        base_digest: begin.base.map(|base: Digest| base.to_bytes().to_vec().into()).unwrap_or_default(),
        target: Some(version::version(&begin.target)),
        reason: reason.into(),
        approval: begin.approval.as_ref().map(version::approval),
        changes: begin.changes,
        bytes: begin.bytes,
    }
}

fn begin_from(begin: wire::Begin) -> Result<Begin, Invalid> {
    use wire::begin::Reason;
    let reason = match begin.reason() {
        Reason::Step => TransferReason::Step,
        Reason::First => TransferReason::First,
        Reason::Reloaded => TransferReason::Reloaded,
        Reason::TooOld => TransferReason::TooOld,
        Reason::OtherLineage => TransferReason::OtherLineage,
        Reason::Rewound => TransferReason::Rewound,
        Reason::Divergence => TransferReason::Divergence,
        Reason::Unspecified => return Err(bad("begin", "reason", "is not known")),
    };
    let base = match begin.base_digest.as_ref() {
        [] => None,
        digest => Some(digest_from(digest, "begin")?),
    };
    if base.is_none() && reason == TransferReason::Step {
        return Err(bad("begin", "base_digest", "is missing on a step"));
    }
    Ok(Begin {
        base,
        target: required(begin.target, "begin")?,
        reason,
        approval: begin.approval.map(version::approval_from).transpose()?,
        changes: begin.changes,
        bytes: begin.bytes,
    })
}

fn goaway_reason(reason: GoawayReason) -> wire::goaway::Reason {
    use wire::goaway::Reason;
    match reason {
        GoawayReason::Draining => Reason::Draining,
        GoawayReason::UnknownEnvironment => Reason::UnknownEnvironment,
        GoawayReason::NotAllowed => Reason::NotAllowed,
        GoawayReason::DigestScheme => Reason::DigestScheme,
        GoawayReason::NotReady => Reason::NotReady,
        GoawayReason::Protocol => Reason::Protocol,
        GoawayReason::Silent => Reason::Silent,
        GoawayReason::GenerationAhead => Reason::GenerationAhead,
        GoawayReason::TransferStalled => Reason::TransferStalled,
        GoawayReason::TooManyNodes => Reason::TooManyNodes,
    }
}

fn goaway_reason_from(reason: wire::goaway::Reason) -> Result<GoawayReason, Invalid> {
    use wire::goaway::Reason;
    Ok(match reason {
        Reason::Draining => GoawayReason::Draining,
        Reason::UnknownEnvironment => GoawayReason::UnknownEnvironment,
        Reason::NotAllowed => GoawayReason::NotAllowed,
        Reason::DigestScheme => GoawayReason::DigestScheme,
        Reason::NotReady => GoawayReason::NotReady,
        Reason::Protocol => GoawayReason::Protocol,
        Reason::Silent => GoawayReason::Silent,
        Reason::GenerationAhead => GoawayReason::GenerationAhead,
        Reason::TransferStalled => GoawayReason::TransferStalled,
        Reason::TooManyNodes => GoawayReason::TooManyNodes,
        Reason::Unspecified => return Err(bad("goaway", "reason", "is not known")),
    })
}
