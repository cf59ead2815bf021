//! The open watch: what moves the safe revision, and what must not.

use headwater_model::Generation;

use super::super::{MemberVersion, Settings};
use super::*;

fn batch(revision: u64, events: Vec<KeyEvent>) -> SourceEvent {
    SourceEvent::Batch(Batch::new(Revision(revision), events))
}

/// Both reach the environment though the stream that should have carried them died in silence.
#[test]
fn the_loss_scenario_silence_moves_nothing_and_the_next_stream_delivers() {
    let mut rig = Rig::live();
    // Written meanwhile: a put at 101, a delete at 102. The stream stays open and says nothing.
    rig.pass(secs(15) - Duration::from_millis(1));
    assert!(rig.blamed().is_none());
    rig.pass(Duration::from_millis(1));
    assert_eq!(rig.blamed(), Some(Blame::Silence));
    assert_eq!(rig.safe(), 100, "W1: a timeout delivers nothing");
    rig.wait_for_connect();
    assert!(rig.now < secs(20), "within liveness_timeout + 5 s");
    rig.resume(102);
    assert!(rig.asked().iter().any(|a| matches!(a, Action::OpenWatch { start: Revision(100), .. })));
    rig.created(102);
    assert_eq!(rig.safe(), 100, "W2: neither header nor created");
    // The safe revision's own events come again where it has any.
    rig.events(102, vec![delete("routes/9", 100), put("routes/3", 101), delete("routes/1", 102)]);
    assert_eq!(rig.told(), [batch(102, vec![put("routes/3", 101), delete("routes/1", 102)])]);
    assert_eq!(rig.safe(), 102);
}

#[test]
fn w1_the_header_of_events_certifies_nothing() {
    let mut rig = Rig::live();
    rig.events(2_502, vec![put("routes/3", 101)]);
    assert_eq!(rig.safe(), 101);
    rig.events(2_502, vec![put("routes/4", 102)]);
    assert_eq!(rig.told(), [batch(101, vec![put("routes/3", 101)]), batch(102, vec![put("routes/4", 102)])]);
}

#[test]
fn w8_progress_is_asked_for_after_created_only_and_not_believed_before() {
    let mut rig = Rig::new(Some(Rig::point(100)));
    rig.resume(200);
    let asked = rig.asked();
    assert!(!asked.iter().any(|a| matches!(a, Action::RequestProgress { .. })), "{asked:?}");
    rig.progress(200);
    assert_eq!(rig.safe(), 100);
    assert_eq!(rig.tracker.counters().ignored_progress, 1);
    rig.created(200);
    rig.asked();
    rig.pass(Duration::from_millis(250));
    assert!(matches!(rig.asked().as_slice(), [Action::RequestProgress { .. }]));
    rig.progress(200);
    assert_eq!((rig.safe(), rig.stage()), (200, Stage::Live));
}

#[test]
fn w20_progress_is_asked_for_at_a_steady_pace() {
    let mut rig = Rig::live();
    let mut asked = 0;
    for _ in 0..12 {
        rig.pass(secs(5));
        asked += rig.asked().iter().filter(|a| matches!(a, Action::RequestProgress { .. })).count();
        rig.progress(100);
    }
    assert!((12..=13).contains(&asked), "{asked} in a minute");
}

#[test]
fn w9_progress_for_another_watcher_does_not_certify() {
    let mut rig = Rig::live();
    rig.response(WatchResponse { watch_id: 77, ..rig.frame(300) });
    assert_eq!(rig.safe(), 100);
    rig.response(WatchResponse { watch_id: rig.watch_id, ..rig.frame(300) });
    assert_eq!(rig.safe(), 300, "its own id does");
}

#[test]
fn w9_progress_in_the_middle_of_a_change_does_not_certify() {
    let mut rig = Rig::live();
    rig.response(WatchResponse { fragment: true, events: vec![put("routes/3", 101)], ..rig.frame(101) });
    rig.progress(101);
    assert_eq!(rig.safe(), 100);
    rig.events(101, vec![put("routes/4", 101)]);
    assert_eq!(rig.told(), [batch(101, vec![put("routes/3", 101), put("routes/4", 101)])], "W12: joined");
}

#[test]
fn w10_lower_progress_and_old_events_are_ignored_and_counted() {
    let mut rig = Rig::live();
    rig.events(110, vec![put("routes/3", 110)]);
    rig.progress(120);
    rig.told();
    rig.progress(90);
    rig.events(120, vec![put("routes/3", 110)]);
    assert!(rig.told().is_empty());
    assert_eq!((rig.safe(), rig.stage()), (120, Stage::Live));
    assert_eq!((rig.tracker.counters().old_events, rig.tracker.counters().ignored_progress), (1, 1));
}

#[test]
fn w11_a_revision_that_falls_within_a_response_is_a_violation() {
    let mut rig = Rig::live();
    rig.events(110, vec![put("routes/3", 110), put("routes/4", 109)]);
    assert!(rig.told().is_empty());
    assert_eq!(rig.tracker.counters().violations, 1);
    rig.wait_for_connect();
    rig.resume(110);
    assert!(matches!(rig.asked().last(), Some(Action::ReadPage { .. })), "everything is read again");
}

#[test]
fn w11_one_revision_over_two_whole_responses_is_a_violation() {
    let mut rig = Rig::live();
    rig.events(110, vec![put("routes/3", 110)]);
    rig.events(110, vec![put("routes/4", 110)]);
    assert_eq!(rig.tracker.counters().violations, 1);
}

#[test]
fn w11_an_event_that_had_been_certified_unseen_is_a_violation() {
    let mut rig = Rig::live();
    rig.progress(120);
    rig.events(120, vec![delete("routes/1", 115)]);
    assert_eq!(rig.tracker.counters().violations, 1, "it is still held as of 10");
}

#[test]
fn w12_fragments_of_one_change_are_joined() {
    let mut rig = Rig::live();
    rig.response(WatchResponse { fragment: true, events: vec![put("a/1", 101)], ..rig.frame(102) });
    rig.response(WatchResponse { fragment: true, events: vec![put("a/2", 101)], ..rig.frame(102) });
    assert!(rig.told().is_empty());
    assert_eq!(rig.safe(), 100);
    rig.events(102, vec![put("a/3", 101), put("a/4", 102)]);
    let events = vec![put("a/1", 101), put("a/2", 101), put("a/3", 101), put("a/4", 102)];
    assert_eq!(rig.told(), [batch(102, events)]);
}

#[test]
fn w12_a_stream_that_ends_in_the_middle_of_a_change_delivers_none_of_it() {
    let mut rig = Rig::live();
    rig.response(WatchResponse { fragment: true, events: vec![put("a/1", 101)], ..rig.frame(102) });
    rig.ended(Fault::Transport);
    rig.wait_for_connect();
    rig.resume(102);
    rig.created(102);
    rig.events(102, vec![put("a/1", 101), put("a/2", 101)]);
    assert_eq!(rig.told(), [batch(101, vec![put("a/1", 101), put("a/2", 101)])]);
}

#[test]
fn w13_a_change_above_the_bound_is_read_by_pages() {
    let settings = Settings { assembly_bytes: 250, ..Settings::default() };
    let mut rig = Rig::with(settings, Some(Rig::point(100)));
    rig.resume(102);
    rig.created(102);
    for key in ["a/1", "a/2", "a/3"] {
        rig.response(WatchResponse { fragment: true, events: vec![put(key, 101)], ..rig.frame(102) });
    }
    rig.resume(102);
    assert!(matches!(rig.asked().last(), Some(Action::ReadPage { .. })));
}

#[test]
fn w13_a_batch_above_the_decode_limit_is_not_resumed_for_ever() {
    let mut rig = Rig::live();
    rig.ended(Fault::TooLarge);
    rig.resume(200);
    assert!(matches!(rig.asked().last(), Some(Action::ReadPage { .. })));
}

#[test]
fn w16_w17_compaction_is_known_by_its_field_and_read_in_full() {
    let cancels = [
        WatchResponse { cancelled: true, compact_revision: Revision(400), ..WatchResponse::default() },
        WatchResponse {
            cancelled: true,
            cancel_reason: "mvcc: required revision has been compacted".to_owned(),
            ..WatchResponse::default()
        },
    ];
    for cancel in cancels {
        let mut rig = Rig::live();
        rig.response(cancel);
        rig.connected();
        rig.checked(500);
        rig.fail(Fault::Compacted);
        assert!(matches!(rig.asked().last(), Some(Action::ReadPage { revision: None, .. })));
        rig.page(500, vec![entry("routes/2", 20, 20)], false);
        rig.checked(500);
        assert!(rig.asked().iter().any(|a| matches!(a, Action::OpenWatch { start: Revision(500), .. })));
    }
}

#[test]
fn w15_w17_other_cancels_drop_the_stream_by_their_words() {
    let reasons = [
        (
            "rpc error: code = Unauthenticated desc = etcdserver: invalid auth token",
            Blame::Token,
            Stage::BackingOff,
        ),
        ("etcdserver: revision of auth store is old", Blame::Token, Stage::BackingOff),
        ("etcdserver: permission denied", Blame::Token, Stage::Refused),
        ("etcdserver: no leader", Blame::Member, Stage::BackingOff),
        ("", Blame::Stream, Stage::BackingOff),
    ];
    for (reason, blame, stage) in reasons {
        let mut rig = Rig::live();
        let frame = rig.frame(100);
        let cancel =
            WatchResponse { cancelled: true, watch_id: -1, cancel_reason: reason.to_owned(), ..frame };
        rig.response(cancel);
        assert_eq!(rig.blamed(), Some(blame), "{reason}");
        assert_eq!((rig.stage(), rig.safe()), (stage, 100), "{reason}");
    }
}

#[test]
fn w25_created_does_not_reset_the_wait_and_progress_does() {
    let mut rig = Rig::new(Some(Rig::point(100)));
    let mut wait = Duration::ZERO;
    for _ in 0..8 {
        rig.resume(100);
        rig.created(100);
        rig.ended(Fault::Transport);
        let before = rig.now;
        rig.wait_for_connect();
        wait = rig.now - before;
    }
    assert!(wait > secs(5), "{wait:?}");
    rig.resume(100);
    rig.created(100);
    rig.progress(100);
    rig.ended(Fault::Transport);
    let before = rig.now;
    rig.wait_for_connect();
    assert!(rig.now - before <= Settings::default().backoff_min);
}

#[test]
fn w29_a_proxy_is_refused() {
    let mut rig = Rig::new(Some(Rig::point(100)));
    rig.resume(100);
    rig.response(WatchResponse { created: true, watch_id: 0, ..rig.frame(100) });
    assert_eq!((rig.stage(), rig.blamed()), (Stage::Refused, Some(Blame::Member)));
    assert!(rig.note().contains("grpc-proxy"), "{}", rig.note());
    let mut rig = Rig::live();
    rig.response(WatchResponse {
        header: Header { revision: Revision(300), ..Header::default() },
        ..rig.frame(0)
    });
    assert_eq!((rig.stage(), rig.safe()), (Stage::Refused, 100));
}

#[test]
fn w4_frames_of_another_member_are_not_taken() {
    let mut rig = Rig::live();
    let header = Header { cluster_id: CLUSTER, member_id: MEMBER + 1, revision: Revision(300), raft_term: 2 };
    rig.response(WatchResponse { header, watch_id: -1, ..WatchResponse::default() });
    assert_eq!((rig.safe(), rig.blamed()), (100, Some(Blame::Member)));
}

#[test]
fn progress_of_an_unsafe_release_keeps_alive_and_certifies_nothing() {
    let settings = Settings { allow_unsafe_etcd: true, ..Settings::default() };
    let mut rig = Rig::with(settings, None);
    rig.connected_as(MemberVersion::Known("3.5.1".to_owned()));
    rig.checked(42);
    rig.page(42, vec![], false);
    rig.checked(42);
    rig.created(42);
    rig.progress(60);
    assert_eq!((rig.safe(), rig.stage()), (42, Stage::Live));
    assert!(rig.note().contains("UNSAFE"), "{}", rig.note());
    rig.events(70, vec![put("routes/1", 61)]);
    assert_eq!(rig.safe(), 61);
}

#[test]
fn the_first_frame_after_a_resume_may_take_longer_and_longer() {
    let mut rig = Rig::new(Some(Rig::point(100)));
    let limits = [60, 120].map(secs);
    for limit in limits {
        rig.resume(5_000);
        rig.created(5_000);
        let start = rig.now;
        rig.asked();
        rig.pass(limit - Duration::from_millis(1));
        assert!(rig.blamed().is_none(), "{limit:?}");
        rig.wait_for_connect();
        assert!(rig.now - start < limit + secs(1));
    }
    // A frame makes it the liveness limit again.
    rig.resume(5_000);
    rig.created(5_000);
    rig.events(5_000, vec![put("routes/3", 101)]);
    rig.progress(5_000);
    rig.asked();
    rig.pass(secs(15));
    assert_eq!(rig.blamed(), Some(Blame::Silence));
}

#[test]
fn where_progress_is_never_answered_the_watch_is_reopened_now_and_then() {
    let mut rig = Rig::new(Some(Rig::point(100)));
    for _ in 0..2 {
        rig.resume(100);
        rig.created(100);
        rig.pass(secs(15));
        rig.wait_for_connect();
    }
    rig.resume(100);
    rig.created(100);
    assert!(rig.note().contains("never answered"), "{}", rig.note());
    rig.asked();
    rig.pass(secs(59));
    assert!(rig.blamed().is_none());
    rig.pass(secs(1));
    assert_eq!(rig.blamed(), Some(Blame::Silence));
}

#[test]
fn a_watch_that_dies_silently_again_and_again_is_no_proxy() {
    let mut rig = Rig::live();
    rig.pass(secs(15));
    for _ in 0..4 {
        rig.wait_for_connect();
        rig.resume(100);
        rig.created(100);
        assert!(!rig.note().contains("never answered"), "{}", rig.note());
        rig.asked();
        rig.pass(secs(15));
        assert_eq!(rig.blamed(), Some(Blame::Silence));
    }
}

#[test]
fn a_watch_that_dies_after_an_event_each_time_is_no_proxy() {
    // Silenced before its first progress answer, so nothing but the events tells it from a proxy.
    let mut rig = Rig::new(Some(Rig::point(100)));
    for revision in 100..104 {
        rig.resume(revision);
        rig.created(revision);
        assert!(!rig.note().contains("never answered"), "{}", rig.note());
        rig.response(WatchResponse { events: vec![delete("a/1", revision + 1)], ..rig.frame(revision + 1) });
        rig.pass(secs(15));
        assert_eq!(rig.blamed(), Some(Blame::Silence));
        rig.wait_for_connect();
    }
}

#[test]
fn after_a_pause_of_our_own_what_is_buffered_is_read_before_time_is_judged() {
    let mut rig = Rig::live();
    rig.now += secs(60);
    rig.give(Input::Tick);
    assert!(rig.blamed().is_none(), "the first tick after the pause judges nothing");
    rig.events(110, vec![put("routes/3", 110)]);
    rig.pass(secs(14));
    assert!(rig.blamed().is_none());
    // And without anything buffered it is dead a moment later.
    let mut rig = Rig::live();
    rig.now += secs(60);
    rig.give(Input::Tick);
    rig.pass(secs(2));
    assert_eq!(rig.blamed(), Some(Blame::Silence));
}

#[test]
fn w14_the_outbox_merges_by_key_and_keeps_deletions() {
    let mut outbox = super::super::Outbox::default();
    outbox.push(batch(101, vec![put("a/1", 101), put("a/2", 101)]));
    outbox.push(SourceEvent::Progress(Revision(105)));
    outbox.push(batch(110, vec![delete("a/1", 109), put("a/3", 110)]));
    outbox.push(SourceEvent::Progress(Revision(120)));
    let told: Vec<_> = std::iter::from_fn(|| outbox.pop()).collect();
    let merged = batch(110, vec![put("a/2", 101), delete("a/1", 109), put("a/3", 110)]);
    assert_eq!(told, [merged, SourceEvent::Progress(Revision(120))]);
    assert!(outbox.is_empty());
}

#[test]
fn w14_two_full_reads_that_wait_connect_as_their_worst() {
    let load = |revision, continuity| {
        SourceEvent::Loaded(crate::backend::Load {
            cluster_id: CLUSTER,
            revision: Revision(revision),
            entries: vec![],
            continuity,
            generation: Generation(0),
        })
    };
    let rewound = Continuity::Rewound { evidence: "lower".to_owned() };
    let cases = [
        (Continuity::First, Continuity::Proven, Continuity::First),
        (Continuity::Unproven, Continuity::Proven, Continuity::Unproven),
        (rewound.clone(), Continuity::Unproven, rewound),
        (Continuity::Proven, Continuity::Unproven, Continuity::Unproven),
    ];
    for (first, second, expected) in cases {
        let mut outbox = super::super::Outbox::default();
        outbox.push(load(10, first));
        outbox.push(batch(11, vec![put("a/1", 11)]));
        outbox.push(load(20, second));
        assert_eq!(outbox.pop(), Some(load(20, expected)));
        assert!(outbox.is_empty());
    }
}
