//! Values that no node can use, put straight into etcd past every validation.

use headwater_tests::bench::load;
use headwater_tests::etcd::{Etcd, dependable};
use headwater_tests::eventually::eventually;
use headwater_tests::history::Record;
use headwater_tests::keys::{Keys, Write, route, upstream};
use headwater_tests::origin::Origin;
use headwater_tests::planes::{LIMIT, Node, Replica};
use serde_json::Value;

/// What is broken, how, and a word that the reason must hold.
const BROKEN: [(&str, &str, &str); 3] = [
    ("routes/json", r#"{"uri": "/json", "upstream_id"#, "JSON"),
    ("routes/type", r#"{"uri": 7, "upstream_id": "1"}"#, "uri"),
    ("routes/regex", r#"{"uri": "/regex", "upstream_id": "1", "vars": [["uri", "~~", "("]]}"#, "vars"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_no_node_can_use_leaves_the_old_one_serving_and_is_named() {
    if !dependable("a_value_no_node_can_use_leaves_the_old_one_serving_and_is_named") {
        return;
    }
    let (etcd, folder) = (Etcd::start().await, tempfile::tempdir().unwrap());
    let keys = Keys::new(etcd.client().await);
    let (old, new) = (Origin::start("old").await, Origin::start("new").await);
    let mut write = Write::default().put("upstreams/1", &upstream(&old.node()));
    for name in ["json", "type", "regex", "well"] {
        write = write.put(&format!("routes/{name}"), &route(&format!("/{name}"), "1"));
    }
    keys.commit(write).await;
    let mut replica = Replica::start(folder.path(), "r1", &etcd.endpoints()[0], &[]);
    let mut node = Node::start(folder.path(), "n1", &replica.southbound, &[]);
    node.answers("/json", 200, "old", LIMIT).await;
    let record = Record::start(&etcd, [&node]).await;

    for (key, value, _) in BROKEN {
        keys.put_raw(key, value).await;
    }
    // Never served, so nothing can stand in for it.
    keys.put_raw("routes/never", "{").await;
    keys.put("routes/more", &route("/more", "2")).await;
    keys.put("upstreams/2", &upstream(&new.node())).await;
    node.answers("/more", 200, "new", LIMIT).await;
    named(&replica, &node).await;

    node.process.kill();
    replica.process.restart();
    node.process.restart();
    replica.ready().await;
    node.shows("a stream to the restarted replica", |it| it["stream"]["phase"] == "open").await;
    named(&replica, &node).await;
    let revision = keys.put("routes/json", &route("/json", "2")).await;
    node.reaches(revision).await;
    node.answers("/json", 200, "new", LIMIT).await;
    node.shows("one reject less", |it| rejected(it).len() == BROKEN.len()).await;
    record.kept().await;
}

/// The old values serve, and each broken key is named with its reason by the node, the replica and the command.
async fn named(replica: &Replica, node: &Node) {
    for path in ["/json", "/type", "/regex", "/well"] {
        node.answers(path, 200, "old", LIMIT).await;
    }
    node.answers("/never", 404, "", LIMIT).await;
    let status = node.status().await.unwrap();
    eventually("the replica names as many rejects", LIMIT, || async {
        let status = replica.status().await.map_err(|error| format!("{error:#}"))?;
        let count = status["rejects"].as_array().map(Vec::len);
        if count == Some(BROKEN.len() + 1) { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
    let above = replica.status().await.unwrap();
    let (_, listed) = replica.command(&["nodes", "--rejects"]).await;
    let (_, shown) = replica.command(&["status"]).await;
    for (key, _, word) in BROKEN {
        let reject = find(rejected(&status), key);
        assert!(reject["served_mod_revision"].is_u64(), "{key} is not retained: {reject}");
        let summary = find(above["rejects"].as_array().unwrap(), key);
        assert_eq!(summary["nodes"], 1);
        assert_eq!(summary["retained"], 1);
        for reason in [&reject["reason"], &summary["reason"]] {
            assert!(reason.as_str().unwrap().contains(word), "{key}: {reason} does not speak of {word}");
        }
        assert!(listed.contains(key) && listed.contains(word), "{key} is not in `headwater nodes`: {listed}");
        assert!(shown.contains(key), "{key} is not in `headwater status`: {shown}");
    }
    assert!(find(rejected(&status), "routes/never")["served_mod_revision"].is_null());
}

fn rejected(status: &Value) -> &Vec<Value> {
    status["rejected"].as_array().unwrap()
}

fn find<'a>(rejects: &'a [Value], key: &str) -> &'a Value {
    rejects.iter().find(|it| it["key"] == key).unwrap_or_else(|| panic!("{key} is not in {rejects:?}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_rejects_than_a_queue_holds_do_not_cost_the_stream() {
    if !dependable("more_rejects_than_a_queue_holds_do_not_cost_the_stream") {
        return;
    }
    let (etcd, folder) = (Etcd::start().await, tempfile::tempdir().unwrap());
    // Their descriptions are too long: each is rejected, nothing is served instead, an older value is asked for.
    load::fill(&mut etcd.client().await, 2_000, 700).await.unwrap();
    let replica = Replica::start(folder.path(), "r1", &etcd.endpoints()[0], &[]);
    let node = Node::start(folder.path(), "n1", &replica.southbound, &[]);
    let all = |it: &Value| it["rejected"].as_array().is_some_and(|all| all.len() == 2_000);
    let before = node.shows("its rejects", all).await;
    let told = |it: &Value| it["rejects"].as_array().is_some_and(|all| all.len() == 2_000);
    replica.shows("all rejects", LIMIT, told).await;
    // Long enough for a stream that cannot be kept to be lost many times.
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    let after = node.status().await.unwrap();
    assert_eq!(
        after["stream"]["connections_lost"], before["stream"]["connections_lost"],
        "{}",
        after["stream"]
    );
    assert_eq!(after["stream"]["phase"], "open", "{}", after["stream"]);
}
