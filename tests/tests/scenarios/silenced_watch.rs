//! The loss that everything began with: the watch stays open and says nothing more, while all else works.

use std::time::{Duration, Instant};

use headwater_tests::etcd::{Etcd, dependable};
use headwater_tests::h2_proxy::{H2Proxy, Reach};
use headwater_tests::history::Record;
use headwater_tests::keys::{Keys, Write, route, upstream};
use headwater_tests::origin::Origin;
use headwater_tests::planes::{LIMIT, LIVENESS, Node, Replica, WATCH};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_of_a_silenced_watch_reach_the_node_all_the_same() {
    if !dependable("changes_of_a_silenced_watch_reach_the_node_all_the_same") {
        return;
    }
    let (etcd, folder) = (Etcd::start().await, tempfile::tempdir().unwrap());
    let keys = Keys::new(etcd.client().await);
    let origin = Origin::start("origin").await;
    let proxy = H2Proxy::start(etcd.address()).await;
    let write = Write::default().put("upstreams/1", &upstream(&origin.node()));
    keys.commit(write.put("routes/old", &route("/old", "1"))).await;
    let replica = Replica::start(folder.path(), "r1", &format!("http://{}", proxy.address), &[]);
    let node = Node::start(folder.path(), "n1", &replica.southbound, &[]);
    node.answers("/old", 200, "origin", LIMIT).await;
    let record = Record::start(&etcd, [&node]).await;
    // The watch answers; only then is it silenced.
    let revision = keys.put("routes/live", &route("/live", "1")).await;
    node.reaches(revision).await;

    let mut gone = "old".to_owned();
    for round in 0..5 {
        let before = proxy.seen(WATCH);
        proxy.swallow(WATCH, Reach::OpenNow);
        let (began, new) = (Instant::now(), format!("new{round}"));
        keys.put(&format!("routes/{new}"), &route(&format!("/{new}"), "1")).await;
        keys.delete(&format!("routes/{gone}")).await;
        let limit = LIVENESS + Duration::from_secs(5);
        node.answers(&format!("/{new}"), 200, "origin", limit).await;
        node.answers(&format!("/{gone}"), 404, "", limit.saturating_sub(began.elapsed())).await;
        println!("round {round}: both reached the node {:?} after the watch fell silent", began.elapsed());
        let after = proxy.seen(WATCH);
        assert!(after.swallowed > before.swallowed, "nothing was swallowed, so nothing is shown: {after:?}");
        assert!(after.opened > before.opened, "no other watch was opened: {before:?} {after:?}");
        gone = new;
    }
    shown_by_the_recorder(&replica).await;
    record.kept().await;
}

/// W32: afterwards it is to be seen what the watch answered, and that silence certified nothing.
async fn shown_by_the_recorder(replica: &Replica) {
    let (status, text) = replica.command(&["source", "recorder", "--last", "0", "-o", "json"]).await;
    assert!(status.success(), "{text}");
    let shown: serde_json::Value = serde_json::from_str(&text).unwrap();
    let records = shown["records"].as_array().unwrap();
    let kinds = |kind: &str| records.iter().filter(|record| record["kind"] == kind).count();
    for kind in ["opening", "created", "events"] {
        assert!(kinds(kind) >= 6, "{kind}: {text}");
    }
    assert!(kinds("ended") >= 5, "{text}");
    let mut safe = 0;
    for record in records {
        let now = record["safe_revision"].as_u64().unwrap_or_default();
        let certified = match record["kind"].as_str().unwrap() {
            "events" => record["last_revision"].as_u64().unwrap(),
            "progress" => record["header_revision"].as_u64().unwrap(),
            // The full read and what was buffered meanwhile are no responses, and come with the first one.
            _ if safe == 0 => now,
            _ => safe,
        };
        assert!(safe <= now && now <= certified.max(safe), "{record} after {safe}");
        safe = now;
    }
}
