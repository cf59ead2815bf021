//! C14, C15, C16: tokens that end, authentication switched on and changed, and etcd's own proxy in between.

use std::path::PathBuf;
use std::time::Duration;

use etcd_client::Client;
use headwater_tests::auth::{ROLE, Tokens, USER, root, short_tokens, switch_on};
use headwater_tests::case::either;
use headwater_tests::etcd::{Etcd, GrpcProxy, Options, dependable};
use headwater_tests::eventually::eventually;
use headwater_tests::keys::{Keys, route};
use headwater_tests::planes::{LIMIT, Node, Replica};
use headwater_tests::requests::Requests;
use headwater_tests::site::Site;
use serde_json::Value;

/// What the case allows from a write until nodes have it.
const REACHED: Duration = Duration::from_secs(10);

/// A replica that logs in with the password of a file, and the file.
fn with_password(site: &Site, id: &str, endpoints: &[String], password: &str) -> (Replica, PathBuf) {
    let file = site.folder().join(format!("{id}.password"));
    std::fs::write(&file, password).unwrap();
    let settings = [format!("etcd.user={USER}"), format!("etcd.password_file={}", file.display())];
    let replica = site.replica_at(id, endpoints, &settings.each_ref().map(String::as_str));
    (replica, file)
}

/// The exit code of a write that the replica does not carry out now, because it follows no source.
const AWAY: i32 = 5;

/// An operator's write, which comes back through the watch and reaches the nodes. It waits for the source, and for
/// nothing else: any other refusal is one too many.
async fn written(replica: &Replica, nodes: &[&Node], name: &str) {
    eventually("the replica writes", LIMIT, || async {
        let (status, said) = replica.put(&format!("routes/{name}"), &route(&format!("/{name}"), "1")).await;
        assert!(status.success() || status.code() == Some(AWAY), "{said}");
        if status.success() { Ok(()) } else { Err(said) }
    })
    .await;
    for node in nodes {
        node.answers(&format!("/{name}"), 200, "origin", REACHED).await;
    }
}

/// Breaks every watch of a member, as a restart of its process does.
async fn restarted(etcd: &mut Etcd) {
    etcd.kill();
    etcd.restart().await;
}

async fn loads(replica: &Replica) -> f64 {
    replica.metric("headwater_source_loads_total").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c14_tokens_that_end_within_seconds_are_replaced() {
    if !dependable("c14_tokens_that_end_within_seconds_are_replaced") {
        return;
    }
    let (life, idle) = either((2, 3), (5, 30));
    for kind in [Tokens::Simple, Tokens::Jwt] {
        let folder = tempfile::tempdir().unwrap();
        let arguments = short_tokens(kind, folder.path(), life);
        let mut site = Site::start_with(Options { members: 3, arguments, ..Options::default() }).await;
        switch_on(&site.etcd, "first").await;
        let (replica, _) = with_password(&site, "r1", &site.etcd.endpoints(), "first");
        let node = site.node("n1", &replica);
        written(&replica, &[&node], "first").await;
        tokio::time::sleep(Duration::from_secs(idle)).await;
        written(&replica, &[&node], "idle").await;
        for index in 0..3 {
            site.etcd.member(index).process.restart();
            site.etcd.ready().await;
            let keys = Keys::new(root(&site.etcd).await);
            let name = format!("restarted{index}");
            keys.put(&format!("routes/{name}"), &route(&format!("/{name}"), "1")).await;
            node.answers(&format!("/{name}"), 200, "origin", REACHED).await;
            written(&replica, &[&node], &format!("own{index}")).await;
        }
        node.equals(&Keys::new(root(&site.etcd).await), LIMIT).await;
        assert_eq!(loads(&replica).await, 1.0, "{kind:?}: read again");
        println!("c14: {kind:?} tokens of {life} s, {idle} s of nothing, three members restarted");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c15_authentication_is_switched_on_and_changed_and_no_route_disappears() {
    if !dependable("c15_authentication_is_switched_on_and_changed_and_no_route_disappears") {
        return;
    }
    let mut site = Site::start().await;
    site.routes(0..2).await;
    let (replica, file) = with_password(&site, "r1", &site.etcd.endpoints(), "first");
    let nodes = ["n1", "n2"].map(|id| site.node(id, &replica));
    let both = [&nodes[0], &nodes[1]];
    site.equals(&both).await;
    let requests =
        both.map(|node| Requests::start(&node.http, &["/0", "/1"], "origin", Duration::from_millis(5)));

    // Switched on under a live watch; then the process starts again, and no stream and no token outlives it.
    switch_on(&site.etcd, "first").await;
    written(&replica, &both, "on").await;
    restarted(&mut site.etcd).await;
    written(&replica, &both, "again").await;

    a_role_is_taken_away_and_given_back(&mut site.etcd, &replica, &both).await;

    // Changed in etcd first: until the file follows, nothing new may be learnt, and what is held stays.
    root(&site.etcd).await.user_change_password(USER, "second").await.unwrap();
    restarted(&mut site.etcd).await;
    says(&replica, "password").await;
    eventually("a write is refused by name", LIMIT, || async {
        let (status, said) = replica.put("routes/late", &route("/late", "1")).await;
        assert!(!status.success(), "written under a password that is no more");
        if said.contains("authentication failed") { Ok(()) } else { Err(said) }
    })
    .await;
    let keys = Keys::new(root(&site.etcd).await);
    let revision = keys.put("routes/late", &route("/late", "1")).await;
    let status = nodes[0].status().await.unwrap();
    assert!(status["applied"]["revision"].as_u64() < Some(revision), "{status}");
    std::fs::write(&file, "second").unwrap();
    for node in both {
        node.answers("/late", 200, "origin", LIMIT).await;
        node.equals(&keys, LIMIT).await;
    }
    written(&replica, &both, "after").await;
    assert_eq!(loads(&replica).await, 1.0, "the watch went on, nothing was read again");
    for requests in &requests {
        println!("c15: {} requests, none failed", requests.all_good().good);
    }
}

async fn a_role_is_taken_away_and_given_back(etcd: &mut Etcd, replica: &Replica, nodes: &[&Node]) {
    let mut client = root(etcd).await;
    client.user_revoke_role(USER, ROLE).await.unwrap();
    restarted(etcd).await;
    let mut client = root(etcd).await;
    let keys = Keys::new(client.clone());
    let revision = keys.put("routes/denied", &route("/denied", "1")).await;
    says(replica, "denied").await;
    let status = nodes[0].status().await.unwrap();
    assert!(status["applied"]["revision"].as_u64() < Some(revision), "{status}");
    client.user_grant_role(USER, ROLE).await.unwrap();
    for node in nodes {
        node.answers("/denied", 200, "origin", LIMIT).await;
    }
}

/// The source is refused, and its note has this word.
async fn says(replica: &Replica, word: &str) -> Value {
    let refused = |it: &Value| {
        let note = it["source"]["note"].as_str().unwrap_or_default();
        it["source"]["stage"] == "refused" && note.contains(word)
    };
    let shown = replica.shows(&format!("a refusal for {word}"), LIMIT, refused).await;
    println!("it says {}", shown["source"]["note"]);
    shown
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c16_behind_a_grpc_proxy_it_is_never_silent() {
    if !dependable("c16_behind_a_grpc_proxy_it_is_never_silent") {
        return;
    }
    let (life, folder) = (either(2, 5), tempfile::tempdir().unwrap());
    let arguments = short_tokens(Tokens::Simple, folder.path(), life);
    let site = Site::start_with(Options { arguments, ..Options::default() }).await;
    let client: Client = switch_on(&site.etcd, "first").await;
    let proxy = GrpcProxy::start(&site.etcd.endpoints()).await;
    let behind = [proxy.endpoint.clone()];
    let (first, _) = with_password(&site, "r1", &behind, "first");
    says(&first, "grpc-proxy").await;
    // The case: whoever comes after the first one's token has ended.
    tokio::time::sleep(Duration::from_secs(u64::from(life) * 2)).await;
    let (second, _) = with_password(&site, "r2", &behind, "first");
    says(&second, "grpc-proxy").await;
    let (status, said) = second.command(&["status"]).await;
    assert!(status.success() && said.contains("grpc-proxy"), "{said}");

    // One that follows the member itself is moved behind the proxy: it keeps what it has, and says so.
    let (mut moved, _) = with_password(&site, "r3", &site.etcd.endpoints(), "first");
    let node = site.node("n1", &moved);
    written(&moved, &[&node], "before").await;
    // The file of the replica is written behind its publishing.
    tokio::time::sleep(Duration::from_secs(1)).await;
    moved.process.kill();
    let settings = site.folder().join("r3/settings.yaml");
    let text = std::fs::read_to_string(&settings).unwrap();
    std::fs::write(&settings, text.replace(&site.etcd.endpoints()[0], &proxy.endpoint)).unwrap();
    moved.process.restart();
    let shown = says(&moved, "grpc-proxy").await;
    assert!(shown["version"]["revision"].as_u64() > Some(0), "{shown}");
    let keys = Keys::new(client);
    keys.put("routes/unseen", &route("/unseen", "1")).await;
    node.shows("that it may be behind", |it| it["proof"]["stale_since_unix"].as_u64() > Some(0)).await;
    node.answers("/before", 200, "origin", LIMIT).await;
    node.answers("/unseen", 404, "", LIMIT).await;
    moved.process.kill();
    std::fs::write(&settings, text).unwrap();
    moved.process.restart();
    node.answers("/unseen", 200, "origin", LIMIT).await;
}
