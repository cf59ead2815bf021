//! What a watch delivers of the time it was away.

use headwater_control_plane::backend::Continuity;
use headwater_control_plane::backend::embedded::mvcc::Limits;
use headwater_tests::fake_etcd::{Deviation, FakeEtcd};

use super::{begin, followed, live};

#[tokio::test]
async fn w2_a_header_ahead_of_the_events_of_a_catch_up_certifies_nothing() {
    let fake = FakeEtcd::with_limits(Limits { revisions_per_pass: 10, ..Limits::ETCD }).await;
    let follower = begin(&fake).await;
    fake.end_streams();
    let ends = Deviation::EndsAfter(3);
    fake.deviate_times(2, ends.clone());
    for round in 0..100 {
        fake.put(&format!("routes/{:05}", round % 10), format!("{{\"round\":{round}}}"));
    }
    fake.delete("routes/00009");
    let told = fake.equals(&follower).await;
    assert_eq!((fake.played(&ends), fake.seen().creates.len()), (2, 4), "cut twice in the middle");
    assert_eq!(told.loads, [Continuity::First]);
}

/// The cancel of a compacted watcher has no reason, and zero for its revision.
#[tokio::test]
async fn w16_compacted_before_it_caught_up_leads_to_a_full_read_and_keeps_deletions() {
    let (fake, follower) = followed().await;
    fake.end_streams();
    fake.deviate(Deviation::NoCatchUp);
    fake.delete("routes/00002");
    fake.put("routes/00001", "{\"new\":1}");
    follower.until("opened again", |_| fake.seen().creates.len() == 2).await;
    fake.compact();
    fake.behave();
    let told = fake.equals(&follower).await;
    assert_eq!(told.loads, [Continuity::First, Continuity::Unproven]);
}

#[tokio::test]
async fn w15_a_cancel_that_says_nothing_drops_the_stream_and_resumes() {
    let (fake, follower) = followed().await;
    fake.end_streams();
    fake.deviate_times(2, Deviation::BareCancel);
    fake.delete("routes/00002");
    let told = fake.equals(&follower).await;
    live(&follower).await;
    assert_eq!((fake.played(&Deviation::BareCancel), fake.seen().creates.len()), (2, 4));
    assert_eq!(told.loads, [Continuity::First]);
}

/// #15271.
#[tokio::test]
async fn w10_events_that_come_again_are_dropped() {
    let (fake, follower) = followed().await;
    fake.deviate(Deviation::EventsReplayed);
    for round in 0..20 {
        fake.put("routes/00001", format!("{{\"round\":{round}}}"));
    }
    fake.delete("routes/00002");
    fake.put("routes/00002", "{\"again\":1}");
    fake.delete("routes/00003");
    follower.until("all of it is told", |told| told.safe >= fake.head()).await;
    fake.end_streams();
    fake.delete("routes/00004");
    fake.equals(&follower).await;
    // Progress comes after what came again before it: that was judged.
    let head = fake.put_elsewhere();
    follower.until("progress reaches the head", |told| told.safe >= head).await;
    let told = fake.equals(&follower).await;
    assert!(fake.played(&Deviation::EventsReplayed) > 20);
    assert_eq!(told.loads, [Continuity::First]);
}

/// A gap in a release that nobody knows to have it: nothing in the stream shows it, the content proof does.
#[tokio::test]
async fn w7_a_gap_in_the_stream_is_found_by_the_content_proof_at_the_next_reconnect() {
    let (fake, follower) = followed().await;
    fake.deviate(Deviation::EventsLost);
    fake.put("routes/00001", "{\"lost\":1}");
    fake.delete("routes/00002");
    follower.until("both are lost", |_| fake.played(&Deviation::EventsLost) == 2).await;
    fake.behave();
    let after = fake.put("routes/00003", "{\"after\":1}");
    follower.until("the gap is covered up", |told| told.safe >= after).await;
    fake.end_streams();
    fake.heals(&follower).await;
    assert!(matches!(follower.told().loads.last(), Some(Continuity::Rewound { .. })));
}
