//! Loads by pages: too large, compacted in the middle, and both under one code.

use std::time::Duration;

use headwater_control_plane::backend::{Continuity, Stage};
use headwater_tests::fake_etcd::{Deviation, FakeEtcd};

use super::{follow, live, says};

async fn filled() -> FakeEtcd {
    let fake = FakeEtcd::start().await;
    fake.fill(1000);
    fake
}

#[tokio::test]
async fn w13_a_page_above_the_decode_limit_is_halved_until_it_passes() {
    let fake = filled().await;
    let large = Deviation::PagesAbove(100);
    fake.deviate(large.clone());
    let follower = follow(&fake);
    let told = fake.equals(&follower).await;
    // 5,000 keys, 2,500, 1,250, 625, 312, 156: then 78, thirteen times.
    assert_eq!((fake.played(&large), fake.seen().pages), (6, 13));
    assert_eq!(told.loads, [Continuity::First]);
}

#[tokio::test]
async fn w28_a_load_that_is_compacted_in_the_middle_starts_over() {
    let fake = filled().await;
    fake.deviate(Deviation::PagesAbove(400));
    fake.deviate_times(2, Deviation::CompactedAfterPage);
    let follower = follow(&fake);
    // Said by a page or by the watch, whichever is first.
    says(&follower, Stage::Loading, "compacted").await;
    let told = fake.equals(&follower).await;
    live(&follower).await;
    assert_eq!(fake.played(&Deviation::CompactedAfterPage), 2);
    assert_eq!(told.loads, [Continuity::First]);
}

#[tokio::test]
async fn w16_compacted_and_too_large_have_one_code_and_are_told_apart() {
    let fake = filled().await;
    fake.deviate_times(1, Deviation::PagesAbove(10));
    fake.deviate_times(1, Deviation::PageCompacted);
    let follower = follow(&fake);
    says(&follower, Stage::Loading, "the revision being read was compacted").await;
    let told = fake.equals(&follower).await;
    // Compacted first, then halved: had they been taken for each other, one of them would fail the attempt.
    assert!(told.states.iter().all(|state| state.stage != Stage::BackingOff), "{:?}", told.states);
    assert_eq!(told.loads, [Continuity::First]);
}

#[tokio::test]
async fn w28_a_store_compacted_under_every_load_is_said_and_loaded_when_it_ends() {
    let fake = filled().await;
    fake.deviate(Deviation::PagesAbove(400));
    fake.deviate(Deviation::CompactedAfterPage);
    let follower = follow(&fake);
    says(&follower, Stage::BackingOff, "again and again: is etcd compacted too often?").await;
    let told = fake.checked(&follower);
    assert_eq!((told.safe, told.loads.len()), (0, 0));
    fake.behave();
    let told = fake.equals(&follower).await;
    assert_eq!(told.loads, [Continuity::First]);
}

/// What the watch delivers and certifies between the pages is told after the load, and not before.
#[tokio::test]
async fn w28_events_and_progress_between_pages_follow_the_load() {
    let fake = filled().await;
    fake.deviate(Deviation::PagesAbove(100));
    fake.deviate(Deviation::SlowPages(Duration::from_millis(60)));
    let follower = follow(&fake);
    follower.until("the watch is open", |_| !fake.seen().creates.is_empty()).await;
    let mut round = 0;
    while follower.told().loads.is_empty() {
        fake.put(&format!("routes/{:05}", round * 31 % 1000), format!("{{\"round\":{round}}}"));
        fake.put("routes/gone", "{}");
        fake.delete("routes/gone");
        // Some writes a page, not all of them before the first.
        tokio::time::sleep(Duration::from_millis(10)).await;
        round += 1;
        assert!(round < 3000, "the load never comes");
    }
    assert!(fake.seen().progress > 0, "progress was answered meanwhile");
    let told = fake.equals(&follower).await;
    assert_eq!((told.loads.as_slice(), fake.seen().creates.len()), ([Continuity::First].as_slice(), 1));
}
