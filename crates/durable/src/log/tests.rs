use std::os::unix::fs::PermissionsExt;
use std::sync::Mutex;

use proptest::prelude::*;

use super::*;
use crate::disk::tests::FaultyDisk;
use crate::frame::HEADER_BYTES;
use crate::scan::CutReason;

pub(crate) type Groups = Vec<Vec<Vec<u8>>>;

pub(crate) fn format() -> Format {
    Format::new("test", 1)
}

fn plain() -> Keys {
    Keys::default()
}

/// No keys, or one.
fn some_keys() -> impl Strategy<Value = Keys> {
    any::<bool>().prop_map(|sealed| Keys::new(sealed.then_some([7; 32])))
}

fn open(path: &Path) -> (Opened, Groups) {
    open_under(path, &plain())
}

pub(crate) fn open_under(path: &Path, keys: &Keys) -> (Opened, Groups) {
    let mut groups = Groups::new();
    let opened = Log::open(path, format(), keys, &mut |records| {
        groups.push(records.to_vec());
        Judgement::Take
    });
    (opened.unwrap(), groups)
}

pub(crate) fn append(log: &mut Log, records: &[Vec<u8>]) -> Result<(), Error> {
    log.append(|group| records.iter().try_for_each(|record| group.record(record)))
}

fn written(path: &Path, groups: &Groups) {
    written_under(path, &plain(), groups);
}

pub(crate) fn written_under(path: &Path, keys: &Keys, groups: &Groups) {
    let mut log = open_under(path, keys).0.log.unwrap();
    for group in groups {
        append(&mut log, group).unwrap();
    }
    log.sync().unwrap();
}

pub(crate) fn beside_names(path: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(path.parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "log" && name != "log.lock")
        .collect();
    names.sort();
    names
}

fn on_disk(disk: &Arc<FaultyDisk>, path: &Path) -> Log {
    let opened = Log::open_on(disk.clone(), path, format(), &plain(), &mut |_| Judgement::Take);
    opened.unwrap().log.unwrap()
}

fn some_groups() -> impl Strategy<Value = Groups> {
    let record = prop::collection::vec(any::<u8>(), 1..40);
    prop::collection::vec(prop::collection::vec(record, 1..4), 1..8)
}

pub(crate) fn three() -> Groups {
    vec![vec![b"one".to_vec()], vec![b"two".to_vec(), b"and a half".to_vec()], vec![vec![0; 100]]]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn what_was_appended_is_replayed(groups in some_groups(), keys in some_keys()) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        written_under(&path, &keys, &groups);
        let (opened, replayed) = open_under(&path, &keys);
        prop_assert_eq!(replayed, groups);
        prop_assert!(opened.faults.is_empty());
        prop_assert_eq!(opened.log.unwrap().bytes(), fs::metadata(&path).unwrap().len());
    }

    #[test]
    fn truncated_anywhere_it_opens_at_a_whole_prefix_and_goes_on(
        groups in some_groups(),
        keys in some_keys(),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        written_under(&path, &keys, &groups);
        let whole = fs::read(&path).unwrap();
        for length in (0..whole.len()).step_by(1 + whole.len() / 24) {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("log");
            fs::write(&path, &whole[..length]).unwrap();
            let (opened, mut replayed) = open_under(&path, &keys);
            prop_assert_eq!(&replayed[..], &groups[..replayed.len()]);
            prop_assert!(replayed.len() < groups.len());
            let mut log = opened.log.unwrap();
            append(&mut log, &[b"after".to_vec()]).unwrap();
            drop(log);
            replayed.push(vec![b"after".to_vec()]);
            let (opened, again) = open_under(&path, &keys);
            prop_assert_eq!(again, replayed);
            prop_assert!(opened.faults.is_empty());
        }
    }

    #[test]
    fn with_flipped_bits_it_opens_at_a_whole_prefix_and_keeps_what_it_cut(
        groups in some_groups(),
        keys in some_keys(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0..8u8), 1..6),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        written_under(&path, &keys, &groups);
        let whole = fs::read(&path).unwrap();
        let mut bytes = whole.clone();
        for (at, bit) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
        }
        prop_assume!(bytes != whole);
        fs::write(&path, &bytes).unwrap();
        let (opened, replayed) = open_under(&path, &keys);
        prop_assert!(replayed.len() < groups.len());
        prop_assert_eq!(&replayed[..], &groups[..replayed.len()]);
        prop_assert!(opened.log.is_some());
        prop_assert_eq!(opened.faults.len(), 1);
        prop_assert_eq!(beside_names(&path).len(), 1, "{:?}", opened.faults);
    }

    #[test]
    fn garbage_is_set_aside_as_it_is(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        ours in any::<bool>(),
        keys in some_keys(),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let mut bytes = bytes;
        if ours {
            prop_assume!(!bytes.is_empty());
            bytes.splice(0..0, format().header(1, keys.first().map(|key| (key, [3; 16]))).bytes);
        }
        fs::write(&path, &bytes).unwrap();
        let (opened, replayed) = open_under(&path, &keys);
        prop_assert!(replayed.is_empty());
        prop_assert!(opened.log.is_some_and(|log| log.is_empty()));
        let [Fault::SetAside { to: Some(to), .. }] = &opened.faults[..] else { panic!("{:?}", opened.faults) };
        prop_assert_eq!(fs::read(to).unwrap(), bytes);
        prop_assert!(!path.exists());
    }
}

#[test]
fn names_say_why_and_nothing_is_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    for content in [&b"{}"[..], b"[]", b""] {
        fs::write(&path, content).unwrap();
        open(&path);
    }
    fs::create_dir(&path).unwrap();
    open(&path);
    fs::write(&path, Format::new("test", 2).header(0, None).bytes).unwrap();
    let (opened, _) = open(&path);
    assert!(opened.faults[0].to_string().contains("format 2, known is 1"), "{}", opened.faults[0]);
    drop(opened);
    fs::write(&path, Format::new("other", 1).header(0, None).bytes).unwrap();
    open(&path);
    assert_eq!(
        beside_names(&path),
        [
            "log.empty-1",
            "log.foreign-1",
            "log.foreign-2",
            "log.foreign-3",
            "log.foreign-4",
            "log.other-format-1"
        ]
    );
    assert_eq!(fs::read(directory.path().join("log.foreign-1")).unwrap(), b"{}");
    assert_eq!(fs::read(directory.path().join("log.foreign-2")).unwrap(), b"[]");
}

#[test]
fn a_group_without_its_mark_does_not_count() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    written(&path, &three());
    let end = fs::metadata(&path).unwrap().len();
    // The last group is one record of 113 bytes and a mark of 13: take the mark away.
    File::options().write(true).open(&path).unwrap().set_len(end - 13).unwrap();
    let (opened, replayed) = open(&path);
    assert_eq!(replayed, three()[..2]);
    let [Fault::Cut { cut, kept: None, .. }] = &opened.faults[..] else { panic!("{:?}", opened.faults) };
    assert_eq!((cut.bytes, &cut.why), (113, &CutReason::Unfinished));
    assert_eq!(fs::metadata(&path).unwrap().len(), end - 126);
}

#[test]
fn zeroes_after_the_last_group_are_no_damage() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    for zeroes in [1, 13, 5000] {
        let _ = fs::remove_file(&path);
        written(&path, &three());
        let end = fs::metadata(&path).unwrap().len();
        File::options().write(true).open(&path).unwrap().set_len(end + zeroes).unwrap();
        let (opened, replayed) = open(&path);
        assert_eq!(replayed, three());
        let [Fault::Cut { cut, kept: None, .. }] = &opened.faults[..] else { panic!("{:?}", opened.faults) };
        assert_eq!((cut.bytes, &cut.why), (zeroes, &CutReason::Zeroes));
    }
}

#[test]
fn whole_frames_of_another_file_do_not_count() {
    let directory = tempfile::tempdir().unwrap();
    let (one, two) = (directory.path().join("log"), directory.path().join("two"));
    written(&one, &three());
    written(&two, &three());
    let mut mixed = fs::read(&one).unwrap();
    let other = fs::read(&two).unwrap();
    let first_ends = HEADER_BYTES + 13 + 3 + 13;
    mixed.splice(first_ends.., other[first_ends..].iter().copied());
    fs::write(&one, &mixed).unwrap();
    let (opened, replayed) = open(&one);
    assert_eq!(replayed, three()[..1]);
    assert!(matches!(&opened.faults[..], [Fault::Cut { kept: Some(_), .. }]));
}

#[test]
fn a_refused_group_ends_the_file_and_a_foreign_first_group_sets_it_aside() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    written(&path, &three());
    let refuse = Judgement::Refuse("the digest differs".to_owned());
    let foreign = Judgement::SetAside { reason: "environment", why: "it is of \"other\"".to_owned() };
    for judgement in [refuse, foreign.clone()] {
        let mut answers = vec![judgement, Judgement::Take].into_iter().rev();
        let opened = Log::open(&path, format(), &plain(), &mut |_| answers.next().unwrap()).unwrap();
        assert!(matches!(&opened.faults[..], [Fault::Cut { kept: Some(_), .. }]), "{:?}", opened.faults);
        drop(opened);
        assert_eq!(open(&path).1, three()[..1]);
        append(&mut open(&path).0.log.unwrap(), b"x".map(|byte| vec![byte]).as_slice()).unwrap();
    }
    let opened = Log::open(&path, format(), &plain(), &mut |_| foreign.clone()).unwrap();
    assert_eq!(opened.faults[0].to_string().matches("environment-1").count(), 1);
    assert!(opened.log.unwrap().is_empty());
}

#[test]
fn a_second_opener_reads_and_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    written(&path, &three());
    let first = open(&path);
    fs::OpenOptions::new()
        .append(true)
        .open(&path)
        .and_then(|mut file| io::Write::write_all(&mut file, b"R.."))
        .unwrap();
    let before = fs::read(&path).unwrap();
    let (second, replayed) = open(&path);
    assert_eq!(replayed, three());
    assert!(second.log.is_none());
    assert!(matches!(&second.faults[..], [Fault::ReadOnly { .. }]), "{:?}", second.faults);
    assert_eq!(fs::read(&path).unwrap(), before);
    drop(first);
    let (third, _) = open(&path);
    assert!(third.log.is_some());
}

#[test]
fn files_are_private() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    written(&path, &three());
    for name in ["log", "log.lock"] {
        let mode = fs::metadata(directory.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
    open(&path);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_rewrite_replaces_the_file_and_keeps_the_one_before() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    written(&path, &three());
    let before = fs::read(&path).unwrap();
    let mut log = open(&path).0.log.unwrap();
    log.rewrite(|group| group.record(b"all")).unwrap();
    append(&mut log, &[b"more".to_vec()]).unwrap();
    drop(log);
    assert_eq!(open(&path).1, [vec![b"all".to_vec()], vec![b"more".to_vec()]]);
    assert_eq!(fs::read(directory.path().join("log.previous")).unwrap(), before);
    // With its first group damaged, the newer file is of no use, and the one before takes its place.
    let mut bytes = fs::read(&path).unwrap();
    bytes[HEADER_BYTES + 10] ^= 1;
    fs::write(&path, bytes).unwrap();
    let (opened, replayed) = open(&path);
    assert_eq!(replayed, three());
    assert!(matches!(&opened.faults[..], [Fault::SetAside { .. }, Fault::Previous { .. }]));
    assert_eq!(beside_names(&path), ["log.damaged-1"]);
}

#[test]
fn a_full_disk_fails_the_group_and_the_log_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let disk = Arc::new(FaultyDisk::default());
    let mut log = on_disk(&disk, &path);
    append(&mut log, &three()[0]).unwrap();
    let bytes = log.bytes();
    for room in 0..52 {
        disk.leave(room);
        let error = append(&mut log, &three()[1]).unwrap_err();
        assert!(error.is_full(), "{error}");
        assert_eq!((log.bytes(), fs::metadata(&path).unwrap().len()), (bytes, bytes));
    }
    // Not even cutting off works: the tail stays until it does.
    disk.leave(20);
    disk.refuse_truncation(true);
    append(&mut log, &three()[1]).unwrap_err();
    assert_eq!(fs::metadata(&path).unwrap().len(), bytes + 20);
    append(&mut log, &three()[1]).unwrap_err();
    disk.refuse_truncation(false);
    disk.leave(u64::MAX);
    append(&mut log, &three()[2]).unwrap();
    log.sync().unwrap();
    drop(log);
    assert_eq!(open(&path).1, [three()[0].clone(), three()[2].clone()]);
}

#[test]
fn a_failed_rewrite_leaves_the_old_file_in_use() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let disk = Arc::new(FaultyDisk::default());
    let mut log = on_disk(&disk, &path);
    append(&mut log, &three()[0]).unwrap();
    disk.leave(50);
    log.rewrite(|group| group.record(b"too much for what is left")).unwrap_err();
    assert!(beside_names(&path).is_empty());
    disk.leave(u64::MAX);
    append(&mut log, &three()[1]).unwrap();
    drop(log);
    assert_eq!(open(&path).1, three()[..2]);
}

#[test]
fn after_a_failed_sync_only_a_rewrite_helps() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let disk = Arc::new(FaultyDisk::default());
    let mut log = on_disk(&disk, &path);
    append(&mut log, &three()[0]).unwrap();
    append(&mut log, &three()[1]).unwrap();
    disk.refuse_sync(true);
    log.sync().unwrap_err();
    disk.refuse_sync(false);
    assert!(matches!(log.sync(), Err(Error::Suspect { .. })));
    assert!(matches!(append(&mut log, &three()[2]), Err(Error::Suspect { .. })));
    log.rewrite(|group| group.record(b"all")).unwrap();
    append(&mut log, &three()[2]).unwrap();
    log.sync().unwrap();
    drop(log);
    assert_eq!(open(&path).1, [vec![b"all".to_vec()], three()[2].clone()]);
}

#[test]
fn many_groups_one_sync() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let disk = Arc::new(FaultyDisk::default());
    let mut log = on_disk(&disk, &path);
    append(&mut log, &three()[0]).unwrap();
    let before = disk.syncs();
    for _ in 0..100 {
        append(&mut log, &three()[1]).unwrap();
    }
    log.sync().unwrap();
    log.sync().unwrap();
    assert_eq!(disk.syncs() - before, 1);
}

#[test]
fn large_groups_are_written_in_pieces_and_count_as_a_whole() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let group: Vec<Vec<u8>> = (0..40u8).map(|byte| vec![byte; 100_000]).collect();
    written(&path, &vec![three()[0].clone(), group.clone()]);
    assert_eq!(open(&path).1[1], group);
    let bytes = fs::metadata(&path).unwrap().len();
    File::options().write(true).open(&path).unwrap().set_len(bytes - 1).unwrap();
    assert_eq!(open(&path).1, three()[..1]);
}

#[test]
fn evidence_is_bounded() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let last = Mutex::new(None);
    for round in 0..=crate::aside::MAX_ASIDE {
        written(&path, &three());
        let mut bytes = fs::read(&path).unwrap();
        let at = bytes.len() - 20;
        bytes[at] ^= 1;
        fs::write(&path, bytes).unwrap();
        let (opened, replayed) = open(&path);
        assert!(replayed.len() >= 2, "round {round}");
        *last.lock().unwrap() = opened.faults.into_iter().next();
    }
    assert!(matches!(*last.lock().unwrap(), Some(Fault::Cut { kept: None, .. })));
    assert_eq!(beside_names(&path).len(), crate::aside::MAX_ASIDE as usize);
}
