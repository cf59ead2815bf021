//! C18: what one transaction changes together, requests meet together.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use headwater_tests::case::either;
use headwater_tests::etcd::dependable;
use headwater_tests::history::Record;
use headwater_tests::keys::{Write, route, upstream};
use headwater_tests::planes::{LIMIT, Node};
use headwater_tests::requests::Requests;
use headwater_tests::site::Site;
use serde_json::json;

/// Clients, each of which asks again 20 ms after its last answer: about a thousand requests a second in full.
const CLIENTS: usize = 20;

/// One transaction: the upstream has another name, and both routes point there. With `rejected`, the second route
/// has a value that the node must reject.
fn rename(from: u32, to: u32, node: &str, rejected: bool) -> Write {
    let (from, to) = (format!("upstreams/u{from}"), format!("u{to}"));
    let mut second = route("/rejected", &to);
    if rejected {
        second["script"] = json!("return 1");
    }
    let write = Write::default().delete(&from).put(&format!("upstreams/{to}"), &upstream(node));
    write.put("routes/good", &route("/good", &to)).put("routes/rejected", &second)
}

/// The node's version at one moment holds one upstream of these names, of the same revision as the routes.
async fn is_whole(node: &Node) {
    let held = node.held().await.unwrap().content;
    let written = held.iter().filter(|(key, _)| key.as_str() != "upstreams/1");
    let revisions: BTreeSet<u64> = written.clone().map(|(_, at)| *at).collect();
    assert_eq!((written.count(), revisions.len()), (3, 1), "a reference dangles: {held:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c18_renaming_an_upstream_under_its_routes_fails_no_request() {
    if !dependable("c18_renaming_an_upstream_under_its_routes_fails_no_request") {
        return;
    }
    let site = Site::start().await;
    let (rounds, origin) = (either(150, 500), site.origin.node());
    let write = Write::default().put("upstreams/u0", &upstream(&origin));
    let write = write.put("routes/good", &route("/good", "u0"));
    site.keys.commit(write.put("routes/rejected", &route("/rejected", "u0"))).await;
    let replica = site.replica("r1", &[]);
    let node = site.node("n1", &replica);
    node.answers("/good", 200, "origin", LIMIT).await;
    node.answers("/rejected", 200, "origin", LIMIT).await;
    let record = Record::start(&site.etcd, [&node]).await;

    let paths: Vec<&str> = ["/good", "/rejected"].into_iter().cycle().take(CLIENTS).collect();
    let requests = Requests::start(&node.http, &paths, "origin", Duration::from_millis(20));
    let (before, began) = (node.status().await.unwrap(), Instant::now());
    for round in 0..rounds {
        // The first half changes both routes; from then on the second one is rejected each time.
        let revision = site.keys.commit(rename(round, round + 1, &origin, round >= rounds / 2)).await;
        is_whole(&node).await;
        node.reaches(revision).await;
        is_whole(&node).await;
    }
    let status = node.status().await.unwrap();
    let met = requests.all_good();
    println!("c18: {rounds} renames in {:?} under {} requests, none failed", began.elapsed(), met.good);
    assert!(met.good > u64::from(rounds), "the load is none: {}", met.good);
    let versions = |status: &serde_json::Value| status["stream"]["versions"].as_u64().unwrap();
    assert!(versions(&status) >= versions(&before) + u64::from(rounds));
    assert_eq!(status["rejected"][0]["key"], "routes/rejected");
    assert!(status["rejected"][0]["served_mod_revision"].is_u64(), "{status}");
    record.kept().await;
}
