use std::fs;
use std::path::PathBuf;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;

struct Dir {
    directory: tempfile::TempDir,
}

impl Dir {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("lkg")
    }

    fn open(&self) -> (LastKnownGood, Opened) {
        self.open_under(&Keys::default())
    }

    fn open_under(&self, keys: &Keys) -> (LastKnownGood, Opened) {
        LastKnownGood::open(&self.file(), "/apisix", keys).unwrap()
    }

    fn set_aside(&self) -> Vec<String> {
        let names = fs::read_dir(self.directory.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.retain(|name| name != "lkg" && name != "lkg.lock");
        names.sort();
        names
    }
}

fn resource(id: u64, modified: u64, value: impl Into<Vec<u8>>) -> Arc<Resource> {
    let key = Key::new(format!("routes/{id}"));
    Arc::new(Resource::new(key, value.into().into(), Revision(id), Revision(modified)))
}

fn marks(create: u64, modified: u64) -> Marks {
    Marks {
        create_revision: Revision(create),
        mod_revision: Revision(modified),
        value: Bytes::from(if modified.is_multiple_of(2) { "approved" } else { "" }),
    }
}

fn node(id: &str) -> RowId {
    RowId { node_id: id.into(), instance: "i1".into() }
}

fn row(seen: u64, applied: Option<Version>) -> RosterRow {
    RosterRow {
        last_seen_unix: seen,
        applied,
        left: seen.is_multiple_of(2),
        forgotten: seen.is_multiple_of(3),
    }
}

/// A group that leads from a state to where its deletes and puts lead.
fn group(from: &Saved, revision: u64, deletes: &[u64], puts: Vec<Arc<Resource>>) -> Group {
    let mut group = Group {
        version: Version { revision: Revision(revision), ..from.world.version.clone() },
        deletions_known_since: from.world.deletions_known_since,
        gaps: from.world.gaps.clone(),
        deletes: deletes.iter().map(|id| (Key::new(format!("routes/{id}")), Revision(revision))).collect(),
        puts: puts.into_iter().map(|resource| (resource, Revision(revision))).collect(),
        others: Vec::new(),
        hold: HoldChange::None,
        roster: Vec::new(),
    };
    let mut after = from.world.clone();
    after.apply(&group);
    group.version.digest = after.content.digest();
    group
}

fn loaded(count: u64) -> Saved {
    let mut saved = Saved::empty("/apisix".into());
    let puts = (1..=count).map(|id| resource(id, id, vec![1; 60])).collect();
    let mut group = group(&saved, count, &[], puts);
    group.version.lineage.cluster_id = u64::MAX - 7;
    group.version.lineage.generation = Generation(3);
    group.deletions_known_since = Revision(count);
    group.others = vec![
        (Bytes::from_static(b"gen_id"), Some(marks(1, 1))),
        (Bytes::from_static(b"odd\xff"), Some(marks(2, 9))),
    ];
    group.roster =
        vec![(node("a"), Some(row(10, None))), (node("b"), Some(row(11, Some(group.version.clone()))))];
    saved.apply(&group);
    saved
}

/// A history of states as they were written to the file, the first by a full save and the rest by groups.
fn history(dir: &Dir, length: u64) -> Vec<Saved> {
    let (mut file, _) = dir.open();
    file.save_full(&loaded(10)).unwrap();
    let mut states = vec![file.saved().clone()];
    for revision in 11..10 + length {
        let from = file.saved().clone();
        let mut next = match revision % 4 {
            0 => group(&from, revision, &[revision - 10], vec![resource(revision, revision, "new")]),
            1 => group(&from, revision, &[], vec![]),
            _ => group(&from, revision, &[], vec![resource(revision % 7 + 1, revision, vec![2; 40])]),
        };
        match revision % 6 {
            0 => next.hold = HoldChange::Ended,
            2 => {
                let frozen = from.world.clone();
                next.hold =
                    HoldChange::Stands(Box::new(SavedHold { frozen, since_unix: revision, rejected: false }));
            }
            3 => next.others = vec![(Bytes::from_static(b"gen_id"), Some(marks(1, revision)))],
            4 => next.roster = vec![(node("a"), None), (node("c"), Some(row(revision, None)))],
            5 => next.others = vec![(Bytes::from_static(b"gen_id"), None)],
            _ => {}
        }
        file.append(&next).unwrap();
        states.push(file.saved().clone());
    }
    file.sync().unwrap();
    states
}

#[test]
fn a_state_of_every_kind_is_opened_as_it_was_kept() {
    let dir = Dir::new();
    let (mut file, opened) = dir.open();
    assert!(opened.saved.is_none() && opened.faults.is_empty() && opened.writer);
    let first = loaded(6);
    let mut reloaded = first.clone();
    reloaded.world.gaps = vec![
        Gap { from: Revision(60), at: Revision(80), proven: false },
        Gap { from: Revision(85), at: Revision(90), proven: true },
    ];
    reloaded.world.version.revision = Revision(90);
    reloaded.world.changed_at.insert(Key::new("routes/2"), Revision(90));
    let mut held = reloaded.clone();
    held.apply(&group(&reloaded, 91, &[1, 2, 3, 4], vec![]));
    let hold = SavedHold { frozen: reloaded.world.clone(), since_unix: 1_700_000_000, rejected: false };
    held.hold = Some(hold.clone());
    let mut silenced = held.clone();
    silenced.hold = Some(SavedHold { rejected: true, ..hold.clone() });
    let mut other_hold = silenced.clone();
    other_hold.hold = Some(SavedHold { frozen: first.world.clone(), ..hold });
    let mut released = other_hold.clone();
    released.hold = None;
    let empty = Saved::empty("/apisix".into());
    for saved in [first, reloaded, held, silenced, other_hold, released, empty] {
        file.save_full(&saved).unwrap();
        file.sync().unwrap();
        drop(file);
        let (again, opened) = dir.open();
        assert_eq!(opened.saved.as_ref(), Some(&saved));
        assert!(opened.faults.is_empty());
        file = again;
    }
}

#[test]
fn groups_are_opened_as_they_were_appended() {
    let dir = Dir::new();
    let states = history(&dir, 40);
    assert!(
        states.iter().any(|state| state.hold.is_some()) && states.iter().any(|state| state.hold.is_none())
    );
    assert!(!states.last().unwrap().world.tombstones.is_empty());
    assert_eq!(dir.open().1.saved.as_ref(), states.last());
}

#[test]
fn truncated_at_fifty_points_it_opens_at_a_whole_version_and_goes_on() {
    let dir = Dir::new();
    let states = history(&dir, 30);
    let whole = fs::read(dir.file()).unwrap();
    let mut random = StdRng::seed_from_u64(54);
    let mut found = std::collections::BTreeSet::new();
    for _ in 0..50 {
        let dir = Dir::new();
        let length = random.random_range(0..whole.len());
        fs::write(dir.file(), &whole[..length]).unwrap();
        let (mut file, opened) = dir.open();
        match &opened.saved {
            None => assert_eq!(dir.set_aside().len(), 1, "{length}: {:?}", opened.faults),
            Some(saved) => {
                let index = states.iter().position(|state| state == saved);
                found.insert(index.unwrap_or_else(|| panic!("{length}: no state that was written")));
            }
        }
        let last = states.last().unwrap();
        file.save_full(last).unwrap();
        drop(file);
        let (_, opened) = dir.open();
        assert_eq!(opened.saved.as_ref(), Some(last));
        assert!(opened.faults.is_empty(), "{:?}", opened.faults);
    }
    assert!(found.len() > 10, "{found:?}");
}

#[test]
fn a_group_that_does_not_lead_to_its_version_is_refused_and_forgotten() {
    let dir = Dir::new();
    let states = history(&dir, 3);
    let (mut file, _) = dir.open();
    let mut wrong = group(&states[2], 20, &[3], vec![]);
    wrong.version.digest = Digest(5);
    assert!(matches!(file.append(&wrong), Err(Error::Digest { .. })));
    let mut elsewhere = states[2].clone();
    elsewhere.world.version.lineage.prefix = "/other".into();
    assert!(matches!(file.save_full(&elsewhere), Err(Error::Prefix { .. })));
    assert_eq!(file.saved(), &states[2]);
    assert_eq!(file.version(), &states[2].world.version);
}

#[test]
fn the_file_of_another_prefix_is_set_aside_and_named() {
    let dir = Dir::new();
    history(&dir, 3);
    let (_, opened) = LastKnownGood::open(&dir.file(), "/staging", &Keys::default()).unwrap();
    assert!(opened.saved.is_none() && opened.writer);
    assert!(opened.faults[0].contains("/apisix"), "{:?}", opened.faults);
    assert_eq!(dir.set_aside(), ["lkg.other-environment-1"]);
}

#[test]
fn a_change_and_a_hold_cost_their_own_size() {
    let dir = Dir::new();
    let (mut file, _) = dir.open();
    file.save_full(&loaded(3000)).unwrap();
    let full = file.bytes().unwrap();
    assert!(full > 200_000);
    let from = file.saved().clone();
    let mut next = group(&from, 3001, &(1..=2000).collect::<Vec<_>>(), vec![]);
    let frozen = from.world;
    next.hold = HoldChange::Stands(Box::new(SavedHold { frozen, since_unix: 1, rejected: false }));
    file.append(&next).unwrap();
    let held = file.bytes().unwrap();
    assert!(held - full < 2000 * 45, "{}: what is frozen is in the file already", held - full);
    let next = group(&file.saved().clone(), 3002, &[], vec![resource(1, 3002, "x")]);
    file.append(&next).unwrap();
    assert!(file.bytes().unwrap() - held < 200);
    let saved = file.saved().clone();
    drop(file);
    assert_eq!(dir.open().1.saved, Some(saved));
}

#[test]
fn tombstones_that_are_known_no_longer_are_dropped() {
    let dir = Dir::new();
    let (mut file, _) = dir.open();
    file.save_full(&loaded(3)).unwrap();
    for revision in 4..6000 {
        let mut next = group(file.saved(), revision, &[revision], vec![]);
        next.deletions_known_since = Revision(revision.saturating_sub(100).max(3));
        file.append(&next).unwrap();
        assert!(file.saved().world.tombstones.len() <= 1300);
    }
    let since = file.saved().world.deletions_known_since;
    let known = file.saved().world.tombstones.values().filter(|revision| **revision > since).count();
    assert_eq!(known, 100);
}

#[test]
fn a_second_process_reads_and_takes_over_when_the_first_ends() {
    let dir = Dir::new();
    let states = history(&dir, 4);
    let (mut first, _) = dir.open();
    let (mut second, opened) = dir.open();
    assert_eq!(opened.saved.as_ref(), states.last());
    assert!(!opened.writer && opened.faults[0].contains("another process"), "{:?}", opened.faults);
    // What cannot be written yet is remembered.
    assert!(second.save_full(&states[1]).is_err());
    first.save_full(&states[0]).unwrap();
    assert!(second.take_over().unwrap().is_none());
    drop(first);
    assert_eq!(second.take_over().unwrap(), Some(Vec::new()));
    second.append(&group(&states[1], 50, &[], vec![resource(5, 50, "after")])).unwrap();
    let saved = second.saved().clone();
    drop(second);
    assert_eq!(dir.open().1.saved, Some(saved));
}

/// Whether a text is in a file of the directory.
fn is_seen(dir: &Dir, text: &[u8]) -> bool {
    fs::read_dir(dir.directory.path()).unwrap().any(|entry| {
        let bytes = fs::read(entry.unwrap().path()).unwrap();
        bytes.windows(text.len()).any(|window| window == text)
    })
}

#[test]
fn with_a_key_nothing_of_it_is_seen_and_keys_are_exchanged_over_starts() {
    let dir = Dir::new();
    let states = history(&dir, 30);
    let last = states.last().unwrap();
    let texts: [&[u8]; 4] = [b"routes/1", &[1; 60], b"gen_id", b"/apisix"];
    assert!(texts.iter().all(|text| is_seen(&dir, text)), "the search finds what is there");
    for ring in [vec![[1; 32]], vec![[2; 32], [1; 32]], vec![[2; 32]]] {
        let (mut file, opened) = dir.open_under(&Keys::new(ring));
        assert_eq!(opened.saved.as_ref(), Some(last));
        assert!(opened.faults.is_empty(), "{:?}", opened.faults);
        file.save_full(&loaded(3)).unwrap();
        file.save_full(last).unwrap();
        file.sync().unwrap();
        for text in texts {
            assert!(!is_seen(&dir, text), "{}", text.escape_ascii());
        }
    }
    assert_eq!(dir.set_aside(), Vec::<String>::new());
}

#[test]
fn without_its_key_the_file_is_set_aside_and_the_replica_goes_on_without() {
    let dir = Dir::new();
    let (key, saved) = (Keys::new([[1; 32]]), loaded(4));
    dir.open_under(&key).0.save_full(&saved).unwrap();
    for wrong in [Keys::default(), Keys::new([[2; 32]])] {
        let (mut file, opened) = dir.open_under(&wrong);
        assert!(opened.saved.is_none() && opened.writer);
        assert!(opened.faults[0].contains("add that key"), "{:?}", opened.faults);
        file.save_full(&loaded(2)).unwrap();
        drop(file);
        assert_eq!(dir.set_aside(), ["lkg.other-key-1"]);
        fs::rename(dir.directory.path().join("lkg.other-key-1"), dir.file()).unwrap();
        assert_eq!(dir.open_under(&key).1.saved.as_ref(), Some(&saved));
    }
}
