//! The observer on the wire: what a replica may say on a stream.

use headwater_proto::config::{NodeMessage, RefusedWhy, ReplicaMessage, TransferPart, TransferReason};

use super::Peer;
use super::claims;
use super::stream::StreamId;
use crate::simulation::world::World;

// === impl World ===

impl World {
    /// A replica says something.
    pub(super) fn inspect(&mut self, id: StreamId, replica: usize, message: &ReplicaMessage) {
        let Some(stream) = self.fleet.streams.get(&id) else { return };
        let staging = stream.wire.begun.is_some();
        match message {
            ReplicaMessage::Part(part) => self.inspect_part(id, replica, part),
            ReplicaMessage::Goaway(_) => {}
            _ if staging => {
                self.violation(format!("replica {replica}: inside a transfer it says {message:?}"));
            }
            ReplicaMessage::Progress(progress) => {
                let Some(delivered) = &progress.delivered else { return };
                if !stream.wire.delivered.contains(&delivered.digest) {
                    let what = format!("progress calls {delivered:?} delivered, which this stream never was");
                    self.violation(format!("replica {replica}: {what}"));
                } else if !claims::is_true(&self.etcd.truth, delivered) {
                    let what = format!("progress calls {delivered:?} delivered, which etcd never held");
                    self.violation(format!("replica {replica}: {what}"));
                }
            }
            ReplicaMessage::Welcome(_) | ReplicaMessage::Fallback(_) | ReplicaMessage::RejectsPlease => {}
        }
    }

    fn inspect_part(&mut self, id: StreamId, replica: usize, part: &TransferPart) {
        let Some(stream) = self.fleet.streams.get_mut(&id) else { return };
        let line = &self.fleet.planes[replica].line;
        let mut wrong = None;
        if let Some(begin) = &part.begin {
            let held = stream.served.as_ref().and_then(|served| served.session.held());
            let epoch = self.replicas[replica].mirror.epoch();
            // While a jump is held, what is served is of the history before, and a base may be of the one after.
            let is_world = self.fleet.planes[replica].publication.hold.is_none();
            let known =
                |held| is_world && (line.holds(held) || claims::is_true_in(&self.etcd.truth, epoch, held));
            stream.wire.own_base = begin.base.is_none() || held.is_none_or(known);
            if let Some(held) = held.filter(|held| begin.base.is_some() && line.lies_in_a_gap(held)) {
                wrong = Some(format!("it takes {held:?} as a base, of which it has read nothing"));
            }
            if let Some(held) = held.filter(|held| {
                begin.reason == TransferReason::Step && line.is_broken_between(held, &begin.target)
            }) {
                wrong = Some(format!("a step from {held:?} leads across a reload that could not be proven"));
            }
            if held.is_some() && !self.fleet.planes[replica].publication.is_live() {
                wrong =
                    Some(format!("it changes a node that holds {held:?}, and is not proven alive itself"));
            }
            if stream.wire.begun.replace(begin.target.clone()).is_some() {
                wrong = Some("a transfer inside a transfer".to_owned());
            }
            self.coverage.reached(reason_case(begin.reason));
            self.coverage.reached_if("transfer/approved", begin.approval.is_some());
        }
        self.coverage.reached_if("transfer/several-parts", !part.last);
        if part.last
            && let Some(target) = stream.wire.begun.take()
        {
            stream.wire.delivered.push(target.digest);
        }
        if let Some(wrong) = wrong {
            self.violation(format!("replica {replica}: {wrong}"));
        }
    }

    /// A node says something.
    pub(super) fn inspect_node(&mut self, id: StreamId, node: usize, message: &NodeMessage) {
        let Some(stream) = self.fleet.streams.get(&id) else { return };
        match message {
            NodeMessage::Refused(refused) => {
                self.coverage.reached(refused_case(refused.why));
                let real = matches!(stream.peer, Peer::Replica { .. });
                if refused.why == RefusedWhy::Mismatch && real {
                    if stream.wire.own_base {
                        self.violation(format!("node {node}: {refused:?}"));
                    } else {
                        self.coverage.reached("refused/mismatch-on-another-line");
                    }
                }
            }
            NodeMessage::Ack(ack) => self.check_ack(node, ack),
            _ => {}
        }
    }
}

const fn reason_case(reason: TransferReason) -> &'static str {
    match reason {
        TransferReason::Step => "transfer/step",
        TransferReason::First => "transfer/first",
        TransferReason::Reloaded => "transfer/reloaded",
        TransferReason::TooOld => "transfer/too-old",
        TransferReason::OtherLineage => "transfer/other-lineage",
        TransferReason::Rewound => "transfer/rewound",
        TransferReason::Divergence => "transfer/divergence",
    }
}

const fn refused_case(why: RefusedWhy) -> &'static str {
    match why {
        RefusedWhy::Held => "refused/held",
        RefusedWhy::Mismatch => "refused/mismatch",
        RefusedWhy::OverLimit => "refused/over-limit",
    }
}
