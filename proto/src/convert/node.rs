//! What a node says.

use headwater_model::Revision;
use prost::Message;

use super::version::{self, digest_from, key_from, optional, prose, required, text};
use super::{Invalid, bad};
use crate::config::{Ack, Bye, FallbackRequest, Hello, NodeMessage, Refused, RefusedWhy, Reject, Rejects};
use crate::frame::Frame;
use crate::limits;
use crate::wire::config as wire;

impl NodeMessage {
    /// Encodes the message as one frame.
    #[must_use]
    pub fn encode(&self) -> Frame {
        use wire::node_frame::Frame as F;
        let frame = match self {
            Self::Hello(hello) => F::Hello(from_hello(hello)),
            Self::Ack(ack) => F::Ack(wire::Ack {
                applied: ack.applied.as_ref().map(version::version),
                durable: ack.durable.as_ref().map(version::version),
            }),
            Self::Rejects(rejects) => F::Rejects(from_rejects(rejects)),
            Self::Refused(refused) => F::Refused(from_refused(refused)),
            Self::Receiving { bytes } => F::Receiving(wire::Receiving { bytes: *bytes }),
            Self::Fallback(request) => F::Fallback(wire::FallbackRequest {
                key: request.key.as_str().to_owned(),
                create_revision: request.create_revision.0,
                below: request.below.0,
            }),
            Self::Alive => F::Alive(wire::Alive {}),
            Self::Bye(bye) => F::Bye(wire::Bye { leaving: *bye == Bye::Leaving }),
        };
        Frame(wire::NodeFrame { frame: Some(frame) }.encode_to_vec().into())
    }

    /// Decodes one frame.
    ///
    /// # Errors
    /// [`Invalid`] for anything that is no legal message.
    pub fn decode(frame: Frame) -> Result<Self, Invalid> {
        use wire::node_frame::Frame as F;
        let frame = wire::NodeFrame::decode(frame.0)
            .map_err(|error| Invalid::Undecodable(error.to_string()))?
            .frame
            .ok_or(Invalid::Unknown)?;
        Ok(match frame {
            F::Hello(hello) => Self::Hello(hello_from(hello)?),
            F::Ack(ack) => {
                Self::Ack(Ack { applied: optional(ack.applied)?, durable: optional(ack.durable)? })
            }
            F::Rejects(rejects) => Self::Rejects(rejects_from(rejects)?),
            F::Refused(refused) => Self::Refused(refused_from(refused)?),
            F::Receiving(receiving) => Self::Receiving { bytes: receiving.bytes },
            F::Fallback(request) => Self::Fallback(FallbackRequest {
                key: key_from(&request.key, "fallback request")?,
                create_revision: Revision(request.create_revision),
                below: Revision(request.below),
            }),
            F::Alive(_) => Self::Alive,
            F::Bye(bye) => Self::Bye(if bye.leaving { Bye::Leaving } else { Bye::Moving }),
        })
    }
}

fn from_hello(hello: &Hello) -> wire::Hello {
    wire::Hello {
        protocol: hello.protocol,
        node_id: hello.node_id.to_string(),
        instance: hello.instance.to_string(),
        connection: hello.connection,
        environment: hello.environment.to_string(),
        labels: hello.labels.clone().into_iter().collect(),
        build: hello.build.to_string(),
        digest_scheme: hello.digest_scheme,
        held: hello.held.as_ref().map(version::version),
        accept_degraded: hello.accept_degraded,
        rejects_count: hello.rejects_count,
        rejects_hash: hello.rejects_hash.to_bytes().to_vec().into(),
    }
}

fn hello_from(hello: wire::Hello) -> Result<Hello, Invalid> {
    if hello.labels.len() > limits::MAX_LABELS {
        return Err(bad("hello", "labels", "are too many"));
    }
    if hello.labels.iter().any(|(key, value)| key.len().max(value.len()) > limits::MAX_NAME_BYTES) {
        return Err(bad("hello", "labels", "are too long"));
    }
    Ok(Hello {
        protocol: hello.protocol,
        node_id: text(hello.node_id, "hello", "node_id")?,
        instance: text(hello.instance, "hello", "instance")?,
        connection: hello.connection,
        environment: text(hello.environment, "hello", "environment")?,
        labels: hello.labels.into_iter().collect(),
        build: prose(hello.build),
        digest_scheme: hello.digest_scheme,
        held: optional(hello.held)?,
        accept_degraded: hello.accept_degraded,
        rejects_count: hello.rejects_count,
        rejects_hash: digest_from(&hello.rejects_hash, "hello")?,
    })
}

fn from_rejects(rejects: &Rejects) -> wire::Rejects {
    wire::Rejects {
        full: rejects.full,
        rejected: rejects.rejected.iter().map(from_reject).collect(),
        cleared: rejects.cleared.iter().map(|key| key.as_str().to_owned()).collect(),
    }
}

fn from_reject(reject: &Reject) -> wire::Reject {
    wire::Reject {
        key: reject.key.as_str().to_owned(),
        mod_revision: reject.mod_revision.0,
        reason: reject.reason.to_string(),
        served_mod_revision: reject.served.unwrap_or_default().0,
        since_unix: reject.since_unix,
        governs: reject.governs,
    }
}

fn rejects_from(rejects: wire::Rejects) -> Result<Rejects, Invalid> {
    let rejected = rejects.rejected.into_iter().map(reject_from).collect::<Result<_, _>>()?;
    let cleared = rejects.cleared.iter().map(|key| key_from(key, "rejects")).collect::<Result<_, _>>()?;
    Ok(Rejects { full: rejects.full, rejected, cleared })
}

fn reject_from(reject: wire::Reject) -> Result<Reject, Invalid> {
    let served = Revision(reject.served_mod_revision);
    Ok(Reject {
        key: key_from(&reject.key, "reject")?,
        mod_revision: Revision(reject.mod_revision),
        reason: prose(reject.reason),
        served: (served > Revision::ZERO).then_some(served),
        since_unix: reject.since_unix,
        governs: reject.governs,
    })
}

fn from_refused(refused: &Refused) -> wire::Refused {
    use wire::refused::Why;
    let why = match refused.why {
        RefusedWhy::Held => Why::Held,
        RefusedWhy::Mismatch => Why::Mismatch,
        RefusedWhy::OverLimit => Why::OverLimit,
    };
    wire::Refused {
        target: Some(version::version(&refused.target)),
        why: why.into(),
        held: refused.held.as_ref().map(version::version),
        held_resources: refused.held_resources,
        removed_resources: refused.removed_resources,
        detail: refused.detail.to_string(),
    }
}

fn refused_from(refused: wire::Refused) -> Result<Refused, Invalid> {
    use wire::refused::Why;
    let why = match refused.why() {
        Why::Held => RefusedWhy::Held,
        Why::Mismatch => RefusedWhy::Mismatch,
        Why::OverLimit => RefusedWhy::OverLimit,
        Why::Unspecified => return Err(bad("refused", "why", "is not known")),
    };
    Ok(Refused {
        target: required(refused.target, "refused")?,
        why,
        held: optional(refused.held)?,
        held_resources: refused.held_resources,
        removed_resources: refused.removed_resources,
        detail: prose(refused.detail),
    })
}
