//! Nobody upstream is alive: requests go on, restarts included, and what comes back resumes with a step.

use std::time::{Duration, Instant};

use headwater_tests::etcd::{Etcd, dependable};
use headwater_tests::eventually::throughout;
use headwater_tests::history::Record;
use headwater_tests::keys::{Keys, Write, route, upstream};
use headwater_tests::origin::Origin;
use headwater_tests::planes::{LIMIT, Node, Replica};

/// What the promise says, not a benchmark.
const RESTART: Duration = Duration::from_secs(3);

async fn fill(keys: &Keys, origin: &Origin) -> u64 {
    let mut write = Write::default().put("upstreams/1", &upstream(&origin.node()));
    for id in 0..10 {
        write = write.put(&format!("routes/{id}"), &route(&format!("/{id}"), "1"));
    }
    keys.commit(write).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_anybody_serves_restarts_and_resumes() {
    if !dependable("a_node_without_anybody_serves_restarts_and_resumes") {
        return;
    }
    let (mut etcd, folder) = (Etcd::start().await, tempfile::tempdir().unwrap());
    let keys = Keys::new(etcd.client().await);
    let origin = Origin::start("origin").await;
    let revision = fill(&keys, &origin).await;
    let mut replica = Replica::start(folder.path(), "r1", &etcd.endpoints()[0], &[]);
    let mut node = Node::start(folder.path(), "n1", &replica.southbound, &[]);
    node.shows("it durable", |it| it["durable"]["revision"].as_u64() >= Some(revision)).await;
    let record = Record::start(&etcd, [&node]).await;

    replica.process.kill();
    etcd.kill();
    throughout("requests go on", Duration::from_secs(4), || async {
        match node.get("/3").await {
            Ok((200, _)) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    let began = Instant::now();
    node.process.restart();
    node.answers("/3", 200, "origin", RESTART).await;
    println!("a restarted node serves from its last known good after {:?}", began.elapsed());
    node.ready().await;
    let status = node.shows("that nobody answers", |it| !it["stream"]["last_error"].is_null()).await;
    assert_eq!(status["applied"]["revision"], revision);
    assert!(status["stream"]["replica_id"].is_null(), "{status}");
    let since = status["proof"]["stale_since_unix"].as_u64().expect("it says since when it is stale");
    assert!(since <= status["started_unix"].as_u64().unwrap(), "{status}");

    etcd.restart().await;
    replica.process.restart();
    let revision = keys.put("routes/new", &route("/new", "1")).await;
    node.answers("/new", 200, "origin", LIMIT).await;
    let status = node.reaches(revision).await;
    assert_eq!(status["stream"]["last_transfer"]["reason"], "step");
    assert_eq!(status["stream"]["transfers"], 1, "one step brings all that was missed");
    // The replica says that its source is alive again with its next progress.
    node.shows("a live source", |it| it["proof"]["stale_since_unix"].is_null()).await;
    record.kept().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_without_etcd_serves_who_is_empty_and_changes_nobody_else() {
    if !dependable("a_replica_without_etcd_serves_who_is_empty_and_changes_nobody_else") {
        return;
    }
    let (mut etcd, folder) = (Etcd::start().await, tempfile::tempdir().unwrap());
    let keys = Keys::new(etcd.client().await);
    let origin = Origin::start("origin").await;
    let revision = fill(&keys, &origin).await;
    let mut replica = Replica::start(folder.path(), "r1", &etcd.endpoints()[0], &[]);
    let holder = Node::start(folder.path(), "holder", &replica.southbound, &[]);
    holder.shows("it durable", |it| it["durable"]["revision"].as_u64() >= Some(revision)).await;
    let mut record = Record::start(&etcd, [&holder]).await;
    // The file of the replica is written behind its publishing.
    tokio::time::sleep(Duration::from_secs(1)).await;

    replica.process.kill();
    etcd.kill();
    replica.process.restart();
    let empty = Node::start(folder.path(), "empty", &replica.southbound, &[]);
    record.add(&empty);
    empty.answers("/3", 200, "origin", LIMIT).await;
    let degraded = |it: &serde_json::Value| it["stream"]["standing"]["state"] == "degraded";
    let status = empty.shows("that it is degraded", degraded).await;
    assert!(status["stream"]["standing"]["since_unix"].as_u64() > Some(0), "{status}");
    let status = holder.shows("that its replica is degraded", degraded).await;
    assert_eq!(status["stream"]["transfers"], 1, "a node that holds content was sent something");
    assert_eq!(status["applied"]["revision"], revision);
    let shown = replica.status().await.unwrap();
    assert!(!shown["degraded"].is_null(), "{shown}");
    let put = r#"{"type":"roundrobin","nodes":{"127.0.0.1:1":1}}"#;
    let (status, said) = replica.command(&["put", "upstreams/new", put]).await;
    assert_eq!(status.code(), Some(5), "{said}");
    println!("a write is refused: {said}");

    etcd.restart().await;
    let revision = keys.put("routes/new", &route("/new", "1")).await;
    for node in [&holder, &empty] {
        node.answers("/new", 200, "origin", LIMIT).await;
        let status = node.reaches(revision).await;
        assert_eq!(status["stream"]["last_transfer"]["reason"], "step");
        node.shows("that it is live", |it| it["stream"]["standing"]["state"] == "live").await;
    }
    record.kept().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_replica_sends_only_what_was_missed() {
    if !dependable("a_restarted_replica_sends_only_what_was_missed") {
        return;
    }
    let (etcd, folder) = (Etcd::start().await, tempfile::tempdir().unwrap());
    let keys = Keys::new(etcd.client().await);
    let origin = Origin::start("origin").await;
    let mut revision = fill(&keys, &origin).await;
    let mut replica = Replica::start(folder.path(), "r1", &etcd.endpoints()[0], &[]);
    let current = Node::start(folder.path(), "current", &replica.southbound, &[]);
    let mut away = Node::start(folder.path(), "away", &replica.southbound, &[]);
    away.shows("it durable", |it| it["durable"]["revision"].as_u64() >= Some(revision)).await;
    let record = Record::start(&etcd, [&current, &away]).await;
    away.process.kill();
    for id in 0..3 {
        keys.put(&format!("routes/{id}"), &route(&format!("/changed{id}"), "1")).await;
    }
    for id in 3..5 {
        revision = keys.delete(&format!("routes/{id}")).await;
    }
    let before = current.reaches(revision).await;
    tokio::time::sleep(Duration::from_secs(1)).await;

    replica.process.restart();
    replica.ready().await;
    let open = |it: &serde_json::Value| {
        it["stream"]["phase"] == "open"
            && it["stream"]["connection"].as_u64() > before["stream"]["connection"].as_u64()
    };
    let after = current.shows("a stream to the restarted replica", open).await;
    assert_eq!(after["stream"]["transfers"], before["stream"]["transfers"]);
    away.process.restart();
    let back = away.reaches(revision).await;
    assert_eq!(back["stream"]["last_transfer"]["reason"], "step");
    assert_eq!(back["stream"]["transfers"], 1);
    assert_eq!(
        replica.metric("headwater_distribution_transfers_total").await,
        1.0,
        "only the node that was away"
    );
    let bytes = replica.metric("headwater_distribution_sent_bytes_total").await;
    println!("3 changes and 2 deletions, progress and two welcomes: {bytes} bytes");
    assert!(bytes < 4096.0, "{bytes} bytes are more than 5 changes");
    let held = away.held().await.unwrap();
    assert_eq!(held.content, keys.content(Some(held.revision)).await);
    current.answers("/changed2", 200, "origin", LIMIT).await;
    away.answers("/4", 404, "", LIMIT).await;
    record.kept().await;
}
