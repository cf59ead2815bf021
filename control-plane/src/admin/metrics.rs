//! What alerts are made of, read at each scrape: freshness of the source, versions, nodes, rejected keys, holds.
//!
//! Gauges only, by environment. Nodes are counted, never listed: their number must not be the number of series.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;

use super::Admin;
use super::status::{EnvironmentStatus, Status};

/// The gauges of a replica.
#[derive(Debug)]
pub struct Gauges(Arc<Admin>);

/// A gauge's name, its help, and its value in an environment (none where it does not apply).
type Gauge = (&'static str, &'static str, fn(&EnvironmentStatus) -> Option<f64>);

const GAUGES: [Gauge; 13] = [
    ("environment_complete", "Whether a complete state is held", |it| Some(yes(it.state.complete))),
    ("source_live", "Whether the source is proven alive", |it| Some(yes(it.state.source.is_live()))),
    ("source_proof_age_seconds", "How long ago the source was last proven alive", |it| {
        it.state.proof_age.map(|age| age.as_secs_f64())
    }),
    ("revision", "The safe revision of the state that is held", |it| {
        Some(it.state.world.version().revision.0 as f64)
    }),
    ("generation", "The generation of the state that is held", |it| {
        Some(it.state.world.lineage().generation.0 as f64)
    }),
    ("serving_revision", "The revision that nodes are brought to", |it| {
        Some(it.state.served.revision.0 as f64)
    }),
    ("resources", "Resources of the environment", |it| Some(it.state.world.content().len() as f64)),
    ("hold", "Whether a jump is held by the mass-deletion guard", |it| Some(yes(it.state.hold.is_some()))),
    ("nodes_live", "Nodes with an open session", |it| Some(it.live as f64)),
    ("nodes_lost", "Nodes that are lost and expected to come back", |it| Some(it.lost as f64)),
    ("nodes_current", "Live nodes that applied what is served", |it| Some(it.current as f64)),
    ("rejected_keys", "Keys that at least one node cannot use", |it| Some(it.rejects.len() as f64)),
    ("rejected_keys_unserved", "Rejected keys for which some node serves nothing", |it| {
        Some(it.rejects.iter().filter(|reject| reject.retained < reject.nodes).count() as f64)
    }),
];

// === impl Gauges ===

impl Gauges {
    /// Over the use cases.
    #[must_use]
    pub const fn new(admin: Arc<Admin>) -> Self {
        Self(admin)
    }
}

impl Collector for Gauges {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        encode(&self.0.status(), encoder)
    }
}

fn encode(status: &Status, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    for (name, help, value) in GAUGES {
        let mut gauge = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for environment in &status.environments {
            if let Some(value) = value(environment) {
                let labels = [("environment", &*environment.name)];
                gauge.encode_family(&labels)?.encode_gauge(&value)?;
            }
        }
    }
    Ok(())
}

const fn yes(is: bool) -> f64 {
    if is { 1.0 } else { 0.0 }
}
