//! What a replica costs that has nothing to do, with etcd there and with etcd away.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use etcd_client::Client;
use serde::Serialize;

use super::fleet::{QUIET, per};
use super::load;
use super::options::Idle;
use super::replica::{Replica, Setup};
use crate::etcd::{Etcd, Options};
use crate::tcp_proxy::TcpProxy;

/// What a run found.
#[derive(Debug, Clone, Serialize)]
pub struct IdleReport {
    /// Resources in etcd.
    pub resources: u64,
    /// Seconds with etcd there.
    pub seconds: u64,
    /// The replica's processor time in them, in percent of one core.
    pub idle_cpu_percent: f64,
    /// By how much etcd's revision rose in them.
    pub revisions_written: u64,
    /// Connections opened to etcd in them.
    pub idle_connects: u64,
    /// Seconds with etcd away.
    pub down_seconds: u64,
    /// The replica's processor time in them, in percent of one core.
    pub down_cpu_percent: f64,
    /// Tries to connect a second, to the only member.
    pub connects_per_second: f64,
    /// By how much the replica's memory grew from the one to the other.
    pub down_rss_growth_kib: u64,
    /// From etcd's return until a new write is held, in milliseconds.
    pub recovered_ms: f64,
}

/// Runs it.
///
/// # Errors
/// When a part fails.
pub async fn run(options: &Idle) -> Result<IdleReport> {
    let etcd = Etcd::start_with(Options::default()).await;
    let mut client = etcd.client().await;
    load::fill(&mut client, options.resources, 400).await?;
    let proxy = TcpProxy::start(etcd.address()).await;
    let folder = tempfile::tempdir().context("a temporary folder")?;
    let setup = Setup {
        endpoints: vec![format!("http://{}", proxy.address)],
        heartbeat: 10,
        max_nodes: 1,
        log: "warn",
        control_plane: options.control_plane.as_deref(),
    };
    let replica = Replica::start(folder.path(), &setup).await?;
    tokio::time::sleep(QUIET).await;

    eprintln!("bench: nothing to do for {} s", options.seconds);
    let (connects, head) = (proxy.accepted(), head(&mut client).await?);
    let cpu = spent(&replica, options.seconds).await?;
    let (idle_connects, written) = (proxy.accepted() - connects, self::head(&mut client).await? - head);

    eprintln!("bench: etcd is away for {} s", options.down);
    let (connects, resident) = (proxy.accepted(), replica.resident()?);
    proxy.refuse();
    let down_cpu = spent(&replica, options.down).await?;
    let (tries, grown) = (proxy.accepted() - connects, replica.resident()?.saturating_sub(resident));
    let began = std::time::Instant::now();
    proxy.heal();
    let put = client.put(load::key(0), load::value(0, 400, 1), None).await.context("write")?;
    let revision = u64::try_from(put.header().context("an answer without header")?.revision())?;
    while replica.metric("headwater_source_safe_revision").await? < revision {
        ensure!(began.elapsed() < Duration::from_secs(120), "the replica does not come back");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(IdleReport {
        resources: options.resources,
        seconds: options.seconds,
        idle_cpu_percent: per(cpu, options.seconds * 10_000),
        revisions_written: written,
        idle_connects,
        down_seconds: options.down,
        down_cpu_percent: per(down_cpu, options.down * 10_000),
        connects_per_second: per(tries, options.down),
        down_rss_growth_kib: grown,
        recovered_ms: (began.elapsed().as_secs_f64() * 1e6).round() / 1e3,
    })
}

async fn spent(replica: &Replica, seconds: u64) -> Result<u64> {
    let before = replica.cpu()?;
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    Ok(replica.cpu()? - before)
}

async fn head(client: &mut Client) -> Result<u64> {
    let answer = client.get("/", None).await.context("read etcd")?;
    Ok(u64::try_from(answer.header().context("an answer without header")?.revision())?)
}

// === impl IdleReport ===

impl IdleReport {
    /// One figure a line.
    ///
    /// # Errors
    /// When a figure is no number.
    pub fn lines(&self) -> Result<String, serde_json::Error> {
        super::report::lines(self)
    }
}
