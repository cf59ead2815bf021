//! The contenders, one after another: with as many receivers, as often, as many bytes as the fleet.
//!
//! Those that watch etcd get the fleet's own puts; the others have a server that sends by itself, in a process of its
//! own. The processor time and the memory are of whoever fans out: etcd, its proxy, or that server.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use etcd_client::Client;

use super::child::{Answer, Child, Order};
use super::fleet::{LIMIT, Measured, QUIET, SETTLE, measure, per};
use super::options::{Against, Fleet, Role};
use super::report::Contended;
use super::system;
use super::tally::milliseconds;
use crate::etcd::{Etcd, etcd_binary};
use crate::ports;
use crate::process::Program;

/// Runs one. `bytes` is what a delivery of the fleet was.
///
/// # Errors
/// When a part fails.
pub async fn run(
    against: Against,
    etcd: &Etcd,
    client: &Client,
    bytes: usize,
    options: &Fleet,
) -> Result<Contended> {
    let (endpoint, member) = (etcd.endpoints().swap_remove(0), etcd.members()[0].process.id());
    let watched = |command, endpoint, process| watched(command, endpoint, process, etcd, client, options);
    match against {
        Against::Direct => watched("watchers", endpoint, member).await,
        Against::Json => watched("json-watchers", endpoint, member).await,
        Against::GrpcProxy => {
            let address = format!("127.0.0.1:{}", ports::free());
            let listen = format!("--listen-addr={address}");
            let proxy = Program::new(etcd_binary())
                .args(["grpc-proxy", "start", "--endpoints", &etcd.endpoints().join(",")])
                .args([listen.as_str(), "--metrics-addr="])
                .start();
            reachable(&address).await?;
            watched("watchers", format!("http://{address}"), proxy.id()).await
        }
        Against::Floor => served(Role::FloorWriter, Role::FloorReaders, bytes, options).await,
        Against::BareTonic => served(Role::TonicServer, Role::TonicClients, bytes, options).await,
    }
}

/// Watching clients; `process` is who feeds them.
async fn watched(
    command: &str,
    endpoint: String,
    process: u32,
    etcd: &Etcd,
    client: &Client,
    options: &Fleet,
) -> Result<Contended> {
    eprintln!("bench: {} {command} at {endpoint}", options.nodes);
    let count = options.nodes.to_string();
    let rss = system::resident_kib(process)?;
    let mut watchers = Child::start(&[command, "--etcd", &endpoint, "--count", &count], LIMIT).await?;
    tokio::time::sleep(QUIET).await;
    let rss = system::resident_kib(process)?.saturating_sub(rss);
    let cpu = system::cpu_microseconds(process)?;
    let Measured { written, figures, lost, .. } = measure(etcd, &mut watchers, client, options).await?;
    let cpu = system::cpu_microseconds(process)? - cpu;
    watchers.end().await?;
    Ok(Contended {
        cpu_us_per_delivery: per(cpu, figures.deliveries),
        rss_kib_per_node: per(rss, options.nodes),
        figures,
        put_p50_ms: Some(milliseconds(&written.latency, 0.50)),
        lost_connections: lost,
    })
}

async fn reachable(address: &str) -> Result<()> {
    for _ in 0..100 {
        if tokio::net::TcpStream::connect(address).await.is_ok() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    bail!("nothing listens on {address} after 5 s")
}

/// A server that sends by itself, and its receivers.
async fn served(server: Role, receivers: Role, bytes: usize, options: &Fleet) -> Result<Contended> {
    eprintln!("bench: {} with {} receivers of {bytes} bytes", server.name(), options.nodes);
    let address = format!("127.0.0.1:{}", ports::free());
    let (count, bytes) = (options.nodes.to_string(), bytes.to_string());
    let arguments = |role: Role| {
        let role = role.name();
        ["contender", "--role", role, "--address", &address, "--count", &count, "--bytes", &bytes]
    };
    let mut server = Child::start(&arguments(server), LIMIT).await?;
    let process = server.id().context("the server has ended")?;
    let rss = system::resident_kib(process)?;
    let mut receivers = Child::start(&arguments(receivers), LIMIT).await?;
    tokio::time::sleep(QUIET).await;
    let rss = system::resident_kib(process)?.saturating_sub(rss);

    let cpu = system::cpu_microseconds(process)?;
    let pace_ns = u64::try_from(options.pace().as_nanos())?;
    let last = match server.ask(Order::Send { updates: options.updates, pace_ns }, limit(options)).await? {
        Answer::Sent(last) => last,
        other => bail!("a server that did not send: {other:?}"),
    };
    let Answer::Settled(figures, lost) = receivers.ask(Order::Settle(last), SETTLE).await? else {
        bail!("the receivers told no figures")
    };
    ensure!(lost == 0, "{lost} receivers lost their connections");
    let cpu = system::cpu_microseconds(process)? - cpu;
    receivers.end().await?;
    server.end().await?;
    Ok(Contended {
        cpu_us_per_delivery: per(cpu, figures.deliveries),
        rss_kib_per_node: per(rss, options.nodes),
        figures,
        put_p50_ms: None,
        lost_connections: lost,
    })
}

/// How long sending may take: what it should, and what falling behind costs.
fn limit(options: &Fleet) -> Duration {
    options.pace() * u32::try_from(options.updates).unwrap_or(u32::MAX) * 2 + SETTLE
}
