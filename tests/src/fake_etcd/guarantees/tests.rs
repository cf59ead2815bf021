//! Each guarantee is seen broken.

use bytes::Bytes;
use headwater_control_plane::backend::Entry;
use headwater_control_plane::backend::embedded::mvcc::{Identity, Interval, Limits, Mvcc, Op, Txn};
use headwater_model::{Generation, Revision};

use super::*;

/// Revision 2 puts a, 3 puts a and b, 4 deletes a, 5 puts b, 6 is elsewhere.
fn timeline() -> Timeline {
    let identity = Identity { cluster_id: 1, member_id: 1, raft_term: 1 };
    let mut mvcc = Mvcc::new(identity, Limits::ETCD);
    let put = |key: &'static str, value: &'static str| Op::Put { key: key.into(), value: value.into() };
    let writes = [
        vec![put("/p/a", "1")],
        vec![put("/p/a", "2"), put("/p/b", "1")],
        vec![Op::DeleteRange(Interval::single("/p/a".into()))],
        vec![put("/p/b", "2")],
        vec![put("/q/a", "1")],
    ];
    let mut timeline = Timeline::new("/p");
    for operations in writes {
        mvcc.txn(&Txn::all(operations)).expect("within the limits");
        let revision = mvcc.revision();
        let events: Vec<_> = mvcc.events_from(revision).flat_map(|(_, events)| events.to_vec()).collect();
        timeline.committed(revision.0, &events);
    }
    timeline
}

fn entry(key: &'static str, value: &'static str, create: u64, modified: u64) -> Entry {
    Entry {
        key: Bytes::from_static(key.as_bytes()),
        value: Bytes::from_static(value.as_bytes()),
        create_revision: Revision(create),
        mod_revision: Revision(modified),
    }
}

fn loaded(revision: u64, entries: Vec<Entry>, continuity: Continuity) -> Arc<SourceEvent> {
    Arc::new(SourceEvent::Loaded(Load {
        cluster_id: 1,
        revision: Revision(revision),
        entries,
        continuity,
        generation: Generation(0),
    }))
}

fn first() -> Arc<SourceEvent> {
    loaded(2, vec![entry("a", "1", 2, 2)], Continuity::First)
}

fn batch(revision: u64, events: Vec<KeyEvent>) -> Arc<SourceEvent> {
    Arc::new(SourceEvent::Batch(Batch::new(Revision(revision), events)))
}

fn progress(revision: u64) -> Arc<SourceEvent> {
    Arc::new(SourceEvent::Progress(Revision(revision)))
}

fn both() -> Vec<KeyEvent> {
    vec![KeyEvent::Put(entry("a", "2", 2, 3)), KeyEvent::Put(entry("b", "1", 3, 3))]
}

fn gone() -> KeyEvent {
    KeyEvent::Delete { key: "a".into(), revision: Revision(4) }
}

fn last() -> KeyEvent {
    KeyEvent::Put(entry("b", "2", 3, 5))
}

#[track_caller]
fn breaks(record: &[Arc<SourceEvent>], guarantee: &str) {
    let found = breaches(record, &timeline());
    assert!(found.iter().any(|breach| breach.contains(guarantee)), "{guarantee}: {found:?}");
}

#[test]
fn what_happened_is_no_breach_in_single_revisions_or_merged() {
    let single = [first(), batch(3, both()), batch(4, vec![gone()]), batch(5, vec![last()]), progress(6)];
    assert_eq!(breaches(&single, &timeline()), [""; 0]);
    let merged = [first(), batch(5, vec![gone(), last()]), progress(6)];
    assert_eq!(breaches(&merged, &timeline()), [""; 0]);
}

#[test]
fn each_guarantee_is_seen_broken() {
    breaks(&[first(), progress(3)], "reliable");
    breaks(&[first(), progress(7)], "reliable");
    breaks(&[first(), batch(4, vec![gone()])], "reliable");
    breaks(&[batch(2, vec![KeyEvent::Put(entry("a", "1", 2, 2))])], "before anything was read");
    breaks(&[progress(1)], "before anything was read");
    breaks(&[first(), batch(3, both()), batch(3, both())], "atomic");
    breaks(&[first(), batch(3, vec![both()[0].clone()]), batch(3, vec![both()[1].clone()])], "atomic");
    breaks(&[first(), batch(4, vec![gone(), both()[1].clone()])], "ordered");
    breaks(&[first(), batch(3, [both(), both()].concat())], "unique");
    breaks(&[first(), batch(4, both())], "a batch to 3 says 4");
    breaks(&[first(), batch(3, both()), progress(2)], "progress of 2 after 3");
    breaks(&[first(), batch(3, vec![KeyEvent::Put(entry("c", "2", 3, 3))])], "never happened");
    breaks(&[first(), batch(3, vec![KeyEvent::Put(entry("a", "2", 3, 3))])], "is-create");
}

#[test]
fn a_load_below_is_a_breach_unless_the_history_went_back() {
    let low = |continuity| [first(), batch(3, both()), loaded(2, vec![entry("a", "1", 2, 2)], continuity)];
    let found = breaches(&low(Continuity::Unproven), &timeline());
    assert_eq!(found, ["bookmarkable: a load of 2 after 3"]);
    let evidence = "the head is lower".to_owned();
    assert_eq!(breaches(&low(Continuity::Rewound { evidence }), &timeline()), [""; 0]);
}

#[test]
fn after_a_restore_only_the_history_that_all_claims_fit_counts() {
    let mut timeline = timeline();
    timeline.restored(2);
    let told = [first(), batch(3, both()), progress(3)];
    assert_eq!(breaches(&told, &timeline), [""; 0], "it was told before the restore");
    let evidence = "the head is lower".to_owned();
    let back = loaded(2, vec![entry("a", "1", 2, 2)], Continuity::Rewound { evidence });
    assert_eq!(breaches(&[first(), batch(3, both()), back], &timeline), [""; 0]);
}
