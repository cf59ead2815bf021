//! The second hop breaks in the middle of a transfer: versions stay whole, and nothing is certified undelivered.

use std::time::{Duration, Instant};

use headwater_tests::etcd::{Etcd, dependable};
use headwater_tests::eventually::eventually;
use headwater_tests::h2_proxy::{H2Proxy, Reach};
use headwater_tests::history::Record;
use headwater_tests::keys::{Keys, Write, upstream};
use headwater_tests::planes::{LIMIT, Node, Replica, SYNC};

/// Resources of one transaction, each of 10 KB: etcd's limit is 1.5 MiB.
const RESOURCES: usize = 100;

/// All of the resources in one transaction, of about a megabyte.
fn version(mark: &str) -> Write {
    (0..RESOURCES).fold(Write::default(), |write, id| {
        let mut value = upstream("127.0.0.1:80");
        value["desc"] = mark.repeat(10_000).into();
        write.put(&format!("upstreams/{id}"), &value)
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_silenced_inside_a_transfer_leaves_versions_whole() {
    if !dependable("a_stream_silenced_inside_a_transfer_leaves_versions_whole") {
        return;
    }
    let (etcd, folder) = (Etcd::start().await, tempfile::tempdir().unwrap());
    let keys = Keys::new(etcd.client().await);
    let first = keys.commit(version("a")).await;
    let replica = Replica::start(folder.path(), "r1", &etcd.endpoints()[0], &[]);
    let proxy = H2Proxy::start(&*replica.southbound).await;
    let node = Node::start(folder.path(), "n1", &proxy.address.to_string(), &[]);
    node.reaches(first).await;
    let record = Record::start(&etcd, [&node]).await;
    let before = proxy.seen(SYNC);

    proxy.throttle(SYNC, 200_000);
    let (began, second) = (Instant::now(), keys.commit(version("b")).await);
    node.shows("that it receives", |it| it["stream"]["receiving_bytes"].as_u64() > Some(100_000)).await;
    proxy.swallow(SYNC, Reach::OpenNow);
    let mut looks = 0;
    loop {
        let held = node.held().await.unwrap();
        looks += 1;
        let mut revisions: Vec<u64> = held.content.values().copied().collect();
        revisions.dedup();
        assert_eq!(revisions.len(), 1, "half a version at {}: {:?}", held.revision, held.content);
        assert_eq!(
            revisions[0] == second,
            held.revision >= second,
            "{} is certified undelivered",
            held.revision
        );
        if held.revision >= second {
            break;
        }
        assert!(began.elapsed() < LIMIT, "it never comes");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let after = proxy.seen(SYNC);
    println!("whole at each of {looks} looks; the version came after {:?}", began.elapsed());
    assert!(after.swallowed > 0, "nothing was swallowed: {after:?}");
    assert!(after.opened > before.opened, "no other stream was opened: {after:?}");
    record.kept().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transfer_longer_than_five_heartbeats_completes() {
    if !dependable("a_transfer_longer_than_five_heartbeats_completes") {
        return;
    }
    let (etcd, folder) = (Etcd::start().await, tempfile::tempdir().unwrap());
    let keys = Keys::new(etcd.client().await);
    let revision = keys.commit(version("a")).await;
    let replica = Replica::start(folder.path(), "r1", &etcd.endpoints()[0], &[]);
    let proxy = H2Proxy::start(&*replica.southbound).await;
    // A megabyte at this rate is eight heartbeats of a second.
    proxy.throttle(SYNC, 125_000);
    // An empty node goes on to the next address while its replica has no proof of life of the source.
    eventually("the replica is live", LIMIT, || async {
        let status = replica.status().await.map_err(|error| format!("{error:#}"))?;
        if status["degraded"].is_null() { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
    let (began, node) = (Instant::now(), Node::start(folder.path(), "n1", &proxy.address.to_string(), &[]));
    let record = Record::start(&etcd, [&node]).await;
    eventually("the whole version is there", LIMIT, || async {
        let held = node.held().await.map_err(|error| format!("{error:#}"))?;
        if held.revision >= revision && held.content.len() == RESOURCES {
            Ok(())
        } else {
            Err(held.revision.to_string())
        }
    })
    .await;
    println!("a megabyte over a slow link came after {:?}", began.elapsed());
    assert!(began.elapsed() > Duration::from_secs(5), "the link was not slow");
    assert_eq!(proxy.seen(SYNC).opened, 1, "it was begun anew");
    record.kept().await;
}
