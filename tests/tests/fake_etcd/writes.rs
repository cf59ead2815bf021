//! Writes that are refused while the watch goes on.

use headwater_control_plane::backend::etcd::{EtcdCluster, EtcdCommit, Metrics};
use headwater_control_plane::backend::{Commit, CommitError, Compare, Operation, Transaction};
use headwater_model::Revision;
use headwater_tests::fake_etcd::{Deviation, PREFIX, config};

use super::{believed, followed};

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
