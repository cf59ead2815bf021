//! Several environments over one connection: a fault of one stream is that stream's.

use headwater_control_plane::backend::etcd::{EtcdCluster, Metrics};
use headwater_control_plane::backend::{Continuity, Stage};
use headwater_tests::fake_etcd::{Deviation, FakeEtcd, PREFIX, config};
use headwater_tests::follower::Follower;

use super::live;

/// How many watches each prefix opened.
fn opened(fake: &FakeEtcd, prefix: &str) -> usize {
    let key = format!("{prefix}/");
    fake.seen().creates.iter().filter(|create| create.key == key.as_bytes()).count()
}

#[tokio::test]
async fn w3_w15_the_fault_of_one_stream_leaves_the_others_and_their_connection_alone() {
    let fake = FakeEtcd::start().await;
    fake.fill(10);
    let shared = EtcdCluster::new(config(&[&fake]), Metrics::default());
    let follower = Follower::resume(&shared, PREFIX, None);
    let others = ["/other", "/third"].map(|prefix| Follower::resume(&shared, prefix, None));
    fake.equals(&follower).await;
    for follower in others.iter().chain([&follower]) {
        live(follower).await;
    }
    // One for the watches, one for the loads.
    assert_eq!(fake.seen().connections, 2);
    // Only a write below the prefix sends something that a stream can fail by.
    let faults = [
        vec![(1, Deviation::EndsAfter(0))],
        vec![(1, Deviation::EndsAfter(0)), (2, Deviation::BareCancel)],
        vec![(1, Deviation::EndsAfter(0)), (1, Deviation::WatchRefused("etcdserver: permission denied"))],
        vec![(1, Deviation::BatchesAbove(0))],
    ];
    for (round, faults) in faults.into_iter().enumerate() {
        let before = opened(&fake, PREFIX);
        for (times, fault) in faults {
            fake.deviate_times(times, fault);
        }
        fake.put("routes/00001", format!("{{\"round\":{round}}}"));
        follower.until("opened again", |_| opened(&fake, PREFIX) > before).await;
        fake.equals(&follower).await;
        live(&follower).await;
    }
    assert_eq!((opened(&fake, "/other"), opened(&fake, "/third"), fake.seen().connections), (1, 1, 2));
    for other in &others {
        let told = other.told();
        assert_eq!(told.loads, [Continuity::First]);
        assert!(told.states.iter().all(|state| state.stage != Stage::BackingOff), "{:?}", told.states);
    }
}
