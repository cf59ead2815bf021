//! The run: etcd, replica, nodes, measure, compare; and then, where asked for, contenders.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use etcd_client::Client;
use hdrhistogram::Histogram;
use headwater_proto::admin::fleet_client::FleetClient;
use headwater_proto::admin::{Version, WaitRequest};

use super::child::{Answer, Child, Order};
use super::contender;
use super::load::{self, ENVIRONMENT, Written};
use super::options::Fleet;
use super::replica::{Replica, Setup};
use super::report::Report;
use super::tally::{Figures, milliseconds};
use super::{clock, system};
use crate::etcd::{Etcd, Options};

/// For one step that is not the measured phase.
pub(super) const LIMIT: Duration = Duration::from_secs(300);

/// After the last update, until all have it.
pub(super) const SETTLE: Duration = Duration::from_secs(120);

/// Figures are taken once processes have been quiet for so long.
pub(super) const QUIET: Duration = Duration::from_secs(1);

/// Updates of the phase in which acknowledgements are waited for.
const ACKED: u64 = 200;

/// What a measured phase found.
pub(super) struct Measured {
    pub(super) written: Written,
    pub(super) figures: Figures,
    pub(super) lost: u64,
    etcd_cpu: u64,
}

/// Runs it.
///
/// # Errors
/// When a part fails, or a node holds anything else than etcd.
pub async fn run(options: &Fleet) -> Result<Report> {
    system::allow_files(options.nodes)?;
    eprintln!("bench: etcd with {} resources of {} bytes", options.resources, options.value_bytes);
    let load = system::load_average()?;
    let etcd = Etcd::start_with(Options { fsync: true, ..Options::default() }).await;
    let mut client = etcd.client().await;
    load::fill(&mut client, options.resources, options.value_bytes).await?;
    let folder = tempfile::tempdir().context("a temporary folder")?;
    let setup = Setup {
        endpoints: etcd.endpoints(),
        heartbeat: options.heartbeat,
        max_nodes: options.nodes,
        log: "warn",
        control_plane: options.control_plane.as_deref(),
    };
    let replica = Replica::start(folder.path(), &setup).await?;
    let mut report = fed(&etcd, replica, &client, options).await?;
    report.machine_load_before = load;
    let bytes = report.bytes_per_delivery.round() as usize;
    for against in &options.against {
        let contended = contender::run(*against, &etcd, &client, bytes, options).await?;
        report.contenders.extend(contended.named(against.name()));
    }
    Ok(report)
}

/// Nodes that are fed by the replica; it ends with them.
async fn fed(etcd: &Etcd, mut replica: Replica, client: &Client, options: &Fleet) -> Result<Report> {
    tokio::time::sleep(QUIET).await;
    let rss_before = replica.resident()?;
    eprintln!("bench: {} nodes join", options.nodes);
    let joining = Instant::now();
    let count = options.nodes.to_string();
    let endpoint = etcd.endpoints().swap_remove(0);
    let arguments = ["nodes", "--replica", &replica.southbound, "--etcd", &endpoint, "--count", &count];
    let mut nodes = Child::start(&arguments, LIMIT).await?;
    let join_seconds = joining.elapsed().as_secs_f64();
    tokio::time::sleep(QUIET).await;
    let idle_rss = replica.resident()?;
    let idle_cpu = replica.idle(options.idle).await?;

    let process = nodes.id().context("the nodes have ended")?;
    let (cpu, bytes) = (replica.cpu()?, replica.sent_bytes().await?);
    let nodes_cpu = system::cpu_microseconds(process)?;
    let measured = measure(etcd, &mut nodes, client, options).await?;
    let nodes_cpu = system::cpu_microseconds(process)? - nodes_cpu;
    let (cpu, bytes) = (replica.cpu()? - cpu, replica.sent_bytes().await? - bytes);
    let rss = replica.resident()?;
    let member = &etcd.members()[0];
    let watchers = whole(member.metric("etcd_debugging_mvcc_watcher_total").await);
    let streams = whole(member.metric("etcd_debugging_mvcc_watch_stream_total").await);
    let port = etcd.address().rsplit_once(':').context("an address has a port")?.1.parse()?;
    let connections = system::connections_to(port)?;

    let acked = acked(&replica, client, options).await?;
    let resources = compare(&mut nodes).await?;
    nodes.end().await?;
    ensure!(replica.process.is_running(), "the replica has ended");
    let Measured { written, figures, lost, etcd_cpu } = measured;
    let deliveries = figures.deliveries;
    Ok(Report {
        nodes: options.nodes,
        resources,
        updates: options.updates,
        rate: options.rate,
        value_bytes: options.value_bytes,
        received: figures,
        acked_all_p50_ms: milliseconds(&acked, 0.50),
        acked_all_p99_ms: milliseconds(&acked, 0.99),
        control_plane_cpu_us_per_delivery: per(cpu, deliveries),
        nodes_cpu_us_per_delivery: per(nodes_cpu, deliveries),
        etcd_cpu_us_per_delivery: per(etcd_cpu, deliveries),
        control_plane_rss_kib_per_node: per(rss.saturating_sub(rss_before), options.nodes),
        control_plane_rss_kib_per_idle_node: per(idle_rss.saturating_sub(rss_before), options.nodes),
        control_plane_idle_cpu_percent: idle_cpu,
        control_plane_rss_before_kib: rss_before,
        bytes_per_delivery: per(bytes, deliveries),
        etcd_watchers: watchers,
        etcd_watch_streams: streams,
        etcd_connections: connections,
        etcd_put_p50_ms: milliseconds(&written.latency, 0.50),
        etcd_put_p99_ms: milliseconds(&written.latency, 0.99),
        join_seconds: (join_seconds * 1e3).round() / 1e3,
        lost_connections: lost,
        compared_nodes: options.nodes,
        machine_load_before: 0.0,
        contenders: BTreeMap::new(),
    })
}

/// The measured phase: from the first put until all receivers have the last.
pub(super) async fn measure(
    etcd: &Etcd,
    receivers: &mut Child,
    client: &Client,
    options: &Fleet,
) -> Result<Measured> {
    eprintln!("bench: {} updates at {} a second", options.updates, options.rate);
    let process = etcd.members()[0].process.id();
    let etcd_cpu = system::cpu_microseconds(process)?;
    let written = load::update(client, options).await?;
    let Answer::Settled(figures, lost) = receivers.ask(Order::Settle(written.last_revision), SETTLE).await?
    else {
        bail!("the receivers told no figures")
    };
    let etcd_cpu = system::cpu_microseconds(process)? - etcd_cpu;
    Ok(Measured { written, figures, lost, etcd_cpu })
}

/// How long it takes from the start of a put until the replica answers that it is applied everywhere.
async fn acked(replica: &Replica, client: &Client, options: &Fleet) -> Result<Histogram<u64>> {
    let updates = options.updates.min(ACKED);
    eprintln!("bench: {updates} updates, each waited for until all nodes acknowledged it");
    // Before two heartbeats a replica says of no version that it is everywhere.
    let able = replica.started + Duration::from_secs(2 * options.heartbeat + 1);
    tokio::time::sleep_until(able.into()).await;
    let mut fleet =
        FleetClient::connect(format!("http://{}", replica.admin)).await.context("ask the replica")?;
    let mut client = client.clone();
    let mut latency = Histogram::new(3).context("a histogram")?;
    let mut ticks = tokio::time::interval(options.pace());
    for number in 0..updates {
        ticks.tick().await;
        let resource = number % options.resources;
        let began = clock::nanoseconds();
        let value = load::value(resource, options.value_bytes, began);
        let put = client.put(load::key(resource), value, None).await.context("put a value")?;
        let revision = put.header().context("an answer without header")?.revision();
        let version = Version { revision: u64::try_from(revision)?, ..Version::default() };
        let request =
            WaitRequest { environment: ENVIRONMENT.into(), version: Some(version), ..WaitRequest::default() };
        let mut answers = fleet.wait(request).await.context("wait")?.into_inner();
        loop {
            let answer = answers.message().await?.context("a wait that ends without its last answer")?;
            if answer.r#final {
                ensure!(
                    answer.outcome == "applied",
                    "a wait ended with {}: {}",
                    answer.outcome,
                    answer.sentence
                );
                ensure!(answer.applied == options.nodes, "{} nodes were asked", answer.applied);
                break;
            }
        }
        latency.record(clock::nanoseconds() - began)?;
    }
    Ok(latency)
}

/// Compares every node with etcd, once all have everything. Answers how many resources there are.
async fn compare(nodes: &mut Child) -> Result<usize> {
    eprintln!("bench: comparing every node with etcd");
    let Answer::Compared(resources, differences) = nodes.ask(Order::Compare, LIMIT).await? else {
        bail!("the nodes compared nothing")
    };
    ensure!(differences.is_empty(), "nodes differ from etcd:\n{}", differences.join("\n"));
    ensure!(resources > 0, "etcd holds nothing, so nothing was compared");
    Ok(resources)
}

/// A gauge that counts things.
fn whole(gauge: f64) -> u64 {
    gauge as u64
}

/// A share, with three places.
pub(super) fn per(sum: u64, number: u64) -> f64 {
    (sum as f64 / number.max(1) as f64 * 1e3).round() / 1e3
}
