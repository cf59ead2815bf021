//! Members that must not be followed, and what becomes of a watch on one that falls out of its cluster.

use std::time::Duration;

use headwater_control_plane::backend::etcd::{EtcdCluster, EtcdConfig, EtcdReader, Metrics};
use headwater_control_plane::backend::{Continuity, Reader, Stage};
use headwater_tests::eventually::throughout;
use headwater_tests::fake_etcd::{Deviation, FakeEtcd, PREFIX, config};
use headwater_tests::follower::Follower;

use super::{begin, follow, follow_with, followed, live, says};

#[tokio::test]
async fn w23_a_learner_is_not_followed() {
    let fake = FakeEtcd::start().await;
    fake.deviate(Deviation::Learner);
    fake.fill(10);
    let follower = follow(&fake);
    says(&follower, Stage::BackingOff, "the member is a learner").await;
    assert_eq!((fake.checked(&follower).safe, fake.seen().creates.len()), (0, 0));
    fake.behave();
    fake.equals(&follower).await;
}

#[tokio::test]
async fn w18_a_member_without_a_leader_is_not_followed() {
    let fake = FakeEtcd::start().await;
    fake.deviate(Deviation::Leaderless);
    fake.fill(10);
    let follower = follow(&fake);
    says(&follower, Stage::BackingOff, "the member knows no leader").await;
    assert_eq!((fake.checked(&follower).safe, fake.seen().creates.len()), (0, 0));
    fake.behave();
    fake.equals(&follower).await;
}

#[tokio::test]
async fn w18_a_watch_that_is_refused_for_want_of_a_leader_is_tried_again() {
    let (fake, follower) = followed().await;
    fake.end_streams();
    fake.deviate_times(2, Deviation::LeaderLostAtWatch);
    fake.delete("routes/00002");
    says(&follower, Stage::BackingOff, "etcdserver: no leader").await;
    let told = fake.equals(&follower).await;
    assert_eq!(told.loads, [Continuity::First]);
}

/// It answers progress as if nothing were wrong: what it certifies is what it applied, and no more.
#[tokio::test]
async fn w18_w22_a_member_cut_off_from_its_cluster_certifies_what_it_has_and_the_next_one_goes_on() {
    let (cut_off, other, follower) = two().await;
    cut_off.deviate(Deviation::Leaderless);
    let stale = cut_off.head();
    other.put("routes/00001", "{\"new\":1}");
    other.delete("routes/00002");
    let asked = cut_off.seen().progress;
    throughout("what is certified", Duration::from_millis(800), || async {
        let safe = follower.told().safe;
        if safe == stale { Ok(()) } else { Err(safe) }
    })
    .await;
    assert!(cut_off.seen().progress > asked + 3, "it was asked, and it answered");
    other.checked(&follower);
    cut_off.end_streams();
    let told = other.equals(&follower).await;
    assert_eq!(told.loads, [Continuity::First]);
    live(&follower).await;
}

#[tokio::test]
async fn w15_a_member_that_stops_is_followed_on_where_it_left_off() {
    let fake = FakeEtcd::start().await;
    let follower = begin(&fake).await;
    for round in 0..5 {
        fake.end_streams();
        fake.put("routes/00001", format!("{{\"round\":{round}}}"));
        fake.delete(&format!("routes/{:05}", round + 2));
        fake.equals(&follower).await;
        live(&follower).await;
    }
    assert_eq!(fake.checked(&follower).loads, [Continuity::First]);
}

/// Two members of one cluster, and a follower that is live at the first of the two that are answered.
async fn two() -> (FakeEtcd, FakeEtcd, Follower) {
    let (first, second) = (FakeEtcd::start().await, FakeEtcd::start_second().await);
    first.fill(10);
    second.fill(10);
    let follower = follow_with(config(&[&first, &second]));
    live(&follower).await;
    if first.seen().creates.is_empty() { (second, first, follower) } else { (first, second, follower) }
}

/// #13766: one revision, two contents.
#[tokio::test]
async fn members_that_disagree_are_an_alarm_and_change_nothing() {
    let (followed, other, follower) = two().await;
    followed.put("routes/00001", "{\"here\":1}");
    other.put("routes/00002", "{\"there\":1}");
    followed.equals(&follower).await;
    followed.end_streams();
    says(&follower, Stage::BackingOff, "member_divergence").await;
    followed.delete("routes/00003");
    let told = followed.equals(&follower).await;
    live(&follower).await;
    assert_eq!(told.loads, [Continuity::First]);
}

#[tokio::test]
async fn a_restore_counts_when_the_other_member_agrees_or_does_not_answer() {
    for answers in [true, false] {
        let (followed, other, follower) = two().await;
        let snapshots = (followed.snapshot(), other.snapshot());
        followed.put("routes/00001", "{\"before\":1}");
        followed.equals(&follower).await;
        if answers {
            other.restore(&snapshots.1, None);
        } else {
            other.deviate(Deviation::Leaderless);
        }
        followed.restore(&snapshots.0, None);
        followed.delete("routes/00003");
        if answers {
            other.delete("routes/00003");
        }
        let told = followed.equals(&follower).await;
        let rewound = matches!(told.loads.as_slice(), [Continuity::First, Continuity::Rewound { .. }]);
        assert!(rewound, "{answers}: {:?}", told.loads);
    }
}

/// Whichever of the two a replica begins with; eight begin at random.
#[tokio::test]
async fn of_two_members_the_one_that_lives_is_found_by_watch_and_reads() {
    let fake = FakeEtcd::start().await;
    fake.fill(10);
    let dead = format!("http://127.0.0.1:{}", headwater_tests::ports::free());
    let config = || EtcdConfig { endpoints: vec![dead.clone(), fake.endpoint()], ..config(&[&fake]) };
    for _ in 0..8 {
        let cluster = EtcdCluster::new(config(), Metrics::default());
        EtcdReader::new(cluster.clone(), PREFIX).get(b"routes/00001").await.expect("a read finds it");
        let follower = Follower::resume(&cluster, PREFIX, None);
        live(&follower).await;
        fake.equals(&follower).await;
    }
}
