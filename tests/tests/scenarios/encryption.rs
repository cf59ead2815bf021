//! Encrypted files of both planes, with kill -9 and keys exchanged between starts, and nobody to bring content again.

use std::path::Path;

use headwater_tests::etcd::{Etcd, dependable};
use headwater_tests::history::Record;
use headwater_tests::keys::{Keys, Write, route, upstream};
use headwater_tests::origin::Origin;
use headwater_tests::planes::{LIMIT, Node, Replica};

/// Whether a text is in any file of a folder.
fn is_seen(folder: &Path, text: &str) -> bool {
    std::fs::read_dir(folder).unwrap().any(|entry| {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        bytes.windows(text.len()).any(|window| window == text.as_bytes())
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_exchanged_over_restarts_and_nothing_is_lost_or_seen() {
    if !dependable("keys_are_exchanged_over_restarts_and_nothing_is_lost_or_seen") {
        return;
    }
    let (mut etcd, folder) = (Etcd::start().await, tempfile::tempdir().unwrap());
    let store = Keys::new(etcd.client().await);
    let origin = Origin::start("origin").await;
    let write = Write::default().put("upstreams/1", &upstream(&origin.node()));
    let revision = store.commit(write.put("routes/1", &route("/hidden-path", "1"))).await;
    let (first, second) = (folder.path().join("first.key"), folder.path().join("second.key"));
    let give = |keys: [u8; 2]| {
        for (file, key) in [&first, &second].into_iter().zip(keys) {
            std::fs::write(file, format!("{key:02x}").repeat(32)).unwrap();
        }
    };
    give([1, 9]);
    let keys =
        format!("state_encryption.keys=[{{file: {}}}, {{file: {}}}]", first.display(), second.display());
    let mut replica = Replica::start(folder.path(), "r1", &etcd.endpoints()[0], &[&keys]);
    let mut node = Node::start(folder.path(), "n1", &replica.southbound, &[&keys]);
    node.shows("it durable", |it| it["durable"]["revision"].as_u64() >= Some(revision)).await;
    let record = Record::start(&etcd, [&node]).await;
    etcd.kill();
    // A new key before the older one, then without the older one.
    for given in [[2, 1], [2, 8]] {
        replica.process.kill();
        node.process.kill();
        give(given);
        node.process.restart();
        node.answers("/hidden-path", 200, "origin", LIMIT).await;
        let status = node.status().await.unwrap();
        assert_eq!(status["disk"]["faults"], serde_json::json!([]), "{given:?}");
        replica.process.restart();
        replica.ready().await;
        for plane in ["r1", "n1"] {
            let plane = folder.path().join(plane);
            assert!(!is_seen(&plane, "routes/1") && !is_seen(&plane, "/hidden-path"), "{given:?}");
        }
    }
    // What the replica kept is whole: it is all that an empty node can be served with. This one writes plain text.
    let empty = Node::start(folder.path(), "n2", &replica.southbound, &[]);
    empty.answers("/hidden-path", 200, "origin", LIMIT).await;
    empty.shows("it durable", |it| it["durable"]["revision"].as_u64() >= Some(revision)).await;
    assert!(is_seen(&folder.path().join("n2"), "/hidden-path"), "the search finds what is there");
    record.kept_so_far();
}
