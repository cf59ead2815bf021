//! One deviation after the other, drawn at random, under writes: whatever comes together, nothing is lost, nothing
//! invented, and nothing certified that was not delivered. Only deviations that no client can see through (those that
//! lie although the release may be believed) have no part in it.

use std::time::Duration;

use headwater_control_plane::backend::embedded::mvcc::Limits;
use headwater_tests::fake_etcd::{Deviation, FakeEtcd, put};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::{follow, live};

const ROUNDS: u32 = 25;

fn draw(random: &mut StdRng) -> Deviation {
    let ms = Duration::from_millis;
    match random.random_range(0..20) {
        0 => Deviation::ProgressUnanswered,
        1 => Deviation::ProgressBeforeCreated,
        2 => Deviation::ProgressLow(random.random_range(1..20)),
        3 => Deviation::ProgressUnasked(ms(150)),
        4 => Deviation::EventsReplayed,
        5 => Deviation::NoCatchUp,
        6 => Deviation::SlowFirstFrame(ms(300)),
        7 => Deviation::Silent,
        8 => Deviation::CreatedLast,
        9 => Deviation::EndsAfter(random.random_range(0..4)),
        10 => Deviation::EndsInFragment,
        11 => Deviation::BatchesAbove(random.random_range(5..40)),
        12 => Deviation::PagesAbove(random.random_range(3..50)),
        13 => Deviation::WatchRefused("etcdserver: mvcc: required revision has been compacted"),
        14 => Deviation::BareCancel,
        15 => Deviation::WatchFromMember(0xbad),
        16 => Deviation::CompactedAfterPage,
        17 => Deviation::PageCompacted,
        18 => Deviation::SlowPages(ms(40)),
        _ => Deviation::LeaderLostAtWatch,
    }
}

fn write(fake: &FakeEtcd, random: &mut StdRng) {
    let key = format!("routes/{:05}", random.random_range(0..60));
    let value = format!("{{\"n\":{}}}", random.random::<u32>());
    match random.random_range(0..6) {
        0 => {
            fake.commit(
                (0..random.random_range(2..12)).map(|id| put(&format!("upstreams/{id}"), value.clone())),
            );
        }
        1 | 2 if fake.timeline().content().contains_key(key.as_bytes()) => {
            fake.delete(&key);
        }
        3 => {
            fake.put_elsewhere();
        }
        _ => {
            fake.put(&key, value);
        }
    }
}

async fn storm(seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let fragment_bytes = [300, 2 << 20][random.random_range(0..2)];
    let revisions_per_pass = [1, 5, 1000][random.random_range(0..3)];
    let fake = FakeEtcd::with_limits(Limits { fragment_bytes, revisions_per_pass, ..Limits::ETCD }).await;
    fake.fill(30);
    let follower = follow(&fake);
    for _ in 0..ROUNDS {
        let times = random.random_range(1..4);
        fake.deviate_times(times, draw(&mut random));
        for _ in 0..random.random_range(0..20) {
            write(&fake, &mut random);
        }
        match random.random_range(0..6) {
            0 | 1 => fake.end_streams(),
            2 => {
                fake.try_compact();
            }
            _ => {}
        }
        tokio::time::sleep(Duration::from_millis(random.random_range(0..200))).await;
        fake.checked(&follower);
    }
    fake.behave();
    fake.equals(&follower).await;
    live(&follower).await;
    println!("seed {seed}: {} watches, loads {:?}", fake.seen().creates.len(), follower.told().loads);
}

#[tokio::test]
async fn w1_to_w32_in_any_order_end_equal_and_certify_nothing_undelivered() {
    // Fixed seeds: what one shows can be looked at again, though not in step.
    tokio::join!(storm(1), storm(2), storm(3), storm(4), storm(5), storm(6), storm(7), storm(8));
}
