use std::collections::BTreeMap;

use super::*;
use crate::disk::tests::FaultyDisk;

/// A map of small numbers: a record is a key and a value, or a key alone for a removal; `!` starts anew.
#[derive(Clone, Debug, Default, PartialEq)]
struct Numbers(BTreeMap<u8, Vec<u8>>);

impl Fold for Numbers {
    fn write_full(&self, group: &mut GroupWriter<'_>) -> Result<(), Error> {
        group.record(b"!")?;
        Self::default().write_difference(self, group)
    }

    fn write_difference(&self, to: &Self, group: &mut GroupWriter<'_>) -> Result<(), Error> {
        for key in self.0.keys().filter(|key| !to.0.contains_key(key)) {
            group.record(&[*key])?;
        }
        for (key, value) in to.0.iter().filter(|(key, value)| self.0.get(key) != Some(value)) {
            group.record(&[&[*key], &value[..]].concat())?;
        }
        Ok(())
    }

    fn apply(&mut self, records: &[Vec<u8>]) -> Result<(), Refused> {
        for record in records {
            match &record[..] {
                b"!" => self.0.clear(),
                [key] => drop(self.0.remove(key).ok_or_else(|| Refused::Invalid("no such key".to_owned()))?),
                [key, value @ ..] => drop(self.0.insert(*key, value.to_vec())),
                [] => return Err(Refused::Invalid("an empty record".to_owned())),
            }
        }
        Ok(())
    }

    fn live_bytes(&self) -> u64 {
        self.0.values().map(|value| value.len() as u64).sum()
    }
}

fn open(disk: &FaultyDisk, path: &Path) -> (Kept<Numbers>, Vec<Fault>) {
    open_under(disk, path, &Keys::default())
}

fn open_under(disk: &FaultyDisk, path: &Path, keys: &Keys) -> (Kept<Numbers>, Vec<Fault>) {
    Kept::open_on(Arc::new(disk.clone()), path, Format::new("numbers", 1), keys, Numbers::default()).unwrap()
}

fn keys<const N: usize>(bytes: [u8; N]) -> Keys {
    Keys::new(bytes.map(|byte| [byte; 32]))
}

/// The names beside `kept` and its lock.
fn beside_names(path: &Path) -> Vec<String> {
    let names = std::fs::read_dir(path.parent().unwrap()).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name != "kept" && name != "kept.lock").collect()
}

fn numbers<const N: usize>(entries: [(u8, usize); N]) -> Numbers {
    Numbers(entries.into_iter().map(|(key, length)| (key, vec![key; length])).collect())
}

#[test]
fn what_was_saved_is_opened() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sub/kept");
    let disk = FaultyDisk::default();
    let (mut kept, faults) = open(&disk, &path);
    assert!(faults.is_empty() && kept.is_writer());
    for value in [numbers([(1, 5), (2, 5)]), numbers([(2, 5)]), numbers([(2, 6), (3, 1)])] {
        kept.save(&value).unwrap();
        kept.sync().unwrap();
        assert_eq!(open(&disk, &path).0.written(), &value);
    }
    let bytes = kept.bytes();
    kept.save(&numbers([(2, 6), (3, 1)])).unwrap();
    assert_eq!(kept.bytes(), bytes);
}

#[test]
fn a_change_costs_its_own_size_and_garbage_is_bounded() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kept");
    let disk = FaultyDisk::default();
    let (mut kept, _) = open(&disk, &path);
    let live = 1_000_000;
    kept.save(&numbers([(1, live), (2, 1)])).unwrap();
    let before = kept.bytes().unwrap();
    kept.save(&numbers([(1, live), (2, 2)])).unwrap();
    assert!(kept.bytes().unwrap() - before < 64);
    let mut largest = 0;
    for round in 0..40 {
        kept.save(&numbers([(1, live + round % 2), (2, 2)])).unwrap();
        largest = largest.max(kept.bytes().unwrap());
    }
    assert!(largest > MIN_GARBAGE, "no garbage was ever made");
    assert!(largest < 2 * live as u64 + MIN_GARBAGE + 2 * live as u64, "{largest}");
    assert_eq!(open(&disk, &path).0.written(), kept.written());
}

#[test]
fn a_full_disk_is_made_up_for_by_the_next_save() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kept");
    let disk = FaultyDisk::default();
    let (mut kept, _) = open(&disk, &path);
    kept.save(&numbers([(1, 5), (2, 5)])).unwrap();
    disk.leave(7);
    assert!(kept.save(&numbers([(1, 6)])).unwrap_err().is_full());
    assert_eq!(open(&disk, &path).0.written(), &numbers([(1, 5), (2, 5)]));
    disk.leave(u64::MAX);
    kept.save(&numbers([(1, 6), (3, 1)])).unwrap();
    assert_eq!(open(&disk, &path).0.written(), &numbers([(1, 6), (3, 1)]));
}

#[test]
fn a_failed_sync_is_made_up_for_by_the_next_save() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kept");
    let disk = FaultyDisk::default();
    let (mut kept, _) = open(&disk, &path);
    kept.save(&numbers([(1, 5)])).unwrap();
    kept.save(&numbers([(1, 6)])).unwrap();
    disk.refuse_sync(true);
    kept.sync().unwrap_err();
    kept.save(&numbers([(1, 6)])).unwrap_err();
    disk.refuse_sync(false);
    let before = disk.syncs();
    kept.save(&numbers([(1, 6)])).unwrap();
    kept.sync().unwrap();
    assert_eq!(disk.syncs() - before, 1, "the rewritten file is on the disk, and asking again costs nothing");
    assert_eq!(open(&disk, &path).0.written(), &numbers([(1, 6)]));
}

#[test]
fn garbage_that_cannot_be_rewritten_does_not_stop_the_saving() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kept");
    let disk = FaultyDisk::default();
    let (mut kept, _) = open(&disk, &path);
    let live = 1_000_000;
    for round in 0..7 {
        kept.save(&numbers([(1, live + round % 2)])).unwrap();
    }
    let before = kept.bytes().unwrap();
    assert!(before > 2 * live as u64 + MIN_GARBAGE);
    disk.refuse_creation(true);
    let last = numbers([(1, live), (2, 1)]);
    kept.save(&last).unwrap();
    assert!(kept.bytes().unwrap() > before);
    assert_eq!(open(&disk, &path).0.written(), &last);
    // The next try waits for more garbage; what is opened afresh tries at once.
    disk.refuse_creation(false);
    drop(kept);
    let (mut kept, _) = open(&disk, &path);
    kept.save(&numbers([(1, live), (2, 2)])).unwrap();
    assert!(kept.bytes().unwrap() < before);
}

#[test]
fn a_reader_takes_over_when_the_writer_ends() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kept");
    let disk = FaultyDisk::default();
    let (mut first, _) = open(&disk, &path);
    first.save(&numbers([(1, 5)])).unwrap();
    let (mut second, _) = open(&disk, &path);
    assert!(!second.is_writer());
    assert!(matches!(second.save(&numbers([(2, 5)])), Err(Error::ReadOnly { .. })));
    assert!(second.take_over().unwrap().is_none());
    first.save(&numbers([(1, 5), (3, 1)])).unwrap();
    drop(first);
    assert!(second.take_over().unwrap().is_some_and(|faults| faults.is_empty()));
    assert!(second.is_writer());
    assert_eq!(second.written(), &numbers([(1, 5), (3, 1)]));
    second.save(&numbers([(2, 5)])).unwrap();
    drop(second);
    assert_eq!(open(&disk, &path).0.written(), &numbers([(2, 5)]));
}

#[test]
fn after_one_start_with_a_new_key_the_older_one_can_be_taken_away() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kept");
    let disk = FaultyDisk::default();
    let value = numbers([(b'a', 40), (b'b', 40)]);
    let (mut kept, _) = open(&disk, &path);
    kept.save(&numbers([(b'a', 30)])).unwrap();
    kept.save(&value).unwrap();
    drop(kept);
    // Plain text with a file from before a rewrite beside it, then a first key, then a second before the first.
    std::fs::copy(&path, directory.path().join("kept.previous")).unwrap();
    for ring in [keys([1]), keys([2, 1]), keys([2])] {
        let (kept, faults) = open_under(&disk, &path, &ring);
        assert!(faults.is_empty() && kept.is_writer(), "{faults:?}");
        assert_eq!(kept.written(), &value);
        drop(kept);
        assert!(beside_names(&path).is_empty(), "what an older key opens is gone: {:?}", beside_names(&path));
        let bytes = std::fs::read(&path).unwrap();
        assert!(!bytes.windows(4).any(|window| window == b"aaaa"), "plain text");
        open_under(&disk, &path, &ring);
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "under the first key it is not written again");
    }
    let (kept, faults) = open_under(&disk, &path, &keys([1]));
    assert!(matches!(&faults[..], [Fault::SetAside { .. }]), "{faults:?}");
    assert_eq!(kept.written(), &Numbers::default());
}

#[test]
fn the_file_from_before_a_rewrite_stays_while_it_is_under_the_first_key() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kept");
    let disk = FaultyDisk::default();
    let (mut kept, _) = open_under(&disk, &path, &keys([2]));
    for round in 0..8 {
        kept.save(&numbers([(1, 1_000_000 + round % 2)])).unwrap();
    }
    drop(kept);
    open_under(&disk, &path, &keys([2]));
    assert_eq!(beside_names(&path), ["kept.previous"]);
    open_under(&disk, &path, &keys([3, 2]));
    assert!(beside_names(&path).is_empty());
}

#[test]
fn plain_text_that_a_crash_left_beside_an_encrypted_file_is_removed_at_the_next_opening() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kept");
    let disk = FaultyDisk::default();
    open(&disk, &path).0.save(&numbers([(b'a', 40)])).unwrap();
    let plain = std::fs::read(&path).unwrap();
    drop(open_under(&disk, &path, &keys([1])));
    for left in [&plain[..], &plain[..20], b""] {
        std::fs::write(directory.path().join("kept.previous"), left).unwrap();
        let (kept, faults) = open_under(&disk, &path, &keys([1]));
        assert!(faults.is_empty() && kept.written() == &numbers([(b'a', 40)]));
        assert!(beside_names(&path).is_empty(), "{} bytes", left.len());
    }
}

#[test]
fn a_file_that_cannot_be_brought_under_the_first_key_is_served_from_and_brought_there_later() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kept");
    let disk = FaultyDisk::default();
    for older in [Keys::default(), keys([1])] {
        let _ = std::fs::remove_file(&path);
        let (mut kept, _) = open_under(&disk, &path, &older);
        kept.save(&numbers([(b'a', 40)])).unwrap();
        drop(kept);
        let before = std::fs::read(&path).unwrap();
        disk.leave(60);
        let (mut kept, faults) = open_under(&disk, &path, &keys([2, 1]));
        assert!(matches!(&faults[..], [Fault::Outdated { .. }]), "{faults:?}");
        assert_eq!(kept.written(), &numbers([(b'a', 40)]));
        assert!(kept.save(&numbers([(b'b', 40)])).unwrap_err().is_full());
        assert_eq!(std::fs::read(&path).unwrap(), before, "nothing more is written the old way");
        disk.leave(u64::MAX);
        kept.save(&numbers([(b'b', 40)])).unwrap();
        drop(kept);
        assert_eq!(open_under(&disk, &path, &keys([2])).0.written(), &numbers([(b'b', 40)]));
        assert!(beside_names(&path).is_empty());
    }
}

#[test]
fn a_reader_that_takes_over_brings_the_file_under_its_own_first_key() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kept");
    let disk = FaultyDisk::default();
    let (mut first, _) = open_under(&disk, &path, &keys([1]));
    first.save(&numbers([(b'a', 40)])).unwrap();
    let (mut second, faults) = open_under(&disk, &path, &keys([2, 1]));
    assert!(matches!(&faults[..], [Fault::ReadOnly { .. }]), "{faults:?}");
    drop(first);
    assert!(second.take_over().unwrap().is_some_and(|faults| faults.is_empty()));
    drop(second);
    assert_eq!(open_under(&disk, &path, &keys([2])).0.written(), &numbers([(b'a', 40)]));
}
