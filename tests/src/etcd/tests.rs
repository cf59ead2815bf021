use etcd_client::{Client, GetOptions};

use super::*;

/// Cluster id and revision.
async fn identity(client: &mut Client) -> (u64, i64) {
    let answer = client.get("/x/", Some(GetOptions::new().with_prefix())).await.unwrap();
    let header = answer.header().unwrap();
    (header.cluster_id(), header.revision())
}

async fn keys(client: &mut Client) -> Vec<String> {
    let answer = client.get("/x/", Some(GetOptions::new().with_prefix())).await.unwrap();
    answer.kvs().iter().map(|kv| kv.key_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_killed_member_comes_back_with_its_data() {
    let mut etcd = Etcd::start().await;
    etcd.client().await.put("/x/a", "1", None).await.unwrap();
    etcd.kill();
    assert!(http::get(&etcd.members()[0].metrics, "/health").await.is_err());
    etcd.restart().await;
    assert_eq!(keys(&mut etcd.client().await).await, ["/x/a"]);
    assert!(etcd.members()[0].metric("etcd_server_has_leader").await > 0.0);
}

#[tokio::test]
async fn a_paused_member_answers_nothing_until_resumed() {
    let etcd = Etcd::start().await;
    let mut client = etcd.client().await;
    etcd.pause();
    let limit = Duration::from_millis(500);
    assert!(tokio::time::timeout(limit, client.get("/x/a", None)).await.is_err());
    etcd.resume();
    etcd.ready().await;
    client.get("/x/a", None).await.unwrap();
}

#[tokio::test]
async fn a_restore_falls_back_under_the_ids_asked_for() {
    if !restorable("a_restore_falls_back_under_the_ids_asked_for") {
        return;
    }
    let mut etcd = Etcd::start().await;
    let mut client = etcd.client().await;
    client.put("/x/old", "1", None).await.unwrap();
    let snapshot = etcd.snapshot().await;
    let saved = identity(&mut client).await;
    for _ in 0..5 {
        client.put("/x/new", "1", None).await.unwrap();
    }
    let before = identity(&mut client).await;

    etcd.restore(&snapshot, Restore::SameIds).await;
    let mut client = etcd.client().await;
    assert_eq!(identity(&mut client).await, saved);
    assert_eq!(keys(&mut client).await, ["/x/old"]);

    etcd.restore(&snapshot, Restore::Bumped(1_000)).await;
    let bumped = identity(&mut etcd.client().await).await;
    assert_eq!(bumped.0, before.0);
    assert!(bumped.1 >= saved.1 + 1_000 && bumped.1 > before.1, "{bumped:?}");

    etcd.restore(&snapshot, Restore::OtherIds).await;
    assert_ne!(identity(&mut etcd.client().await).await.0, saved.0);
}

#[tokio::test]
async fn a_cluster_of_three_survives_one() {
    let mut etcd = Etcd::cluster().await;
    etcd.member(0).process.kill();
    let survivors = etcd.endpoints().split_off(1);
    let mut client = Client::connect(survivors, None).await.unwrap();
    eventually("a write without the first member", START, || {
        let mut client = client.clone();
        async move { client.put("/x/a", "1", None).await }
    })
    .await;
    etcd.restart().await;
    assert_eq!(keys(&mut client).await, ["/x/a"]);
}

#[tokio::test]
async fn a_wiped_etcd_is_empty_and_another() {
    let mut etcd = Etcd::start().await;
    let mut client = etcd.client().await;
    client.put("/x/a", "1", None).await.unwrap();
    let before = identity(&mut client).await;
    etcd.wipe_as_another().await;
    let mut client = etcd.client().await;
    let after = identity(&mut client).await;
    assert!(after.0 != before.0 && after.1 < before.1, "{before:?} {after:?}");
    assert_eq!(keys(&mut client).await, Vec::<String>::new());
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn an_isolated_member_is_reached_by_clients_and_knows_no_leader() {
    let options = Options { members: 3, peer_links: true, ..Options::default() };
    let etcd = Etcd::start_with(options).await;
    for index in [0, 1] {
        etcd.cut_off(index);
        eventually("it knows no leader", START, || async {
            let leaders = etcd.members()[index].metric("etcd_server_has_leader").await;
            if leaders < 1.0 { Ok(()) } else { Err(leaders) }
        })
        .await;
        let mut others = etcd.endpoints();
        let own = others.remove(index);
        let mut client = Client::connect(others, None).await.unwrap();
        let put = |client: &Client| client.kv_client();
        eventually("the others go on", START, || async { put(&client).put("/x/a", "1", None).await }).await;
        let alone = Client::connect([own], None).await.unwrap();
        let local = GetOptions::new().with_serializable();
        assert!(alone.kv_client().get("/x/a", Some(local)).await.is_ok(), "clients reach it");
        etcd.rejoin(index);
        etcd.ready().await;
        assert_eq!(keys(&mut client).await, ["/x/a"]);
    }
}
