use std::fs;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use headwater_durable::{Format, Judgement, Keys, Log};
use headwater_model::{Generation, Revision};
use tokio::sync::oneshot;

use super::super::mvcc::{Limits, Mvcc, Txn};
use super::super::records::{Loader, Record, identity};
use super::super::writer::{Job, Past, Refused, Shared, Writer, write};
use super::{Open, delete, listen};
use crate::backend::{CommitError, Continuity, KeyRevisions, Load, Reader, ResumePoint, SourceEvent};

fn point(load: &Load) -> ResumePoint {
    let keys = load.entries.iter().map(|entry| KeyRevisions {
        key: entry.key.clone(),
        create_revision: entry.create_revision,
        mod_revision: entry.mod_revision,
        value: Some(entry.value.clone()),
    });
    ResumePoint { cluster_id: load.cluster_id, revision: load.revision, keys: keys.collect() }
}

async fn load(open: &Open, resume: Option<ResumePoint>) -> Load {
    let SourceEvent::Loaded(load) = listen(open, resume, 16).next().await else { panic!("a load") };
    load
}

#[tokio::test]
async fn what_was_committed_is_there_after_an_opening_and_the_generation_rises() {
    let directory = tempfile::tempdir().unwrap();
    let open = Open::at(directory.path());
    assert_eq!(open.store.generation(), Generation(0));
    open.put("routes/1", "a").await.unwrap();
    open.put("routes/1", "b").await.unwrap();
    open.put("routes/2", "c").await.unwrap();
    open.commit([delete("routes/2")]).await.unwrap();
    let before = load(&open, None).await;
    open.close().await;
    for generation in 1..3 {
        let open = Open::at(directory.path());
        assert_eq!(open.store.generation(), Generation(generation));
        assert!(open.store.faults().is_empty());
        let after = load(&open, Some(point(&before))).await;
        assert_eq!(after.continuity, Continuity::Proven);
        assert_eq!((&after.entries, after.revision), (&before.entries, Revision(5)));
        assert_eq!(after.cluster_id, before.cluster_id);
        assert_eq!(open.store.state_at(Revision(4)).await.unwrap().len(), 2, "the past is kept");
        open.close().await;
    }
}

#[tokio::test]
async fn another_store_is_another_history() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let first = Open::at(one.path());
    let held = point(&load(&first, None).await);
    let second = Open::at(other.path());
    let answer = load(&second, Some(held)).await;
    assert!(matches!(answer.continuity, Continuity::Rewound { .. }), "{:?}", answer.continuity);
}

#[tokio::test]
async fn a_lost_end_is_a_rewind_and_serving_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let open = Open::at(directory.path());
    open.put("routes/1", "a").await.unwrap();
    let held = load(&open, None).await;
    open.put("routes/1", "b").await.unwrap();
    let ahead = load(&open, None).await;
    open.close().await;
    let file = directory.path().join("store");
    let length = fs::metadata(&file).unwrap().len();
    fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(length - 3).unwrap();
    let open = Open::at(directory.path());
    assert_eq!(open.store.faults().len(), 1, "the fault is named");
    let answer = load(&open, Some(point(&ahead))).await;
    assert!(matches!(answer.continuity, Continuity::Rewound { .. }));
    assert_eq!(answer.entries, held.entries);
    assert_eq!(load(&open, Some(point(&held))).await.continuity, Continuity::Proven);
    // The number of the lost revision is given again, to another value: this is why the generation rises.
    assert_eq!(open.put("routes/1", "c").await.unwrap().revision, ahead.revision);
    assert_eq!(open.store.generation(), Generation(1));
}

#[tokio::test]
async fn a_file_of_nonsense_is_set_aside_and_an_empty_store_serves() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("store"), b"nonsense").unwrap();
    let open = Open::at(directory.path());
    assert_eq!(open.store.faults().len(), 1);
    assert_eq!(open.put("routes/1", "a").await.unwrap().revision, Revision(2));
}

#[tokio::test]
async fn a_second_process_reads_and_says_why_it_cannot_write() {
    let directory = tempfile::tempdir().unwrap();
    let first = Open::at(directory.path());
    first.put("routes/1", "a").await.unwrap();
    let second = Open::at(directory.path());
    assert_eq!(load(&second, None).await.entries.len(), 1);
    let Err(CommitError::ReadOnly(why)) = second.put("routes/1", "b").await else { panic!("it wrote") };
    assert!(why.contains("store"), "{why}");
}

#[tokio::test]
async fn with_a_key_the_file_shows_nothing_and_keys_are_exchanged_over_openings() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("store");
    let is_seen =
        |text: &str| fs::read(&file).unwrap().windows(text.len()).any(|window| window == text.as_bytes());
    let open = Open::at(directory.path());
    open.put("routes/1", "the-first-value").await.unwrap();
    open.put("routes/1", "the-second-value").await.unwrap();
    open.put("routes/2", "x").await.unwrap();
    open.commit([delete("routes/2")]).await.unwrap();
    let held = load(&open, None).await;
    open.close().await;
    assert!(is_seen("routes/1") && is_seen("the-first-value"), "the search finds what is there");
    for (round, ring) in [vec![[1; 32]], vec![[2; 32], [1; 32]], vec![[2; 32]]].into_iter().enumerate() {
        let open = Open::under(directory.path(), Keys::new(ring));
        assert_eq!(open.store.faults(), [""; 0]);
        assert_eq!(open.store.generation(), Generation(1 + round as u64));
        let found = load(&open, Some(point(&held))).await;
        assert_eq!((&found.entries, found.continuity), (&held.entries, Continuity::Proven));
        // The past is there too, and writing goes on.
        let past = open.store.shared.store.load().state_at(Revision(2)).unwrap();
        assert_eq!(past.entries[0].value, "the-first-value");
        open.put("routes/3", "z").await.unwrap();
        open.commit([delete("routes/3")]).await.unwrap();
        open.close().await;
        assert!(!is_seen("routes/1") && !is_seen("-value"));
        assert!(!directory.path().join("store.previous").exists());
    }
    let open = Open::under(directory.path(), Keys::new([[3; 32]]));
    assert!(open.store.faults()[0].contains("add that key"), "{:?}", open.store.faults());
    assert!(directory.path().join("store.other-key-1").exists());
}

#[tokio::test]
async fn a_file_that_cannot_be_rewritten_under_its_key_is_read_and_not_written() {
    let directory = tempfile::tempdir().unwrap();
    let open = Open::at(directory.path());
    open.put("routes/1", "a").await.unwrap();
    open.close().await;
    let before = fs::read(directory.path().join("store")).unwrap();
    // The rewritten file cannot be made where a directory has its name.
    fs::create_dir(directory.path().join("store.new")).unwrap();
    let open = Open::under(directory.path(), Keys::new([[1; 32]]));
    assert_eq!(load(&open, None).await.entries.len(), 1);
    assert_eq!(open.store.faults().len(), 1, "{:?}", open.store.faults());
    let Err(CommitError::ReadOnly(why)) = open.put("routes/1", "b").await else { panic!("it wrote") };
    assert!(why.contains("store.new"), "{why}");
    open.close().await;
    assert_eq!(fs::read(directory.path().join("store")).unwrap(), before);
}

fn format() -> Format {
    Format::new("embedded", 1)
}

/// The owner of a new file, without a task around it.
fn writer(file: &Path) -> Writer {
    let mut log = Log::open(file, format(), &Keys::default(), &mut |_| Judgement::Take).unwrap().log.unwrap();
    log.append(|group| write(group, &Record::opened(7, 1))).unwrap();
    let shared = Arc::new(Shared::new(Mvcc::new(identity(7), Limits::ETCD)));
    Writer {
        log,
        cluster_id: 7,
        opens: 1,
        base_bytes: 0,
        past: Past { revisions: 100, garbage_bytes: 64 << 10 },
        shared,
    }
}

fn carry_out(writer: &mut Writer, txns: Vec<Txn>) -> Vec<Result<Revision, Refused>> {
    let (jobs, answers): (Vec<_>, Vec<_>) = txns
        .into_iter()
        .map(|txn| {
            let (reply, answer) = oneshot::channel();
            (Job { txn, reply }, answer)
        })
        .unzip();
    writer.carry_out(jobs);
    answers.into_iter().map(|mut answer| Ok(answer.try_recv().unwrap()?.header.revision)).collect()
}

fn reread(file: &Path) -> Loader {
    let mut loader = Loader::new(Limits::ETCD);
    Log::open(file, format(), &Keys::default(), &mut |group| {
        loader.take(group).unwrap();
        Judgement::Take
    })
    .unwrap();
    loader
}

#[test]
fn a_file_that_is_mostly_past_is_rewritten_and_says_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("store");
    let mut writer = writer(&file);
    let value = Bytes::from(vec![b'x'; 1 << 10]);
    let mut largest = 0;
    for _ in 0..40 {
        let batch = (0..64).map(|number| Txn::put(format!("routes/{}", number % 4), value.clone()));
        assert!(carry_out(&mut writer, batch.collect()).iter().all(Result::is_ok));
        largest = largest.max(writer.log.bytes());
    }
    let kept = writer.shared.store.load_full();
    assert_eq!(kept.revision(), Revision(2561));
    assert!(largest < 512 << 10, "everything ever written would be 2.5 MiB: {largest}");
    assert!(kept.compacted() > Revision(2000), "the past in memory is bounded too");
    drop(writer);
    let reopened = reread(&file).into_store().unwrap();
    for revision in [kept.revision(), Revision(kept.revision().0 - 90)] {
        assert_eq!(reopened.state_at(revision), kept.state_at(revision));
    }
}

#[test]
fn a_batch_shares_its_fate_and_a_refused_one_in_it_does_not_spoil_it() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("store");
    let mut writer = writer(&file);
    let outcomes =
        carry_out(&mut writer, vec![Txn::put("a/1", "x"), Txn::put("", "x"), Txn::put("a/2", "x")]);
    assert_eq!(outcomes[0], Ok(Revision(2)));
    assert!(matches!(outcomes[1], Err(Refused::Store(_))));
    assert_eq!(outcomes[2], Ok(Revision(3)));
    drop(writer);
    assert_eq!(reread(&file).into_store().unwrap().revision(), Revision(3));
}

#[test]
fn a_group_that_makes_no_sense_changes_nothing() {
    use prost::Message;
    let mut loader = Loader::new(Limits::ETCD);
    let mut store = Mvcc::new(identity(7), Limits::ETCD);
    store.put("a", "1").unwrap();
    let (revision, events) = store.events_from(Revision(2)).next().unwrap();
    let record = Record::revision(revision, events).encode_to_vec();
    assert!(loader.take(std::slice::from_ref(&record)).is_err(), "before an opening");
    loader.take(&[Record::opened(7, 1).encode_to_vec(), record.clone()]).unwrap();
    assert!(loader.take(&[Record::opened(7, 2).encode_to_vec(), record]).is_err(), "a revision comes once");
    assert_eq!(loader.opened(), Some((7, 1)));
    assert!(loader.take(&[vec![0xff]]).is_err());
}
