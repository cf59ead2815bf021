//! The source against a real etcd: loads, cuts, compaction, restarts and restores. What was told must equal etcd.

use std::time::{Duration, Instant};

use etcd_client::{Client, CompactionOptions, DeleteOptions, Txn, TxnOp};
use headwater_control_plane::backend::etcd::{EtcdCommit, EtcdReader};
use headwater_control_plane::backend::{
    Commit, CommitError, Compare, Continuity, Operation, ReadError, Reader, Stage, Transaction,
};
use headwater_model::Revision;
use headwater_tests::etcd::{Etcd, Restore, dependable, restorable};
use headwater_tests::follower::{Follower, cluster, read};
use headwater_tests::h2_proxy::H2Proxy;
use headwater_tests::tcp_proxy::TcpProxy;

const PREFIX: &str = "/apisix";
const WATCH: &str = "/etcdserverpb.Watch/Watch";
/// Before the pings of a connection that is asked something can have found it dead, and long after five seconds of
/// silence have.
const PINGED: Duration = Duration::from_secs(14);

async fn put(etcd: &mut Client, key: &str, value: &str) {
    etcd.put(format!("{PREFIX}/{key}"), value, None).await.expect("etcd takes a write");
}

async fn delete(etcd: &mut Client, key: &str) {
    etcd.delete(format!("{PREFIX}/{key}"), None).await.expect("etcd takes a delete");
}

async fn fill(etcd: &mut Client, count: usize) {
    for chunk in (0..count).collect::<Vec<_>>().chunks(100) {
        let puts = chunk.iter().map(|id| {
            let value = format!("{{\"uri\":\"/{id}\",\"desc\":\"{}\"}}", "x".repeat(100));
            TxnOp::put(format!("{PREFIX}/routes/{id:05}"), value, None)
        });
        etcd.txn(Txn::new().and_then(puts.collect::<Vec<_>>())).await.expect("etcd takes a transaction");
    }
}

async fn compact(etcd: &mut Client) {
    let (_, head) = read(etcd, PREFIX).await;
    let head = i64::try_from(head).expect("a small number");
    etcd.compact(head, Some(CompactionOptions::new().with_physical())).await.expect("etcd compacts");
}

fn through(proxy: std::net::SocketAddr) -> Vec<String> {
    vec![format!("http://{proxy}")]
}

async fn live(follower: &Follower) {
    follower
        .until("the source is live", |told| told.states.last().is_some_and(|state| state.is_live()))
        .await;
}

/// A hundred keys, and a follower that is live on a way that can be cut.
async fn followed_through_a_proxy() -> (Etcd, Client, TcpProxy, Follower) {
    let etcd = Etcd::start().await;
    let mut client = etcd.client().await;
    fill(&mut client, 100).await;
    let proxy = TcpProxy::start(etcd.address()).await;
    let follower = Follower::start(through(proxy.address), PREFIX);
    follower.equals(&client).await;
    live(&follower).await;
    (etcd, client, proxy, follower)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_keys_are_loaded_in_pages_under_writes() {
    if !dependable("ten_thousand_keys_are_loaded_in_pages_under_writes") {
        return;
    }
    let etcd = Etcd::start().await;
    let mut client = etcd.client().await;
    fill(&mut client, 10_000).await;
    let follower = Follower::start(etcd.endpoints(), PREFIX);
    // Writes, deletions and whole transactions until well after the load.
    let mut writes = 0;
    while follower.told().loads.is_empty() || writes < 300 {
        put(&mut client, &format!("routes/{:05}", writes * 31 % 10_000), &format!("{{\"n\":{writes}}}"))
            .await;
        delete(&mut client, &format!("routes/{:05}", writes * 17 % 10_000)).await;
        let both = [
            TxnOp::put(format!("{PREFIX}/upstreams/a"), format!("{writes}"), None),
            TxnOp::delete(format!("{PREFIX}/upstreams/b"), Some(DeleteOptions::new())),
        ];
        client.txn(Txn::new().and_then(both)).await.expect("etcd takes a transaction");
        writes += 1;
        assert!(writes < 100_000, "the load never comes");
    }
    follower.equals(&client).await;
    assert_eq!(follower.told().loads, [Continuity::First]);
}

#[tokio::test]
async fn a_cut_is_resumed_without_a_load_and_progress_follows_other_writes() {
    if !dependable("a_cut_is_resumed_without_a_load_and_progress_follows_other_writes") {
        return;
    }
    let (_etcd, mut client, proxy, follower) = followed_through_a_proxy().await;
    proxy.refuse();
    put(&mut client, "routes/new", "{}").await;
    delete(&mut client, "routes/00001").await;
    follower
        .until("the cut is seen", |told| told.states.iter().any(|it| it.stage == Stage::BackingOff))
        .await;
    proxy.heal();
    follower.equals(&client).await;
    assert_eq!(follower.told().loads.len(), 1, "resumed, not read again");
    client.put("/elsewhere", "x", None).await.expect("etcd takes a write");
    let (_, head) = read(&client, PREFIX).await;
    follower.until("progress reaches the head", |told| told.safe >= head).await;
}

#[tokio::test]
async fn compaction_beyond_the_safe_revision_is_an_unproven_load() {
    if !dependable("compaction_beyond_the_safe_revision_is_an_unproven_load") {
        return;
    }
    let (_etcd, mut client, proxy, follower) = followed_through_a_proxy().await;
    proxy.refuse();
    delete(&mut client, "routes/00001").await;
    client.put("/elsewhere", "x", None).await.expect("etcd takes a write");
    compact(&mut client).await;
    proxy.heal();
    follower.equals(&client).await;
    assert_eq!(follower.told().loads, [Continuity::First, Continuity::Unproven]);
}

/// Nothing is closed, so nothing tells of the second connection but the silence of the first: a load that waited on it
/// would wait until its own limit, or until the pings do.
#[tokio::test]
async fn a_load_does_not_wait_on_a_connection_that_went_silent_with_the_watch() {
    if !dependable("a_load_does_not_wait_on_a_connection_that_went_silent_with_the_watch") {
        return;
    }
    let (_etcd, mut client, proxy, follower) = followed_through_a_proxy().await;
    proxy.strand();
    let began = Instant::now();
    delete(&mut client, "routes/00001").await;
    client.put("/elsewhere", "x", None).await.expect("etcd takes a write");
    compact(&mut client).await;
    follower.equals(&client).await;
    assert_eq!(follower.told().loads, [Continuity::First, Continuity::Unproven]);
    assert!(began.elapsed() < PINGED, "read again only after {:?}", began.elapsed());
}

#[tokio::test]
async fn a_restarted_etcd_is_followed_on() {
    if !dependable("a_restarted_etcd_is_followed_on") {
        return;
    }
    let mut etcd = Etcd::start().await;
    let mut client = etcd.client().await;
    fill(&mut client, 100).await;
    let follower = Follower::start(etcd.endpoints(), PREFIX);
    follower.equals(&client).await;
    etcd.kill();
    etcd.restart().await;
    let mut client = etcd.client().await;
    put(&mut client, "routes/after", "{}").await;
    follower.equals(&client).await;
    assert_eq!(follower.told().loads, [Continuity::First]);
}

#[tokio::test]
async fn an_older_snapshot_is_a_rewind_and_a_bumped_one_is_unproven() {
    let test = "an_older_snapshot_is_a_rewind_and_a_bumped_one_is_unproven";
    if !dependable(test) || !restorable(test) {
        return;
    }
    let mut etcd = Etcd::start().await;
    let mut client = etcd.client().await;
    fill(&mut client, 100).await;
    let snapshot = etcd.snapshot().await;
    fill(&mut client, 300).await;
    let follower = Follower::start(etcd.endpoints(), PREFIX);
    follower.equals(&client).await;
    for (how, proven) in
        [(Restore::SameIds, true), (Restore::OtherIds, true), (Restore::Bumped(1_000), false)]
    {
        let loads = follower.told().loads.len();
        let mut client = etcd.client().await;
        fill(&mut client, 300).await;
        follower.equals(&client).await;
        etcd.restore(&snapshot, how).await;
        let client = etcd.client().await;
        follower.until("the restore is read", |told| told.loads.len() > loads).await;
        follower.equals(&client).await;
        let last = follower.told().loads.last().cloned();
        assert_eq!(matches!(last, Some(Continuity::Rewound { .. })), proven, "{how:?}: {last:?}");
    }
}

#[tokio::test]
async fn a_file_is_resumed_and_two_environments_share_one_connection() {
    if !dependable("a_file_is_resumed_and_two_environments_share_one_connection") {
        return;
    }
    let etcd = Etcd::start().await;
    let mut client = etcd.client().await;
    fill(&mut client, 100).await;
    let first = Follower::start(etcd.endpoints(), PREFIX);
    first.equals(&client).await;
    let cluster_id = EtcdReader::new(cluster(etcd.endpoints()), PREFIX).heads().await[0].cluster_id;
    let point = first.point(cluster_id);
    drop(first);
    put(&mut client, "routes/after", "{}").await;
    delete(&mut client, "routes/00003").await;
    let proxy = H2Proxy::start(etcd.address()).await;
    let shared = cluster(through(proxy.address));
    let again = Follower::resume(&shared, PREFIX, Some(point));
    let other = Follower::resume(&shared, "/other", None);
    again
        .until("resumed", |told| told.resumed == 1 && told.keys.contains_key(b"routes/after".as_slice()))
        .await;
    live(&again).await;
    live(&other).await;
    assert!(again.told().loads.is_empty());
    assert_eq!(again.told().keys.len(), 1, "only what changed was told");
    assert_eq!(proxy.seen(WATCH).open, 2, "one stream per environment");
    assert!(proxy.connections() <= 2, "one connection for both watches, one for the load");
}

#[tokio::test]
async fn a_reload_on_request_is_proven_and_equal() {
    if !dependable("a_reload_on_request_is_proven_and_equal") {
        return;
    }
    let etcd = Etcd::start().await;
    let mut client = etcd.client().await;
    fill(&mut client, 100).await;
    let follower = Follower::start(etcd.endpoints(), PREFIX);
    follower.equals(&client).await;
    follower.reload().await;
    follower.until("read again", |told| told.loads == [Continuity::First, Continuity::Proven]).await;
    put(&mut client, "routes/after", "{}").await;
    follower.equals(&client).await;
}

#[tokio::test]
async fn writes_compare_and_reads_say_what_is_compacted() {
    let etcd = Etcd::start().await;
    let mut client = etcd.client().await;
    let way = cluster(etcd.endpoints());
    let (commit, reader) = (EtcdCommit::new(way.clone(), PREFIX), EtcdReader::new(way, PREFIX));
    let write = |compares, key: &'static str, value: &'static str| Transaction {
        compares,
        operations: vec![Operation::Put { key: key.into(), value: value.into() }],
    };
    let absent = |key: &'static str| Compare::ModRevision { key: key.into(), is: Revision::ZERO };
    let made = commit.commit(write(vec![absent("routes/1")], "routes/1", "{}")).await.expect("committed");
    assert_eq!(made.existed, [false]);
    let again = commit.commit(write(vec![absent("routes/1")], "routes/1", "{}")).await;
    assert_eq!(again, Err(CommitError::Conflict));
    let quiet = |revision| Compare::NoneWrittenSince { directory: "routes/".into(), revision };
    let exists = Compare::Exists { key: "routes/1".into() };
    let both = vec![
        exists,
        quiet(made.revision),
        Compare::NoneWrittenSince { directory: "services/".into(), revision: Revision::ZERO },
    ];
    let next = commit.commit(write(both, "routes/1", "{\"a\":1}")).await.expect("nothing was written since");
    assert_eq!(next.existed, [true]);
    let stale = commit.commit(write(vec![quiet(made.revision)], "routes/2", "{}")).await;
    assert_eq!(stale, Err(CommitError::Conflict));
    put(&mut client, "routes2/x", "not below routes/").await;
    let (listed, head) = reader.list(b"routes/").await.expect("listed");
    assert_eq!(listed.len(), 1);
    assert_eq!(reader.state_at(made.revision).await.expect("kept")[0].value.as_ref(), b"{}");
    compact(&mut client).await;
    let compacted = reader.state_at(made.revision).await;
    assert!(matches!(compacted, Err(ReadError::Compacted { .. })), "{compacted:?}");
    let future = reader.state_at(Revision(head.revision.0 + 1_000)).await;
    assert!(matches!(future, Err(ReadError::Future { .. })), "{future:?}");
    let removed = Transaction {
        compares: vec![],
        operations: vec![
            Operation::Delete { key: "routes/1".into() },
            Operation::Delete { key: "routes/9".into() },
        ],
    };
    assert_eq!(commit.commit(removed).await.expect("committed").existed, [true, false]);
    let (gone, _) = reader.get(b"routes/1").await.expect("answered");
    assert_eq!(gone, None);
}

#[tokio::test]
async fn without_etcd_writes_are_unavailable_and_the_source_says_why() {
    let endpoint = format!("http://127.0.0.1:{}", headwater_tests::ports::free());
    let way = cluster(vec![endpoint]);
    let follower = Follower::resume(&way, PREFIX, None);
    let nothing = Transaction {
        compares: vec![],
        operations: vec![Operation::Put { key: "routes/1".into(), value: "{}".into() }],
    };
    let refused = EtcdCommit::new(way, PREFIX).commit(nothing).await;
    assert!(matches!(refused, Err(CommitError::Unavailable(_))), "{refused:?}");
    follower
        .until("a reason", |told| {
            told.states.iter().any(|it| {
                it.stage == Stage::BackingOff
                    && it.note.as_deref().is_some_and(|note| note.contains("refused"))
            })
        })
        .await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(follower.told().safe, 0);
}
