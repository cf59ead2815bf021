//! What a run found: one line of JSON, or a list to read.

use std::collections::BTreeMap;

use serde::Serialize;

use super::tally::Figures;

/// The figures of a run. Times are in milliseconds unless the name says otherwise.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Simulated nodes, each with a connection of its own.
    pub nodes: u64,
    /// Resources in etcd, and so on every node.
    pub resources: usize,
    /// Values put while it was measured.
    pub updates: u64,
    /// How many a second.
    pub rate: u64,
    /// The bytes of each.
    pub value_bytes: u64,
    /// From the start of a put until it is received and applied, over all nodes: `received_*`; until it is on the last
    /// node: `all_*`.
    #[serde(flatten)]
    pub received: Figures,
    /// From the start of a put until the replica knows that all nodes applied it and has answered a wait for it; in a
    /// phase of its own, so that asking does not weigh on the other figures.
    pub acked_all_p50_ms: f64,
    /// See [`Report::acked_all_p50_ms`].
    pub acked_all_p99_ms: f64,
    /// The replica's processor time in the measured phase, heartbeats and all, over the deliveries.
    pub control_plane_cpu_us_per_delivery: f64,
    /// That of the process of nodes, likewise; it shares the machine, and so weighs on the times.
    pub nodes_cpu_us_per_delivery: f64,
    /// etcd's, likewise.
    pub etcd_cpu_us_per_delivery: f64,
    /// What the replica's resident memory grew by with the nodes, over their number.
    pub control_plane_rss_kib_per_node: f64,
    /// The same when all have joined and nothing has changed yet.
    pub control_plane_rss_kib_per_idle_node: f64,
    /// The replica's processor time with nothing to do, in percent of one core, where asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane_idle_cpu_percent: Option<f64>,
    /// The replica's resident memory before the nodes came.
    pub control_plane_rss_before_kib: u64,
    /// Bytes the replica handed to the transport in the measured phase, over the deliveries.
    pub bytes_per_delivery: f64,
    /// Watchers in etcd, with all nodes connected.
    pub etcd_watchers: u64,
    /// Watch streams in etcd.
    pub etcd_watch_streams: u64,
    /// Connections to etcd, without those of the benchmark.
    pub etcd_connections: usize,
    /// How long a put took.
    pub etcd_put_p50_ms: f64,
    /// See [`Report::etcd_put_p50_ms`].
    pub etcd_put_p99_ms: f64,
    /// How long all nodes took to join and to hold everything, in seconds.
    pub join_seconds: f64,
    /// How often a node lost its connection.
    pub lost_connections: u64,
    /// Nodes whose keys, revisions and values were compared with etcd's, and equal.
    pub compared_nodes: u64,
    /// The machine's load average of one minute when the run began: what else it did then.
    pub machine_load_before: f64,
    /// What contenders did, by the contender's name and the figure's; empty where none was asked for.
    #[serde(flatten)]
    pub contenders: BTreeMap<String, f64>,
}

/// What a contender did.
#[derive(Debug, Clone)]
pub struct Contended {
    /// From the start of a put to a receiver; from the moment a message was due, where there is no etcd before it.
    pub figures: Figures,
    /// The processor time of whoever fans out, over the deliveries, in microseconds.
    pub cpu_us_per_delivery: f64,
    /// What its memory grew by with the receivers, over their number.
    pub rss_kib_per_node: f64,
    /// How long a put took, where there are puts.
    pub put_p50_ms: Option<f64>,
    /// How often a receiver lost its connection.
    pub lost_connections: u64,
}

// === impl Contended ===

impl Contended {
    /// Its figures by name. The floor's median bears a short name too.
    #[must_use]
    pub fn named(&self, contender: &str) -> BTreeMap<String, f64> {
        let figures = &self.figures;
        let all = [
            ("received_p50_ms", Some(figures.received_p50_ms)),
            ("received_p95_ms", Some(figures.received_p95_ms)),
            ("received_p99_ms", Some(figures.received_p99_ms)),
            ("all_p50_ms", Some(figures.all_p50_ms)),
            ("all_p99_ms", Some(figures.all_p99_ms)),
            ("p50_ms", (contender == "floor").then_some(figures.received_p50_ms)),
            ("cpu_us_per_delivery", Some(self.cpu_us_per_delivery)),
            ("rss_kib_per_node", Some(self.rss_kib_per_node)),
            ("put_p50_ms", self.put_p50_ms),
            ("lost_connections", Some(self.lost_connections as f64)),
        ];
        all.into_iter().filter_map(|(name, figure)| Some((format!("{contender}_{name}"), figure?))).collect()
    }
}

/// One figure a line, by its name.
///
/// # Errors
/// When a figure is no number.
pub fn lines(report: &impl Serialize) -> Result<String, serde_json::Error> {
    let value = serde_json::to_value(report)?;
    let figures = value.as_object().into_iter().flatten();
    Ok(figures.map(|(name, figure)| format!("{name:36} {figure}\n")).collect())
}

// === impl Report ===

impl Report {
    /// One figure a line.
    ///
    /// # Errors
    /// When a figure is no number.
    pub fn lines(&self) -> Result<String, serde_json::Error> {
        lines(self)
    }
}
