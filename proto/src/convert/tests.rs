use std::sync::Arc;
use std::time::Duration;

use headwater_model::{Digest, Generation, Key, Lineage, Resource, Revision, Version};
use proptest::prelude::*;

use super::*;
use crate::config::{
    Ack, Approval, Begin, Bye, FallbackAnswer, FallbackRequest, Goaway, GoawayReason, Hello, NodeMessage,
    Progress, Refused, RefusedWhy, Reject, Rejects, ReplicaMessage, Standing, TransferPart, TransferReason,
    Welcome,
};

fn lineage() -> Lineage {
    Lineage { cluster_id: u64::MAX, prefix: "/apisix".into(), generation: Generation(3) }
}

fn version(revision: u64) -> Version {
    Version { lineage: lineage(), revision: Revision(revision), digest: Digest(u128::from(revision) << 70) }
}

fn resource(value: &'static [u8]) -> Arc<Resource> {
    Arc::new(Resource::new(Key::new("routes/1"), Bytes::from_static(value), Revision(4), Revision(9)))
}

fn reject() -> Reject {
    Reject {
        key: Key::new("routes/1"),
        mod_revision: Revision(9),
        reason: "uri is missing".into(),
        served: Some(Revision(4)),
        since_unix: 12,
        governs: 2,
    }
}

fn begin() -> Begin {
    Begin {
        base: Some(Digest(7)),
        target: version(10),
        reason: TransferReason::Rewound,
        approval: Some(Approval {
            id: "a1".into(),
            from: lineage(),
            base_at_most: Revision(8),
            to: lineage(),
            expires_unix: 99,
        }),
        changes: 2,
        bytes: 5,
    }
}

#[test]
fn every_node_message_survives_the_wire() {
    let hello = Hello {
        protocol: 1,
        node_id: "n1".into(),
        instance: "i".into(),
        connection: 2,
        environment: "default".into(),
        labels: [("zone".to_owned(), "a".to_owned())].into(),
        build: "0.1.0".into(),
        digest_scheme: 1,
        held: Some(version(3)),
        accept_degraded: true,
        rejects_count: 1,
        rejects_hash: Reject::set_hash([&reject()]),
    };
    let refused = Refused {
        target: version(10),
        why: RefusedWhy::Held,
        held: None,
        held_resources: 10,
        removed_resources: 9,
        detail: "held".into(),
    };
    for message in [
        NodeMessage::Hello(hello),
        NodeMessage::Ack(Ack { applied: Some(version(3)), durable: None }),
        NodeMessage::Rejects(Rejects {
            full: true,
            rejected: vec![reject(), Reject { served: None, ..reject() }],
            cleared: vec![Key::new("plugins")],
        }),
        NodeMessage::Refused(refused),
        NodeMessage::Receiving { bytes: 5 },
        NodeMessage::Fallback(FallbackRequest {
            key: Key::new("routes/1"),
            create_revision: Revision(4),
            below: Revision(9),
        }),
        NodeMessage::Alive,
        NodeMessage::Bye(Bye::Leaving),
        NodeMessage::Bye(Bye::Moving),
    ] {
        assert_eq!(NodeMessage::decode(message.encode()), Ok(message));
    }
}

#[test]
fn every_replica_message_survives_the_wire() {
    let part = TransferPart {
        begin: Some(begin()),
        changes: vec![Change::Delete(Key::new("routes/2")), Change::Put(resource(b"{}"))],
        last: true,
    };
    for message in [
        ReplicaMessage::Welcome(Welcome {
            replica_id: "r1".into(),
            heartbeat: Duration::from_secs(10),
            max_message_bytes: 4,
            standing: Standing::Held { since_unix: 5 },
            serving: version(1),
        }),
        ReplicaMessage::Part(part),
        ReplicaMessage::Progress(Progress {
            delivered: Some(version(3)),
            head: Revision(4),
            source_proof_age: Duration::from_millis(1500),
            standing: Standing::Live,
        }),
        ReplicaMessage::Fallback(FallbackAnswer {
            key: Key::new("routes/1"),
            create_revision: Revision(4),
            rejected: Revision(10),
            found: Some(resource(b"{}")),
        }),
        ReplicaMessage::RejectsPlease,
        ReplicaMessage::Goaway(Goaway { reason: GoawayReason::GenerationAhead, detail: "x".into() }),
    ] {
        assert_eq!(ReplicaMessage::decode(message.encode()), Ok(message));
    }
}

#[test]
fn a_part_from_shared_pieces_equals_the_part_encoded_whole() {
    let changes = vec![Change::Delete(Key::new("routes/2")), Change::Put(resource(b"{\"uri\":\"/\"}"))];
    let pieces: Vec<_> = changes.iter().map(encode_change).collect();
    for (begin, last) in [(Some(begin()), true), (Some(begin()), false), (None, false), (None, true)] {
        let frame = encode_part(begin.as_ref(), pieces.iter(), last);
        let part = TransferPart { begin, changes: changes.clone(), last };
        assert_eq!(ReplicaMessage::decode(frame.frame()), Ok(ReplicaMessage::Part(part)));
    }
}

#[test]
fn keys_that_are_not_content_are_refused() {
    let change = wire::Change { key: "data_plane/x/y".into(), ..wire::Change::default() };
    assert_eq!(version::change_from(change), Err(bad("change", "key", "is not of content shape")));
}

proptest! {
    #[test]
    fn no_bytes_make_decoding_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let frame = crate::frame::Frame(bytes.into());
        let _ = NodeMessage::decode(frame.clone());
        let _ = ReplicaMessage::decode(frame);
    }
}
