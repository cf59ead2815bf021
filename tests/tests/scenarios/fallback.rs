//! A node that never served a key which is broken now, and a replica that never saw it whole: etcd remembers.

use headwater_tests::etcd::{Etcd, dependable};
use headwater_tests::keys::{Keys, Write, route, upstream};
use headwater_tests::origin::Origin;
use headwater_tests::planes::{LIMIT, Node, Replica};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_value_is_looked_up_in_etcd_once_for_all_nodes() {
    if !dependable("an_older_value_is_looked_up_in_etcd_once_for_all_nodes") {
        return;
    }
    let (etcd, folder) = (Etcd::start().await, tempfile::tempdir().unwrap());
    let keys = Keys::new(etcd.client().await);
    let origin = Origin::start("origin").await;
    let mut write = Write::default().put("upstreams/1", &upstream(&origin.node()));
    for name in ["twice", "forgotten", "again"] {
        write = write.put(&format!("routes/{name}"), &route(&format!("/{name}"), "1"));
    }
    keys.commit(write).await;
    keys.put_raw("routes/forgotten", "{").await;
    // Another life: what the key held in the one before is no fallback.
    keys.delete("routes/again").await;
    keys.put_raw("routes/again", "{").await;
    keys.compact().await;
    keys.put_raw("routes/twice", "{").await;
    keys.put_raw("routes/twice", "{\"uri\": 7}").await;

    let replica = Replica::start(folder.path(), "r1", &etcd.endpoints()[0], &[]);
    let nodes = ["n1", "n2", "n3"].map(|id| Node::start(folder.path(), id, &replica.southbound, &[]));
    for node in &nodes {
        node.answers("/twice", 200, "origin", LIMIT).await;
        node.answers("/forgotten", 404, "", LIMIT).await;
        node.answers("/again", 404, "", LIMIT).await;
        let status = node.status().await.unwrap();
        let rejects = status["rejected"].as_array().unwrap();
        assert_eq!(rejects.len(), 3, "{status}");
        let served = |key: &str| {
            let found = rejects.iter().find(|it| it["key"] == key).unwrap();
            !found["served_mod_revision"].is_null()
        };
        assert!(served("routes/twice") && !served("routes/forgotten") && !served("routes/again"), "{status}");
    }
    // A node that comes later is answered from memory: etcd's range requests stand still.
    let before = etcd.members()[0].metric("etcd_mvcc_range_total").await;
    let late = Node::start(folder.path(), "n4", &replica.southbound, &[]);
    late.answers("/twice", 200, "origin", LIMIT).await;
    assert!(etcd.members()[0].metric("etcd_mvcc_range_total").await <= before, "etcd was asked again");
    // Whole again, it is the newest value that serves.
    let revision = keys.put("routes/twice", &route("/mended", "1")).await;
    late.reaches(revision).await;
    late.answers("/mended", 200, "origin", LIMIT).await;
    late.answers("/twice", 404, "", LIMIT).await;
}
