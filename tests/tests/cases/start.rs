//! C02, C21: a replica that starts while others write, and while members are away.

use std::time::{Duration, Instant};

use headwater_process::{Policy, Supervisor};
use headwater_tests::case::{either, times};
use headwater_tests::etcd::{Options, dependable};
use headwater_tests::keys::upstream;
use headwater_tests::planes::LIMIT;
use headwater_tests::site::Site;

/// What the case allows a replica from its start until it is ready, with one member black-holed.
const READY: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c02_a_replica_that_starts_under_writes_misses_none() {
    if !dependable("c02_a_replica_that_starts_under_writes_misses_none") {
        return;
    }
    let (site, writing) = (Site::start().await, Supervisor::new("writing"));
    let keys = site.keys.clone();
    writing.spawn("writer", Policy::best_effort().dropped_on_cancel(), async move {
        for number in 0_u64.. {
            keys.put(&format!("upstreams/written-{number}"), &upstream("127.0.0.1:80")).await;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    let repeats: u32 = either(5, 50);
    for repeat in 0..repeats {
        // Between the read and the watch lies the gap that the case is about: an environment of its own each time.
        let replica = site.replica(&format!("r{repeat}"), &[]);
        let node = site.node(&format!("n{repeat}"), &replica);
        node.ready().await;
        let first = node.held().await.unwrap();
        node.reaches(first.revision + 20).await;
        for held in [first, node.held().await.unwrap()] {
            let then = site.keys.content(Some(held.revision)).await;
            assert_eq!(held.content, then, "start {repeat}: not what etcd held at {}", held.revision);
        }
        println!("c02: start {} of {repeats}", repeat + 1);
    }
    writing.cancel();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c21_a_replica_starts_without_a_member_and_without_a_quorum() {
    if !dependable("c21_a_replica_starts_without_a_member_and_without_a_quorum") {
        return;
    }
    let mut site = Site::start_with(Options { members: 3, ..Options::default() }).await;
    let (proxies, endpoints) = site.proxies().await;
    let revision = site.routes(0..5).await;
    // Each member in turn is a black hole: whichever is tried first, it is met once.
    for (index, proxy) in proxies.iter().enumerate() {
        proxy.freeze();
        let (began, replica) = (Instant::now(), site.replica_at(&format!("b{index}"), &endpoints, times()));
        replica.live(READY).await;
        replica.ready().await;
        println!("c21: live {:?} after its start, m{index} being a black hole", began.elapsed());
        proxy.heal();
    }

    let mut replica = site.replica_at("r1", &endpoints, times());
    let holder = site.node("holder", &replica);
    holder.reaches(revision).await;
    // The file of the replica is written behind its publishing.
    tokio::time::sleep(Duration::from_secs(1)).await;
    replica.process.kill();
    site.etcd.member(0).process.kill();
    site.etcd.member(1).process.kill();
    replica.process.restart();
    replica.ready().await;
    let shown = replica.status().await.unwrap();
    assert!(!shown["degraded"].is_null(), "{shown}");
    assert!(shown["version"]["revision"].as_u64() >= Some(revision), "{shown}");
    println!("c21: without a quorum it says {}", shown["degraded"]);
    let empty = site.node("empty", &replica);
    empty.answers("/3", 200, "origin", LIMIT).await;
    empty.shows("that it is degraded", |it| it["stream"]["standing"]["state"] == "degraded").await;
    holder.answers("/3", 200, "origin", LIMIT).await;

    site.etcd.restart().await;
    replica.live(LIMIT).await;
    site.routes(5..6).await;
    site.equals(&[&holder, &empty]).await;
}
