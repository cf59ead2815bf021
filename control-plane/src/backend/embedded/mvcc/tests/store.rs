use bytes::Bytes;
use headwater_model::Revision;

use super::super::{
    Comparison, Identity, Interval, Limits, Mvcc, MvccError, Op, OpAnswer, RangeRequest, Relation, Restore,
    Target, Txn,
};
use super::{IDENTITY, drain, everything, settle, store, watching};

fn compare(key: &'static str, target: Target, relation: Relation) -> Comparison {
    Comparison { interval: Interval::single(Bytes::from_static(key.as_bytes())), target, relation }
}

fn put(key: &'static str) -> Op {
    Op::Put { key: key.into(), value: Bytes::from_static(b"v") }
}

fn values(store: &Mvcc, revision: u64) -> Vec<(Bytes, Bytes)> {
    let request = RangeRequest::of(everything()).at(Revision(revision));
    store.range(&request).unwrap().entries.into_iter().map(|kv| (kv.key, kv.value)).collect()
}

#[test]
fn a_new_store_stands_at_revision_1() {
    assert_eq!(store().revision(), Revision(1));
    assert_eq!(store().put("/a", "1").unwrap(), Revision(2));
}

#[test]
fn a_key_counts_its_writes_until_it_is_deleted() {
    let mut store = store();
    store.put("/a", "1").unwrap();
    store.put("/a", "1").unwrap();
    let get = |store: &Mvcc| store.range(&RangeRequest::of(everything())).unwrap().entries.remove(0);
    assert_eq!(
        (get(&store).create_revision, get(&store).mod_revision, get(&store).version),
        (Revision(2), Revision(3), 2)
    );
    store.delete("/a").unwrap();
    store.put("/a", "1").unwrap();
    assert_eq!(
        (get(&store).create_revision, get(&store).mod_revision, get(&store).version),
        (Revision(5), Revision(5), 1)
    );
}

#[test]
fn a_transaction_has_one_revision() {
    let mut store = store();
    let answer = store.txn(&Txn::all([put("/a"), put("/b")])).unwrap();
    assert_eq!(answer.header.revision, Revision(2));
    assert_eq!(store.revision(), Revision(2));
}

#[test]
fn a_transaction_without_effect_moves_nothing() {
    let mut store = store();
    let stream = watching(&mut store, 2);
    assert_eq!(store.delete("/missing").unwrap(), Revision(1));
    assert_eq!(store.txn(&Txn::default()).unwrap().header.revision, Revision(1));
    assert!(drain(&mut store, stream).is_empty());
}

#[test]
fn a_condition_on_a_range_holds_for_every_key_of_it() {
    let mut store = store();
    store.put("/routes/1", "x").unwrap();
    store.put("/routes/2", "x").unwrap();
    let unwritten_since = |revision: u64| Txn {
        compares: vec![Comparison {
            interval: Interval::prefix(Bytes::from_static(b"/routes/")),
            target: Target::Mod(Revision(revision + 1)),
            relation: Relation::Less,
        }],
        success: vec![put("/ok")],
        failure: vec![],
    };
    assert!(!store.txn(&unwritten_since(2)).unwrap().succeeded);
    assert!(store.txn(&unwritten_since(3)).unwrap().succeeded);
}

#[test]
fn a_missing_key_compares_as_zero_and_never_by_value() {
    let mut store = store();
    let mut holds =
        |comparison| store.txn(&Txn { compares: vec![comparison], ..Txn::default() }).unwrap().succeeded;
    assert!(holds(compare("/a", Target::Create(Revision::ZERO), Relation::Equal)));
    assert!(holds(compare("/a", Target::Mod(Revision(1)), Relation::Less)));
    assert!(!holds(compare("/a", Target::Version(0), Relation::Greater)));
    assert!(!holds(compare("/a", Target::Value(Bytes::new()), Relation::Equal)));
    assert!(!holds(compare("/a", Target::Value(Bytes::new()), Relation::NotEqual)));
}

#[test]
fn operations_see_what_those_before_them_did() {
    let mut store = store();
    store.put("/a", "old").unwrap();
    let answer = store
        .txn(&Txn::all([
            Op::DeleteRange(everything()),
            Op::DeleteRange(everything()),
            Op::Range(RangeRequest::of(everything())),
        ]))
        .unwrap();
    let [OpAnswer::Deleted { previous }, OpAnswer::Deleted { previous: none }, OpAnswer::Range(read)] =
        &answer.answers[..]
    else {
        panic!("{answer:?}")
    };
    assert_eq!((previous.len(), none.len(), read.count), (1, 0, 0));
}

#[test]
fn a_key_is_not_written_twice_in_one_transaction() {
    let mut store = store();
    let twice = Txn::all([put("/a"), put("/a")]);
    let deleted_too = Txn::all([put("/a"), Op::DeleteRange(everything())]);
    for txn in [twice, deleted_too] {
        assert_eq!(store.txn(&txn), Err(MvccError::DuplicateKey { key: "/a".into() }));
    }
    assert_eq!(store.revision(), Revision(1));
}

#[test]
fn limits_are_those_of_etcd() {
    let mut store = store();
    let many = |count: usize| {
        Txn::all((0..count).map(|number| Op::Put { key: format!("/{number}").into(), value: Bytes::new() }))
    };
    assert!(store.txn(&many(128)).is_ok());
    assert_eq!(store.txn(&many(129)), Err(MvccError::TooManyOperations { operations: 129, limit: 128 }));
    assert!(store.put("/big", vec![0; (1536 << 10) - 64]).is_ok());
    assert!(matches!(store.put("/big", vec![0; 1536 << 10]), Err(MvccError::TooLarge { .. })));
    assert_eq!(store.put("", "x"), Err(MvccError::EmptyKey));
}

#[test]
fn a_read_at_an_old_revision_has_the_current_header() {
    let mut store = store();
    store.put("/a", "1").unwrap();
    store.put("/a", "2").unwrap();
    let answer = store.range(&RangeRequest::of(everything()).at(Revision(2))).unwrap();
    assert_eq!(answer.header.revision, Revision(3));
    assert_eq!(answer.entries[0].value, "1");
    let ahead = store.range(&RangeRequest::of(everything()).at(Revision(4)));
    assert_eq!(ahead, Err(MvccError::Future { requested: Revision(4), current: Revision(3) }));
}

#[test]
fn keys_only_and_count_only_leave_values_and_keys_out() {
    let mut store = store();
    store.put("/a", "1").unwrap();
    let keys = RangeRequest { keys_only: true, ..RangeRequest::of(everything()) };
    assert!(store.range(&keys).unwrap().entries[0].value.is_empty());
    let count = store.range(&RangeRequest { count_only: true, ..keys }).unwrap();
    assert_eq!((count.entries.len(), count.count, count.more), (0, 1, false));
}

#[test]
fn pages_pinned_at_a_revision_are_that_revision() {
    let mut store = store();
    for number in 0..10 {
        store.put(format!("/{number}"), "old").unwrap();
    }
    let first = RangeRequest::of(everything()).limit(4);
    let page = store.range(&first).unwrap();
    assert!(page.more);
    let pinned = page.header.revision;
    store.txn(&Txn::all([Op::DeleteRange(everything())])).unwrap();
    let mut found = page.entries;
    loop {
        let rest = RangeRequest { interval: everything().after(&found.last().unwrap().key), ..first.clone() };
        let page = store.range(&rest.at(pinned)).unwrap();
        found.extend(page.entries);
        if !page.more {
            break;
        }
    }
    assert_eq!(found.len(), 10);
}

#[test]
fn the_compacted_revision_itself_may_be_read() {
    let mut store = store();
    store.put("/a", "1").unwrap();
    store.put("/a", "2").unwrap();
    store.compact(Revision(3)).unwrap();
    assert_eq!(values(&store, 3).len(), 1);
    let below = store.range(&RangeRequest::of(everything()).at(Revision(2)));
    assert_eq!(below, Err(MvccError::Compacted { requested: Revision(2), compacted: Revision(3) }));
    assert!(matches!(store.compact(Revision(3)), Err(MvccError::Compacted { .. })));
    assert!(matches!(store.compact(Revision(4)), Err(MvccError::Future { .. })));
}

#[test]
fn a_restore_under_the_same_ids_goes_back() {
    let mut store = store();
    store.put("/a", "1").unwrap();
    let snapshot = store.snapshot();
    store.put("/a", "2").unwrap();
    let stream = store.open_stream();
    store.restore(&snapshot, Restore::default());
    assert_eq!((store.revision(), store.identity()), (Revision(2), IDENTITY));
    assert!(!store.is_open(stream));
    assert_ne!(store.open_stream(), stream);
    assert_eq!(values(&store, 2), [("/a".into(), "1".into())]);
    // Another history from here on, with the numbers of the old one.
    store.put("/b", "3").unwrap();
    assert_eq!(store.revision(), Revision(3));
}

#[test]
fn a_restore_may_have_other_ids() {
    let mut store = store();
    let other = Identity { cluster_id: 70, member_id: 80, raft_term: 1 };
    store.restore(&store.snapshot(), Restore { identity: Some(other), bump: None });
    assert_eq!(store.header().cluster_id, 70);
}

#[test]
fn a_bumped_restore_is_ahead_and_compacted() {
    let mut store = store();
    store.put("/a", "1").unwrap();
    let snapshot = store.snapshot();
    store.put("/a", "2").unwrap();
    store.restore(&snapshot, Restore { identity: None, bump: Some(1000) });
    assert_eq!((store.revision(), store.compacted()), (Revision(1002), Revision(1002)));
    assert_eq!(values(&store, 1002), [("/a".into(), "1".into())]);
    let stream = watching(&mut store, 4);
    settle(&mut store);
    assert_eq!(drain(&mut store, stream)[0].compact_revision, Revision(1002));
}

#[test]
fn a_store_from_a_state_and_its_recorded_revisions_is_the_same_store() {
    let mut store = store();
    store.put("/a", "1").unwrap();
    store.put("/a", "2").unwrap();
    let state = store.state_at(Revision(3)).unwrap();
    store.delete("/a").unwrap();
    store.txn(&Txn::all([put("/b"), put("/a")])).unwrap();
    let mut copy = Mvcc::from_state(IDENTITY, Limits::ETCD, state);
    for (revision, events) in store.events_from(Revision(4)) {
        assert!(copy.replay(revision, events));
        assert!(!copy.replay(revision, events), "a revision is not carried out twice");
    }
    for revision in 3..=5 {
        assert_eq!(copy.state_at(Revision(revision)), store.state_at(Revision(revision)));
    }
    assert!(copy.state_at(Revision(2)).is_err());
}
