//! kill -9 at moments nobody chose: a node opens at a whole version, a replica's nodes end equal to etcd.
//!
//! `HEADWATER_TEST_KILLS` says how often; 10 without it.

use std::time::{Duration, Instant};

use headwater_process::{Policy, Supervisor};
use headwater_tests::etcd::{Etcd, dependable};
use headwater_tests::history::Record;
use headwater_tests::keys::{Keys, Write, upstream};
use headwater_tests::planes::{LIMIT, Node, Replica};

/// How often to kill.
fn kills() -> u32 {
    let set = std::env::var_os("HEADWATER_TEST_KILLS");
    set.map_or(10, |text| text.to_str().and_then(|text| text.parse().ok()).expect("a number of kills"))
}

/// Writes without pause: puts of a set of keys that grow and shrink, deletions among them.
fn writer(supervisor: &Supervisor, keys: &Keys) {
    let keys = keys.clone();
    supervisor.spawn("writer", Policy::best_effort().dropped_on_cancel(), async move {
        for round in 0_usize.. {
            let mut value = upstream("127.0.0.1:80");
            value["desc"] = "x".repeat(round * 37 % 250).into();
            let write = Write::default().put(&format!("upstreams/{}", round % 50), &value);
            keys.commit(write.delete(&format!("upstreams/{}", (round * 7 + 25) % 50))).await;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}

/// A moment that nobody chose.
fn moment() -> Duration {
    Duration::from_micros(rand::random_range(0..300_000))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_node_opens_at_a_whole_version_no_older_than_its_last_durable() {
    if !dependable("a_killed_node_opens_at_a_whole_version_no_older_than_its_last_durable") {
        return;
    }
    let (etcd, folder) = (Etcd::start().await, tempfile::tempdir().unwrap());
    let keys = Keys::new(etcd.client().await);
    let mut replica = Replica::start(folder.path(), "r1", &etcd.endpoints()[0], &[]);
    let mut node = Node::start(folder.path(), "n1", &replica.southbound, &[]);
    let record = Record::start(&etcd, [&node]).await;
    let mut slowest = Duration::ZERO;
    for kill in 0..kills() {
        let writing = Supervisor::new("writing");
        writer(&writing, &keys);
        let seen = node.status().await.map_or(0, |it| it["durable"]["revision"].as_u64().unwrap_or(0));
        node.shows("newer durable versions", |it| it["durable"]["revision"].as_u64() > Some(seen)).await;
        tokio::time::sleep(moment()).await;
        let durable = node.status().await.unwrap()["durable"]["revision"].as_u64().unwrap();
        node.process.kill();
        writing.cancel();
        // What it opens with is its own: nobody is there to bring it anything.
        replica.process.kill();
        let began = Instant::now();
        node.process.restart();
        node.ready().await;
        slowest = slowest.max(began.elapsed());
        let held = node.held().await.unwrap();
        assert!(held.revision >= durable, "kill {kill}: opened at {}, {durable} was durable", held.revision);
        let then = keys.content(Some(held.revision)).await;
        assert_eq!(held.content, then, "kill {kill}: not what etcd held at {}", held.revision);
        replica.process.restart();
        node.equals(&keys, LIMIT).await;
    }
    println!("{} kills; ready again within {slowest:?}", kills());
    record.kept().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_replica_loses_nothing() {
    if !dependable("a_killed_replica_loses_nothing") {
        return;
    }
    let (etcd, folder) = (Etcd::start().await, tempfile::tempdir().unwrap());
    let keys = Keys::new(etcd.client().await);
    let mut replica = Replica::start(folder.path(), "r1", &etcd.endpoints()[0], &[]);
    let node = Node::start(folder.path(), "n1", &replica.southbound, &[]);
    let record = Record::start(&etcd, [&node]).await;
    let mut last = 0;
    for kill in 0..kills() {
        let writing = Supervisor::new("writing");
        writer(&writing, &keys);
        node.reaches(last + 20).await;
        tokio::time::sleep(moment()).await;
        replica.process.kill();
        tokio::time::sleep(moment()).await;
        writing.cancel();
        replica.process.restart();
        let held = node.equals(&keys, LIMIT).await;
        assert!(held.revision > last, "kill {kill}: {} after {last}", held.revision);
        last = held.revision;
    }
    let status = node.status().await.unwrap();
    assert_eq!(status["applied"]["generation"], 0, "a killed replica is no rewind");
    assert_eq!(status["stream"]["transfers_refused"], 0, "{status}");
    record.kept().await;
}
