//! What is counted of the way from etcd.

use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::tracker::{Blame, WatchResponse};
use crate::backend::{Continuity, SourceEvent};

/// Metrics of all environments of a replica; a clone is the same ones.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    frames: Family<KindLabels, Counter>,
    reconnects: Family<ReasonLabels, Counter>,
    safe_revision: Family<EnvironmentLabels, Gauge>,
    proof: Family<EnvironmentLabels, Gauge>,
    loads: Family<ContinuityLabels, Counter>,
    audits: Family<OutcomeLabels, Counter>,
    member_divergences: Family<EnvironmentLabels, Counter>,
    read_only: Gauge,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EnvironmentLabels {
    environment: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    environment: String,
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    environment: String,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ContinuityLabels {
    environment: String,
    continuity: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    environment: String,
    outcome: &'static str,
}

// === impl Metrics ===

impl Metrics {
    /// Metrics under `source_…` in `registry`.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let part = registry.sub_registry_with_prefix("source");
        part.register("watch_frames", "Responses of the watch stream by kind", metrics.frames.clone());
        part.register("reconnects", "Attempts that ended, by whose fault it was", metrics.reconnects.clone());
        part.register(
            "safe_revision",
            "The highest revision up to which everything was delivered",
            metrics.safe_revision.clone(),
        );
        part.register(
            "proof_timestamp_seconds",
            "When the watch was last proven alive, as Unix time: its age is now minus this",
            metrics.proof.clone(),
        );
        part.register("loads", "Full reads by how they connect to what was held", metrics.loads.clone());
        part.register("audits", "Comparisons with etcd by outcome", metrics.audits.clone());
        part.register(
            "member_divergences",
            "Ends of the history that one member told and another denied",
            metrics.member_divergences.clone(),
        );
        part.register(
            "read_only",
            "Whether etcd is out of space and takes no writes",
            metrics.read_only.clone(),
        );
        metrics
    }

    pub(super) fn saw_frame(&self, environment: &str, response: &WatchResponse) {
        let kind = match response {
            WatchResponse { cancelled: true, .. } => "cancelled",
            WatchResponse { created: true, .. } => "created",
            WatchResponse { fragment: true, .. } => "fragment",
            WatchResponse { events, .. } if events.is_empty() => "progress",
            _ => "events",
        };
        self.frames.get_or_create(&KindLabels { environment: environment.to_owned(), kind }).inc();
        if !matches!(kind, "cancelled" | "created") {
            let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
            let labels = EnvironmentLabels { environment: environment.to_owned() };
            self.proof.get_or_create(&labels).set(i64::try_from(seconds).unwrap_or(i64::MAX));
        }
    }

    pub(super) fn ended(&self, environment: &str, blame: Blame) {
        let reason = match blame {
            Blame::Stream => "stream",
            Blame::Silence => "silence",
            Blame::Member => "member",
            Blame::Token => "token",
        };
        self.reconnects.get_or_create(&ReasonLabels { environment: environment.to_owned(), reason }).inc();
    }

    pub(super) fn told(&self, environment: &str, event: &SourceEvent) {
        let revision = match event {
            SourceEvent::Loaded(load) => {
                let continuity = match load.continuity {
                    Continuity::First => "first",
                    Continuity::Proven => "proven",
                    Continuity::Unproven => "unproven",
                    Continuity::Rewound { .. } => "rewound",
                };
                let environment = environment.to_owned();
                self.loads.get_or_create(&ContinuityLabels { environment, continuity }).inc();
                load.revision
            }
            SourceEvent::Batch(batch) => batch.revision,
            SourceEvent::Progress(revision) => *revision,
            SourceEvent::Resumed { .. } | SourceEvent::State(_) => return,
        };
        let labels = EnvironmentLabels { environment: environment.to_owned() };
        self.safe_revision.get_or_create(&labels).set(i64::try_from(revision.0).unwrap_or(i64::MAX));
    }

    pub(super) fn audited(&self, environment: &str, outcome: &'static str) {
        self.audits.get_or_create(&OutcomeLabels { environment: environment.to_owned(), outcome }).inc();
    }

    pub(super) fn read_only(&self, is: bool) {
        self.read_only.set(i64::from(is));
    }

    pub(super) fn members_diverged(&self, environment: &str) {
        self.member_divergences
            .get_or_create(&EnvironmentLabels { environment: environment.to_owned() })
            .inc();
    }
}
