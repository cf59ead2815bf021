use std::fs;
use std::path::PathBuf;

use bytes::Bytes;
use headwater_durable::{Judgement, Log};
use headwater_model::{Generation, Key, Lineage};
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
        LastKnownGood::open(&self.file(), "production", keys).unwrap()
    }

    fn set_aside(&self) -> Vec<String> {
        let names = fs::read_dir(self.directory.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.retain(|name| name != "lkg" && name != "lkg.lock");
        names.sort();
        names
    }
}

fn resource(key: &str, modified: u64, value: impl Into<Vec<u8>>) -> Arc<Resource> {
    Arc::new(Resource::new(Key::new(key), Bytes::from(value.into()), Revision(1), Revision(modified)))
}

fn group(content: &Content, revision: u64) -> Group {
    let lineage = Lineage { cluster_id: u64::MAX - 1, prefix: "/apisix".into(), generation: Generation(2) };
    let version = Version { lineage, revision: Revision(revision), digest: content.digest() };
    Group { version, content: content.clone(), retained: Vec::new() }
}

fn retained(key: &str, rejected: u64) -> Retained {
    Retained {
        served: resource(key, 3, "served"),
        rejected: Revision(rejected),
        since_unix: 1_700_000_000,
        references: vec![resource("services/1", 2, "s"), resource("upstreams/1", 2, vec![0, 255, 0])],
    }
}

/// A history of states, one change apart, as they were written to the file.
fn history(dir: &Dir, length: u64) -> Vec<Group> {
    let (mut file, _) = dir.open();
    let mut content = Content::new();
    let mut groups = Vec::new();
    for revision in 1..=length {
        match revision % 5 {
            0 => drop(content.delete(&format!("routes/{}", revision - 3))),
            _ => drop(content.put(resource(&format!("routes/{revision}"), revision, vec![7; 50]))),
        }
        let mut next = group(&content, revision);
        if revision % 3 == 0 {
            next.retained.push(retained("routes/1", revision));
        }
        file.append(&next).unwrap();
        groups.push(next);
    }
    file.sync().unwrap();
    groups
}

fn assert_holds(opened: &Opened, group: &Group) {
    assert_eq!(opened.version.as_ref(), Some(&group.version));
    assert_eq!(opened.content, group.content);
    assert_eq!(opened.retained, group.retained);
}

fn log(dir: &Dir, format: Format) -> Log {
    let opened = Log::open(&dir.file(), format, &Keys::default(), &mut |_| Judgement::Take);
    opened.unwrap().log.unwrap()
}

#[test]
fn every_state_is_opened_as_it_was_appended() {
    let dir = Dir::new();
    let (mut file, opened) = dir.open();
    assert!(
        opened.version.is_none() && opened.content.is_empty() && opened.faults.is_empty() && opened.writer
    );
    let mut content: Content =
        (0..500).map(|id| resource(&format!("routes/{id}"), 1, vec![1; 2000])).collect();
    let mut states = vec![group(&content, 5)];
    content.put(resource("plugins", 6, vec![0, 159, 146, 150]));
    states.push(Group {
        retained: vec![retained("routes/1", 9), retained("routes/2", 9)],
        ..group(&content, 6)
    });
    content.delete("routes/2");
    states.push(Group { retained: vec![retained("routes/1", 11)], ..group(&content, 7) });
    states.push(Group { retained: Vec::new(), ..group(&content, 7) });
    states.push(group(&content, 8));
    states.push(group(&Content::new(), 9));
    for state in states {
        file.append(&state).unwrap();
        file.sync().unwrap();
        drop(file);
        let (again, opened) = dir.open();
        assert_holds(&opened, &state);
        assert!(opened.faults.is_empty());
        file = again;
    }
}

#[test]
fn truncated_at_fifty_points_it_opens_at_a_whole_version_and_goes_on() {
    let dir = Dir::new();
    let groups = history(&dir, 30);
    let whole = fs::read(dir.file()).unwrap();
    let mut random = StdRng::seed_from_u64(54);
    let mut versions = std::collections::BTreeSet::new();
    for _ in 0..50 {
        let dir = Dir::new();
        let length = random.random_range(0..whole.len());
        fs::write(dir.file(), &whole[..length]).unwrap();
        let (mut file, opened) = dir.open();
        let revision = opened.version.as_ref().map_or(0, |version| version.revision.0);
        versions.insert(revision);
        if revision == 0 {
            assert!(opened.content.is_empty());
            assert_eq!(dir.set_aside().len(), 1, "{length}: {:?}", opened.faults);
        } else {
            assert_holds(&opened, &groups[revision as usize - 1]);
        }
        let last = groups.last().unwrap();
        file.append(last).unwrap();
        drop(file);
        let (_, opened) = dir.open();
        assert_holds(&opened, last);
        assert!(opened.faults.is_empty(), "{:?}", opened.faults);
    }
    assert!(versions.len() > 10, "{versions:?}");
}

#[test]
fn with_a_flipped_bit_it_opens_at_the_version_before() {
    let dir = Dir::new();
    let groups = history(&dir, 20);
    let whole = fs::read(dir.file()).unwrap();
    let mut random = StdRng::seed_from_u64(7);
    for _ in 0..50 {
        let dir = Dir::new();
        let mut bytes = whole.clone();
        bytes[random.random_range(0..whole.len())] ^= 1 << random.random_range(0..8u8);
        fs::write(dir.file(), &bytes).unwrap();
        let (_, opened) = dir.open();
        if let Some(version) = &opened.version {
            assert!(version.revision.0 < 20);
            assert_holds(&opened, &groups[version.revision.0 as usize - 1]);
        }
        assert_eq!((opened.faults.len(), dir.set_aside().len()), (1, 1), "{:?}", opened.faults);
    }
}

#[test]
fn what_does_not_lead_to_its_digest_is_cut_off() {
    let dir = Dir::new();
    let groups = history(&dir, 4);
    let format = Format::new("node-lkg", FORMAT);
    let mut log = log(&dir, format);
    let lies = Version { digest: Digest(1), ..group(&groups[3].content, 5).version };
    log.append(|group| record::Rows::new(group).version(&lies)).unwrap();
    let after = group(&groups[3].content, 6).version;
    log.append(|group| record::Rows::new(group).version(&after)).unwrap();
    drop(log);
    let (_, opened) = dir.open();
    assert_holds(&opened, &groups[3]);
    assert!(opened.faults[0].contains("digest"), "{:?}", opened.faults);
    assert_eq!(dir.set_aside(), ["lkg.damaged-1"]);
}

#[test]
fn records_of_somebody_else_under_our_header_are_set_aside() {
    for payload in [&b"\xff\xff\xff"[..], b"\x12\x03a/b", b"\x1a\x08\x0a\x06gen_id"] {
        let dir = Dir::new();
        let format = Format::new("node-lkg", FORMAT);
        log(&dir, format).append(|group| group.record(payload)).unwrap();
        let (_, opened) = dir.open();
        assert!(opened.version.is_none() && opened.writer);
        assert_eq!(dir.set_aside(), ["lkg.damaged-1"]);
    }
}

#[test]
fn the_file_of_another_environment_is_set_aside_and_named() {
    let dir = Dir::new();
    let groups = history(&dir, 3);
    let (_, opened) = LastKnownGood::open(&dir.file(), "staging", &Keys::default()).unwrap();
    assert!(opened.version.is_none() && opened.content.is_empty() && opened.writer);
    assert!(opened.faults[0].contains("production"), "{:?}", opened.faults);
    assert_eq!(dir.set_aside(), ["lkg.other-environment-1"]);
    fs::rename(dir.directory.path().join("lkg.other-environment-1"), dir.file()).unwrap();
    assert_holds(&dir.open().1, &groups[2]);
}

#[test]
fn a_content_that_is_not_its_versions_is_refused() {
    let dir = Dir::new();
    let groups = history(&dir, 3);
    let (mut file, _) = dir.open();
    let wrong = Group { content: Content::new(), ..groups[2].clone() };
    assert!(matches!(file.append(&wrong), Err(Error::Digest { .. })));
    assert_eq!(file.version(), Some(&groups[2].version));
}

#[test]
fn a_change_costs_its_own_size_and_garbage_does_not_grow_for_ever() {
    let dir = Dir::new();
    let (mut file, _) = dir.open();
    let mut content: Content =
        (0..3000).map(|id| resource(&format!("routes/{id}"), 1, vec![1; 300])).collect();
    file.append(&group(&content, 1)).unwrap();
    let full = file.bytes().unwrap();
    assert!(full > 900_000);
    let (mut before, mut rewrites) = (full, 0);
    for revision in 2..60 {
        let size = if revision % 2 == 0 { 300 } else { 400_000 };
        content.put(resource("routes/7", revision, vec![2; size]));
        file.append(&group(&content, revision)).unwrap();
        let after = file.bytes().unwrap();
        if after < before {
            rewrites += 1;
            assert!(after < full + 500_000);
        } else {
            assert!(after - before < size as u64 + 200, "{}", after - before);
        }
        before = after;
    }
    assert!((1..10).contains(&rewrites), "{rewrites}");
    drop(file);
    assert_eq!(dir.open().1.content, content);
}

#[test]
fn a_second_process_serves_and_takes_over_when_the_first_ends() {
    let dir = Dir::new();
    let groups = history(&dir, 4);
    let (mut first, _) = dir.open();
    let (mut second, opened) = dir.open();
    assert_holds(&opened, &groups[3]);
    assert!(!opened.writer && opened.faults[0].contains("another process"), "{:?}", opened.faults);
    assert!(second.append(&groups[3]).is_err());
    first.append(&groups[2]).unwrap();
    assert!(second.take_over().unwrap().is_none());
    drop(first);
    assert_eq!(second.take_over().unwrap(), Some(Vec::new()));
    assert_eq!(second.version(), Some(&groups[2].version));
    second.append(&groups[3]).unwrap();
    second.sync().unwrap();
    drop(second);
    assert_holds(&dir.open().1, &groups[3]);
}

/// Whether a text is in a file of the directory, or in a name.
fn is_seen(dir: &Dir, text: &str) -> bool {
    fs::read_dir(dir.directory.path()).unwrap().any(|entry| {
        let bytes = fs::read(entry.unwrap().path()).unwrap();
        bytes.windows(text.len()).any(|window| window == text.as_bytes())
    })
}

#[test]
fn with_a_key_nothing_of_it_is_seen_and_keys_are_exchanged_over_starts() {
    let dir = Dir::new();
    let texts = ["routes/secret", "the-value", "services/1", "/apisix", "production"];
    let content: Content = [resource("routes/secret", 4, "the-value")].into_iter().collect();
    let state = Group { retained: vec![retained("routes/1", 9)], ..group(&content, 5) };
    let (mut file, _) = dir.open();
    file.append(&state).unwrap();
    drop(file);
    assert!(texts.iter().all(|text| is_seen(&dir, text)), "the search finds what is there");
    for ring in [vec![[1; 32]], vec![[2; 32], [1; 32]], vec![[2; 32]]] {
        let (mut file, opened) = dir.open_under(&Keys::new(ring));
        assert_holds(&opened, &state);
        assert!(opened.faults.is_empty(), "{:?}", opened.faults);
        file.append(&group(&Content::new(), 6)).unwrap();
        file.append(&state).unwrap();
        file.sync().unwrap();
        for text in texts {
            assert!(!is_seen(&dir, text), "{text}");
        }
    }
    assert_eq!(dir.set_aside(), Vec::<String>::new());
}

#[test]
fn without_its_key_the_file_is_set_aside_and_the_node_goes_on_without() {
    let dir = Dir::new();
    let content: Content = [resource("routes/secret", 4, "the-value")].into_iter().collect();
    let state = group(&content, 5);
    let key = Keys::new([[1; 32]]);
    dir.open_under(&key).0.append(&state).unwrap();
    for wrong in [Keys::default(), Keys::new([[2; 32]])] {
        let (mut file, opened) = dir.open_under(&wrong);
        assert!(opened.version.is_none() && opened.content.is_empty() && opened.writer);
        assert!(opened.faults[0].contains("add that key"), "{:?}", opened.faults);
        file.append(&group(&Content::new(), 6)).unwrap();
        drop(file);
        assert_eq!(dir.set_aside(), ["lkg.other-key-1"]);
        fs::rename(dir.directory.path().join("lkg.other-key-1"), dir.file()).unwrap();
        assert_holds(&dir.open_under(&key).1, &state);
    }
}
