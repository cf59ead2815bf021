//! etcd is replaced by an older snapshot: nodes follow, and what would empty them waits for a word of approval.

use headwater_tests::etcd::{Etcd, Restore, dependable, restorable};
use headwater_tests::eventually::eventually;
use headwater_tests::history::Record;
use headwater_tests::keys::{Keys, Write, route, upstream};
use headwater_tests::origin::Origin;
use headwater_tests::planes::{LIMIT, Node, Replica};
use serde_json::Value;

async fn fill(keys: &Keys, ids: std::ops::Range<u32>) -> u64 {
    let add = |write: Write, id| write.put(&format!("routes/{id}"), &route(&format!("/{id}"), "1"));
    keys.commit(ids.fold(Write::default(), add)).await
}

/// Few keys go with the restore: nodes follow by themselves, by a jump.
async fn followed(test: &str, how: Restore) {
    if !dependable(test) || !restorable(test) {
        return;
    }
    let (mut etcd, folder) = (Etcd::start().await, tempfile::tempdir().unwrap());
    let keys = Keys::new(etcd.client().await);
    let origin = Origin::start("origin").await;
    keys.put("upstreams/1", &upstream(&origin.node())).await;
    fill(&keys, 0..10).await;
    let snapshot = etcd.snapshot().await;
    let revision = fill(&keys, 10..13).await;
    keys.delete("routes/5").await;
    let replica = Replica::start(folder.path(), "r1", &etcd.endpoints()[0], &[]);
    let node = Node::start(folder.path(), "n1", &replica.southbound, &[]);
    node.reaches(revision + 1).await;
    node.answers("/11", 200, "origin", LIMIT).await;

    let mut record = Record::start(&etcd, [&node]).await;
    record.complete().await;
    etcd.restore(&snapshot, how).await;
    record.restored(&etcd).await;
    let keys = Keys::new(etcd.client().await);
    node.answers("/11", 404, "", LIMIT).await;
    node.answers("/5", 200, "origin", LIMIT).await;
    let status = node.status().await.unwrap();
    println!("{how:?}: followed by {}", status["stream"]["last_transfer"]["reason"]);
    assert_ne!(status["stream"]["last_transfer"]["reason"], "step", "a restore is no step");
    // The new history goes on.
    keys.put("routes/after", &route("/after", "1")).await;
    node.answers("/after", 200, "origin", LIMIT).await;
    let held = node.held().await.unwrap();
    assert_eq!(held.content, keys.content(None).await);
    record.kept().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_snapshot_of_the_same_cluster_is_followed() {
    followed("an_older_snapshot_of_the_same_cluster_is_followed", Restore::SameIds).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_snapshot_as_another_cluster_is_followed() {
    followed("an_older_snapshot_as_another_cluster_is_followed", Restore::OtherIds).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_snapshot_with_a_raised_revision_is_followed() {
    followed("an_older_snapshot_with_a_raised_revision_is_followed", Restore::Bumped(1_000_000)).await;
}

/// Three members, all of which are restored, and two replicas that notice each for itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_cluster_of_three_is_followed_alike_by_two_replicas() {
    let test = "a_restored_cluster_of_three_is_followed_alike_by_two_replicas";
    if !dependable(test) || !restorable(test) {
        return;
    }
    let (mut etcd, folder) = (Etcd::cluster().await, tempfile::tempdir().unwrap());
    let keys = Keys::new(etcd.client().await);
    let origin = Origin::start("origin").await;
    keys.put("upstreams/1", &upstream(&origin.node())).await;
    fill(&keys, 0..10).await;
    let snapshot = etcd.snapshot().await;
    let revision = fill(&keys, 10..13).await;
    let members = etcd.endpoints().join("', '");
    let replicas = ["r1", "r2"].map(|id| Replica::start(folder.path(), id, &members, &[]));
    let follow = |(id, replica): (&&str, &Replica)| Node::start(folder.path(), id, &replica.southbound, &[]);
    let nodes: Vec<Node> = ["n1", "n2"].iter().zip(&replicas).map(follow).collect();
    for node in &nodes {
        node.reaches(revision).await;
    }

    let mut record = Record::start(&etcd, &nodes).await;
    record.complete().await;
    etcd.restore(&snapshot, Restore::SameIds).await;
    record.restored(&etcd).await;
    let keys = Keys::new(etcd.client().await);
    let after = keys.put("routes/after", &route("/after", "1")).await;
    for (replica, node) in replicas.iter().zip(&nodes) {
        node.answers("/after", 200, "origin", LIMIT).await;
        node.answers("/11", 404, "", LIMIT).await;
        node.shows("the new history", |status| {
            let applied = &status["applied"];
            applied["generation"] == 1 && applied["revision"].as_u64() >= Some(after)
        })
        .await;
        assert_eq!(node.held().await.unwrap().content, keys.content(None).await);
        let lines = replica.process.lines();
        assert!(!lines.iter().any(|line| line.contains("member_divergence")), "{lines:?}");
    }
    let versions = [nodes[0].status().await.unwrap(), nodes[1].status().await.unwrap()];
    assert_eq!(versions[0]["applied"]["digest"], versions[1]["applied"]["digest"]);
    record.kept().await;
}

async fn hold_id(replica: &Replica) -> String {
    let (status, said) = replica.command(&["hold", "show", "-o", "json"]).await;
    assert!(status.success(), "{said}");
    let shown: Value = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error} in {said}"));
    shown["holds"][0]["id"].as_str().unwrap_or_else(|| panic!("no hold in {said}")).to_owned()
}

async fn held(replica: &Replica) {
    eventually("the replica holds the jump", LIMIT, || async {
        let status = replica.status().await.map_err(|error| format!("{error:#}"))?;
        if status["held"].is_null() { Err(status.to_string()) } else { Ok(()) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restore_that_empties_nodes_is_held_until_approved() {
    let test = "a_restore_that_empties_nodes_is_held_until_approved";
    if !dependable(test) || !restorable(test) {
        return;
    }
    let (mut etcd, folder) = (Etcd::start().await, tempfile::tempdir().unwrap());
    let keys = Keys::new(etcd.client().await);
    let origin = Origin::start("origin").await;
    keys.put("upstreams/1", &upstream(&origin.node())).await;
    fill(&keys, 0..3).await;
    let snapshot = etcd.snapshot().await;
    let revision = fill(&keys, 3..30).await;
    let mut replica = Replica::start(folder.path(), "r1", &etcd.endpoints()[0], &[]);
    let node = Node::start(folder.path(), "n1", &replica.southbound, &[]);
    let moving = Node::start(folder.path(), "moving", &replica.southbound, &[]);
    for node in [&node, &moving] {
        node.reaches(revision).await;
        node.shows("that it is kept", |it| it["durable"]["revision"].as_u64() >= Some(revision)).await;
    }
    drop(moving);

    let mut record = Record::start(&etcd, [&node]).await;
    record.complete().await;
    etcd.restore(&snapshot, Restore::SameIds).await;
    record.restored(&etcd).await;
    held(&replica).await;
    node.answers("/20", 200, "origin", LIMIT).await;
    replica.process.restart();
    held(&replica).await;
    let late = Node::start(folder.path(), "late", &replica.southbound, &[]);
    late.answers("/20", 200, "origin", LIMIT).await;
    late.shows("that it is held", |it| it["stream"]["standing"]["state"] == "held").await;
    node.shows("a stream to the restarted replica", |it| it["stream"]["standing"]["state"] == "held").await;
    node.answers("/20", 200, "origin", LIMIT).await;

    // A replica that knows nothing of the old world, and a node that comes to it with what it keeps.
    let other = Replica::start(folder.path(), "r2", &etcd.endpoints()[0], &[]);
    other.ready().await;
    let moving = Node::start(folder.path(), "moving", &other.southbound, &[]);
    let held_by_node = |it: &Value| !it["hold"].is_null();
    let shown = moving.shows("that it does not take the jump", held_by_node).await;
    println!("the node that moved says: {}", shown["hold"]);
    moving.answers("/20", 200, "origin", LIMIT).await;

    let id = hold_id(&replica).await;
    let (status, said) = replica.command(&["hold", "approve", &id]).await;
    assert!(status.success(), "{said}");
    println!("{said}");
    let keys = Keys::new(etcd.client().await);
    for node in [&node, &late, &moving] {
        node.answers("/20", 404, "", LIMIT).await;
        node.answers("/2", 200, "origin", LIMIT).await;
        assert_eq!(node.held().await.unwrap().content, keys.content(None).await);
    }
    assert!(replica.status().await.unwrap()["held"].is_null());
    record.kept().await;
}
