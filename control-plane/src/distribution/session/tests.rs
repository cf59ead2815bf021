use bytes::Bytes;
use headwater_model::{Generation, Key, Lineage, Revision};
use headwater_proto::config::{Approval, Standing};

use super::*;
use crate::backend::{Batch, Continuity, Entry, KeyEvent, Load, SourceEvent, SourceState, Stage};
use crate::environment::core::Core;

const HEARTBEAT: Duration = Duration::from_secs(10);

fn entry(id: u64, revision: u64) -> Entry {
    Entry {
        key: Bytes::from(format!("routes/{id}")),
        value: Bytes::from(format!("{{\"v\":{revision}}}")),
        create_revision: Revision(1),
        mod_revision: Revision(revision),
    }
}

/// An environment with ten routes at revision 100, live.
fn core() -> Core {
    let mut core = Core::new("/apisix".into(), 0);
    load(&mut core, 100, 0..10, Continuity::First);
    stage(&mut core, Stage::Live);
    core
}

fn load(core: &mut Core, revision: u64, ids: std::ops::Range<u64>, continuity: Continuity) {
    let entries = ids.map(|id| entry(id, 1 + id)).collect();
    let load =
        Load { cluster_id: 7, revision: Revision(revision), entries, continuity, generation: Generation(0) };
    core.on_event(SourceEvent::Loaded(load), Duration::ZERO, 0);
}

fn stage(core: &mut Core, stage: Stage) {
    let state = SourceState { stage, member: "m".to_owned(), server_version: None, note: None };
    core.on_event(SourceEvent::State(state), Duration::ZERO, 0);
}

fn put(core: &mut Core, id: u64, revision: u64) {
    let events = vec![KeyEvent::Put(entry(id, revision))];
    core.on_event(SourceEvent::Batch(Batch::new(Revision(revision), events)), Duration::ZERO, 0);
}

fn delete(core: &mut Core, id: u64, revision: u64) {
    let key = Bytes::from(format!("routes/{id}"));
    let events = vec![KeyEvent::Delete { key, revision: Revision(revision) }];
    core.on_event(SourceEvent::Batch(Batch::new(Revision(revision), events)), Duration::ZERO, 0);
}

fn hello(held: Option<Version>) -> Hello {
    Hello {
        protocol: limits::PROTOCOL,
        node_id: "n".into(),
        instance: "i".into(),
        connection: 1,
        environment: "default".into(),
        labels: [].into(),
        build: "t".into(),
        digest_scheme: DIGEST_SCHEME,
        held,
        accept_degraded: false,
        rejects_count: 0,
        rejects_hash: Digest::EMPTY,
    }
}

fn config() -> Config {
    Config { replica_id: "r".into(), heartbeat: HEARTBEAT, max_fallbacks: 2 }
}

fn open(core: &mut Core, held: Option<Version>) -> Session {
    let session = Session::open(config(), hello(held), true, &core.publication(), Duration::ZERO);
    session.expect("the hello is legal")
}

/// All frames that the session has to send now, decoded.
fn sent(session: &mut Session, core: &mut Core, now: Duration) -> Vec<ReplicaMessage> {
    let publication = core.publication();
    let mut messages = Vec::new();
    while let Some(outgoing) = session.poll(&publication, now, now.as_secs()) {
        messages.push(ReplicaMessage::decode(outgoing.into_frame()).unwrap());
    }
    messages
}

fn begins(messages: &[ReplicaMessage]) -> Vec<(TransferReason, usize)> {
    messages
        .iter()
        .filter_map(|message| match message {
            ReplicaMessage::Part(part) => {
                part.begin.as_ref().map(|begin| (begin.reason, begin.changes as usize))
            }
            _ => None,
        })
        .collect()
}

fn progress(messages: &[ReplicaMessage]) -> Option<&Progress> {
    messages.iter().find_map(|message| match message {
        ReplicaMessage::Progress(progress) => Some(progress),
        _ => None,
    })
}

fn version(core: &mut Core) -> Version {
    core.publication().target().clone()
}

fn acked(session: &mut Session, core: &mut Core, version: Version) {
    let ack = Ack { applied: Some(version), durable: None };
    session.on_message(NodeMessage::Ack(ack), &core.publication(), Duration::ZERO);
}

fn refused(session: &mut Session, core: &mut Core, why: RefusedWhy, held: Option<Version>, now: Duration) {
    let target = version(core);
    let refused = Refused { target, why, held, held_resources: 10, removed_resources: 9, detail: "x".into() };
    session.on_message(NodeMessage::Refused(refused), &core.publication(), now);
}

#[test]
fn an_empty_node_gets_everything_then_progress() {
    let mut core = core();
    let mut session = open(&mut core, None);
    let messages = sent(&mut session, &mut core, Duration::ZERO);
    assert!(matches!(messages[0], ReplicaMessage::Welcome(_)));
    assert_eq!(begins(&messages), [(TransferReason::First, 10)]);
    let last = messages.last().unwrap();
    assert!(
        matches!(last, ReplicaMessage::Progress(progress) if progress.delivered == Some(version(&mut core)))
    );
}

#[test]
fn a_current_node_gets_no_payload_and_progress_at_once() {
    let mut core = core();
    let held = version(&mut core);
    load(&mut core, 500, 0..10, Continuity::Unproven);
    let mut session = open(&mut core, Some(held));
    let messages = sent(&mut session, &mut core, Duration::ZERO);
    assert_eq!(begins(&messages), []);
    let delivered = progress(&messages).and_then(|progress| progress.delivered.clone());
    assert_eq!(delivered, Some(version(&mut core)));
}

#[test]
fn what_was_missed_is_exactly_what_is_sent() {
    let mut core = core();
    let held = version(&mut core);
    put(&mut core, 1, 101);
    put(&mut core, 2, 102);
    put(&mut core, 20, 103);
    delete(&mut core, 3, 104);
    delete(&mut core, 4, 105);
    let mut session = open(&mut core, Some(held));
    assert_eq!(begins(&sent(&mut session, &mut core, Duration::ZERO)), [(TransferReason::Step, 5)]);
}

#[test]
fn one_transfer_at_a_time_and_a_slow_node_gets_merged_state() {
    let mut core = core();
    let held = version(&mut core);
    let mut session = open(&mut core, Some(held));
    sent(&mut session, &mut core, Duration::ZERO);
    put(&mut core, 1, 101);
    assert_eq!(begins(&sent(&mut session, &mut core, Duration::ZERO)), [(TransferReason::Step, 1)]);
    let first = version(&mut core);
    put(&mut core, 1, 102);
    put(&mut core, 1, 103);
    delete(&mut core, 2, 104);
    assert_eq!(begins(&sent(&mut session, &mut core, Duration::ZERO)), []);
    acked(&mut session, &mut core, first);
    assert_eq!(begins(&sent(&mut session, &mut core, Duration::ZERO)), [(TransferReason::Step, 2)]);
}

#[test]
fn progress_says_what_was_delivered_and_not_the_head() {
    let mut core = core();
    let held = version(&mut core);
    let mut session = open(&mut core, Some(held));
    sent(&mut session, &mut core, Duration::ZERO);
    put(&mut core, 1, 101);
    sent(&mut session, &mut core, Duration::ZERO);
    let delivered = version(&mut core);
    put(&mut core, 2, 102);
    let messages = sent(&mut session, &mut core, HEARTBEAT);
    let progress = progress(&messages).unwrap();
    assert_eq!(progress.delivered.as_ref(), Some(&delivered));
    assert_eq!(progress.head, Revision(102));
}

#[test]
fn progress_never_stands_inside_a_transfer() {
    let mut core = Core::new("/apisix".into(), 0);
    let entries =
        (0..300).map(|id| Entry { value: Bytes::from(vec![b'x'; 2000]), ..entry(id, 1 + id) }).collect();
    let load = Load {
        cluster_id: 7,
        revision: Revision(400),
        entries,
        continuity: Continuity::First,
        generation: Generation(0),
    };
    core.on_event(SourceEvent::Loaded(load), Duration::ZERO, 0);
    stage(&mut core, Stage::Live);
    let mut session = open(&mut core, None);
    let messages = sent(&mut session, &mut core, HEARTBEAT * 5);
    let first = messages.iter().position(|message| matches!(message, ReplicaMessage::Part(_))).unwrap();
    let parts = messages.iter().filter(|message| matches!(message, ReplicaMessage::Part(_))).count();
    assert!(parts > 3);
    let run = &messages[first..first + parts];
    assert!(run.iter().all(|message| matches!(message, ReplicaMessage::Part(_))));
}

#[test]
fn without_proof_of_life_nothing_changes_on_a_node_that_holds_content() {
    let mut core = core();
    let held = version(&mut core);
    put(&mut core, 1, 101);
    stage(&mut core, Stage::BackingOff);
    let mut session = open(&mut core, Some(held.clone()));
    let messages = sent(&mut session, &mut core, Duration::ZERO);
    assert_eq!(begins(&messages), []);
    let said = progress(&messages).unwrap();
    assert!(matches!(said.standing, Standing::Degraded { .. }));
    assert_eq!(said.delivered, Some(held));
    stage(&mut core, Stage::Live);
    assert_eq!(begins(&sent(&mut session, &mut core, Duration::ZERO)), [(TransferReason::Step, 1)]);
}

#[test]
fn an_empty_node_gets_degraded_content_only_when_it_accepts_it() {
    let mut core = core();
    stage(&mut core, Stage::BackingOff);
    let mut session = open(&mut core, None);
    let messages = sent(&mut session, &mut core, Duration::ZERO);
    assert_eq!(begins(&messages), []);
    assert_eq!(progress(&messages).and_then(|progress| progress.delivered.clone()), None);
    let accepting = Hello { accept_degraded: true, ..hello(None) };
    let mut session = Session::open(config(), accepting, true, &core.publication(), Duration::ZERO).unwrap();
    assert_eq!(begins(&sent(&mut session, &mut core, Duration::ZERO)), [(TransferReason::First, 10)]);
}

#[test]
fn each_jump_has_its_reason() {
    let mut core = core();
    let held = version(&mut core);
    let with = |lineage: Lineage, revision: u64, digest: u128| {
        Some(Version { lineage, revision: Revision(revision), digest: Digest(digest) })
    };
    let lineage = held.lineage.clone();
    let other = Lineage { cluster_id: 8, ..lineage.clone() };
    for (node, reason) in [
        (with(other, 50, 1), TransferReason::OtherLineage),
        (with(lineage.clone(), 50, 1), TransferReason::TooOld),
        (with(lineage, 100, 1), TransferReason::Divergence),
    ] {
        let mut session = open(&mut core, node);
        assert_eq!(begins(&sent(&mut session, &mut core, Duration::ZERO)), [(reason, 10)], "{reason:?}");
    }
    load(&mut core, 60, 0..9, Continuity::Rewound { evidence: "x".to_owned() });
    let mut session = open(&mut core, Some(held));
    assert_eq!(begins(&sent(&mut session, &mut core, Duration::ZERO)), [(TransferReason::Rewound, 9)]);
}

#[test]
fn across_an_unproven_reload_the_bytes_of_a_step_are_a_guarded_jump() {
    let mut core = core();
    let held = version(&mut core);
    load(&mut core, 500, 1..10, Continuity::Unproven);
    let mut session = open(&mut core, Some(held));
    assert_eq!(begins(&sent(&mut session, &mut core, Duration::ZERO)), [(TransferReason::Reloaded, 1)]);
}

#[test]
fn a_node_that_is_ahead_is_waited_for_and_the_head_is_asked() {
    let mut core = core();
    let mut held = version(&mut core);
    held.revision = Revision(150);
    held.digest = Digest(5);
    let mut session = open(&mut core, Some(held.clone()));
    let messages = sent(&mut session, &mut core, Duration::ZERO);
    assert_eq!(begins(&messages), []);
    assert!(session.take_events().contains(&SessionEvent::Ahead { held }));
    sent(&mut session, &mut core, BEHIND_TIMEOUT);
    sent(&mut session, &mut core, BEHIND_TIMEOUT);
    let shown = SessionEvent::Standing { held_ahead: true, degraded: false };
    assert!(session.take_events().contains(&shown));
    core.take_generation(Generation(1));
    assert_eq!(begins(&sent(&mut session, &mut core, BEHIND_TIMEOUT)), [(TransferReason::Rewound, 10)]);
}

#[test]
fn a_higher_generation_is_adopted_on_equal_content_and_looked_into_otherwise() {
    let mut core = core();
    let mut held = version(&mut core);
    held.lineage.generation = Generation(3);
    let mut session = open(&mut core, Some(held.clone()));
    sent(&mut session, &mut core, Duration::ZERO);
    assert!(session.take_events().contains(&SessionEvent::Adopt(Generation(3))));
    sent(&mut session, &mut core, Duration::ZERO);
    assert!(session.take_events().is_empty(), "not asked for again at once");
    held.digest = Digest(1);
    let mut session = open(&mut core, Some(held.clone()));
    sent(&mut session, &mut core, Duration::ZERO);
    assert!(session.take_events().contains(&SessionEvent::Ahead { held }));
    // etcd has answered, and the next read was of the claimed generation.
    core.take_generation(Generation(3));
    assert_eq!(begins(&sent(&mut session, &mut core, Duration::ZERO)), [(TransferReason::Divergence, 10)]);
}

#[test]
fn a_generation_that_nothing_comes_of_sends_the_node_elsewhere() {
    let mut core = core();
    let mut held = version(&mut core);
    held.lineage.generation = Generation(3);
    held.digest = Digest(1);
    let mut session = open(&mut core, Some(held));
    sent(&mut session, &mut core, Duration::ZERO);
    sent(&mut session, &mut core, BEHIND_TIMEOUT / 2);
    assert!(session.ended().is_none());
    sent(&mut session, &mut core, BEHIND_TIMEOUT);
    assert_eq!(session.ended().map(|goaway| goaway.reason), Some(GoawayReason::GenerationAhead));
}

#[test]
fn a_base_that_no_reload_was_compared_with_gets_everything() {
    let mut core = core();
    let mut held = version(&mut core);
    put(&mut core, 3, 150);
    load(&mut core, 200, 0..10, Continuity::Unproven);
    // Of another replica, which had come further before the history was replaced.
    for (revision, reason) in [(150, TransferReason::Reloaded), (160, TransferReason::TooOld)] {
        held.revision = Revision(revision);
        held.digest = Digest(6);
        let mut session = open(&mut core, Some(held.clone()));
        let begun = begins(&sent(&mut session, &mut core, Duration::ZERO));
        assert_eq!(begun.first().map(|(reason, _)| *reason), Some(reason), "{revision}");
    }
}

#[test]
fn while_a_transfer_waits_for_room_only_silence_is_due() {
    let mut core = core();
    let value = Bytes::from(vec![b'x'; limits::PART_BYTES]);
    let events = (0..3).map(|id| KeyEvent::Put(Entry { value: value.clone(), ..entry(id, 101) })).collect();
    core.on_event(SourceEvent::Batch(Batch::new(Revision(101), events)), Duration::ZERO, 0);
    let mut session = open(&mut core, None);
    let publication = core.publication();
    for _ in 0..2 {
        // The welcome and a first part; the transport takes no more.
        assert!(session.poll(&publication, Duration::ZERO, 0).is_some());
    }
    assert!(session.sending_bytes() > 0);
    assert_eq!(session.deadline(), HEARTBEAT * limits::SILENT_HEARTBEATS);
    assert_eq!(session.tick_at(), HEARTBEAT * limits::SILENT_HEARTBEATS);
}

#[test]
fn a_mismatch_is_answered_by_one_full_transfer_and_then_damped() {
    let mut core = core();
    let held = version(&mut core);
    put(&mut core, 1, 101);
    let mut session = open(&mut core, Some(held.clone()));
    assert_eq!(begins(&sent(&mut session, &mut core, Duration::ZERO)), [(TransferReason::Step, 1)]);
    refused(&mut session, &mut core, RefusedWhy::Mismatch, Some(held.clone()), Duration::ZERO);
    assert!(matches!(
        session.take_events()[..],
        [.., SessionEvent::Divergence { .. }, SessionEvent::Refused(_)]
    ));
    assert_eq!(begins(&sent(&mut session, &mut core, Duration::ZERO)), [(TransferReason::Divergence, 10)]);
    refused(&mut session, &mut core, RefusedWhy::Mismatch, Some(held), Duration::ZERO);
    assert_eq!(begins(&sent(&mut session, &mut core, Duration::ZERO)), []);
    session.on_message(NodeMessage::Alive, &core.publication(), MISMATCH_AGAIN);
    session.tick(MISMATCH_AGAIN);
    assert_eq!(begins(&sent(&mut session, &mut core, MISMATCH_AGAIN)), [(TransferReason::Divergence, 10)]);
}

#[test]
fn a_jump_held_by_the_node_waits_for_its_approval() {
    let mut core = core();
    let held = version(&mut core);
    load(&mut core, 60, 0..9, Continuity::Rewound { evidence: "x".to_owned() });
    let mut session = open(&mut core, Some(held.clone()));
    sent(&mut session, &mut core, Duration::ZERO);
    refused(&mut session, &mut core, RefusedWhy::Held, Some(held.clone()), Duration::ZERO);
    assert_eq!(begins(&sent(&mut session, &mut core, Duration::ZERO)), []);
    let approval = Approval {
        id: "a".into(),
        from: held.lineage,
        base_at_most: held.revision,
        to: version(&mut core).lineage,
        expires_unix: 1_000,
    };
    let put =
        Entry { key: crate::approval::key("a"), value: crate::approval::encode(&approval), ..entry(0, 61) };
    let batch = Batch::new(Revision(61), vec![KeyEvent::Put(put)]);
    core.on_event(SourceEvent::Batch(batch), Duration::ZERO, 0);
    let messages = sent(&mut session, &mut core, Duration::ZERO);
    let begin = messages.iter().find_map(|message| match message {
        ReplicaMessage::Part(part) => part.begin.clone(),
        _ => None,
    });
    assert_eq!(begin.and_then(|begin| begin.approval).map(|approval| approval.id), Some("a".into()));
}

#[test]
fn three_heartbeats_of_silence_end_it_and_any_frame_is_proof_of_life() {
    let mut core = core();
    let held = version(&mut core);
    let mut session = open(&mut core, Some(held));
    session.tick(HEARTBEAT * 2);
    session.on_message(NodeMessage::Alive, &core.publication(), HEARTBEAT * 2);
    session.tick(HEARTBEAT * 4);
    assert_eq!(session.ended(), None);
    session.tick(HEARTBEAT * 5);
    assert_eq!(session.ended().map(|goaway| goaway.reason), Some(GoawayReason::Silent));
}

#[test]
fn what_it_cannot_serve_is_refused_by_name() {
    let mut core = core();
    let publication = core.publication();
    let empty = Core::new("/apisix".into(), 0).publication();
    for (hello, publication, reason) in [
        (Hello { protocol: 9, ..hello(None) }, &publication, GoawayReason::Protocol),
        (Hello { digest_scheme: 9, ..hello(None) }, &publication, GoawayReason::DigestScheme),
        (hello(None), &empty, GoawayReason::NotReady),
    ] {
        let refused = Session::open(config(), hello, true, publication, Duration::ZERO).unwrap_err();
        assert_eq!(refused.reason, reason);
    }
}

#[test]
fn fallback_requests_are_bounded() {
    let mut core = core();
    let mut session = open(&mut core, None);
    for _ in 0..3 {
        let request =
            FallbackRequest { key: Key::new("routes/1"), create_revision: Revision(1), below: Revision(9) };
        session.on_message(NodeMessage::Fallback(request), &core.publication(), Duration::ZERO);
    }
    let asked = session.take_events();
    assert_eq!(asked.iter().filter(|event| matches!(event, SessionEvent::Fallback(_))).count(), 2);
}

#[test]
fn without_room_only_silence_and_a_refusal_are_deadlines() {
    let mut core = core();
    let session = open(&mut core, None);
    // Progress is due at once, and would wake a loop that cannot send it for ever.
    assert_eq!(session.deadline(), Duration::ZERO);
    assert_eq!(session.tick_at(), HEARTBEAT * limits::SILENT_HEARTBEATS);
}
