//! The version gate: which releases are followed at all.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::matrix::binaries::Found;
use crate::matrix::cell::Cell;
use crate::matrix::stand::{Stand, start_etcd, until};
use crate::planes::{LIMIT, Node, Replica};

/// A release to rely on is followed, by its name and without a word of warning.
///
/// # Errors
/// When it is not.
pub async fn followed(stand: &mut Stand, version: &str) -> Result<Duration> {
    let source = stand.replica.status().await?["source"].take();
    ensure!(source["server_version"] == version && source["note"].is_null(), "{source}");
    let mark = stand.writer.mark(LIMIT).await?;
    stand.applied(&mark, mark.at).await
}

/// An unsafe release is refused by default: the status names it and the bug, nothing is held, and no node gets ready.
///
/// # Errors
/// When it is not.
///
/// # Panics
/// When a process does not start.
pub async fn refused(cell: &Cell, found: &Found) -> Result<()> {
    let etcd = start_etcd(cell, found).await;
    let folder = tempfile::tempdir().context("a temporary folder")?;
    let replica = Replica::start(folder.path(), "r1", &etcd.endpoints().join("', '"), &[]);
    let node = Node::start(folder.path(), "n1", &replica.southbound, &[]);
    let sentence = format!("etcd {} must not be followed", found.version);
    until("the replica refuses the release", LIMIT, || async {
        let source = replica.status().await?["source"].take();
        let note = source["note"].as_str().unwrap_or_default();
        let named = note.contains(&sentence) && note.contains('#') && note.contains("allow_unsafe_etcd");
        ensure!(source["stage"] == "refused" && named, "{source}");
        Ok(())
    })
    .await?;
    let status = replica.status().await?;
    ensure!(status["resources"] == 0 && !status["degraded"].is_null(), "{status}");
    let (ready, said) = crate::http::get(&node.health, "/readyz").await?;
    ensure!(ready == 503, "a node with nothing to serve is ready: {said}");
    Ok(())
}
