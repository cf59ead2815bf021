//! The loss scenario that gave rise to this project, on the first hop: the watch is established and answers, then
//! its response bytes vanish while the connection stays open and all other calls pass. What is written meanwhile
//! must arrive all the same.

use std::time::Duration;

use headwater_tests::etcd::{Etcd, dependable};
use headwater_tests::follower::{Follower, config};
use headwater_tests::h2_proxy::{H2Proxy, Reach};
use tokio::time::Instant;

const PREFIX: &str = "/apisix";
const WATCH: &str = "/etcdserverpb.Watch/Watch";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_written_while_the_watch_is_swallowed_is_not_lost() {
    if !dependable("what_is_written_while_the_watch_is_swallowed_is_not_lost") {
        return;
    }
    let etcd = Etcd::start().await;
    let mut client = etcd.client().await;
    for key in ["routes/kept", "routes/deleted"] {
        client.put(format!("{PREFIX}/{key}"), "{}", None).await.expect("etcd takes a write");
    }
    let proxy = H2Proxy::start(etcd.address()).await;
    let endpoints = vec![format!("http://{}", proxy.address)];
    let limit = config(endpoints.clone()).liveness_timeout + Duration::from_secs(5);
    let follower = Follower::start(endpoints, PREFIX);
    follower.until("live", |told| told.states.last().is_some_and(|state| state.is_live())).await;

    proxy.swallow(WATCH, Reach::OpenNow);
    let began = Instant::now();
    client.put(format!("{PREFIX}/routes/written"), "{}", None).await.expect("etcd takes a write");
    client.delete(format!("{PREFIX}/routes/deleted"), None).await.expect("etcd takes a delete");
    follower.equals_within(&client, limit).await;

    assert!(began.elapsed() <= limit);
    assert!(proxy.seen(WATCH).swallowed > 0, "the events were on the way, and were swallowed");
    let told = follower.told();
    assert!(told.keys.contains_key(b"routes/written".as_slice()));
    assert!(!told.keys.contains_key(b"routes/deleted".as_slice()));
    assert_eq!(told.loads.len(), 1, "delivered by the next watch, not by reading everything again");
}
