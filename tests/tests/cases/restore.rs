//! C10, C11: etcd is replaced by an older snapshot, or wiped. Nodes follow, and what would empty them waits for a word
//! of approval.

use std::time::{Duration, Instant};

use headwater_tests::etcd::{Options, Restore, dependable, restorable};
use headwater_tests::history::Record;
use headwater_tests::keys::{Keys, route, upstream};
use headwater_tests::planes::{LIMIT, Node, Replica};
use headwater_tests::site::Site;
use serde_json::Value;

/// Within so long after etcd is back it is noticed that its history is another.
const NOTICED: Duration = Duration::from_secs(10);

/// Writes single keys until etcd is at least at this revision.
async fn rise(keys: &Keys, to: u64) -> u64 {
    let mut at = 0;
    while at < to {
        at = keys.put_raw("data_plane/server_info/x", "x").await;
    }
    at
}

/// Few keys go with the restore: nodes follow by themselves, by a jump. At revision 200 there are three routes, at
/// 500 five, one of them changed.
async fn followed(test: &str, how: Restore) {
    if !dependable(test) || !restorable(test) {
        return;
    }
    let mut site = Site::start().await;
    site.routes(1..4).await;
    rise(&site.keys, 200).await;
    let snapshot = site.etcd.snapshot().await;
    site.routes(4..6).await;
    let changed = site.keys.put("routes/2", &route("/changed", "1")).await;
    let last = rise(&site.keys, changed.max(500)).await;
    let replica = site.replica("r1", &[]);
    let node = site.node("n1", &replica);
    let before = node.reaches(last).await;
    node.answers("/5", 200, "origin", LIMIT).await;
    let mut record = Record::start(&site.etcd, [&node]).await;

    record.complete().await;
    site.etcd.restore(&snapshot, how).await;
    let began = Instant::now();
    record.restored(&site.etcd).await;
    let keys = Keys::new(site.etcd.client().await);
    node.answers("/5", 404, "", NOTICED).await;
    let noticed = began.elapsed();
    node.answers("/changed", 404, "", LIMIT).await;
    node.answers("/2", 200, "origin", LIMIT).await;
    let status = node.status().await.unwrap();
    let reason = &status["stream"]["last_transfer"]["reason"];
    println!("c10: {how:?}: followed by {reason} {noticed:?} after etcd was back");
    assert_ne!(reason, "step", "a restore is no step");
    let place = |it: &Value| (it["applied"]["generation"].as_u64(), it["applied"]["revision"].as_u64());
    assert!(place(&status) > place(&before), "{before} before {status}");
    // The new history goes on.
    keys.put("routes/after", &route("/after", "1")).await;
    node.answers("/after", 200, "origin", LIMIT).await;
    node.equals(&keys, LIMIT).await;
    record.kept().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c10_an_older_snapshot_of_the_same_cluster_is_followed() {
    followed("c10_an_older_snapshot_of_the_same_cluster_is_followed", Restore::SameIds).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c10_an_older_snapshot_as_another_cluster_is_followed() {
    followed("c10_an_older_snapshot_as_another_cluster_is_followed", Restore::OtherIds).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c10_an_older_snapshot_with_a_raised_revision_is_followed() {
    followed("c10_an_older_snapshot_with_a_raised_revision_is_followed", Restore::Bumped(1_000_000)).await;
}

/// Three members, all of which are restored, and two replicas that notice each for itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c10_a_restored_cluster_of_three_is_followed_alike_by_two_replicas() {
    let test = "c10_a_restored_cluster_of_three_is_followed_alike_by_two_replicas";
    if !dependable(test) || !restorable(test) {
        return;
    }
    let mut site = Site::start_with(Options { members: 3, ..Options::default() }).await;
    site.routes(0..10).await;
    let snapshot = site.etcd.snapshot().await;
    let revision = site.routes(10..13).await;
    let replicas = ["r1", "r2"].map(|id| site.replica(id, &[]));
    let nodes: Vec<Node> =
        ["n1", "n2"].iter().zip(&replicas).map(|(id, replica)| site.node(id, replica)).collect();
    for node in &nodes {
        node.reaches(revision).await;
    }
    let mut record = Record::start(&site.etcd, &nodes).await;

    record.complete().await;
    site.etcd.restore(&snapshot, Restore::SameIds).await;
    record.restored(&site.etcd).await;
    let keys = Keys::new(site.etcd.client().await);
    let after = keys.put("routes/after", &route("/after", "1")).await;
    for (replica, node) in replicas.iter().zip(&nodes) {
        node.answers("/after", 200, "origin", LIMIT).await;
        node.answers("/11", 404, "", LIMIT).await;
        node.shows("the new history", |status| {
            let applied = &status["applied"];
            applied["generation"] == 1 && applied["revision"].as_u64() >= Some(after)
        })
        .await;
        node.equals(&keys, LIMIT).await;
        let lines = replica.process.lines();
        assert!(!lines.iter().any(|line| line.contains("member_divergence")), "{lines:?}");
    }
    let versions = [nodes[0].status().await.unwrap(), nodes[1].status().await.unwrap()];
    assert_eq!(versions[0]["applied"]["digest"], versions[1]["applied"]["digest"]);
    record.kept().await;
}

async fn approve(replica: &Replica) {
    let (status, said) = replica.command(&["hold", "show", "-o", "json"]).await;
    assert!(status.success(), "{said}");
    let shown: Value = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error} in {said}"));
    let id = shown["holds"][0]["id"].as_str().unwrap_or_else(|| panic!("no hold in {said}"));
    let (status, said) = replica.command(&["hold", "approve", id]).await;
    assert!(status.success(), "{said}");
    println!("{said}");
}

async fn holds(replica: &Replica, limit: Duration) -> Value {
    replica.shows("that it holds the jump", limit, |it| !it["held"].is_null()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c10_a_restore_that_empties_nodes_is_held_until_approved() {
    let test = "c10_a_restore_that_empties_nodes_is_held_until_approved";
    if !dependable(test) || !restorable(test) {
        return;
    }
    let mut site = Site::start().await;
    site.routes(0..3).await;
    let snapshot = site.etcd.snapshot().await;
    let revision = site.routes(3..30).await;
    let mut replica = site.replica("r1", &[]);
    let (node, moving) = (site.node("n1", &replica), site.node("moving", &replica));
    for node in [&node, &moving] {
        node.reaches(revision).await;
        node.shows("that it is kept", |it| it["durable"]["revision"].as_u64() >= Some(revision)).await;
    }
    drop(moving);
    let mut record = Record::start(&site.etcd, [&node]).await;

    record.complete().await;
    site.etcd.restore(&snapshot, Restore::SameIds).await;
    record.restored(&site.etcd).await;
    holds(&replica, LIMIT).await;
    node.answers("/20", 200, "origin", LIMIT).await;
    replica.process.restart();
    holds(&replica, LIMIT).await;
    let late = site.node("late", &replica);
    late.answers("/20", 200, "origin", LIMIT).await;
    late.shows("that it is held", |it| it["stream"]["standing"]["state"] == "held").await;
    node.shows("a stream to the restarted replica", |it| it["stream"]["standing"]["state"] == "held").await;
    node.answers("/20", 200, "origin", LIMIT).await;

    // A replica that knows nothing of the old world, and a node that comes to it with what it keeps.
    let other = site.replica("r2", &[]);
    other.ready().await;
    let moving = site.node("moving", &other);
    let held_by_node = |it: &Value| !it["hold"].is_null();
    let shown = moving.shows("that it does not take the jump", held_by_node).await;
    println!("c10: the node that moved says: {}", shown["hold"]);
    moving.answers("/20", 200, "origin", LIMIT).await;

    approve(&replica).await;
    let keys = Keys::new(site.etcd.client().await);
    for node in [&node, &late, &moving] {
        node.answers("/20", 404, "", LIMIT).await;
        node.answers("/2", 200, "origin", LIMIT).await;
        node.equals(&keys, LIMIT).await;
    }
    assert!(replica.status().await.unwrap()["held"].is_null());
    record.kept().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c11_a_wiped_etcd_takes_nothing_from_nodes_until_approved() {
    if !dependable("c11_a_wiped_etcd_takes_nothing_from_nodes_until_approved") {
        return;
    }
    let mut site = Site::start().await;
    let revision = site.routes(0..10).await;
    let replica = site.replica("r1", &[]);
    let nodes = ["n1", "n2"].map(|id| site.node(id, &replica));
    for node in &nodes {
        node.reaches(revision).await;
    }
    let cluster = |it: &Value| it["version"]["cluster_id"].as_str().unwrap().to_owned();
    let before = replica.status().await.unwrap();

    site.etcd.wipe_as_another().await;
    let keys = Keys::new(site.etcd.client().await);
    keys.put("upstreams/1", &upstream(&site.origin.node())).await;
    keys.put("routes/new", &route("/new", "1")).await;
    let held = holds(&replica, NOTICED).await;
    assert_ne!(cluster(&held), cluster(&before), "another cluster");
    println!("c11: {}", held["held"]);
    // Numbers began again at 1, and later writes are not ignored: they are seen, and held with the rest.
    keys.put("routes/later", &route("/later", "1")).await;
    replica.shows("the later write", LIMIT, |it| it["resources"] == 3).await;
    for node in &nodes {
        node.answers("/7", 200, "origin", LIMIT).await;
        node.answers("/new", 404, "", LIMIT).await;
    }

    approve(&replica).await;
    for node in &nodes {
        for (path, status) in [("/new", 200), ("/later", 200), ("/7", 404)] {
            node.answers(path, status, "", LIMIT).await;
        }
        node.equals(&keys, LIMIT).await;
    }
    keys.put("routes/after", &route("/after", "1")).await;
    for node in &nodes {
        node.answers("/after", 200, "origin", LIMIT).await;
    }
}
