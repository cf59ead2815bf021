//! Who answers: proxies, other clusters, other members, and restores that look like nothing happened.

use headwater_control_plane::backend::{Continuity, Stage};
use headwater_tests::fake_etcd::{Deviation, FakeEtcd, other_cluster};

use super::{follow, followed, live, says};

#[tokio::test]
async fn w29_a_proxy_is_refused_by_the_ids_it_hides() {
    for hides in [Deviation::WatchIdIgnored, Deviation::NoIdentityInWatch, Deviation::NoClusterId] {
        let fake = FakeEtcd::start().await;
        fake.deviate(hides.clone());
        fake.fill(10);
        let follower = follow(&fake);
        says(&follower, Stage::Refused, "there is an etcd grpc-proxy between").await;
        let told = fake.checked(&follower);
        assert_eq!((told.safe, told.loads.len()), (0, 0), "{hides:?}");
        fake.behave();
        fake.equals(&follower).await;
        live(&follower).await;
    }
}

#[tokio::test]
async fn w4_a_watch_answered_by_another_member_or_cluster_than_was_checked_is_dropped() {
    for other in [Deviation::WatchFromMember(0xbad), Deviation::WatchFromCluster(0xbad)] {
        let (fake, follower) = followed().await;
        fake.end_streams();
        fake.deviate_times(2, other.clone());
        fake.put("routes/00001", "{\"new\":1}");
        fake.delete("routes/00002");
        says(&follower, Stage::BackingOff, "answered by another member than was checked").await;
        let told = fake.equals(&follower).await;
        assert_eq!((fake.played(&other), told.loads.as_slice()), (2, [Continuity::First].as_slice()));
    }
}

#[tokio::test]
async fn w6_another_cluster_is_a_rewind_proven_by_two_reads() {
    let (fake, follower) = followed().await;
    fake.restore(&fake.snapshot(), Some(other_cluster()));
    fake.delete("routes/00002");
    says(&follower, Stage::Proving, "the cluster id is c1").await;
    let told = fake.equals(&follower).await;
    assert!(
        matches!(told.loads.as_slice(), [Continuity::First, Continuity::Rewound { .. }]),
        "{:?}",
        told.loads
    );
}

/// The trap: a watch from the safe revision would be one of the future, and silent for ever.
#[tokio::test]
async fn w6_a_restore_to_an_older_revision_under_the_same_ids_is_a_rewind() {
    let (fake, follower) = followed().await;
    let snapshot = fake.snapshot();
    for round in 0..5 {
        fake.put("routes/00001", format!("{{\"round\":{round}}}"));
    }
    fake.put("routes/gone", "{}");
    fake.equals(&follower).await;
    fake.restore(&snapshot, None);
    fake.delete("routes/00002");
    let told = fake.equals(&follower).await;
    assert!(
        matches!(told.loads.as_slice(), [Continuity::First, Continuity::Rewound { .. }]),
        "{:?}",
        told.loads
    );
    live(&follower).await;
}

#[tokio::test]
async fn w7_the_same_ids_and_revisions_with_other_content_are_a_rewind() {
    let (fake, follower) = followed().await;
    let snapshot = fake.snapshot();
    fake.put("routes/00001", "{\"before\":1}");
    fake.put("routes/gone", "{}");
    fake.equals(&follower).await;
    fake.restore(&snapshot, None);
    for id in 0..5 {
        fake.put(&format!("routes/after{id}"), "{}");
    }
    let told = fake.equals(&follower).await;
    assert!(
        matches!(told.loads.as_slice(), [Continuity::First, Continuity::Rewound { .. }]),
        "{:?}",
        told.loads
    );
}

/// #20418: a linearizable read that is not.
#[tokio::test]
async fn w6_one_read_that_lags_is_read_again_and_is_no_rewind() {
    let (fake, follower) = followed().await;
    fake.end_streams();
    let stale = Deviation::StaleHead(1);
    fake.deviate_times(1, stale.clone());
    says(&follower, Stage::Proving, "reading once more before the history counts as replaced").await;
    fake.delete("routes/00002");
    let told = fake.equals(&follower).await;
    assert_eq!((fake.played(&stale), told.loads.as_slice()), (1, [Continuity::First].as_slice()));
}
