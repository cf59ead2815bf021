//! What one transaction changes together, requests meet together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use headwater_process::{Policy, Supervisor};
use headwater_tests::etcd::{Etcd, dependable};
use headwater_tests::history::Record;
use headwater_tests::http;
use headwater_tests::keys::{Keys, Write, route, upstream};
use headwater_tests::origin::Origin;
use headwater_tests::planes::{LIMIT, Node, Replica};
use serde_json::json;

const ROUNDS: u32 = 200;
const CLIENTS: u32 = 4;

#[derive(Default)]
struct Load {
    asked: AtomicU64,
    failed: AtomicU64,
}

/// Clients that ask for both routes until they are cancelled.
fn load(supervisor: &Supervisor, address: &str) -> Arc<Load> {
    let counts = Arc::new(Load::default());
    for client in 0..CLIENTS {
        let (counts, address, stop) = (counts.clone(), address.to_owned(), supervisor.token());
        let path = if client % 2 == 0 { "/good" } else { "/rejected" };
        supervisor.spawn("client", Policy::best_effort().dropped_on_cancel(), async move {
            while !stop.is_cancelled() {
                let answer = http::get(&address, path).await;
                counts.asked.fetch_add(1, Ordering::Relaxed);
                if !matches!(&answer, Ok((200, body)) if body == "origin") {
                    counts.failed.fetch_add(1, Ordering::Relaxed);
                    eprintln!("{path}: {answer:?}");
                }
            }
        });
    }
    counts
}

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renaming_an_upstream_under_its_routes_fails_no_request() {
    if !dependable("renaming_an_upstream_under_its_routes_fails_no_request") {
        return;
    }
    let (etcd, folder) = (Etcd::start().await, tempfile::tempdir().unwrap());
    let keys = Keys::new(etcd.client().await);
    let origin = Origin::start("origin").await;
    let write = Write::default().put("upstreams/u0", &upstream(&origin.node()));
    let write =
        write.put("routes/good", &route("/good", "u0")).put("routes/rejected", &route("/rejected", "u0"));
    keys.commit(write).await;
    let replica = Replica::start(folder.path(), "r1", &etcd.endpoints()[0], &[]);
    let node = Node::start(folder.path(), "n1", &replica.southbound, &[]);
    node.answers("/good", 200, "origin", LIMIT).await;
    node.answers("/rejected", 200, "origin", LIMIT).await;
    let record = Record::start(&etcd, [&node]).await;

    let (clients, began) = (Supervisor::new("clients"), Instant::now());
    let counts = load(&clients, &node.http);
    let versions = node.status().await.unwrap()["stream"]["versions"].as_u64().unwrap();
    for round in 0..ROUNDS {
        // The first half changes both routes; from then on the second one is rejected each time.
        let revision = keys.commit(rename(round, round + 1, &origin.node(), round >= ROUNDS / 2)).await;
        node.reaches(revision).await;
    }
    let status = node.status().await.unwrap();
    clients.cancel();
    let (asked, failed) = (counts.asked.load(Ordering::Relaxed), counts.failed.load(Ordering::Relaxed));
    println!("{ROUNDS} renames in {:?} under {asked} requests, {failed} failed", began.elapsed());
    assert!(asked > u64::from(ROUNDS), "the load is none: {asked} requests");
    assert_eq!(failed, 0, "of {asked}");
    assert!(status["stream"]["versions"].as_u64().unwrap() >= versions + u64::from(ROUNDS));
    assert_eq!(status["rejected"][0]["key"], "routes/rejected");
    assert!(status["rejected"][0]["served_mod_revision"].is_u64(), "{status}");
    record.kept().await;
}
