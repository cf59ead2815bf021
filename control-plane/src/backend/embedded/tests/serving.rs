use std::time::Duration;

use bytes::Bytes;
use headwater_model::{Generation, Revision};

use super::{Open, delete, listen, put};
use crate::backend::{
    Batch, Commit, CommitError, Compare, Continuity, KeyEvent, ReadError, Reader, SourceCommand, SourceEvent,
    Stage, Transaction,
};

#[tokio::test]
async fn a_commit_is_read_and_watched_at_its_revision() {
    let directory = tempfile::tempdir().unwrap();
    let open = Open::at(directory.path());
    let mut listener = listen(&open, None, 16);
    let SourceEvent::Loaded(load) = listener.next().await else { panic!("it begins with everything") };
    assert_eq!((load.continuity, load.entries.len(), load.revision), (Continuity::First, 0, Revision(1)));
    let committed = open.commit([put("routes/1", "a"), put("routes/2", "b")]).await.unwrap();
    assert_eq!((committed.revision, committed.existed), (Revision(2), vec![false, false]));
    let SourceEvent::Batch(Batch { revision, events, .. }) = listener.next().await else { panic!("a batch") };
    assert_eq!((revision, events.len()), (Revision(2), 2), "one transaction in one batch");
    let (found, head) = open.store.get(b"routes/2").await.unwrap();
    assert_eq!((found.unwrap().value, head.revision), (Bytes::from("b"), Revision(2)));
    assert_eq!(head.cluster_id, load.cluster_id);
    open.commit([delete("routes/1")]).await.unwrap();
    let SourceEvent::Batch(Batch { events, .. }) = listener.next().await else { panic!("a batch") };
    assert_eq!(events, [KeyEvent::Delete { key: "routes/1".into(), revision: Revision(3) }]);
    assert_eq!(open.store.list(b"routes/").await.unwrap().0.len(), 1);
    assert_eq!(open.store.state_at(Revision(2)).await.unwrap().len(), 2);
    let ahead = open.store.state_at(Revision(9)).await;
    assert_eq!(ahead, Err(ReadError::Future { revision: Revision(9), head: Revision(3) }));
}

#[tokio::test]
async fn conditions_hold_or_nothing_is_done() {
    let directory = tempfile::tempdir().unwrap();
    let open = Open::at(directory.path());
    let revision = open.put("upstreams/1", "a").await.unwrap().revision;
    let write = |compare: Compare| Transaction { compares: vec![compare], operations: vec![put("x/1", "y")] };
    let key = || Bytes::from("upstreams/1");
    let refused = [
        Compare::ModRevision { key: key(), is: Revision(1) },
        Compare::ModRevision { key: key(), is: Revision::ZERO },
        Compare::Exists { key: "upstreams/2".into() },
        Compare::NoneWrittenSince { directory: "upstreams/".into(), revision: Revision(1) },
    ];
    for compare in refused {
        assert_eq!(open.store.commit(write(compare)).await, Err(CommitError::Conflict));
    }
    assert_eq!(open.store.heads().await[0].revision, revision);
    let held = [
        Compare::ModRevision { key: key(), is: revision },
        Compare::ModRevision { key: "none".into(), is: Revision::ZERO },
        Compare::Exists { key: key() },
        Compare::NoneWrittenSince { directory: "upstreams/".into(), revision },
    ];
    for compare in held {
        open.store.commit(write(compare)).await.unwrap();
    }
}

#[tokio::test]
async fn limits_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let open = Open::at(directory.path());
    let many: Vec<_> = (0..129).map(|number| put(&format!("routes/{number}"), "")).collect();
    let text = "129 operations in one transaction, at most 128 are allowed";
    assert_eq!(open.commit(many).await, Err(CommitError::TooLarge(text.to_owned())));
    let big = "x".repeat(2 << 20);
    assert!(matches!(open.put("routes/1", &big).await, Err(CommitError::TooLarge(_))));
    assert!(matches!(open.commit([put("a/1", ""), delete("a/1")]).await, Err(CommitError::Refused(_))));
}

#[tokio::test(start_paused = true)]
async fn progress_says_what_was_delivered_at_every_interval() {
    let directory = tempfile::tempdir().unwrap();
    let open = Open::at(directory.path());
    let mut listener = listen(&open, None, 16);
    listener.until_live().await;
    assert_eq!(listener.events.recv().await, Some(SourceEvent::Progress(Revision(1))));
    let began = tokio::time::Instant::now();
    assert_eq!(listener.events.recv().await, Some(SourceEvent::Progress(Revision(1))));
    assert_eq!(began.elapsed(), Duration::from_secs(5));
}

#[tokio::test]
async fn a_slow_listener_misses_nothing_and_is_told_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let open = Open::at(directory.path());
    let mut listener = listen(&open, None, 1);
    listener.until_live().await;
    for number in 0..50 {
        open.put("routes/1", &number.to_string()).await.unwrap();
    }
    let mut seen = Vec::new();
    while seen.len() < 50 {
        let SourceEvent::Batch(batch) = listener.next().await else { panic!("only batches") };
        assert_eq!(batch.events.last().unwrap().revision(), batch.revision);
        seen.extend(batch.events.iter().map(|event| event.revision().0));
    }
    assert_eq!(seen, (2..52).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_reload_is_asked_for_and_a_stop_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let open = Open::at(directory.path());
    let mut listener = listen(&open, None, 16);
    listener.next().await;
    listener
        .commands
        .send(SourceCommand::Reload { reason: "an audit".to_owned(), generation: Generation(0) })
        .await
        .unwrap();
    let SourceEvent::Loaded(load) = listener.next().await else { panic!("a load") };
    assert_eq!(load.continuity, Continuity::Proven);
    listener.stop.cancel();
    loop {
        match listener.events.recv().await {
            Some(SourceEvent::State(state)) if state.stage == Stage::Stopped => break,
            Some(_) => {}
            None => panic!("it ends without a word"),
        }
    }
}
