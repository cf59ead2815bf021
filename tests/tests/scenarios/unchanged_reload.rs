//! A reload that finds nothing new costs the nodes nothing; one that finds a deletion costs them the deletion.

use std::time::{Duration, Instant};

use headwater_process::{Policy, Supervisor};
use headwater_tests::cut_off::{sent, transfers, until_compacted};
use headwater_tests::etcd::{Etcd, dependable};
use headwater_tests::history::Record;
use headwater_tests::keys::{Keys, Write, upstream};
use headwater_tests::planes::{Node, Replica};
use headwater_tests::tcp_proxy::TcpProxy;

const RESOURCES: usize = 10_000;
/// Writes of one transaction, within etcd's 128.
const BATCH: usize = 100;

/// A prefix as APISIX leaves it: placeholders, `gen_id` and content.
async fn fill(keys: &Keys) {
    for kind in ["routes", "upstreams", "services", "ssls"] {
        keys.put_raw(&format!("{kind}/"), "init_dir").await;
    }
    keys.put_raw("gen_id", "7").await;
    for batch in 0..RESOURCES / BATCH {
        let ids = batch * BATCH..(batch + 1) * BATCH;
        let add = |write: Write, id| write.put(&format!("upstreams/{id}"), &upstream("127.0.0.1:80"));
        keys.commit(ids.fold(Write::default(), add)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unchanged_reload_sends_nothing_and_a_deletion_only_itself() {
    if !dependable("an_unchanged_reload_sends_nothing_and_a_deletion_only_itself") {
        return;
    }
    let (etcd, folder) = (Etcd::start().await, tempfile::tempdir().unwrap());
    let keys = Keys::new(etcd.client().await);
    fill(&keys).await;
    let (supervisor, rewriting) = (Supervisor::new("server_info"), keys.clone());
    let stop = supervisor.token();
    supervisor.spawn("rewrite", Policy::best_effort().dropped_on_cancel(), async move {
        while !stop.is_cancelled() {
            rewriting.put_raw("data_plane/server_info/x", format!("{:?}", Instant::now())).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    let proxy = TcpProxy::start(etcd.address()).await;
    let replica = Replica::start(folder.path(), "r1", &format!("http://{}", proxy.address), &[]);
    let node = Node::start(folder.path(), "n1", &replica.southbound, &[]);
    let record = Record::start(&etcd, [&node]).await;
    let before = node.shows("10,000 resources", |it| it["resources"] == RESOURCES).await;
    let (begun, bytes) = sent(&replica).await;
    assert_eq!(begun, 1.0, "one transfer brings the first version");

    let compacted = until_compacted(&proxy, &keys, &replica, async {}).await;
    let after = node.reaches(compacted).await;
    assert_eq!(after["applied"]["digest"], before["applied"]["digest"]);
    assert_eq!(transfers(&after), transfers(&before), "an unchanged reload reached the node");
    assert_eq!(sent(&replica).await.0, begun, "an unchanged reload was sent");
    let kept = format!("put=0 deleted=0 kept={RESOURCES}");
    let lines = replica.process.lines();
    assert!(
        lines.iter().any(|line| line.contains(&kept)),
        "not every resource kept its allocation: {lines:?}"
    );

    let compacted = until_compacted(&proxy, &keys, &replica, keys.delete("upstreams/77")).await;
    let deleted = node.reaches(compacted).await;
    assert_eq!(deleted["resources"], RESOURCES - 1);
    assert_eq!(transfers(&deleted), transfers(&before) + 1);
    let (now, more) = sent(&replica).await;
    assert_eq!(now, begun + 1.0, "a deletion is one transfer");
    let cost = more - bytes;
    println!("{bytes} bytes brought {RESOURCES} resources; two reloads and a deletion cost {cost}");
    assert!(cost < 8192.0, "one deletion and some progress, not {cost} bytes");
    let held = node.held().await.unwrap();
    assert_eq!(held.content, keys.content(Some(held.revision)).await);
    supervisor.cancel();
    record.kept().await;
}
