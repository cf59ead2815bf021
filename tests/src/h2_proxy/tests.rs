use std::time::Duration;

use etcd_client::{Client, EventType, WatchOptions};
use tokio::time::{Instant, timeout};

use super::*;
use crate::etcd::Etcd;
use crate::eventually::eventually;

const WATCH: &str = "/etcdserverpb.Watch/Watch";
const RANGE: &str = "/etcdserverpb.KV/Range";
const MOMENT: Duration = Duration::from_millis(300);
const LIMIT: Duration = Duration::from_secs(10);

/// etcd, the proxy before it, and a client through the proxy.
async fn world() -> (Etcd, H2Proxy, Client) {
    let etcd = Etcd::start().await;
    let proxy = H2Proxy::start(etcd.address()).await;
    let client = Client::connect([format!("http://{}", proxy.address)], None).await.unwrap();
    (etcd, proxy, client)
}

#[tokio::test]
async fn passes_calls_and_watches_unharmed() {
    let (_etcd, proxy, mut client) = world().await;
    let mut watch = client.watch("/x", Some(WatchOptions::new().with_prefix())).await.unwrap();
    assert!(timeout(LIMIT, watch.message()).await.unwrap().unwrap().unwrap().created());
    // Larger than one window of either side.
    let value = vec![7; 1_400_000];
    client.put("/x/a", value.clone(), None).await.unwrap();
    let answer = client.get("/x/a", None).await.unwrap();
    assert_eq!(answer.kvs()[0].value(), value);
    let events = timeout(LIMIT, watch.message()).await.unwrap().unwrap().unwrap();
    assert_eq!(events.events()[0].event_type(), EventType::Put);
    assert_eq!((proxy.seen(WATCH).open, proxy.seen(WATCH).swallowed), (1, 0));
    assert_eq!((proxy.seen(RANGE).opened, proxy.seen(RANGE).open), (1, 0));
    assert!(proxy.seen(RANGE).passed > 1_400_000);
    assert_eq!(proxy.connections(), 1);
}

#[tokio::test]
async fn a_swallowed_watch_stays_open_while_other_calls_pass() {
    let (_etcd, proxy, mut client) = world().await;
    let mut watch = client.watch("/x", Some(WatchOptions::new().with_prefix())).await.unwrap();
    assert!(watch.message().await.unwrap().unwrap().created());
    client.put("/x/a", "1", None).await.unwrap();
    assert_eq!(timeout(LIMIT, watch.message()).await.unwrap().unwrap().unwrap().events().len(), 1);

    proxy.swallow(WATCH, Reach::OpenNow);
    client.put("/x/b", "1", None).await.unwrap();
    client.delete("/x/a", None).await.unwrap();
    watch.request_progress().await.unwrap();
    assert!(timeout(MOMENT, watch.message()).await.is_err(), "nothing comes, and no end either");
    assert_eq!(client.get("/x/b", None).await.unwrap().kvs().len(), 1);
    assert!(proxy.seen(WATCH).swallowed > 0);
    assert_eq!((proxy.seen(WATCH).open, proxy.connections()), (1, 1));

    // Another client opens a stream of its own and gets through, on the same path.
    let mut other = Client::connect([format!("http://{}", proxy.address)], None).await.unwrap();
    let options = WatchOptions::new().with_prefix().with_start_revision(2);
    let mut fresh = other.watch("/x", Some(options)).await.unwrap();
    assert!(timeout(LIMIT, fresh.message()).await.unwrap().unwrap().unwrap().created());
    assert_eq!(timeout(LIMIT, fresh.message()).await.unwrap().unwrap().unwrap().events().len(), 3);

    // The client that gives up is not left on the proxy's hands.
    drop(watch);
    drop(client);
    eventually("the swallowed stream is gone", LIMIT, || async {
        let open = proxy.seen(WATCH).open;
        if open == 1 { Ok(()) } else { Err(open) }
    })
    .await;
}

#[tokio::test]
async fn with_all_reach_new_streams_are_swallowed_until_healed() {
    let (_etcd, proxy, mut client) = world().await;
    proxy.swallow(WATCH, Reach::All);
    let mut swallowed = client.watch("/x", None).await.unwrap();
    assert!(timeout(MOMENT, swallowed.message()).await.is_err(), "the answer `created` is swallowed");
    proxy.heal();
    let mut fresh = client.watch("/x", None).await.unwrap();
    assert!(timeout(LIMIT, fresh.message()).await.unwrap().unwrap().unwrap().created());
}

#[tokio::test]
async fn a_throttled_path_is_slow_and_the_others_are_not() {
    let (_etcd, proxy, mut client) = world().await;
    client.put("/x/a", vec![7; 50_000], None).await.unwrap();
    proxy.throttle(RANGE, 100_000);
    let began = Instant::now();
    assert_eq!(client.get("/x/a", None).await.unwrap().kvs()[0].value().len(), 50_000);
    assert!(began.elapsed() >= Duration::from_millis(450), "{:?}", began.elapsed());
}

#[tokio::test]
async fn the_end_of_the_server_is_the_end_of_the_connection() {
    let (mut etcd, _proxy, mut client) = world().await;
    let mut watch = client.watch("/x", None).await.unwrap();
    assert!(watch.message().await.unwrap().unwrap().created());
    etcd.kill();
    let end = timeout(LIMIT, watch.message()).await.expect("the client is told");
    assert!(matches!(end, Err(_) | Ok(None)), "{end:?}");
}
