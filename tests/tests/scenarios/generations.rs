//! A node knows a generation that its new replica does not: etcd is asked, and the replica follows suit.

use headwater_tests::etcd::{Etcd, Restore, dependable, restorable};
use headwater_tests::keys::{Keys, Write, route, upstream};
use headwater_tests::origin::Origin;
use headwater_tests::planes::{LIMIT, Node, Replica};

/// Ten routes, an older snapshot put back, and a node that has followed its replica into the new history.
async fn rewound(etcd: &mut Etcd, folder: &std::path::Path, origin: &Origin) -> Keys {
    let keys = Keys::new(etcd.client().await);
    let add = |write: Write, id| write.put(&format!("routes/{id}"), &route(&format!("/{id}"), "1"));
    keys.commit((0..10).fold(Write::default().put("upstreams/1", &upstream(&origin.node())), add)).await;
    let snapshot = etcd.snapshot().await;
    let revision = keys.put("routes/gone", &route("/gone", "1")).await;
    let replica = Replica::start(folder, "r1", &etcd.endpoints()[0], &[]);
    let node = Node::start(folder, "n1", &replica.southbound, &[]);
    node.reaches(revision).await;
    etcd.restore(&snapshot, Restore::SameIds).await;
    let keys = Keys::new(etcd.client().await);
    let revision = keys.put("routes/new", &route("/new", "1")).await;
    node.shows("the new history, on its disk", |it| {
        it["durable"]["generation"] == 1 && it["durable"]["revision"].as_u64() >= Some(revision)
    })
    .await;
    keys
}

/// The node comes to a replica that starts without a file, and ends with what etcd holds, of a generation.
async fn follows(etcd: &Etcd, folder: &std::path::Path, keys: &Keys, generation: u64) {
    let replica = Replica::start(folder, "r2", &etcd.endpoints()[0], &[]);
    replica.ready().await;
    let node = Node::start(folder, "n1", &replica.southbound, &[]);
    node.answers("/new", 404, "", LIMIT).await;
    let shown = node
        .shows("the generation that follows", |it| {
            it["applied"]["generation"] == generation && it["applied"] == it["durable"]
        })
        .await;
    println!("the node follows by {}", shown["stream"]["last_transfer"]);
    assert_eq!(node.held().await.unwrap().content, keys.content(None).await);
    let revision = keys.put("routes/later", &route("/later", "1")).await;
    node.reaches(revision).await;
    assert_eq!(node.held().await.unwrap().content, keys.content(None).await);
    assert_eq!(node.status().await.unwrap()["stream"]["transfers_refused"], 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_generation_that_etcd_confirms_is_taken() {
    let test = "a_generation_that_etcd_confirms_is_taken";
    if !dependable(test) || !restorable(test) {
        return;
    }
    let (mut etcd, folder) = (Etcd::start().await, tempfile::tempdir().unwrap());
    let origin = Origin::start("origin").await;
    let keys = rewound(&mut etcd, folder.path(), &origin).await;
    // So that the node's content is not the head's, and etcd has to be asked about its revision.
    keys.delete("routes/new").await;
    follows(&etcd, folder.path(), &keys, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_generation_that_nobody_can_check_any_more_is_passed() {
    let test = "a_generation_that_nobody_can_check_any_more_is_passed";
    if !dependable(test) || !restorable(test) {
        return;
    }
    let (mut etcd, folder) = (Etcd::start().await, tempfile::tempdir().unwrap());
    let origin = Origin::start("origin").await;
    let keys = rewound(&mut etcd, folder.path(), &origin).await;
    keys.delete("routes/new").await;
    keys.put("routes/1", &route("/one", "1")).await;
    keys.compact().await;
    follows(&etcd, folder.path(), &keys, 2).await;
}
