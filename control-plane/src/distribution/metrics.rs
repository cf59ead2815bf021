//! What the second hop counts.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Counters and gauges of all sessions of a replica. Cloning shares them.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    /// Open sessions by environment.
    pub sessions: Family<Environment, Gauge>,
    /// Ends of sessions by reason.
    pub ends: Family<Reason, Counter>,
    /// Nodes that were not let in, by reason.
    pub refusals: Family<Reason, Counter>,
    /// Transfers begun, by reason.
    pub transfers: Family<Reason, Counter>,
    /// Transfers that nodes did not take, by reason.
    pub refused_transfers: Family<Reason, Counter>,
    /// Bytes handed to the transport.
    pub bytes: Counter<u64, AtomicU64>,
    /// Pairs of digests for one revision.
    pub divergences: Counter,
}

/// The label of an environment.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Environment {
    /// Its name.
    pub environment: String,
}

/// The label of a reason, of a bounded set.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Reason {
    /// One of the labels of the type that is counted.
    pub reason: &'static str,
}

// === impl Metrics ===

impl Metrics {
    /// Registers everything.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let registry = registry.sub_registry_with_prefix("distribution");
        registry.register("sessions", "Open sessions of nodes", metrics.sessions.clone());
        registry.register("session_ends", "Sessions that ended, by reason", metrics.ends.clone());
        registry.register("refusals", "Nodes that were not let in, by reason", metrics.refusals.clone());
        registry.register("transfers", "Transfers begun, by reason", metrics.transfers.clone());
        registry.register(
            "refused_transfers",
            "Transfers that nodes did not take, by reason",
            metrics.refused_transfers.clone(),
        );
        registry.register("sent_bytes", "Bytes of frames handed to the transport", metrics.bytes.clone());
        registry.register(
            "divergences",
            "Two digests seen for one lineage and revision",
            metrics.divergences.clone(),
        );
        metrics
    }
}

impl Reason {
    /// The label of a reason.
    #[must_use]
    pub const fn of(reason: &'static str) -> Self {
        Self { reason }
    }
}
