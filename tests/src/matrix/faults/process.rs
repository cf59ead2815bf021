//! Faults of etcd's processes.

use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::time::Instant;

use crate::matrix::stand::{Stand, TAKEN};

/// How long a member may take to end when it is asked to.
const END: Duration = Duration::from_secs(20);

/// # Errors
/// As [`play`](super::play).
pub(super) async fn all_killed(stand: &mut Stand) -> Result<Duration> {
    stand.etcd.kill();
    stand.stale().await?;
    stand.etcd.restart().await;
    stand.after(Instant::now()).await
}

/// # Errors
/// As [`play`](super::play).
pub(super) async fn one_killed(stand: &mut Stand) -> Result<Duration> {
    let lost = stand.followed().await?;
    stand.etcd.member(lost).process.kill();
    let took = stand.survives(lost).await?;
    stand.etcd.member(lost).process.restart();
    stand.etcd.ready().await;
    Ok(took)
}

/// # Errors
/// As [`play`](super::play).
pub(super) async fn all_paused(stand: &mut Stand) -> Result<Duration> {
    stand.etcd.pause();
    stand.stale().await?;
    stand.etcd.resume();
    let end = Instant::now();
    stand.etcd.ready().await;
    stand.after(end).await
}

/// # Errors
/// As [`play`](super::play).
pub(super) async fn one_paused(stand: &mut Stand) -> Result<Duration> {
    let lost = stand.followed().await?;
    stand.etcd.members()[lost].process.pause();
    let took = stand.survives(lost).await;
    stand.etcd.members()[lost].process.resume();
    stand.etcd.ready().await;
    took
}

/// # Errors
/// As [`play`](super::play).
pub(super) async fn restarted(stand: &mut Stand) -> Result<Duration> {
    for index in 0..stand.etcd.members().len() {
        // Of three, two must be in step before the next one goes.
        let before = stand.writer.mark(TAKEN).await?;
        let process = &mut stand.etcd.member(index).process;
        process.terminate();
        process.wait(END).await;
        ensure!(!process.is_running(), "a member that ended runs");
        process.restart();
        stand.etcd.ready().await;
        stand.applied(&before, Instant::now()).await?;
    }
    stand.after(Instant::now()).await
}
