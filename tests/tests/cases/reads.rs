//! C19, C23: what reads at a replica cost the watch, and what nodes cost etcd.

use std::time::Duration;

use etcd_client::Client;
use headwater_process::{Policy, Supervisor};
use headwater_proto::admin::ListRequest;
use headwater_proto::admin::resources_client::ResourcesClient;
use headwater_tests::bench::crowd::Crowd;
use headwater_tests::bench::tally::Figures;
use headwater_tests::bench::{clock, load, system};
use headwater_tests::case::{either, is_full};
use headwater_tests::etcd::dependable;
use headwater_tests::planes::{LIMIT, Replica};
use headwater_tests::site::Site;

/// The environment that simulated nodes ask for.
const BENCH: &str = "environments=[{name: bench, prefix: /apisix}]";
/// Between two writes whose delivery is measured.
const PACE: Duration = Duration::from_millis(20);
/// etcd's count of range requests.
const RANGES: &str =
    r#"grpc_server_started_total{grpc_method="Range",grpc_service="etcdserverpb.KV",grpc_type="unary"}"#;

/// Puts at an even pace, each with the moment it began; answers the last revision.
async fn write(client: &Client, resources: u64, pace: Duration, during: Duration) -> u64 {
    let mut ticks = tokio::time::interval(pace);
    let mut last = 0;
    for number in 0..u64::try_from(during.as_millis() / pace.as_millis()).unwrap() {
        ticks.tick().await;
        let value = load::value(number % resources, 400, clock::nanoseconds());
        let put = client.kv_client().put(load::key(number % resources), value, None).await.unwrap();
        last = u64::try_from(put.header().unwrap().revision()).unwrap();
    }
    last
}

async fn reached(crowd: &Crowd, revision: u64) {
    tokio::time::timeout(LIMIT, crowd.reached(revision)).await.unwrap();
}

/// A fresh node follows the writes of a while; how long after each put it had the value.
async fn delivered(site: &Site, replica: &Replica, resources: u64, during: Duration) -> Figures {
    let client = site.etcd.client().await;
    // What an earlier phase wrote bears moments, which would count as late when a node gets its first content.
    let mut last = 0;
    for resource in 0..resources.min(u64::try_from(during.as_millis() / PACE.as_millis()).unwrap()) {
        let put = client.kv_client().put(load::key(resource), load::value(resource, 400, 0), None).await;
        last = u64::try_from(put.unwrap().header().unwrap().revision()).unwrap();
    }
    let crowd = Crowd::start(&replica.southbound, 1).unwrap();
    reached(&crowd, last).await;
    let last = write(&client, resources, PACE, during).await;
    reached(&crowd, last).await;
    let (compared, differences) = crowd.compare(&site.etcd.endpoints()[0]).await.unwrap();
    assert!(differences.is_empty() && compared as u64 > resources, "{differences:?}");
    crowd.figures().unwrap()
}

/// Lists everything, page by page, without a pause.
fn list_in_a_loop(supervisor: &Supervisor, replica: &Replica) -> tokio::sync::watch::Receiver<u64> {
    let (address, (count, lists)) = (format!("http://{}", replica.admin), tokio::sync::watch::channel(0));
    let stop = supervisor.token();
    supervisor.spawn("lists", Policy::best_effort().dropped_on_cancel(), async move {
        let mut client = ResourcesClient::connect(address).await?.max_decoding_message_size(64 << 20);
        let mut after = String::new();
        while !stop.is_cancelled() {
            let request = ListRequest { after, ..ListRequest::default() };
            after = client.list(request).await?.into_inner().next;
            count.send_modify(|count| *count += u64::from(after.is_empty()));
        }
        Ok::<(), anyhow::Error>(())
    });
    lists
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c19_lists_and_full_reads_do_not_hold_the_watch_up() {
    if !dependable("c19_lists_and_full_reads_do_not_hold_the_watch_up") {
        return;
    }
    let (site, resources) = (Site::start().await, either(3_000, 20_000));
    load::fill(&mut site.etcd.client().await, resources, 700).await.unwrap();
    // Every second the whole prefix is read from etcd, beside the watch.
    let replica = site.replica("r1", &[BENCH, "etcd.audit_interval=1s"]);
    replica.live(LIMIT).await;
    let during = either(Duration::from_secs(3), Duration::from_secs(60));
    let alone = delivered(&site, &replica, resources, during).await;

    let listing = Supervisor::new("listing");
    let lists = [list_in_a_loop(&listing, &replica), list_in_a_loop(&listing, &replica)];
    let audits = replica.metric("headwater_source_audits_total").await;
    let busy = delivered(&site, &replica, resources, during).await;
    let lists: u64 = lists.iter().map(|lists| *lists.borrow()).sum();
    let audits = replica.metric("headwater_source_audits_total").await - audits;
    listing.cancel();
    println!(
        "c19: received p50/p99 {}/{} ms alone, {}/{} ms under {lists} lists and {audits} full reads of {resources}",
        alone.received_p50_ms, alone.received_p99_ms, busy.received_p50_ms, busy.received_p99_ms
    );
    assert!(lists > 0 && audits > 0.0, "nothing was read: {lists} lists, {audits} audits");
    let lines = replica.process.lines();
    assert!(!lines.iter().any(|line| line.contains("Different")), "{lines:?}");
    if is_full() {
        assert!(busy.received_p99_ms < 1_000.0, "the case's bound");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c23_nodes_cost_etcd_nothing() {
    if !dependable("c23_nodes_cost_etcd_nothing") {
        return;
    }
    let (count, resources) = (either(150, 500), 200);
    system::allow_files(count).unwrap();
    let site = Site::start().await;
    let mut client = site.etcd.client().await;
    load::fill(&mut client, resources, 400).await.unwrap();
    // Audits come at random moments, with any number of nodes.
    let replica = site.replica("r1", &[BENCH, "etcd.audit_interval=1h"]);
    replica.live(LIMIT).await;
    let member = &site.etcd.members()[0];
    let (during, pace) = either(
        (Duration::from_secs(3), Duration::from_millis(200)),
        (Duration::from_secs(600), Duration::from_secs(1)),
    );
    let mut asked = Vec::new();
    for nodes in [1, count] {
        let before = member.metric(RANGES).await;
        let crowd = Crowd::start(&replica.southbound, nodes).unwrap();
        reached(&crowd, 0).await;
        let last = write(&client, resources, pace, during).await;
        reached(&crowd, last).await;
        let watchers = member.metric("etcd_debugging_mvcc_watcher_total").await;
        let streams = member.metric("etcd_debugging_mvcc_watch_stream_total").await;
        asked.push(member.metric(RANGES).await - before);
        println!("c23: {nodes} nodes: {watchers} watcher, {streams} stream, range requests {asked:?}");
        assert_eq!((watchers, streams), (1.0, 1.0), "with {nodes} nodes");
        // Everybody was told, also beyond the first page of anything.
        let status = replica.status().await.unwrap();
        assert_eq!(status["nodes"]["live"], nodes, "{status}");
        let (_, differences) = crowd.compare(&site.etcd.endpoints()[0]).await.unwrap();
        assert!(differences.is_empty(), "{differences:?}");
        drop(crowd);
        replica.shows("that they are gone", LIMIT, |it| it["nodes"]["live"] == 0).await;
    }
    assert_eq!(asked[0], asked[1], "range requests with 1 and with {count} nodes");
}
