//! What a run found: one line of JSON, or a list to read.

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
    /// etcd's, likewise.
    pub etcd_cpu_us_per_delivery: f64,
    /// What the replica's resident memory grew by with the nodes, over their number.
    pub control_plane_rss_kib_per_node: f64,
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
    /// The same number of clients that watch etcd themselves, where asked for.
    #[serde(flatten)]
    pub direct: Option<Direct>,
}

/// The figures of clients that watch etcd themselves.
#[derive(Debug, Clone, Serialize)]
pub struct Direct {
    /// From the start of a put to one client.
    pub direct_received_p50_ms: f64,
    /// See [`Direct::direct_received_p50_ms`].
    pub direct_received_p95_ms: f64,
    /// See [`Direct::direct_received_p50_ms`].
    pub direct_received_p99_ms: f64,
    /// From the start of a put to the last client.
    pub direct_all_p50_ms: f64,
    /// See [`Direct::direct_all_p50_ms`].
    pub direct_all_p99_ms: f64,
    /// etcd's processor time over the deliveries.
    pub direct_cpu_us_per_delivery: f64,
    /// How long a put took.
    pub direct_put_p50_ms: f64,
    /// How often a client lost its watch.
    pub direct_lost_connections: u64,
}

// === impl Report ===

impl Report {
    /// One figure a line.
    ///
    /// # Errors
    /// When a figure is no number.
    pub fn lines(&self) -> Result<String, serde_json::Error> {
        let value = serde_json::to_value(self)?;
        let figures = value.as_object().into_iter().flatten();
        Ok(figures.map(|(name, figure)| format!("{name:36} {figure}\n")).collect())
    }
}
