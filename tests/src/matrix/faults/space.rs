//! Faults of etcd's space: compaction, defragmentation, and none left.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use etcd_client::{AlarmAction, AlarmType, Client, CompactionOptions, DeleteOptions, TxnOp};
use tokio::time::{Instant, sleep, timeout};

use crate::matrix::stand::{Stand, TAKEN, until};
use crate::tcp_proxy::TcpProxy;

/// `--quota-backend-bytes` of a stand whose space is to be used up.
pub const QUOTA: u64 = 16 * 1024 * 1024;
/// Values that use it up; below what a request may have.
const FILLER: usize = 1024 * 1024;
/// Where they lie: not below the prefix.
const FILLED: &str = "/elsewhere/";
/// What etcd says when there is none left.
const EXCEEDED: &str = "database space exceeded";
/// Rounds of compaction.
const ROUNDS: u32 = 12;
/// How long a member may take for one defragmentation.
const DEFRAGMENTED: Duration = Duration::from_secs(20);

/// Every round compacts to the newest revision; in every fourth the replica loses its connections, in one it is also
/// kept away, so that what it would resume from is compacted.
///
/// # Errors
/// As [`play`](super::play).
pub(super) async fn compacted(stand: &mut Stand) -> Result<Duration> {
    let loads = stand.replica.metric("headwater_source_loads_total").await;
    for round in 0..ROUNDS {
        if round == ROUNDS / 2 {
            stand.proxies.iter().for_each(TcpProxy::refuse);
        } else if round % 4 == 0 {
            stand.proxies.iter().for_each(TcpProxy::cut);
        }
        stand.writer.mark(TAKEN).await?;
        compact(stand).await?;
        if round == ROUNDS / 2 + 2 {
            stand.proxies.iter().for_each(TcpProxy::heal);
        }
        sleep(Duration::from_millis(100)).await;
    }
    let mark = stand.writer.mark(TAKEN).await?;
    compact(stand).await?;
    let took = stand.applied(&mark, mark.at).await?;
    let after = stand.replica.metric("headwater_source_loads_total").await;
    ensure!(after > loads, "what the replica missed was never compacted, so nothing was shown");
    Ok(took)
}

/// # Errors
/// As [`play`](super::play).
pub(super) async fn defragmented(stand: &mut Stand) -> Result<Duration> {
    fill(stand, 8).await?;
    empty(stand).await?;
    let mut slowest = Duration::ZERO;
    for index in 0..stand.etcd.members().len() {
        let client = stand.writer.client(index).clone();
        let defragmenting = async move { defragment(&client).await };
        let mark = async {
            let mark = stand.writer.mark(TAKEN).await?;
            let took = stand.applied(&mark, mark.at).await?;
            anyhow::Ok(took)
        };
        let (defragmented, took) = tokio::join!(defragmenting, mark);
        defragmented?;
        slowest = slowest.max(took?);
    }
    Ok(slowest)
}

/// For us it looks like a quiet etcd: the source stays live, and what is deleted goes.
///
/// # Errors
/// As [`play`](super::play).
pub(super) async fn used_up(stand: &mut Stand) -> Result<Duration> {
    let before = stand.writer.mark(TAKEN).await?;
    stand.applied(&before, before.at).await?;
    let error = loop {
        match fill(stand, 1).await {
            Ok(()) => {}
            Err(error) => break format!("{error:#}"),
        }
    };
    ensure!(error.contains(EXCEEDED), "etcd refuses for another reason: {error}");
    let client = stand.writer.answering().clone();
    client
        .kv_client()
        .delete(format!("/apisix/{}", before.key), None)
        .await
        .context("delete without space")?;
    until("what was deleted without space is gone from every node", stand.limit, || async {
        for node in &stand.nodes {
            ensure!(!node.held().await?.content.contains_key(&before.key), "a node holds {}", before.key);
        }
        Ok(())
    })
    .await?;
    let refused = stand.writer.mark(Duration::from_millis(200)).await.map(|mark| mark.revision);
    ensure!(refused.is_err(), "a write was taken without space, at {refused:?}");
    stand.healthy().await.context("without space")?;

    empty(stand).await?;
    for index in 0..stand.etcd.members().len() {
        defragment(stand.writer.client(index)).await?;
    }
    disarm(stand.writer.answering()).await?;
    stand.after(Instant::now()).await
}

async fn compact(stand: &Stand) -> Result<()> {
    let mut kv = stand.writer.answering().kv_client();
    let answer = kv.get("/apisix/", None).await.context("read the revision")?;
    let revision = answer.header().context("an answer has a header")?.revision();
    let options = CompactionOptions::new().with_physical();
    match kv.compact(revision, Some(options)).await {
        Err(error) if !error.to_string().contains("has been compacted") => Err(error).context("compact"),
        _ => Ok(()),
    }
}

/// Puts values of some size elsewhere, each at whichever member takes it; one that says that there is no space ends it.
async fn fill(stand: &Stand, values: usize) -> Result<()> {
    for index in 0..values {
        let key = format!("{FILLED}{index}");
        let put = TxnOp::put(key, vec![b'x'; FILLER], None);
        let deadline = Instant::now() + TAKEN;
        loop {
            match stand.writer.attempt(vec![put.clone()]).await {
                Ok(_) => break,
                Err(error) if error.to_string().contains(EXCEEDED) || Instant::now() >= deadline => {
                    return Err(error).context("fill etcd");
                }
                // A megabyte may take a busy machine longer than a write is given.
                Err(_) => {}
            }
        }
    }
    Ok(())
}

/// Deletes them, and compacts them away.
async fn empty(stand: &Stand) -> Result<()> {
    let options = DeleteOptions::new().with_prefix();
    stand.writer.answering().kv_client().delete(FILLED, Some(options)).await.context("empty etcd")?;
    compact(stand).await
}

/// On a client of its own, whose requests may take longer.
async fn defragment(client: &Client) -> Result<()> {
    let defragmenting = async {
        loop {
            // The writer's clients give up after a second; etcd goes on, and the next try waits for it.
            match client.maintenance_client().defragment().await {
                Ok(_) => return,
                Err(_) => sleep(Duration::from_millis(100)).await,
            }
        }
    };
    timeout(DEFRAGMENTED, defragmenting).await.context("a member is not defragmented in time")
}

async fn disarm(client: &Client) -> Result<()> {
    let mut maintenance = client.maintenance_client();
    let alarms = maintenance.alarm(AlarmAction::Get, AlarmType::Nospace, None).await?;
    if alarms.alarms().is_empty() {
        bail!("no alarm stands, so nothing was shown");
    }
    for alarm in alarms.alarms() {
        let mut options = etcd_client::AlarmOptions::new();
        options.with_member(alarm.member_id());
        maintenance.alarm(AlarmAction::Deactivate, AlarmType::Nospace, Some(options)).await?;
    }
    Ok(())
}
