//! Progress that lies, comes too early, too low, or never.

use std::time::Duration;

use headwater_control_plane::backend::{Continuity, Stage};
use headwater_tests::fake_etcd::{Deviation, FakeEtcd};

use super::{begin, believed, follow, followed, live, says};

#[tokio::test]
async fn w8_progress_that_comes_before_created_certifies_nothing() {
    let (fake, follower) = followed().await;
    fake.end_streams();
    fake.deviate(Deviation::ProgressBeforeCreated);
    fake.put("routes/00001", "{\"new\":1}");
    fake.put("routes/new", "{}");
    fake.delete("routes/00002");
    fake.has_played(&Deviation::ProgressBeforeCreated).await;
    let told = fake.equals(&follower).await;
    assert_eq!(told.loads, [Continuity::First], "resumed, not read again");
}

#[tokio::test]
async fn w10_progress_below_the_safe_revision_is_ignored_and_a_sign_of_life() {
    let (fake, follower) = followed().await;
    fake.deviate(Deviation::ProgressLow(3));
    fake.put("routes/00001", "{\"new\":1}");
    let safe = fake.put("routes/00002", "{\"new\":1}");
    fake.equals(&follower).await;
    let asked = fake.played(&Deviation::ProgressLow(3));
    // More than the limit of silence: only progress shows that the stream lives.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert!(fake.played(&Deviation::ProgressLow(3)) > asked + 5);
    let told = fake.checked(&follower);
    assert_eq!((told.safe, fake.seen().creates.len()), (safe, 1));
    assert!(told.states.last().is_some_and(|state| state.is_live()));
}

#[tokio::test]
async fn w29_where_progress_is_never_answered_the_watch_is_reopened_and_nothing_but_events_certifies() {
    let fake = FakeEtcd::start().await;
    fake.deviate(Deviation::ProgressUnanswered);
    fake.fill(10);
    // The load is of a revision that touches nothing: a watch from it has nothing to say.
    fake.put_elsewhere();
    let follower = follow(&fake);
    says(&follower, Stage::CatchingUp, "progress is never answered, the watch is reopened every 2 s").await;
    let safe = fake.put("routes/00001", "{\"new\":1}");
    fake.delete("routes/00002");
    fake.equals(&follower).await;
    fake.put_elsewhere();
    let opened = fake.seen().creates.len();
    follower.until("opened again", |_| fake.seen().creates.len() > opened).await;
    let told = fake.equals(&follower).await;
    assert_eq!((told.safe, believed(&follower)), (safe + 1, 0));
    assert_eq!(told.loads, [Continuity::First]);
}

#[tokio::test]
async fn w21_progress_that_comes_unasked_certifies_where_no_request_is_answered() {
    let (fake, follower) = followed().await;
    fake.deviate(Deviation::ProgressUnasked(Duration::from_millis(300)));
    let asked = fake.seen().progress;
    for round in 0..3 {
        fake.put("routes/00001", format!("{{\"round\":{round}}}"));
        let head = fake.put_elsewhere();
        follower.until("unasked progress reaches the head", |told| told.safe == head).await;
    }
    fake.equals(&follower).await;
    assert!(fake.seen().progress > asked + 3);
    assert_eq!(fake.seen().creates.len(), 1);
}

/// #15220 in a release that nobody knows to have it.
#[tokio::test]
async fn w10_w11_an_event_below_what_progress_certified_is_found_out_and_everything_is_read() {
    let (fake, follower) = followed().await;
    let ahead = Deviation::ProgressAhead(Duration::from_millis(500));
    fake.deviate(ahead.clone());
    fake.put("routes/00001", "{\"new\":1}");
    follower.until("it is found out", |told| told.loads.len() == 2).await;
    fake.behave();
    let broken = fake.heals(&follower).await;
    assert!(broken.iter().all(|breach| breach.contains("progress certified")), "{broken:?}");
    assert!(fake.played(&ahead) >= 2);
    live(&follower).await;
}

#[tokio::test]
async fn w1_progress_follows_writes_that_are_not_below_the_prefix() {
    let fake = FakeEtcd::start().await;
    let follower = begin(&fake).await;
    let head = fake.put_elsewhere();
    follower.until("progress reaches the head", |told| told.safe == head).await;
    fake.checked(&follower);
}
