//! The replica that is measured: a process of its own, with the settings of a benchmark.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::fleet::{LIMIT, per};
use super::load::{ENVIRONMENT, PREFIX};
use super::system;
use crate::http;
use crate::ports;
use crate::process::{Process, Program};

/// A running replica.
pub(super) struct Replica {
    pub(super) process: Process,
    pub(super) southbound: String,
    pub(super) admin: String,
    health: String,
    pub(super) started: Instant,
}

/// How to start one.
pub(super) struct Setup<'a> {
    /// etcd's client URLs.
    pub(super) endpoints: Vec<String>,
    /// In seconds.
    pub(super) heartbeat: u64,
    /// Nodes that it takes.
    pub(super) max_nodes: u64,
    /// The filter of its log.
    pub(super) log: &'a str,
    /// Another build than the one beside this program.
    pub(super) control_plane: Option<&'a Path>,
}

// === impl Replica ===

impl Replica {
    /// Starts one and waits until it is ready.
    pub(super) async fn start(folder: &Path, setup: &Setup<'_>) -> Result<Self> {
        let [southbound, admin, health] = std::array::from_fn(|_| format!("127.0.0.1:{}", ports::free()));
        let config = serde_json::json!({
            "replica_id": "bench",
            "state_dir": folder.join("replica"),
            "environments": [{"name": ENVIRONMENT, "prefix": PREFIX}],
            "etcd": {"endpoints": setup.endpoints},
            "southbound": {
                "listen": southbound,
                "insecure": true,
                "heartbeat": format!("{}s", setup.heartbeat),
                "max_nodes": setup.max_nodes,
            },
            "admin": {"listen": admin, "insecure": true},
            "health": {"listen": health},
            "log": {"filter": setup.log},
        });
        // JSON is YAML.
        let file = folder.join("replica.yaml");
        std::fs::write(&file, config.to_string()).context("write the replica's settings")?;
        let program = match setup.control_plane {
            Some(binary) => Program::new(binary),
            None => Program::own("headwater-control-plane"),
        };
        let program = program.arg("--config").arg(&file);
        let started = Instant::now();
        let mut replica = Self { process: program.start(), southbound, admin, health, started };
        while !matches!(http::get(&replica.health, "/readyz").await, Ok((200, _))) {
            let lines = replica.process.lines().join("\n");
            ensure!(replica.process.is_running(), "the replica has ended:\n{lines}");
            ensure!(started.elapsed() < LIMIT, "the replica is not ready after {LIMIT:?}:\n{lines}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(replica)
    }

    /// The processor time it uses while nothing happens, in percent of a core; nothing for no seconds.
    pub(super) async fn idle(&self, seconds: u64) -> Result<Option<f64>> {
        if seconds == 0 {
            return Ok(None);
        }
        eprintln!("bench: nothing to do for {seconds} s");
        let before = self.cpu()?;
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        Ok(Some(per(self.cpu()? - before, seconds * 10_000)))
    }

    pub(super) fn cpu(&self) -> Result<u64> {
        system::cpu_microseconds(self.process.id())
    }

    pub(super) fn resident(&self) -> Result<u64> {
        self.process.resident_kib().context("the system does not say how much memory the replica has")
    }

    pub(super) async fn sent_bytes(&self) -> Result<u64> {
        self.metric("headwater_distribution_sent_bytes_total").await
    }

    /// The sum of a counter over its labels.
    pub(super) async fn metric(&self, name: &str) -> Result<u64> {
        let (_, text) = http::get(&self.health, "/metrics").await?;
        let values = text.lines().filter_map(|line| line.strip_prefix(name)?.rsplit_once(' '));
        let of_it = values.filter(|(labels, _)| labels.is_empty() || labels.starts_with('{'));
        of_it.map(|(_, value)| value.parse::<u64>().with_context(|| format!("{name} is {value}"))).sum()
    }
}
