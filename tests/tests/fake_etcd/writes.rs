//! Writes that are refused while the watch goes on.

use headwater_control_plane::backend::etcd::{EtcdCluster, EtcdCommit, Metrics};
use headwater_control_plane::backend::{Commit, CommitError, Compare, Operation, Transaction};
use headwater_model::Revision;
use headwater_tests::fake_etcd::{Deviation, FakeEtcd, PREFIX, config};
use headwater_tests::follower::{Follower, Told};

use super::{believed, followed, live};

#[tokio::test]
async fn without_space_writes_are_refused_by_name_and_the_watch_goes_on() {
    let (fake, follower) = followed().await;
    let commit = EtcdCommit::new(EtcdCluster::new(config(&[&fake]), Metrics::default()), PREFIX);
    let write = || Transaction {
        compares: vec![Compare::ModRevision { key: "routes/new".into(), is: Revision::ZERO }],
        operations: vec![Operation::Put { key: "routes/new".into(), value: "{}".into() }],
    };
    fake.deviate(Deviation::NoSpace);
    let refused = commit.commit(write()).await.expect_err("there is no space");
    assert!(
        matches!(&refused, CommitError::ReadOnly(why) if why.contains("database space exceeded")),
        "{refused}"
    );
    let answered = believed(&follower);
    follower.until("progress goes on", |_| believed(&follower) > answered).await;
    fake.delete("routes/00002");
    fake.equals(&follower).await;
    fake.behave();
    let made = commit.commit(write()).await.expect("there is space");
    assert_eq!((made.revision.0, made.existed.as_slice()), (fake.head(), [false].as_slice()));
    assert_eq!(commit.commit(write()).await, Err(CommitError::Conflict));
    fake.equals(&follower).await;
}

#[tokio::test]
async fn the_state_says_that_there_is_no_space_and_that_there_is_again() {
    let fake = FakeEtcd::start().await;
    fake.fill(10);
    let cluster = EtcdCluster::new(config(&[&fake]), Metrics::default());
    let (follower, commit) =
        (Follower::resume(&cluster, PREFIX, None), EtcdCommit::new(cluster.clone(), PREFIX));
    live(&follower).await;
    let write = || Transaction {
        compares: vec![],
        operations: vec![Operation::Put { key: "routes/new".into(), value: "{}".into() }],
    };
    let notes = |told: &Told| {
        let last = told.states.last().filter(|state| state.is_live());
        last.map(|state| state.note.clone().unwrap_or_default())
    };
    let full = |told: &Told| notes(told).is_some_and(|note| note.contains("out of space"));
    fake.deviate(Deviation::NoSpace);
    commit.commit(write()).await.expect_err("there is no space");
    follower.until("a refused write is told", full).await;

    // Whoever connects learns it without a write.
    let other = Follower::resume(&EtcdCluster::new(config(&[&fake]), Metrics::default()), PREFIX, None);
    other.until("the member's own word is told", full).await;
    // Deletions are taken, and prove nothing.
    let operations = vec![Operation::Delete { key: "routes/00002".into() }];
    fake.behave();
    commit.commit(Transaction { compares: vec![], operations }).await.expect("taken");
    assert!(full(&follower.told()));
    commit.commit(write()).await.expect("there is space");
    follower.until("there is space", |told| notes(told).is_some_and(|note| note.is_empty())).await;
}
