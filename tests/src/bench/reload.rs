//! A full read that changes nothing: what it costs, and that nobody notices.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use etcd_client::Client;
use serde::Serialize;

use super::child::{Answer, Child, Order};
use super::fleet::{LIMIT, QUIET, per};
use super::load;
use super::options::Reload;
use super::replica::{Replica, Setup};
use super::system;
use crate::etcd::{Etcd, Options};
use crate::tcp_proxy::TcpProxy;

/// Writes of other tenants while the replica is away.
const ELSEWHERE: u32 = 100;

/// What a run found.
#[derive(Debug, Clone, Serialize)]
pub struct ReloadReport {
    /// Resources in etcd, and on every node.
    pub resources: u64,
    /// Nodes that were connected.
    pub nodes: u64,
    /// Bytes that the replica sent to its nodes because of the reload.
    pub delta_bytes: u64,
    /// Transfers that it began because of it.
    pub nodes_woken: u64,
    /// The replica's processor time from the healed connection until it is quiet again, its file included.
    pub reload_cpu_ms: f64,
    /// The processor time of a loop that reads and decodes the same pages, in a process of its own; the median of
    /// three.
    pub read_cpu_ms: f64,
    /// The one over the other.
    pub cpu_ratio: f64,
    /// From the healed connection until the replica is past the compaction.
    pub reload_ms: f64,
    /// Resources that kept their allocation.
    pub kept_allocations: u64,
}

/// Runs it.
///
/// # Errors
/// When a part fails, or the replica did not reload once.
pub async fn run(options: &Reload) -> Result<ReloadReport> {
    system::allow_files(options.nodes)?;
    eprintln!("bench: etcd with {} resources of {} bytes", options.resources, options.value_bytes);
    let etcd = Etcd::start_with(Options::default()).await;
    let mut client = etcd.client().await;
    load::fill(&mut client, options.resources, options.value_bytes).await?;
    let proxy = TcpProxy::start(etcd.address()).await;
    let folder = tempfile::tempdir().context("a temporary folder")?;
    let setup = Setup {
        endpoints: vec![format!("http://{}", proxy.address)],
        // So that no progress falls into the reload and is counted.
        heartbeat: 60,
        max_nodes: options.nodes,
        log: "warn,headwater_control_plane::environment=info",
        control_plane: options.control_plane.as_deref(),
    };
    let replica = Replica::start(folder.path(), &setup).await?;
    let (endpoint, count) = (etcd.endpoints().swap_remove(0), options.nodes.to_string());
    eprintln!("bench: {count} nodes join");
    let arguments = ["nodes", "--replica", &replica.southbound, "--etcd", &endpoint, "--count", &count];
    let mut nodes = Child::start(&arguments, LIMIT).await?;
    let mut reading = Child::start(&["reading", "--etcd", &endpoint], LIMIT).await?;
    tokio::time::sleep(QUIET).await;
    let reads = [
        read(&mut reading, options).await?,
        read(&mut reading, options).await?,
        read(&mut reading, options).await?,
    ];
    let report = reload(&proxy, &mut client, &replica, options, median(reads)).await?;
    let Answer::Compared(_, differences) = nodes.ask(Order::Compare, LIMIT).await? else {
        bail!("the nodes compared nothing")
    };
    ensure!(differences.is_empty(), "nodes differ from etcd:\n{}", differences.join("\n"));
    nodes.end().await?;
    reading.end().await?;
    Ok(report)
}

async fn read(reading: &mut Child, options: &Reload) -> Result<u64> {
    let Answer::Read(entries, cpu) = reading.ask(Order::Read, LIMIT).await? else {
        bail!("nothing was read")
    };
    ensure!(entries as u64 >= options.resources, "{entries} entries were read");
    Ok(cpu)
}

fn median(mut three: [u64; 3]) -> u64 {
    three.sort_unstable();
    three[1]
}

async fn reload(
    proxy: &TcpProxy,
    client: &mut Client,
    replica: &Replica,
    options: &Reload,
    read_us: u64,
) -> Result<ReloadReport> {
    eprintln!("bench: the replica is cut off, and etcd compacted beyond it");
    let loads = replica.metric("headwater_source_loads_total").await?;
    proxy.refuse();
    let mut head = 0;
    for _ in 0..ELSEWHERE {
        let put = client.put("/elsewhere", "x", None).await.context("write elsewhere")?;
        head = put.header().context("an answer without header")?.revision();
    }
    client.compact(head, None).await.context("compact")?;
    tokio::time::sleep(QUIET).await;
    let before = (replica.sent_bytes().await?, transfers(replica).await?, replica.cpu()?);
    let began = Instant::now();
    // By its own word, for to ask its metrics every few milliseconds would cost it what is measured.
    let told = reads(replica);
    proxy.heal();
    while reads(replica) == told {
        ensure!(began.elapsed() < LIMIT, "no reload within {LIMIT:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let took = began.elapsed();
    let cpu = quiet(replica).await? - before.2;
    let after = (replica.sent_bytes().await?, transfers(replica).await?);
    ensure!(replica.metric("headwater_source_loads_total").await? == loads + 1, "more than one reload");
    Ok(ReloadReport {
        resources: options.resources,
        nodes: options.nodes,
        delta_bytes: after.0 - before.0,
        nodes_woken: after.1 - before.1,
        reload_cpu_ms: per(cpu, 1000),
        read_cpu_ms: per(read_us, 1000),
        cpu_ratio: per(cpu, read_us),
        reload_ms: (took.as_secs_f64() * 1e6).round() / 1e3,
        kept_allocations: kept(replica)?,
    })
}

async fn transfers(replica: &Replica) -> Result<u64> {
    replica.metric("headwater_distribution_transfers_total").await
}

/// The replica's processor time, once it uses next to none any more.
async fn quiet(replica: &Replica) -> Result<u64> {
    let mut before = replica.cpu()?;
    loop {
        tokio::time::sleep(QUIET).await;
        let now = replica.cpu()?;
        // One tick of the system's clock may always fall into a second.
        if now - before <= 20_000 {
            return Ok(before);
        }
        before = now;
    }
}

const READ: &str = "everything was read";

/// How often the replica said that it read everything.
fn reads(replica: &Replica) -> usize {
    replica.process.lines().iter().filter(|line| line.contains(READ)).count()
}

/// From the replica's own word on its last full read.
fn kept(replica: &Replica) -> Result<u64> {
    let lines = replica.process.lines();
    let line = lines.iter().rfind(|line| line.contains(READ)).context("no word of a read")?;
    let number = line.split("kept=").nth(1).and_then(|rest| rest.split_whitespace().next());
    number.context("it does not say what was kept")?.parse().context("a number")
}

// === impl ReloadReport ===

impl ReloadReport {
    /// One figure a line.
    ///
    /// # Errors
    /// When a figure is no number.
    pub fn lines(&self) -> Result<String, serde_json::Error> {
        super::report::lines(self)
    }
}
