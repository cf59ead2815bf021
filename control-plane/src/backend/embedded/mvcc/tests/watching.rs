use bytes::Bytes;
use headwater_model::Revision;

use super::super::{CreateWatch, EventKind, First, Limits, Mvcc, Op, Txn, WatchRequest};
use super::{IDENTITY, drain, everything, settle, store, watch, watching};

fn filled(count: u64) -> Mvcc {
    let mut store = store();
    for number in 0..count {
        store.put(format!("/{number:05}"), "v").unwrap();
    }
    store
}

// The kinds of response, one by one.

#[test]
fn created_carries_the_current_revision_and_delivers_nothing() {
    let mut store = filled(10);
    let stream = store.open_stream();
    store.request(stream, watch(3));
    let responses = drain(&mut store, stream);
    assert_eq!(responses.len(), 1);
    assert!(responses[0].created && responses[0].events.is_empty());
    assert_eq!(responses[0].header.revision, Revision(11));
}

#[test]
fn a_refused_watcher_is_created_and_cancelled_at_once() {
    let mut store = store();
    let stream = watching(&mut store, 1);
    store.request(stream, watch(1));
    let refused = drain(&mut store, stream).remove(0);
    assert!(refused.created && refused.cancelled);
    assert_eq!((refused.watch_id, refused.header.revision), (-1, Revision(1)));
    assert_eq!(refused.cancel_reason, "mvcc: duplicate watch ID provided on the WatchStream");
}

#[test]
fn events_in_sync_carry_their_own_revision() {
    let mut store = store();
    let stream = watching(&mut store, 2);
    store.txn(&Txn::all([Op::Put { key: "/a".into(), value: "1".into() }])).unwrap();
    store.delete("/a").unwrap();
    let responses = drain(&mut store, stream);
    assert_eq!(responses.iter().map(|r| r.header.revision.0).collect::<Vec<_>>(), [2, 3]);
    assert_eq!(responses[1].events[0].kind, EventKind::Delete);
    assert_eq!(responses[1].events[0].kv.mod_revision, Revision(3));
}

#[test]
fn events_while_catching_up_carry_the_current_revision() {
    let mut store = filled(2500);
    let stream = watching(&mut store, 2);
    assert!(drain(&mut store, stream).is_empty(), "nothing comes before the next pass");
    assert_eq!(store.catch_up(), 1);
    let first = drain(&mut store, stream).remove(0);
    assert_eq!(first.header.revision, Revision(2501));
    assert_eq!(first.events.last().unwrap().kv.mod_revision, Revision(1001));
    assert_eq!(store.catch_up(), 1);
    assert_eq!(store.catch_up(), 0);
    let rest = drain(&mut store, stream);
    assert_eq!(rest.iter().map(|r| r.events.len()).collect::<Vec<_>>(), [1000, 500]);
}

#[test]
fn a_pass_never_splits_a_revision() {
    let limits = Limits { revisions_per_pass: 1, ..Limits::ETCD };
    let mut store = Mvcc::new(IDENTITY, limits);
    for value in ["1", "2"] {
        let put = |key: &'static str| Op::Put { key: key.into(), value: value.into() };
        store.txn(&Txn::all([put("/a"), put("/b"), put("/c")])).unwrap();
    }
    let stream = watching(&mut store, 2);
    settle(&mut store);
    assert_eq!(drain(&mut store, stream).iter().map(|r| r.events.len()).collect::<Vec<_>>(), [3, 3]);
}

#[test]
fn a_blocked_watcher_gets_its_events_again_with_what_it_has_seen_in_the_header() {
    let limits = Limits { stream_responses: 1, ..Limits::ETCD };
    let mut store = Mvcc::new(IDENTITY, limits);
    let stream = watching(&mut store, 2);
    for _ in 0..4 {
        store.put("/a", "v").unwrap();
    }
    assert_eq!(store.catch_up(), 1, "the queue is full");
    let mut seen = Vec::new();
    for _ in 0..8 {
        seen.extend(drain(&mut store, stream));
        store.catch_up();
    }
    let revisions =
        |r: &super::super::WatchResponse| r.events.iter().map(|e| e.kv.mod_revision.0).collect::<Vec<_>>();
    assert_eq!(seen.iter().flat_map(revisions).collect::<Vec<_>>(), [2, 3, 4, 5]);
    assert_eq!(seen[1].header.revision, Revision(3), "what it needs next, less one");
    assert_eq!(seen[2].header.revision, Revision(5), "then it catches up");
}

#[test]
fn parts_of_a_response_share_a_header_and_may_split_one_revision() {
    let limits = Limits { fragment_bytes: 200, ..Limits::ETCD };
    let mut store = Mvcc::new(IDENTITY, limits);
    let stream = store.open_stream();
    store.request(
        stream,
        WatchRequest::Create(CreateWatch {
            interval: everything(),
            start: Revision(2),
            watch_id: 1,
            fragment: true,
            progress_notify: false,
        }),
    );
    drain(&mut store, stream);
    let puts =
        (0..10).map(|n| Op::Put { key: format!("/{n}").into(), value: Bytes::from_static(&[b'x'; 40]) });
    store.txn(&Txn::all(puts)).unwrap();
    let parts = drain(&mut store, stream);
    assert!(parts.len() > 1);
    assert_eq!(parts.iter().map(|part| part.events.len()).sum::<usize>(), 10);
    assert!(parts.iter().all(|part| part.header == parts[0].header && part.encoded_len() < 200));
    assert!(parts[..parts.len() - 1].iter().all(|part| part.fragment));
    assert!(!parts.last().unwrap().fragment);
    store.put("/big", vec![b'x'; 1000]).unwrap();
    let whole = drain(&mut store, stream);
    assert_eq!((whole.len(), whole[0].fragment), (1, false), "one event is never split");
}

#[test]
fn progress_of_the_stream_follows_the_events_it_certifies() {
    let mut store = store();
    let stream = watching(&mut store, 1);
    settle(&mut store);
    store.put("/a", "1").unwrap();
    store.put("elsewhere", "1").unwrap();
    store.request(stream, WatchRequest::Progress);
    store.put("/a", "2").unwrap();
    let responses = drain(&mut store, stream);
    assert_eq!(responses[0].events[0].kv.mod_revision, Revision(2));
    assert!(responses[1].is_progress());
    assert_eq!((responses[1].watch_id, responses[1].header.revision), (-1, Revision(3)));
    assert_eq!(responses[2].events[0].kv.mod_revision, Revision(4));
}

#[test]
fn unasked_progress_carries_the_watchers_id_and_skips_a_tick_after_events() {
    let mut store = store();
    let stream = store.open_stream();
    let WatchRequest::Create(create) = watch(1) else { panic!() };
    store.request(stream, WatchRequest::Create(CreateWatch { progress_notify: true, ..create }));
    settle(&mut store);
    drain(&mut store, stream);
    store.progress_tick(stream);
    let progress = drain(&mut store, stream).remove(0);
    assert_eq!((progress.watch_id, progress.is_progress()), (1, true));
    store.put("/a", "1").unwrap();
    drain(&mut store, stream);
    store.progress_tick(stream);
    assert!(drain(&mut store, stream).is_empty());
    store.progress_tick(stream);
    assert_eq!(drain(&mut store, stream).len(), 1);
}

#[test]
fn a_cancel_by_compaction_has_no_revision_and_no_reason() {
    let mut store = filled(20);
    store.compact(Revision(10)).unwrap();
    let stream = store.open_stream();
    store.request(stream, watch(9));
    let created = drain(&mut store, stream).remove(0);
    assert!(created.created && !created.cancelled, "created first, whatever the start");
    store.catch_up();
    let cancelled = drain(&mut store, stream).remove(0);
    assert!(cancelled.cancelled && cancelled.cancel_reason.is_empty());
    assert_eq!((cancelled.header.revision, cancelled.compact_revision), (Revision::ZERO, Revision(10)));
}

// Starts.

#[test]
fn a_deletion_at_the_compacted_revision_is_delivered_to_a_watch_that_starts_there() {
    let mut store = store();
    store.put("/a", "1").unwrap();
    let deleted = store.delete("/a").unwrap();
    store.put("/b", "1").unwrap();
    store.compact(deleted).unwrap();
    let stream = watching(&mut store, deleted.0);
    settle(&mut store);
    let kinds: Vec<_> =
        drain(&mut store, stream).into_iter().flat_map(|r| r.events).map(|e| e.kind).collect();
    assert_eq!(kinds, [EventKind::Delete, EventKind::Put]);
}

#[test]
fn a_start_in_the_future_is_silent_until_then() {
    let mut store = store();
    let stream = watching(&mut store, 4);
    for _ in 0..4 {
        store.request(stream, WatchRequest::Progress);
        store.put("/a", "v").unwrap();
    }
    let responses = drain(&mut store, stream);
    let first = responses.iter().find(|response| !response.events.is_empty()).unwrap();
    assert_eq!(first.events[0].kv.mod_revision, Revision(4));
    assert!(responses.iter().all(|response| response.header.revision >= Revision(4)), "also of progress");
}

#[test]
fn start_zero_means_from_now_on() {
    let mut store = filled(3);
    let stream = watching(&mut store, 0);
    settle(&mut store);
    store.put("/new", "v").unwrap();
    assert_eq!(drain(&mut store, stream)[0].events[0].kv.key, "/new");
}

#[test]
fn watchers_in_sync_do_not_notice_a_compaction() {
    let mut store = filled(3);
    let stream = watching(&mut store, 5);
    store.put("/a", "1").unwrap();
    store.compact(store.revision()).unwrap();
    store.put("/a", "2").unwrap();
    settle(&mut store);
    assert_eq!(drain(&mut store, stream).len(), 2);
}

// When progress is not answered.

#[test]
fn progress_is_not_answered_at_a_start_that_is_still_to_come_even_the_very_next_one() {
    let mut store = store();
    let stream = watching(&mut store, 2);
    store.request(stream, WatchRequest::Progress);
    assert!(drain(&mut store, stream).is_empty());
    store.put("elsewhere", "v").unwrap();
    store.request(stream, WatchRequest::Progress);
    assert_eq!(drain(&mut store, stream).len(), 1);
}

#[test]
fn progress_is_not_answered_while_a_watcher_catches_up_and_not_later_either() {
    let mut store = filled(10);
    let stream = watching(&mut store, 2);
    store.request(stream, WatchRequest::Progress);
    settle(&mut store);
    assert!(drain(&mut store, stream).iter().all(|response| !response.is_progress()));
    store.request(stream, WatchRequest::Progress);
    assert!(drain(&mut store, stream)[0].is_progress());
}

#[test]
fn a_watcher_cancelled_by_compaction_blocks_progress_until_it_is_cleared() {
    let mut store = filled(10);
    store.compact(Revision(8)).unwrap();
    let stream = watching(&mut store, 2);
    let WatchRequest::Create(create) = watch(9) else { panic!() };
    store.request(stream, WatchRequest::Create(CreateWatch { watch_id: 2, ..create }));
    settle(&mut store);
    drain(&mut store, stream);
    store.request(stream, WatchRequest::Progress);
    assert!(drain(&mut store, stream).is_empty());
    store.request(stream, WatchRequest::Cancel { watch_id: 1 });
    store.request(stream, WatchRequest::Progress);
    let responses = drain(&mut store, stream);
    assert!(responses[0].cancelled && responses[0].compact_revision == Revision::ZERO);
    assert!(responses[1].is_progress());
}

#[test]
fn a_stream_without_watchers_answers_no_progress_and_stays_open() {
    let mut store = store();
    let stream = watching(&mut store, 1);
    store.request(stream, WatchRequest::Cancel { watch_id: 1 });
    drain(&mut store, stream);
    store.request(stream, WatchRequest::Progress);
    assert!(drain(&mut store, stream).is_empty() && store.is_open(stream));
}

// The order of a stream.

#[test]
fn events_wait_for_created_but_progress_of_the_stream_does_not() {
    let mut store = store();
    store.put("/a", "0").unwrap();
    let stream = store.open_stream();
    store.request(stream, watch(0));
    store.put("/a", "1").unwrap();
    store.request(stream, WatchRequest::Progress);
    let first = store.poll(stream, First::Data).unwrap();
    assert!(
        first.is_progress() && first.header.revision == Revision(3),
        "it certifies what is still to come"
    );
    let rest = drain(&mut store, stream);
    assert!(rest[0].created);
    assert_eq!(rest[1].events[0].kv.mod_revision, Revision(3));
}

#[test]
fn a_cancelled_watcher_gets_nothing_more() {
    let mut store = store();
    let stream = watching(&mut store, 1);
    settle(&mut store);
    store.put("/a", "1").unwrap();
    store.request(stream, WatchRequest::Cancel { watch_id: 1 });
    let responses = drain(&mut store, stream);
    assert_eq!(responses.len(), 1);
    assert!(responses[0].cancelled);
}
