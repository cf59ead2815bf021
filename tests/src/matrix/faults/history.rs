//! Faults that end a history: restores and wiped data.
//!
//! What they would take away is more than half of what nodes hold, so it is held until somebody approves it.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tokio::time::Instant;

use crate::etcd::Restore;
use crate::keys::{Keys, Write, upstream};
use crate::matrix::stand::{Stand, until};

/// Resources that the snapshot lacks: far more than all the others.
const LATER: usize = 60;
/// `--bump-revision`.
const BUMP: u64 = 1_000_000;

/// # Errors
/// As [`play`](super::play).
pub(super) async fn restored(stand: &mut Stand, bumped: bool) -> Result<Duration> {
    let snapshot = stand.etcd.snapshot().await;
    add_later(stand).await?;
    let quiet = stand.writer.quiet().await;
    let how = if bumped { Restore::Bumped(BUMP) } else { Restore::SameIds };
    stand.etcd.restore(&snapshot, how).await;
    approved(stand).await?;
    let end = Instant::now();
    drop(quiet);
    stand.after(end).await
}

/// # Errors
/// As [`play`](super::play).
pub(super) async fn wiped(stand: &mut Stand) -> Result<Duration> {
    add_later(stand).await?;
    let quiet = stand.writer.quiet().await;
    stand.etcd.wipe().await;
    approved(stand).await?;
    let end = Instant::now();
    drop(quiet);
    stand.after(end).await
}

/// A member comes back with nothing, by way of its peers: nobody may take that for a change.
///
/// # Errors
/// As [`play`](super::play).
pub(super) async fn replaced(stand: &mut Stand) -> Result<Duration> {
    let lost = stand.followed().await?;
    stand.etcd.replace(lost).await;
    let took = stand.after(Instant::now()).await?;
    let status = stand.replica.status().await?;
    ensure!(status["held"].is_null(), "{status}");
    Ok(took)
}

/// More than half of what will be held, on every node.
async fn add_later(stand: &Stand) -> Result<()> {
    let add = |write: Write, id| {
        write.put(&format!("upstreams/later{id}"), &upstream(&format!("127.0.0.1:{}", id + 1)))
    };
    let revision = Keys::new(stand.etcd.client().await).commit((0..LATER).fold(Write::default(), add)).await;
    until("every node has what the snapshot lacks", stand.limit, || async {
        for node in &stand.nodes {
            let held = node.held().await?.revision;
            ensure!(held >= revision, "a node is at {held}, not {revision}");
        }
        Ok(())
    })
    .await
}

/// The jump is held: status says so everywhere, and nodes keep what they have. Then it is approved.
async fn approved(stand: &Stand) -> Result<()> {
    let mut before = Vec::new();
    for node in &stand.nodes {
        before.push(node.held().await?.content);
    }
    let (replica, nodes) = (&stand.replica, &stand.nodes);
    until("replica and nodes say that a jump is held", stand.limit, || async {
        let status = replica.status().await?;
        ensure!(status["held"].is_string(), "{status}");
        for node in nodes {
            let status = node.status().await?;
            ensure!(status["stream"]["standing"]["state"] == "held", "{status}");
        }
        Ok(())
    })
    .await?;
    for (node, before) in nodes.iter().zip(&before) {
        ensure!(node.held().await?.content == *before, "a node changed though the jump is held");
    }
    let (status, said) = replica.command(&["hold", "show", "-o", "json"]).await;
    ensure!(status.success(), "hold show: {said}");
    let shown: Value = serde_json::from_str(&said).with_context(|| format!("hold show: {said}"))?;
    let id = shown["holds"][0]["id"].as_str().with_context(|| format!("hold show: {said}"))?;
    let (status, said) = replica.command(&["hold", "approve", id]).await;
    ensure!(status.success(), "hold approve: {said}");
    Ok(())
}
