//! Faults of the ways: between the replica and etcd, and between the members.

use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::time::Instant;

use crate::matrix::stand::{Stand, TAKEN};
use crate::planes::LIVENESS;
use crate::tcp_proxy::{Direction, Fault, TcpProxy};

/// More in each direction; less than half of what counts as silence.
const DELAY: Duration = Duration::from_millis(150);

/// Members reach each other over links of their own, the replica all of them directly. The member that is followed
/// answers on; it only knows nothing new.
///
/// # Errors
/// As [`play`](super::play).
pub(super) async fn cut_off(stand: &mut Stand) -> Result<Duration> {
    let lost = stand.followed().await?;
    stand.etcd.cut_off(lost);
    let took = stand.survives(lost).await;
    stand.etcd.rejoin(lost);
    stand.etcd.ready().await;
    took
}

/// # Errors
/// As [`play`](super::play).
pub(super) async fn one_blackholed(stand: &mut Stand) -> Result<Duration> {
    let lost = stand.followed().await?;
    stand.proxies[lost].freeze();
    let took = stand.survives(lost).await;
    stand.proxies[lost].heal();
    took
}

/// etcd goes on, and the writer with it; only the replica cannot know.
///
/// # Errors
/// As [`play`](super::play).
pub(super) async fn all_blackholed(stand: &mut Stand) -> Result<Duration> {
    stand.proxies.iter().for_each(TcpProxy::freeze);
    let mark = stand.writer.mark(TAKEN).await?;
    stand.stale().await?;
    stand.proxies.iter().for_each(TcpProxy::heal);
    stand.applied(&mark, Instant::now()).await
}

/// Nothing heals it but the replica's own doubt.
///
/// # Errors
/// As [`play`](super::play).
pub(super) async fn half_open(stand: &mut Stand) -> Result<Duration> {
    let accepted = accepted(stand);
    stand.proxies.iter().for_each(TcpProxy::strand);
    let mark = stand.writer.mark(TAKEN).await?;
    let took = stand.applied(&mark, mark.at).await?;
    ensure!(accepted < self::accepted(stand), "no other connection was opened, so nothing was shown");
    Ok(took)
}

/// A slow way is no fault: the stream stays, and the source stays live.
///
/// # Errors
/// As [`play`](super::play).
pub(super) async fn latency(stand: &mut Stand) -> Result<Duration> {
    let before = stand.replica.count("headwater_source_reconnects_total").await;
    for direction in [Direction::Up, Direction::Down] {
        let slow = Fault { delay: DELAY, ..Fault::default() };
        stand.proxies.iter().for_each(|proxy| proxy.set(direction, slow));
    }
    let until = Instant::now() + LIVENESS;
    let mut slowest = Duration::ZERO;
    while Instant::now() < until {
        let mark = stand.writer.mark(TAKEN).await?;
        slowest = slowest.max(stand.applied(&mark, mark.at).await?);
    }
    ensure!(slowest >= DELAY, "{slowest:?} to apply: the way is not slow");
    let after = stand.replica.count("headwater_source_reconnects_total").await;
    stand.proxies.iter().for_each(TcpProxy::heal);
    ensure!(before == after, "the replica gave up {} connections that were only slow", after - before);
    Ok(slowest)
}

fn accepted(stand: &Stand) -> u64 {
    stand.proxies.iter().map(TcpProxy::accepted).sum()
}
