use std::sync::Arc;

use bytes::Bytes;
use headwater_model::{Change, Changes, Digest, Generation, Revision};
use proptest::prelude::*;

use super::*;

fn entry(key: &str, create: u64, modified: u64, value: &str) -> Entry {
    Entry {
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: Bytes::copy_from_slice(value.as_bytes()),
        create_revision: Revision(create),
        mod_revision: Revision(modified),
    }
}

fn load(revision: u64, continuity: Continuity, entries: &[Entry]) -> Load {
    Load {
        cluster_id: 7,
        revision: Revision(revision),
        entries: entries.to_vec(),
        continuity,
        generation: Generation(0),
    }
}

fn batch(revision: u64, events: Vec<KeyEvent>) -> Batch {
    Batch::new(Revision(revision), events)
}

fn put(key: &str, create: u64, modified: u64, value: &str) -> KeyEvent {
    KeyEvent::Put(entry(key, create, modified, value))
}

fn delete(key: &str, revision: u64) -> KeyEvent {
    KeyEvent::Delete { key: Bytes::copy_from_slice(key.as_bytes()), revision: Revision(revision) }
}

fn three() -> Vec<Entry> {
    vec![entry("routes/1", 1, 1, "a"), entry("routes/2", 2, 2, "b"), entry("upstreams/1", 3, 3, "c")]
}

fn loaded() -> Store {
    let mut store = Store::new("/apisix".into());
    store.load(&load(10, Continuity::First, &three()));
    store
}

fn names(since: &Since) -> (Vec<&str>, Vec<&str>) {
    let changed = since.changed.iter().map(|held| held.resource.key().as_str()).collect();
    (since.deleted.iter().map(Key::as_str).collect(), changed)
}

#[test]
fn what_is_no_content_is_counted_and_kept_out() {
    let mut store = Store::new("/apisix".into());
    let entries = [
        entry("data_plane/server_info/u", 1, 9, "x"),
        entry("gen_id", 1, 1, "1"),
        entry("routes/", 1, 1, "init_dir"),
        entry("routes/1", 2, 2, "a"),
    ];
    store.load(&load(10, Continuity::First, &entries));
    assert_eq!(store.snapshot().content().len(), 1);
    assert_eq!(store.ignored().values().sum::<u64>(), 3);
    assert!(!store.apply(&batch(11, vec![put("data_plane/server_info/u", 1, 11, "y")])).published);
    assert_eq!(store.snapshot().version().revision, Revision(11));
}

#[test]
fn an_unchanged_reload_publishes_nothing_and_keeps_every_allocation() {
    let mut store = loaded();
    let before = store.snapshot().clone();
    for continuity in [Continuity::Proven, Continuity::Unproven] {
        let outcome = store.load(&load(90, continuity, &three()));
        assert_eq!(outcome, Outcome { published: false, put: 0, deleted: 0, kept: 3 });
    }
    assert_eq!(store.snapshot().digest(), before.digest());
    for held in before.all_held() {
        let after = store.snapshot().held(held.resource.key().as_str()).unwrap();
        assert!(Arc::ptr_eq(held, after), "{:?}", held.resource);
    }
}

#[test]
fn a_reload_that_lacks_a_key_is_exactly_its_deletion() {
    let mut store = loaded();
    let outcome = store.load(&load(90, Continuity::Unproven, &three()[1..]));
    assert!(outcome.published);
    let since = store.snapshot().since(Revision(10)).unwrap();
    assert_eq!(names(&since), (vec!["routes/1"], vec![]));
    assert_eq!(store.snapshot().tombstone("routes/1"), Some(Revision(90)));
    assert!(store.snapshot().unproven_since(Revision(89)));
    assert!(!store.snapshot().unproven_since(Revision(90)));
}

#[test]
fn what_no_reload_was_compared_with_is_no_base() {
    let mut store = loaded();
    let from = store.snapshot().version().revision;
    store.load(&load(90, Continuity::Unproven, &three()));
    store.load(&load(190, Continuity::Proven, &three()[1..]));
    let snapshot = store.snapshot();
    for base in [from, Revision(90), Revision(190)] {
        assert!(snapshot.since(base).is_some(), "{base}");
    }
    for base in [from.next(), Revision(89), Revision(91), Revision(189)] {
        assert!(snapshot.since(base).is_none(), "{base}");
    }
    assert_eq!(snapshot.unproven_at(), Some(Revision(90)));
    // Of more reloads than are remembered the oldest one bounds what is known.
    for at in 20..35 {
        store.load(&load(at * 10, Continuity::Proven, &three()[1..]));
    }
    let snapshot = store.snapshot();
    assert_eq!(snapshot.deletions_known_since(), Revision(90));
    assert!(snapshot.since(from).is_none() && snapshot.since(Revision(90)).is_some());
    assert_eq!(snapshot.tombstone("routes/1"), Some(Revision(190)));
}

#[test]
fn changes_merge_and_deletions_come_first() {
    let mut store = loaded();
    store.apply(&batch(12, vec![put("routes/3", 11, 11, "n"), delete("routes/3", 12)]));
    store.apply(&batch(14, vec![delete("routes/1", 13), put("routes/1", 14, 14, "again")]));
    store.apply(&batch(15, vec![put("routes/2", 2, 15, "b2")]));
    let since = store.snapshot().since(Revision(10)).unwrap();
    assert_eq!(names(&since), (vec!["routes/3"], vec!["routes/1", "routes/2"]));
    let since = store.snapshot().since(Revision(14)).unwrap();
    assert_eq!(names(&since), (vec![], vec!["routes/2"]));
}

#[test]
fn a_deletion_of_what_was_never_held_is_known_too() {
    // A batch is merged by key: of a key that came and went within it, only the deletion is left. A node that was
    // served by another replica, or by this one before it was killed, may hold what came in between.
    let mut store = loaded();
    let outcome = store.apply(&batch(20, vec![delete("routes/9", 18)]));
    assert!(!outcome.published);
    assert_eq!(names(&store.snapshot().since(Revision(15)).unwrap()).0, ["routes/9"]);
    assert!(names(&store.snapshot().since(Revision(18)).unwrap()).0.is_empty());
}

#[test]
fn a_reload_brings_old_mod_revisions_but_new_changes() {
    let mut store = loaded();
    let mut entries = three();
    entries[1] = entry("routes/2", 2, 2, "the value of an older backup");
    store.load(&load(90, Continuity::Unproven, &entries));
    let since = store.snapshot().since(Revision(10)).unwrap();
    assert_eq!(names(&since), (vec![], vec!["routes/2"]));
    assert_eq!(store.snapshot().held("routes/2").map(|held| held.changed_at), Some(Revision(90)));
}

#[test]
fn a_rewind_raises_the_generation_and_forgets_the_history() {
    let mut store = loaded();
    store.apply(&batch(20, vec![delete("routes/1", 20)]));
    let rewound = Continuity::Rewound { evidence: "x".into() };
    assert!(store.load(&load(5, rewound, &three())).published);
    let snapshot = store.snapshot();
    assert_eq!(snapshot.version().position(), (Generation(1), Revision(5)));
    assert_eq!(snapshot.deletions_known_since(), Revision(5));
    assert!(snapshot.since(Revision(4)).is_none());
    assert_eq!(snapshot.tombstones().count(), 0);
    assert!(snapshot.all_held().all(|held| held.changed_at == Revision(5)));
}

#[test]
fn tombstones_are_bounded_and_what_is_forgotten_is_known() {
    let mut store = Store::with_max_tombstones("/apisix".into(), 2);
    store.load(&load(10, Continuity::First, &three()));
    store.apply(&batch(13, vec![delete("routes/1", 11), delete("routes/2", 12), delete("upstreams/1", 13)]));
    assert_eq!(store.snapshot().deletions_known_since(), Revision(11));
    assert!(store.snapshot().since(Revision(10)).is_none());
    assert_eq!(store.snapshot().since(Revision(11)).map(|since| since.deleted.len()), Some(2));
}

#[test]
fn a_higher_generation_is_adopted_and_a_lower_one_is_not() {
    let mut store = loaded();
    let digest = store.snapshot().digest();
    assert!(store.adopt(Generation(2)));
    assert!(!store.adopt(Generation(2)) && !store.adopt(Generation(1)));
    assert_eq!(store.snapshot().digest(), digest);
    assert_eq!(store.snapshot().version().position(), (Generation(2), Revision(10)));
}

#[test]
fn between_revisions_that_came_at_once_nothing_was_seen() {
    let mut store = loaded();
    let before = store.snapshot().version().clone();
    store.apply(&batch(14, vec![delete("routes/1", 12), delete("routes/2", 14)]));
    let at = |revision| Version { revision: Revision(revision), ..before.clone() };
    assert!(store.snapshot().confirms(&at(10)) && store.snapshot().confirms(&at(11)));
    // With the content of 11 it may be of a history that parted there, and never see what was deleted at 12.
    assert!(!store.snapshot().confirms(&at(12)) && !store.snapshot().confirms(&at(13)));
    assert!(store.snapshot().confirms(&store.snapshot().version().clone()));
}

#[test]
fn a_read_for_a_higher_generation_begins_a_history() {
    let mut store = loaded();
    let again = Load { generation: Generation(4), ..load(20, Continuity::Proven, &three()) };
    assert!(store.load(&again).published, "the generation differs");
    let snapshot = store.snapshot();
    assert_eq!(snapshot.version().position(), (Generation(4), Revision(20)));
    assert_eq!((snapshot.deletions_known_since(), snapshot.gaps().len()), (Revision(20), 0));
    let lower = Load { generation: Generation(2), ..load(30, Continuity::Proven, &three()) };
    assert!(!store.load(&lower).published);
    assert_eq!(store.snapshot().version().position(), (Generation(4), Revision(30)));
}

proptest! {
    /// Whatever the base, applying what changed since it gives the newest content.
    #[test]
    fn since_leads_from_any_base_to_the_newest(
        steps in prop::collection::vec((0..6u8, any::<bool>(), any::<bool>()), 1..40)
    ) {
        let mut store = Store::new("/apisix".into());
        store.load(&load(1, Continuity::First, &[]));
        let mut history = vec![store.snapshot().clone()];
        let mut revision = 1;
        let mut alive = std::collections::BTreeMap::new();
        for (id, deletes, reloads) in steps {
            revision += 1;
            let key = format!("routes/{id}");
            if deletes {
                if alive.remove(&key).is_none() {
                    continue;
                }
            } else {
                let create = alive.get(&key).map_or(revision, |entry: &Entry| entry.create_revision.0);
                alive.insert(key.clone(), entry(&key, create, revision, &revision.to_string()));
            }
            if reloads {
                let entries: Vec<_> = alive.values().cloned().collect();
                store.load(&load(revision, Continuity::Proven, &entries));
            } else if deletes {
                store.apply(&batch(revision, vec![delete(&key, revision)]));
            } else {
                store.apply(&batch(revision, vec![KeyEvent::Put(alive[&key].clone())]));
            }
            history.push(store.snapshot().clone());
        }
        for base in &history {
            let since = store.snapshot().since(base.version().revision).unwrap();
            let changes: Changes = since
                .deleted.iter().cloned().map(Change::Delete)
                .chain(since.changed.iter().map(|held| Change::Put(held.resource.clone())))
                .collect();
            let mut content = base.content().clone();
            content.apply(&changes);
            prop_assert_eq!(content.digest(), store.snapshot().digest());
            prop_assert_eq!(&content, store.snapshot().content());
        }
    }
}

#[test]
fn a_version_is_confirmed_only_where_it_was_seen() {
    let mut store = loaded();
    let first = store.snapshot().version().clone();
    store.apply(&batch(
        first.revision.0 + 5,
        vec![put("routes/9", first.revision.0 + 5, first.revision.0 + 5, "x")],
    ));
    let snapshot = store.snapshot();
    let now = snapshot.version().clone();
    let at = |revision: u64, digest| Version { revision: Revision(revision), digest, ..now.clone() };
    let (from, to) = (first.revision.0, snapshot.version().revision.0);
    for known in [at(from, first.digest), at(from + 4, first.digest), at(to, snapshot.digest())] {
        assert!(snapshot.confirms(&known), "{known:?}");
    }
    for wrong in [at(from, snapshot.digest()), at(to, first.digest), at(to, Digest(7))] {
        assert!(!snapshot.confirms(&wrong), "{wrong:?}");
    }
    // Of what lies before or ahead nothing is known.
    assert!(
        !snapshot.confirms(&at(from - 1, first.digest)) && !snapshot.confirms(&at(to + 1, snapshot.digest()))
    );
    let generation = now.lineage.generation.next();
    let lineage = Lineage { generation, ..now.lineage.clone() };
    let other = Version { lineage, ..at(to, snapshot.digest()) };
    assert!(!snapshot.confirms(&other), "another history is told apart by its lineage");
    store.load(&load(to + 10, Continuity::Proven, &three()));
    assert!(!store.snapshot().confirms(&at(to + 3, now.digest)), "what lies in a gap was never seen");
}
