//! C07: a member that is cut off from its peers, but not from us.

use std::time::{Duration, Instant};

use etcd_client::Client;
use headwater_tests::case::{either, times};
use headwater_tests::etcd::{Options, dependable};
use headwater_tests::eventually::eventually;
use headwater_tests::keys::{Keys, route};
use headwater_tests::planes::LIMIT;
use headwater_tests::site::Site;

/// What the case allows from the write through a healthy member until nodes have it.
const MOVED: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c07_an_isolated_member_is_left_for_one_with_a_leader() {
    if !dependable("c07_an_isolated_member_is_left_for_one_with_a_leader") {
        return;
    }
    let site = Site::start_with(Options { members: 3, peer_links: true, ..Options::default() }).await;
    let replica = site.replica("r1", times());
    let nodes = ["n1", "n2"].map(|id| site.node(id, &replica));
    site.equals(&[&nodes[0], &nodes[1]]).await;
    // In full often enough that leaders and followers are among the isolated.
    for round in 0..either(1, 6) {
        let member = replica.live(LIMIT).await;
        let index = site.etcd.endpoints().iter().position(|it| *it == member).unwrap();
        site.etcd.cut_off(index);
        let mut others = site.etcd.endpoints();
        others.remove(index);
        let client = Client::connect(others, None).await.unwrap();
        // Where the isolated one was the leader, the others first choose another.
        eventually("the others go on", LIMIT, || async {
            client.kv_client().put("/elsewhere", "x", None).await
        })
        .await;
        let (keys, began, new) = (Keys::new(client), Instant::now(), format!("new{round}"));
        let revision = keys.put(&format!("routes/{new}"), &route(&format!("/{new}"), "1")).await;
        for node in &nodes {
            let left = MOVED.saturating_sub(began.elapsed());
            node.answers(&format!("/{new}"), 200, "origin", left).await;
            node.reaches(revision).await;
        }
        let next = replica.live(LIMIT).await;
        assert_ne!(next, member, "it stays with a member without a leader");
        println!(
            "c07: m{index} isolated; a write through the others on both nodes after {:?}",
            began.elapsed()
        );
        site.etcd.rejoin(index);
        site.etcd.ready().await;
    }
    site.routes(0..3).await;
    site.equals(&[&nodes[0], &nodes[1]]).await;
}
