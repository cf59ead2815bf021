//! A peer that knows no generation: it serves what etcd holds and calls every history the first one. A replica of an
//! old build, or one that has lost its mind. A node must not follow it below its own generation.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use headwater_model::{Change, Content, Generation, Lineage, Revision, Version};
use headwater_proto::config::{
    Begin, NodeMessage, Progress, ReplicaMessage, Standing, TransferReason, Welcome,
};
use headwater_proto::convert::{encode_change, encode_part};
use headwater_proto::limits;

use super::stream::StreamId;
use super::{PREFIX, Peer, South, claims};
use crate::simulation::world::{What, World};

/// How often it says what it holds.
const BEAT: Duration = Duration::from_secs(1);

// === impl World ===

impl World {
    /// A node says something to the stray peer.
    pub(super) fn stray_takes(&mut self, id: StreamId, message: &NodeMessage) {
        let NodeMessage::Hello(hello) = message else { return };
        let (version, content) = self.astray();
        let welcome = Welcome {
            replica_id: "stray".into(),
            heartbeat: BEAT,
            max_message_bytes: limits::MAX_MESSAGE_BYTES as u64,
            standing: Standing::Live,
            serving: version.clone(),
        };
        self.send_down(id, Box::new(ReplicaMessage::Welcome(welcome)));
        self.coverage.reached("stray/welcome");
        if hello.held.as_ref().is_some_and(|held| held.digest != version.digest) {
            self.coverage.reached("stray/transfer");
            self.stray_transfers(id, version, &content);
        }
        self.stray_beats(id);
    }

    fn stray_transfers(&mut self, id: StreamId, target: Version, content: &Content) {
        let begin = Begin {
            base: None,
            target,
            reason: TransferReason::Rewound,
            approval: None,
            changes: content.len() as u64,
            bytes: content.value_bytes(),
        };
        let pieces: Vec<Bytes> =
            content.iter().map(|resource| encode_change(&Change::Put(Arc::clone(resource)))).collect();
        match ReplicaMessage::decode(encode_part(Some(&begin), pieces.iter(), true).frame()) {
            Ok(part) => self.send_down(id, Box::new(part)),
            Err(invalid) => self.violation(format!("the stray peer: {invalid}")),
        }
    }

    pub(super) fn stray_beats(&mut self, id: StreamId) {
        let Some(stream) = self.fleet.streams.get(&id).filter(|stream| stream.at_replica) else { return };
        if stream.peer != Peer::Stray {
            return;
        }
        if self.schedule.now() >= self.fleet.nodes[stream.node].astray {
            return self.replica_side_ends(id, true);
        }
        let (version, _) = self.astray();
        let progress = Progress {
            head: version.revision,
            delivered: Some(version),
            source_proof_age: Duration::ZERO,
            standing: Standing::Live,
        };
        self.coverage.reached("stray/progress");
        self.send_down(id, Box::new(ReplicaMessage::Progress(progress)));
        self.schedule.after(BEAT, What::South(South::StrayBeats { stream: id }));
    }

    /// What etcd holds, as the stray peer calls it.
    fn astray(&self) -> (Version, Content) {
        let truth = &self.etcd.truth;
        let (epoch, head) = (truth.epoch(), truth.head(truth.epoch()));
        let content = truth.at(epoch, head).map(claims::content).unwrap_or_default();
        let lineage =
            Lineage { cluster_id: truth.cluster_id(epoch), prefix: PREFIX.into(), generation: Generation(0) };
        (Version { lineage, revision: Revision(head), digest: content.digest() }, content)
    }
}
