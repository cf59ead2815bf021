//! Responses that are split, that should be and are not, and that no limit lets pass.

use headwater_control_plane::backend::embedded::mvcc::Limits;
use headwater_control_plane::backend::{Continuity, SourceEvent};
use headwater_tests::fake_etcd::{Deviation, FakeEtcd, put};
use headwater_tests::follower::Told;

use super::{begin, followed};

/// Twenty keys in one transaction, in several parts under small limits.
fn together(fake: &FakeEtcd, round: u32) -> u64 {
    let value = format!("{{\"round\":{round},\"desc\":\"{}\"}}", "x".repeat(100));
    fake.commit((0..20).map(|id| put(&format!("upstreams/{id}"), value.clone())))
}

async fn small_parts() -> FakeEtcd {
    FakeEtcd::with_limits(Limits { fragment_bytes: 400, ..Limits::ETCD }).await
}

/// How many events of a revision each batch holds.
fn batches(told: &Told, revision: u64) -> Vec<usize> {
    let count = |event: &SourceEvent| match event {
        SourceEvent::Batch(batch) => {
            Some(batch.events.iter().filter(|event| event.revision().0 == revision).count())
        }
        _ => None,
    };
    told.record.iter().filter_map(|event| count(event.as_ref())).filter(|count| *count > 0).collect()
}

#[tokio::test]
async fn w12_the_parts_of_a_transaction_are_published_together() {
    let fake = small_parts().await;
    let follower = begin(&fake).await;
    let revision = together(&fake, 0);
    let told = fake.equals(&follower).await;
    assert_eq!(batches(&told, revision), [20]);
}

#[tokio::test]
async fn w12_a_stream_that_ends_between_parts_publishes_none_of_them() {
    let fake = small_parts().await;
    let follower = begin(&fake).await;
    fake.deviate_times(3, Deviation::EndsInFragment);
    let revision = together(&fake, 1);
    let told = fake.equals(&follower).await;
    assert_eq!(fake.played(&Deviation::EndsInFragment), 3);
    assert_eq!(batches(&told, revision), [20]);
    assert_eq!(told.loads, [Continuity::First]);
}

#[tokio::test]
async fn w13_what_queued_up_before_created_is_not_split_and_taken_whole() {
    let (fake, follower) = followed().await;
    fake.end_streams();
    fake.deviate(Deviation::CreatedLast);
    for id in 0..6 {
        fake.put(&format!("routes/{id:05}"), "x".repeat(1 << 20));
    }
    let told = fake.equals(&follower).await;
    assert!(fake.played(&Deviation::CreatedLast) > 0);
    assert_eq!(told.loads, [Continuity::First], "resumed, not read again");
}

#[tokio::test]
async fn w13_a_batch_above_the_decode_limit_is_read_by_pages_and_not_resumed_for_ever() {
    let (fake, follower) = followed().await;
    fake.end_streams();
    let large = Deviation::BatchesAbove(50);
    fake.deviate(large.clone());
    for id in 0..200 {
        fake.put(&format!("routes/{id:05}"), "{\"new\":1}");
    }
    fake.delete("routes/00003");
    let told = fake.equals(&follower).await;
    assert_eq!(fake.played(&large), 1);
    assert_eq!(told.loads, [Continuity::First, Continuity::Proven]);
}

/// A breach of the protocol that no client can foresee: the half that came first counted as whole.
#[tokio::test]
async fn w11_one_revision_in_two_responses_is_found_out_and_everything_is_read() {
    let (fake, follower) = followed().await;
    fake.deviate_times(1, Deviation::RevisionSplit);
    together(&fake, 2);
    follower.until("it is found out", |told| told.loads.len() == 2).await;
    let broken = fake.heals(&follower).await;
    assert_eq!(broken.len(), 1, "{broken:?}");
}
