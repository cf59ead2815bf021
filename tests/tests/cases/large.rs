//! C12 and big data: much of it, large values, large transactions, and an etcd that others write to.

use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use headwater_proto::limits;
use headwater_tests::case::{either, is_full, number};
use headwater_tests::cut_off::{sent, transfers};
use headwater_tests::etcd::dependable;
use headwater_tests::h2_proxy::H2Proxy;
use headwater_tests::keys::{Keys, Write, route, upstream};
use headwater_tests::planes::{LIMIT, Node, Replica, SYNC, WATCH};
use headwater_tests::site::Site;
use headwater_tests::tcp_proxy::TcpProxy;
use serde_json::Value;

/// The path of etcd's reads.
const RANGE: &str = "/etcdserverpb.KV/Range";
/// What gRPC clients take when nobody sets a limit: the wall of the case.
const USUAL: u64 = 4 << 20;
/// Of one value; etcd takes requests of 1.5 MiB.
const LARGE: usize = 1_400_000;
/// Bytes of a usual value.
const VALUE: u64 = 700;

/// Routes that nodes can use, of [`VALUE`] bytes.
async fn fill(keys: &Keys, resources: u64) {
    for first in (0..resources).step_by(100) {
        let put = |write: Write, id| {
            let head = format!("/bench/{id:07}/");
            let path = head + &"x".repeat(usize::try_from(VALUE).unwrap() - 50);
            write.put(&format!("routes/{id:07}"), &route(&path, "1"))
        };
        keys.commit((first..first + 100).fold(Write::default(), put)).await;
    }
}

/// A proxy that sees messages, and the endpoint.
async fn seen(address: &str) -> (H2Proxy, String) {
    let proxy = H2Proxy::start(address).await;
    let endpoint = format!("http://{}", proxy.address);
    (proxy, endpoint)
}

fn large(mark: &str, bytes: usize) -> Value {
    let mut value = upstream("127.0.0.1:80");
    value["desc"] = mark.repeat(bytes).into();
    value
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c12_more_than_fits_a_message_is_read_in_pages_and_sent_in_parts() {
    if !dependable("c12_more_than_fits_a_message_is_read_in_pages_and_sent_in_parts") {
        return;
    }
    let (site, resources) = (Site::start().await, either(12_000, 60_000));
    fill(&site.keys, resources).await;
    site.keys.put("upstreams/large", &large("a", LARGE)).await;
    let (first, etcd) = seen(site.etcd.address()).await;
    let began = Instant::now();
    let replica = site.replica_at("r1", &[etcd], &[]);
    // The pages are of one revision, whatever is written while they are read.
    for id in 0..20 {
        site.keys.put(&format!("upstreams/meanwhile-{id}"), &upstream("127.0.0.1:80")).await;
    }
    replica.ready().await;
    let ready = began.elapsed();
    let (second, _) = seen(&replica.southbound).await;
    let node = Node::start(site.folder(), "n1", &second.address.to_string(), &[]);
    node.shows("all of them", |it| it["resources"].as_u64() == Some(resources + 22)).await;
    let came = began.elapsed();
    let held = node.equals(&site.keys, LIMIT * 2).await;
    println!("c12: {resources} routes: ready in {ready:?}, on a node {came:?} after the start");
    assert_eq!(held.content.len() as u64, resources + 22);

    let pages = first.seen(RANGE);
    let all = resources * VALUE;
    assert!(pages.passed > all, "{pages:?}: not everything was read through the proxy");
    assert!(pages.largest < USUAL && pages.opened > all / USUAL, "{pages:?} of {all} bytes");
    let transfer = second.seen(SYNC);
    assert!(transfer.passed > all && transfer.largest <= limits::MAX_MESSAGE_BYTES as u64, "{transfer:?}");
    println!("c12: largest page {} bytes, largest part {}", pages.largest, transfer.largest);
    if is_full() {
        assert!(ready < Duration::from_secs(20), "the case's bound: {ready:?}");
    }

    // One key of 1.4 MB, as it comes by the watch.
    let revision = site.keys.put("upstreams/large", &large("b", LARGE)).await;
    node.reaches(revision).await;
    let watched = first.seen(WATCH);
    assert!(watched.largest > LARGE as u64, "{watched:?}");
    site.keys.put("routes/large", &route("/large", "large")).await;
    site.keys.delete("upstreams/meanwhile-7").await;
    node.equals(&site.keys, LIMIT * 2).await;
    let transfer = second.seen(SYNC);
    assert!(transfer.largest > LARGE as u64 && transfer.largest <= limits::MAX_MESSAGE_BYTES as u64);
}

/// One transaction of about 1.4 MB over a hundred keys.
fn transaction(round: usize) -> Write {
    let mark = ["a", "b", "c"][round % 3];
    let put = |write: Write, id| write.put(&format!("upstreams/big-{id}"), &large(mark, 14_000));
    (0..100).fold(Write::default(), put)
}

/// A replica that is away while this many large transactions are committed; answers the largest message of its watch
/// and how often it read everything.
async fn missed(site: &Site, transactions: usize) -> (u64, f64) {
    let (sight, _) = seen(site.etcd.address()).await;
    let proxy = TcpProxy::start(sight.address.to_string()).await;
    let id = format!("r{transactions}");
    let replica = site.replica_at(&id, &[format!("http://{}", proxy.address)], &[]);
    let node = site.node(&format!("n{transactions}"), &replica);
    site.equals(&[&node]).await;
    replica.live(LIMIT).await;
    let loads = replica.metric("headwater_source_loads_total").await;
    proxy.refuse();
    for round in 0..transactions {
        site.keys.commit(transaction(round)).await;
    }
    let last = site.keys.delete(&format!("upstreams/big-{}", transactions % 100)).await;
    proxy.heal();
    let began = Instant::now();
    node.reaches(last).await;
    let held = node.equals(&site.keys, LIMIT).await;
    assert_eq!(held.content, site.keys.content(Some(held.revision)).await);
    let recorded = recorded_bytes(&replica).await;
    println!(
        "c12: {transactions} transactions of 1.4 MB missed, equal after {:?}; {recorded} bytes by the watch, \
         largest message {}",
        began.elapsed(),
        sight.seen(WATCH).largest
    );
    (sight.seen(WATCH).largest, replica.metric("headwater_source_loads_total").await - loads)
}

/// What the recorder has of the watch's events, in bytes of keys and values.
async fn recorded_bytes(replica: &Replica) -> u64 {
    let (status, text) = replica.command(&["source", "recorder", "--last", "0", "-o", "json"]).await;
    assert!(status.success(), "{text}");
    let shown: Value = serde_json::from_str(&text).unwrap();
    let records = shown["records"].as_array().unwrap();
    records.iter().filter_map(|record| record["bytes"].as_u64()).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c12_large_transactions_that_were_missed_are_caught_up() {
    if !dependable("c12_large_transactions_that_were_missed_are_caught_up") {
        return;
    }
    let site = Site::start().await;
    let transactions = either(8, 100);
    let (largest, loads) = missed(&site, transactions).await;
    assert_eq!(loads, 0.0, "resumed, not read again");
    assert!(largest > 1 << 20, "the parts are none: {largest}");
    if is_full() {
        // More than the decode limit of 256 MiB: by parts or by pages, the same comes out, and it comes to an end.
        let (_, loads) = missed(&site, 220).await;
        assert!(loads <= 1.0, "{loads} full reads");
    }
}

/// Other tenants' writes, by sixteen of them at once: this many, or this many a second for a time.
async fn tenants(keys: &Keys, seconds: u64, rate: u64) -> u64 {
    const TENANTS: u64 = 16;
    let each = |tenant: u64| async move {
        let mut ticks = tokio::time::interval(Duration::from_secs(1) * 16 / u32::try_from(rate)?);
        for write in 0..seconds * rate / TENANTS {
            ticks.tick().await;
            keys.put_outside(&format!("/tenant/{tenant}/{}", write % 100), "x".repeat(100)).await;
        }
        Ok::<u64, anyhow::Error>(seconds * rate / TENANTS)
    };
    try_join_all((0..TENANTS).map(each)).await.unwrap().into_iter().sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c12_of_what_other_tenants_wrote_meanwhile_only_our_changes_come() {
    if !dependable("c12_of_what_other_tenants_wrote_meanwhile_only_our_changes_come") {
        return;
    }
    let site = Site::start().await;
    let proxy = TcpProxy::start(site.etcd.address()).await;
    let endpoints = [format!("http://{}", proxy.address)];
    let revision = site.routes(0..100).await;
    // One goes on from where it was, one is told that this is too far: it reads everything again.
    let replicas =
        [("r1", "etcd.resume_span=10000000"), ("r2", "etcd.resume_span=1000")].map(|(id, span)| {
            let replica = site.replica_at(id, &endpoints, &[span]);
            let node = site.node(&format!("{id}-node"), &replica);
            (replica, node)
        });
    let mut before = Vec::new();
    for (replica, node) in &replicas {
        replica.live(LIMIT).await;
        before.push((node.reaches(revision).await, sent(replica).await.0));
    }
    proxy.refuse();
    let (seconds, rate) = (either(3, number("HEADWATER_C12_SECONDS", 600)), 2_000);
    let began = Instant::now();
    let ours = async {
        for id in 0..10 {
            site.keys.put(&format!("routes/{id}"), &route(&format!("/changed{id}"), "1")).await;
            tokio::time::sleep(Duration::from_secs(seconds) / 20).await;
            site.keys.delete(&format!("routes/{}", 50 + id)).await;
        }
    };
    let (written, ()) = tokio::join!(tenants(&site.keys, seconds, rate), ours);
    println!("c12: {written} writes of others in {:?}", began.elapsed());
    // Progress was told to the nodes all the while; what counts is what follows.
    let mut told = Vec::new();
    for (replica, _) in &replicas {
        told.push(sent(replica).await.1);
    }
    proxy.heal();
    let back = Instant::now();
    for (((replica, node), (before, begun)), bytes) in replicas.iter().zip(&before).zip(told) {
        let after = node.reaches(site.keys.head().await).await;
        node.equals(&site.keys, LIMIT).await;
        let (now, more) = sent(replica).await;
        assert_eq!((transfers(&after), now), (transfers(before) + 1, begun + 1.0), "one transfer brings all");
        assert!(more - bytes < 16_384.0, "{} bytes are more than 20 changes", more - bytes);
        let loads = replica.metric("headwater_source_loads_total").await;
        println!("c12: back after {:?} with {} bytes, {loads} full reads", back.elapsed(), more - bytes);
    }
    for ((replica, _), loads) in replicas.iter().zip([1.0, 2.0]) {
        assert_eq!(replica.metric("headwater_source_loads_total").await, loads);
    }
}
