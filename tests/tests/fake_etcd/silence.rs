//! Silence of every kind: a frozen transport, a stuck member, and one that is only slow.

use std::time::Duration;

use headwater_control_plane::backend::{Continuity, Stage};
use headwater_tests::fake_etcd::{Deviation, FakeEtcd, config_of};
use headwater_tests::tcp_proxy::TcpProxy;

use super::{follow_with, followed, live, says};

#[tokio::test]
async fn w19_a_frozen_transport_is_found_dead_and_delivers_nothing() {
    let fake = FakeEtcd::start().await;
    fake.fill(10);
    let proxy = TcpProxy::start(fake.address.to_string()).await;
    let follower = follow_with(config_of(vec![format!("http://{}", proxy.address)]));
    fake.equals(&follower).await;
    live(&follower).await;
    proxy.freeze();
    let safe = follower.told().safe;
    fake.put("routes/00001", "{\"new\":1}");
    fake.delete("routes/00002");
    says(&follower, Stage::BackingOff, "the watch was silent for").await;
    assert_eq!(fake.checked(&follower).safe, safe);
    proxy.heal();
    let told = fake.equals(&follower).await;
    assert_eq!(told.loads, [Continuity::First]);
}

#[tokio::test]
async fn w19_a_stuck_member_behind_a_live_connection_is_found_dead_and_delivers_nothing() {
    let (fake, follower) = followed().await;
    fake.deviate(Deviation::Silent);
    let safe = follower.told().safe;
    fake.put("routes/00001", "{\"new\":1}");
    fake.delete("routes/00002");
    says(&follower, Stage::BackingOff, "the watch was silent for").await;
    assert_eq!(fake.checked(&follower).safe, safe);
    fake.behave();
    let told = fake.equals(&follower).await;
    assert_eq!(told.loads, [Continuity::First]);
}

#[tokio::test]
async fn w20_a_slow_first_frame_after_a_resume_is_waited_for() {
    let (fake, follower) = followed().await;
    fake.end_streams();
    let slow = Deviation::SlowFirstFrame(Duration::from_millis(2000));
    fake.deviate(slow.clone());
    fake.put("routes/00001", "{\"new\":1}");
    fake.delete("routes/00002");
    let told = fake.equals(&follower).await;
    // Twice the limit of silence, and it was not opened again.
    assert_eq!((fake.played(&slow), fake.seen().creates.len()), (1, 2));
    assert_eq!(told.loads, [Continuity::First]);
}
