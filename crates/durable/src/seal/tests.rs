use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::disk::tests::FaultyDisk;
use crate::error::{Error, Fault};
use crate::frame::{HEADER_BYTES, SEAL_BYTES};
use crate::log::tests::{Groups, append, beside_names, format, open_under, three, written_under};
use crate::log::{Judgement, Log};
use crate::scan::CutReason;

const HEAD: usize = HEADER_BYTES + SEAL_BYTES;

/// A frame's mark and payload, without its checks.
type Frame = (u8, Vec<u8>);

fn keys<const N: usize>(bytes: [u8; N]) -> Keys {
    Keys::new(bytes.map(|byte| [byte; KEY_BYTES]))
}

/// The frames of a sealed file.
fn frames(bytes: &[u8]) -> Vec<Frame> {
    let mut rest = &bytes[HEAD..];
    let mut frames = Vec::new();
    while !rest.is_empty() {
        let length = u32::from_le_bytes(*rest[1..].first_chunk().unwrap()) as usize;
        frames.push((rest[0], rest[9..9 + length].to_vec()));
        rest = &rest[13 + length..];
    }
    frames
}

/// A file with checksums that hold: what somebody without the key can write.
fn with_checks(header: &[u8], frames: &[Frame]) -> Vec<u8> {
    let mut bytes = header[..HEAD].to_vec();
    let mut check = crc32c::crc32c(&bytes[..HEADER_BYTES - 4]);
    bytes[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&check.to_le_bytes());
    check = crc32c::crc32c_append(check, &bytes[HEADER_BYTES..HEAD - 4]);
    bytes[HEAD - 4..].copy_from_slice(&check.to_le_bytes());
    for (mark, payload) in frames {
        let start = bytes.len();
        bytes.push(*mark);
        bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        check = crc32c::crc32c_append(check, &bytes[start..]);
        bytes.extend_from_slice(&check.to_le_bytes());
        bytes.extend_from_slice(payload);
        check = crc32c::crc32c_append(check, payload);
        bytes.extend_from_slice(&check.to_le_bytes());
    }
    bytes
}

/// A sealed file of three groups, at frames 0..3, 3..7 and 7..10.
fn sealed(directory: &Path) -> (Vec<u8>, Vec<Frame>) {
    let path = directory.join("log");
    written_under(&path, &keys([1]), &three());
    let bytes = fs::read(&path).unwrap();
    let frames = frames(&bytes);
    assert_eq!(with_checks(&bytes, &frames), bytes, "the test reads what the log wrote");
    let marks: Vec<u8> = frames.iter().map(|(mark, _)| *mark).collect();
    assert_eq!(marks, b"SRCSRRCSRC");
    (bytes, frames)
}

/// What a file of these bytes opens as, and the reason why its end does not count.
fn opened(directory: &Path, bytes: &[u8]) -> (Groups, Option<CutReason>) {
    let path = directory.join("log");
    fs::write(&path, bytes).unwrap();
    let (opened, groups) = open_under(&path, &keys([1]));
    let reason = match &opened.faults[..] {
        [] => None,
        [Fault::Cut { cut, .. }] => Some(cut.why.clone()),
        [Fault::SetAside { why, .. }] => {
            assert!(why.contains("under the file's key"), "{why}");
            Some(CutReason::Forged)
        }
        other => panic!("{other:?}"),
    };
    (groups, reason)
}

#[test]
fn nothing_that_was_written_is_seen_in_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let (bytes, _) = sealed(directory.path());
    let key = [1; KEY_BYTES];
    for text in [&b"one"[..], b"two", b"and a half", &[0; 16], &key[..8]] {
        assert!(!bytes.windows(text.len()).any(|window| window == text), "{text:?}");
    }
    let (log, groups) = open_under(&directory.path().join("log"), &keys([1]));
    assert_eq!(groups, three());
    assert!(log.faults.is_empty() && !log.log.unwrap().is_outdated());
    assert_eq!(format!("{:?}", keys([1])).matches("1, 1").count(), 0);
}

#[test]
fn without_its_key_a_file_is_set_aside_and_with_it_it_can_be_put_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let (bytes, _) = sealed(directory.path());
    for (round, wrong) in [Keys::default(), keys([2]), keys([2, 3])].into_iter().enumerate() {
        let (opened, groups) = open_under(&path, &wrong);
        assert!(groups.is_empty());
        let [fault @ Fault::SetAside { to: Some(to), .. }] = &opened.faults[..] else {
            panic!("{:?}", opened.faults)
        };
        assert!(to.ends_with("log.other-key-1"), "{round}: {}", to.display());
        let id = keys([1]).first().unwrap().to_string();
        let sentence = fault.to_string();
        assert!(sentence.contains(&id) && sentence.contains("add that key"), "{sentence}");
        append(&mut opened.log.unwrap(), &[b"anew".to_vec()]).unwrap();
        fs::rename(to, &path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), bytes);
        assert_eq!(open_under(&path, &keys([2, 1])).1, three());
    }
}

#[test]
fn torn_at_any_byte_it_opens_at_a_whole_prefix_and_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let (bytes, _) = sealed(directory.path());
    let mut found = BTreeSet::new();
    for length in 0..bytes.len() {
        fs::write(&path, &bytes[..length]).unwrap();
        let (opened, mut groups) = open_under(&path, &keys([1]));
        assert!(groups.len() < 3 && groups == three()[..groups.len()], "{length}");
        found.insert(groups.len());
        append(&mut opened.log.unwrap(), &[b"after".to_vec()]).unwrap();
        groups.push(vec![b"after".to_vec()]);
        let (opened, again) = open_under(&path, &keys([1]));
        assert_eq!(again, groups, "{length}");
        assert!(opened.faults.is_empty(), "{length}: {:?}", opened.faults);
        for name in beside_names(&path) {
            fs::remove_file(directory.path().join(name)).unwrap();
        }
    }
    assert_eq!(found, BTreeSet::from([0, 1, 2]));
}

#[test]
fn a_flipped_byte_is_noticed_wherever_it_is_and_whether_or_not_the_checksums_were_made_anew() {
    let directory = tempfile::tempdir().unwrap();
    let (bytes, frames) = sealed(directory.path());
    for at in 0..bytes.len() {
        let directory = tempfile::tempdir().unwrap();
        let mut flipped = bytes.clone();
        flipped[at] ^= 1;
        fs::write(directory.path().join("log"), &flipped).unwrap();
        let (opened, groups) = open_under(&directory.path().join("log"), &keys([1]));
        assert!(groups.len() < 3 && groups == three()[..groups.len()], "byte {at}");
        assert_eq!(opened.faults.len(), 1, "byte {at}: {:?}", opened.faults);
    }
    for (frame, (_, payload)) in frames.iter().enumerate() {
        for at in 0..payload.len() {
            let mut forged = frames.clone();
            forged[frame].1[at] ^= 1;
            let (groups, reason) = opened(directory.path(), &with_checks(&bytes, &forged));
            let whole = [0, 0, 0, 1, 1, 1, 1, 2, 2, 2][frame];
            assert_eq!((&groups[..], reason), (&three()[..whole], Some(CutReason::Forged)), "{frame} {at}");
        }
    }
    // The header's two salts.
    for at in (32..40).chain(HEADER_BYTES + KEY_ID_BYTES..HEAD - 4) {
        let mut forged = bytes.clone();
        forged[at] ^= 1;
        assert_eq!(
            opened(directory.path(), &with_checks(&forged, &frames)),
            (Groups::new(), Some(CutReason::Forged)),
            "byte {at}"
        );
    }
}

#[test]
fn frames_count_in_their_own_file_group_and_place_only() {
    let directory = tempfile::tempdir().unwrap();
    let (bytes, frames) = sealed(directory.path());
    let other = tempfile::tempdir().unwrap();
    let (_, others) = sealed(other.path());
    let chosen = |places: &[usize]| places.iter().map(|place| frames[*place].clone()).collect::<Vec<_>>();
    let with = |place: usize, frame: &Frame| {
        let mut changed = frames.clone();
        changed[place] = frame.clone();
        changed
    };
    let cases: [(&str, Vec<Frame>, usize); 9] = [
        ("records swapped", chosen(&[0, 1, 2, 3, 5, 4, 6]), 1),
        ("a record dropped", chosen(&[0, 1, 2, 3, 5, 6]), 1),
        ("the last record of a group dropped", chosen(&[0, 1, 2, 3, 4, 6]), 1),
        ("a record twice", chosen(&[0, 1, 2, 3, 4, 4, 5, 6]), 1),
        ("a group dropped", chosen(&[0, 1, 2, 7, 8, 9]), 1),
        ("the first group dropped", chosen(&[3, 4, 5, 6, 7, 8, 9]), 0),
        ("groups swapped", chosen(&[0, 1, 2, 7, 8, 9, 3, 4, 5, 6]), 1),
        ("a group ended early by another's mark", chosen(&[0, 1, 2, 3, 4, 9]), 1),
        ("a record of another file of the key", with(4, &others[4]), 1),
    ];
    for (case, forged, whole) in cases {
        let found = opened(directory.path(), &with_checks(&bytes, &forged));
        assert_eq!(found, (three()[..whole].to_vec(), Some(CutReason::Forged)), "{case}");
    }
    let mut foreign = frames[..3].to_vec();
    foreign.extend_from_slice(&others[3..7]);
    let found = opened(directory.path(), &with_checks(&bytes, &foreign));
    assert_eq!(found, (three()[..1].to_vec(), Some(CutReason::Forged)), "a group of another file of the key");
    let (groups, reason) = opened(directory.path(), &with_checks(&bytes, &frames[..7]));
    assert_eq!((groups, reason), (three()[..2].to_vec(), None), "the end after a group is no forgery");
}

#[test]
fn a_group_that_was_cut_off_does_not_come_back_before_later_ones() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let (bytes, before) = sealed(directory.path());
    // The last group is lost, and written again with other contents, and one more.
    let last: usize = before[7..].iter().map(|(_, payload)| 13 + payload.len()).sum();
    fs::write(&path, &bytes[..bytes.len() - last]).unwrap();
    let mut log = open_under(&path, &keys([1])).0.log.unwrap();
    append(&mut log, &[b"other".to_vec()]).unwrap();
    append(&mut log, &[b"more".to_vec()]).unwrap();
    drop(log);
    let after = frames(&fs::read(&path).unwrap());
    let mixed = [&after[..7], &before[7..10], &after[10..]].concat();
    let (groups, reason) = opened(directory.path(), &with_checks(&bytes, &mixed));
    assert_eq!((groups, reason), (three(), Some(CutReason::Forged)));
}

#[test]
fn no_key_of_a_group_is_used_twice() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let disk = Arc::new(FaultyDisk::default());
    let open = || {
        let opened = Log::open_on(disk.clone(), &path, format(), &keys([1]), &mut |_| Judgement::Take);
        opened.unwrap().log.unwrap()
    };
    let mut salts = Vec::new();
    let mut see = |groups: usize| {
        let bytes = fs::read(&path).unwrap();
        let file = bytes[HEADER_BYTES + KEY_ID_BYTES..HEAD - 4].to_vec();
        let found = frames(&bytes).into_iter().filter(|(mark, _)| *mark == b'S').map(|(_, salt)| salt);
        let found: Vec<_> = found.collect();
        assert_eq!(found.len(), groups);
        salts.push(file);
        salts.push(found.last().unwrap().clone());
    };
    let mut log = open();
    append(&mut log, &three()[0]).unwrap();
    see(1);
    for round in 0..8 {
        append(&mut log, &three()[1]).unwrap();
        see(2);
        // Its mark is torn off; it is written again at the same place, first in vain.
        let torn = fs::metadata(&path).unwrap().len() - 5;
        drop(log);
        fs::File::options().write(true).open(&path).unwrap().set_len(torn).unwrap();
        log = open();
        disk.leave(40);
        append(&mut log, &three()[1]).unwrap_err();
        disk.leave(u64::MAX);
        append(&mut log, &three()[1]).unwrap();
        see(2);
        log.rewrite(|group| group.record(&[round; 20])).unwrap();
        see(1);
    }
    let (files, groups): (Vec<_>, Vec<_>) = salts.chunks(2).map(|pair| (&pair[0], &pair[1])).unzip();
    assert_eq!(groups.len(), groups.iter().collect::<BTreeSet<_>>().len());
    assert_eq!(files.iter().collect::<BTreeSet<_>>().len(), 9, "the first file and eight rewritten ones");
}

#[test]
fn nothing_is_added_to_a_file_under_another_key() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    for older in [Keys::default(), keys([1])] {
        let _ = fs::remove_file(&path);
        written_under(&path, &older, &three());
        let (opened, groups) = open_under(&path, &keys([2, 1]));
        assert_eq!(groups, three());
        let mut log = opened.log.unwrap();
        assert!(log.is_outdated());
        assert!(matches!(append(&mut log, &three()[0]), Err(Error::Outdated { .. })));
        log.rewrite(|group| group.record(b"all")).unwrap();
        append(&mut log, &three()[0]).unwrap();
        drop(log);
        let (opened, groups) = open_under(&path, &keys([2]));
        assert_eq!(groups, [vec![b"all".to_vec()], three()[0].clone()]);
        assert!(opened.faults.is_empty() && beside_names(&path).is_empty());
    }
}

#[test]
fn a_format_has_its_own_seal() {
    let directory = tempfile::tempdir().unwrap();
    let (mut bytes, frames) = sealed(directory.path());
    // Version 2 of the format, with checksums that hold.
    bytes[28] = 2;
    let path = directory.path().join("log");
    fs::write(&path, with_checks(&bytes, &frames)).unwrap();
    let format = crate::Format::new("test", 2);
    let opened = Log::open(&path, format, &keys([1]), &mut |_| Judgement::Take).unwrap();
    let [Fault::SetAside { why, .. }] = &opened.faults[..] else { panic!("{:?}", opened.faults) };
    assert_eq!(*why, CutReason::Forged.to_string());
}
