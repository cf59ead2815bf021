use bytes::Bytes;
use headwater_model::{Generation, Lineage, Revision};

use super::*;
use crate::backend::{Continuity, Entry, Load};
use crate::store::Store;

fn load(revision: u64, routes: std::ops::Range<u64>, continuity: Continuity) -> Load {
    let entries = routes
        .map(|id| Entry {
            key: Bytes::from(format!("routes/{id:03}")),
            value: Bytes::from_static(b"{}"),
            create_revision: Revision(1),
            mod_revision: Revision(1 + id),
        })
        .collect();
    Load { cluster_id: 7, revision: Revision(revision), entries, continuity, generation: Generation(0) }
}

fn store() -> Store {
    let mut store = Store::new("/apisix".into());
    store.load(&load(100, 0..10, Continuity::First));
    store
}

fn jump(store: &mut Store, hold: &mut Hold, load: &Load) -> Judged {
    let served = hold.serving(store.snapshot()).clone();
    store.load(load);
    hold.judge(&served, store.snapshot(), load.continuity != Continuity::Proven, 5)
}

fn rewound() -> Continuity {
    Continuity::Rewound { evidence: "the head went back".into() }
}

#[test]
fn a_jump_that_removes_most_is_held_and_the_old_content_is_served() {
    let (mut store, mut hold) = (store(), Hold::default());
    let judged = jump(&mut store, &mut hold, &load(50, 0..2, rewound()));
    assert!(matches!(judged, Judged::Began(removal) if removal.removed == 8));
    assert_eq!(hold.serving(store.snapshot()).content().len(), 10);
    assert_eq!(hold.serving(store.snapshot()).lineage().generation, Generation(0));
    assert_eq!(store.snapshot().lineage().generation, Generation(1));
    assert_eq!(hold.standing().map(|standing| standing.since_unix), Some(5));
}

#[test]
fn an_unproven_reload_is_a_jump_and_a_proven_one_is_not() {
    let (mut store, mut hold) = (store(), Hold::default());
    assert_eq!(jump(&mut store, &mut hold, &load(200, 0..1, Continuity::Proven)), Judged::Open);
    let (mut store, mut hold) = (self::store(), Hold::default());
    assert!(matches!(jump(&mut store, &mut hold, &load(200, 0..1, Continuity::Unproven)), Judged::Began(_)));
}

#[test]
fn it_dissolves_below_the_threshold() {
    let (mut store, mut hold) = (store(), Hold::default());
    jump(&mut store, &mut hold, &load(50, 0..2, rewound()));
    let judged = jump(&mut store, &mut hold, &load(60, 0..7, Continuity::Proven));
    assert_eq!(judged, Judged::Dissolved);
    assert_eq!(hold.serving(store.snapshot()).content().len(), 7);
}

#[test]
fn an_approval_ends_it_only_when_it_covers() {
    let (mut store, mut hold) = (store(), Hold::default());
    jump(&mut store, &mut hold, &load(50, 0..2, rewound()));
    let from = hold.serving(store.snapshot()).version().clone();
    let to = store.snapshot().lineage().clone();
    let good = approval_for("good".into(), &from, &to, 10);
    for bad in [
        Approval { expires_unix: 5, ..good.clone() },
        Approval { base_at_most: Revision(99), ..good.clone() },
        Approval { to: Lineage { generation: Generation(9), ..to.clone() }, ..good.clone() },
        Approval { from: to, ..good.clone() },
    ] {
        hold.approve(Approval { id: "bad".into(), ..bad });
        let served = hold.serving(store.snapshot()).clone();
        assert_eq!(hold.judge(&served, store.snapshot(), false, 5), Judged::Stands);
    }
    hold.approve(good);
    let served = hold.serving(store.snapshot()).clone();
    assert_eq!(hold.judge(&served, store.snapshot(), false, 5), Judged::Approved("good".into()));
    assert_eq!(hold.serving(store.snapshot()).content().len(), 2);
}

#[test]
fn rejecting_silences_until_the_lineage_changes() {
    let (mut store, mut hold) = (store(), Hold::default());
    assert!(!hold.reject());
    jump(&mut store, &mut hold, &load(50, 0..2, rewound()));
    assert!(hold.reject());
    jump(&mut store, &mut hold, &load(51, 0..2, Continuity::Proven));
    assert_eq!(hold.standing().map(|standing| standing.rejected), Some(true));
    jump(&mut store, &mut hold, &load(20, 0..1, rewound()));
    assert_eq!(hold.standing().map(|standing| standing.rejected), Some(false));
}
