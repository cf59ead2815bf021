//! C04, C20: compaction, of what was missed and under a prefix that is idle.

use std::time::{Duration, Instant};

use headwater_process::{Policy, Supervisor};
use headwater_tests::case::{either, is_full};
use headwater_tests::cut_off::{sent, transfers, until_compacted};
use headwater_tests::etcd::dependable;
use headwater_tests::eventually::throughout;
use headwater_tests::keys::{Keys, route};
use headwater_tests::planes::LIMIT;
use headwater_tests::requests::Requests;
use headwater_tests::site::Site;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c04_a_cut_over_a_compaction_is_one_full_read_and_the_real_differences() {
    if !dependable("c04_a_cut_over_a_compaction_is_one_full_read_and_the_real_differences") {
        return;
    }
    let site = Site::start().await;
    let (proxies, endpoints) = site.proxies().await;
    let revision = site.routes(0..100).await;
    let replica = site.replica_at("r1", &endpoints, &[]);
    let node = site.node("n1", &replica);
    node.reaches(revision).await;
    for round in 0..either(2, 20) {
        replica.live(LIMIT).await;
        let before = node.status().await.unwrap();
        let (begun, bytes) = sent(&replica).await;
        // A hundred writes of ten keys, one of which is gone in the end, and one that came and went.
        let writes = async {
            for write in 0..97 {
                let uri = format!("/{round}-{write}");
                site.keys.put(&format!("routes/{}", write % 10), &route(&uri, "1")).await;
            }
            site.keys.delete("routes/9").await;
            site.keys.put("routes/short", &route("/short", "1")).await;
            site.keys.delete("routes/short").await;
        };
        let compacted = until_compacted(&proxies[0], &site.keys, &replica, writes).await;
        let after = node.reaches(compacted).await;
        node.equals(&site.keys, LIMIT).await;
        assert_eq!(transfers(&after), transfers(&before) + 1, "one transfer brings all");
        let (now, more) = sent(&replica).await;
        assert_eq!(now, begun + 1.0);
        assert!(more - bytes < 4096.0, "{} bytes are more than ten differences", more - bytes);
        println!("c04: 100 writes, compacted: one full read, {} bytes to the node", more - bytes);
        node.reaches(site.routes(9..10).await).await;
    }
    settled(&replica).await;
}

/// Nothing is tried again and again: no reload, no end of the watch, for as long as the replica is looked at.
async fn settled(replica: &headwater_tests::planes::Replica) {
    let counts = || async {
        let loads = replica.metric("headwater_source_loads_total").await;
        (loads, replica.metric("headwater_source_reconnects_total").await)
    };
    replica.live(LIMIT).await;
    let before = counts().await;
    throughout("no error repeats", either(Duration::from_secs(2), Duration::from_secs(20)), || async {
        let now = counts().await;
        if now == before { Ok(()) } else { Err((before, now)) }
    })
    .await;
}

/// Another tenant's writes, as many a second.
fn tenant(supervisor: &Supervisor, keys: &Keys, rate: u32) {
    let keys = keys.clone();
    supervisor.spawn("tenant", Policy::best_effort().dropped_on_cancel(), async move {
        for number in 0_u64.. {
            keys.put_outside(&format!("/tenant/{}", number % 100), "x").await;
            tokio::time::sleep(Duration::from_secs(1) / rate).await;
        }
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c20_an_idle_prefix_costs_nothing_while_others_write_and_compact() {
    if !dependable("c20_an_idle_prefix_costs_nothing_while_others_write_and_compact") {
        return;
    }
    let (site, others) = (Site::start().await, Supervisor::new("others"));
    let (proxies, endpoints) = site.proxies().await;
    let revision = site.routes(0..100).await;
    let replica = site.replica_at("r1", &endpoints, &[]);
    let node = site.node("n1", &replica);
    node.reaches(revision).await;
    let requests = Requests::start(&node.http, &["/7", "/77"], "origin", Duration::from_millis(2));
    tokio::time::sleep(either(Duration::from_secs(1), Duration::from_secs(20))).await;
    let alone = requests.all_good();
    let (before, begun) = (node.status().await.unwrap(), sent(&replica).await.0);

    tenant(&others, &site.keys, 200);
    let every = either(Duration::from_secs(1), Duration::from_secs(10));
    let (began, rounds) = (Instant::now(), either(4, 30));
    for round in 0..rounds {
        tokio::time::sleep(every).await;
        let loads = replica.metric("headwater_source_loads_total").await;
        let compacted = site.keys.compact_only().await;
        let seen = node.reaches(compacted).await;
        assert_eq!(seen["applied"]["digest"], before["applied"]["digest"], "round {round}");
        assert_eq!(replica.metric("headwater_source_loads_total").await, loads, "read again for nothing");
    }
    let under = requests.all_good();
    // The symptom of the case, a full read at each compaction: it too reaches nobody.
    until_compacted(&proxies[0], &site.keys, &replica, async {}).await;
    others.cancel();
    let after = node.reaches(site.keys.compact().await).await;
    assert_eq!(after["applied"]["digest"], before["applied"]["digest"]);
    assert_eq!(transfers(&after), transfers(&before), "the node was sent something");
    assert_eq!(sent(&replica).await.0, begun, "something was sent");
    let (calm, busy) = (alone.within(0.99), under.within(0.99));
    println!("c20: {rounds} compactions in {:?}; p99 {calm:?} alone, {busy:?} under them", began.elapsed());
    if is_full() {
        // Flat: as on a machine that has etcd's work to do as well, not as while a table is built anew.
        assert!(busy < calm * 3 + Duration::from_millis(5), "{busy:?} after {calm:?}");
    }
}
