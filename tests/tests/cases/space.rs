//! C24: etcd runs out of space.

use std::time::Duration;

use etcd_client::{AlarmAction, AlarmOptions, AlarmType, Client};
use headwater_tests::case::{either, is_full};
use headwater_tests::etcd::{Options, dependable};
use headwater_tests::keys::{Keys, route};
use headwater_tests::planes::{LIMIT, Replica};
use headwater_tests::requests::Requests;
use headwater_tests::site::Site;
use serde_json::Value;

/// Another tenant writes until there is no space left.
async fn fill(client: &Client) {
    let value = vec![0_u8; 1 << 20];
    for number in 0..100 {
        if let Err(error) = client.kv_client().put(format!("/tenant/{number}"), value.clone(), None).await {
            assert!(error.to_string().contains("database space exceeded"), "{error}");
            return;
        }
    }
    panic!("etcd takes everything");
}

/// Room is made, and the alarm taken back.
async fn make_room(client: &mut Client, keys: &Keys) {
    let below = etcd_client::DeleteOptions::new().with_prefix();
    client.delete("/tenant/", Some(below)).await.unwrap();
    keys.compact_only().await;
    client.defragment().await.unwrap();
    let raised = client.alarm(AlarmAction::Get, AlarmType::None, None).await.unwrap();
    for alarm in raised.alarms() {
        let mut member = AlarmOptions::new();
        member.with_member(alarm.member_id());
        client.alarm(AlarmAction::Deactivate, AlarmType::Nospace, Some(member)).await.unwrap();
    }
}

fn is_said(status: &Value) -> bool {
    let source = &status["source"];
    source["stage"] == "live" && source["note"].as_str().is_some_and(|note| note.contains("read-only"))
}

async fn metric(replica: &Replica) -> f64 {
    replica.metric("headwater_source_read_only").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c24_without_space_writes_are_refused_by_name_and_nodes_serve() {
    if !dependable("c24_without_space_writes_are_refused_by_name_and_nodes_serve") {
        return;
    }
    let arguments = vec!["--quota-backend-bytes=16777216".to_owned()];
    let site = Site::start_with(Options { arguments, ..Options::default() }).await;
    let mut client = site.etcd.client().await;
    site.routes(0..5).await;
    let replica = site.replica("r1", &[]);
    let node = site.node("n1", &replica);
    site.equals(&[&node]).await;
    let requests = Requests::start(&node.http, &["/0", "/1"], "origin", Duration::from_millis(5));
    replica.live(LIMIT).await;
    assert_eq!(metric(&replica).await, 0.0);
    fill(&client).await;
    if is_full() {
        // Without a write of ours, too: the member is asked every half minute.
        replica.shows("that etcd is read-only", LIMIT + Duration::from_secs(10), is_said).await;
    }
    let (status, said) = replica.put("routes/new", &route("/new", "1")).await;
    println!("c24: a write is refused with {:?}: {said}", status.code());
    assert!(!status.success() && said.contains("the store is read-only"), "{said}");
    replica.shows("that etcd is read-only", LIMIT, is_said).await;
    let (_, said) = replica.command(&["status"]).await;
    assert!(said.contains("read-only"), "{said}");
    assert_eq!(metric(&replica).await, 1.0);
    // Who starts now is told by the member, and serves.
    let other = site.replica("r2", &[]);
    other.shows("that etcd is read-only", LIMIT, is_said).await;
    let late = site.node("n2", &other);
    site.equals(&[&late]).await;
    let (status, said) = replica.command(&["delete", "routes/4"]).await;
    assert!(status.success(), "deletions make room: {said}");
    site.equals(&[&node, &late]).await;
    node.answers("/4", 404, "", LIMIT).await;

    // Nobody writes for the sake of being alive.
    let head = site.keys.head().await;
    tokio::time::sleep(either(Duration::from_secs(3), Duration::from_secs(600))).await;
    assert_eq!(site.keys.head().await, head, "somebody wrote to an idle etcd");

    make_room(&mut client, &site.keys).await;
    let (status, said) = replica.put("routes/new", &route("/new", "1")).await;
    assert!(status.success(), "{said}");
    node.answers("/new", 200, "origin", LIMIT).await;
    replica.shows("no more of it", LIMIT, |it| !is_said(it)).await;
    assert_eq!(metric(&replica).await, 0.0);
    site.equals(&[&node, &late]).await;
    println!("c24: {} requests, none failed", requests.all_good().good);
}
