//! The node's configuration as metrics, read when they are asked for.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::Sources;
use crate::sync::protocol::Phase;

impl Collector for Sources {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let status = self.statuses.load();
        let view = self.views.load();
        let disk = self.keeper.as_ref().map(|keeper| keeper.status());
        let counts = status.counts;
        let whole = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let revision =
            |version: Option<&headwater_model::Version>| version.map_or(0, |v| whole(v.revision.0));
        let generation = status.applied.as_ref().map_or(0, |version| whole(version.lineage.generation.0));
        let gauges = [
            (
                "config_applied_revision",
                "The revision that requests are served by",
                revision(status.applied.as_ref()),
            ),
            ("config_applied_generation", "The generation of that revision", generation),
            (
                "config_durable_revision",
                "The revision that the disk holds",
                revision(status.durable.as_ref()),
            ),
            ("config_resources", "Resources held", whole(status.resources as u64)),
            ("config_rejected_keys", "Keys whose value cannot be used", whole(view.rejects.len() as u64)),
            (
                "config_retained_keys",
                "Rejected keys whose last value is served",
                whole(view.retained.len() as u64),
            ),
            (
                "config_refused",
                "Whether a transfer stands refused, held ones included",
                i64::from(status.refused.is_some()),
            ),
            (
                "config_held_ahead",
                "Whether replicas are behind",
                i64::from(status.held_ahead_since_unix.is_some()),
            ),
            ("config_stream_open", "Whether a stream is open", i64::from(status.phase == Phase::Open)),
            (
                "config_disk_failing",
                "Whether the newest version is not brought to the disk",
                i64::from(disk.is_none_or(|disk| disk.error.is_some())),
            ),
        ];
        for (name, help, value) in gauges {
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        let ages = [
            ("config_replica_proof_age_seconds", "Since a frame of a replica", status.hop_age),
            ("config_source_proof_age_seconds", "Since the source was known alive", status.source_age),
        ];
        for (name, help, age) in ages {
            if let Some(age) = age {
                let gauge = ConstGauge::new(age.as_secs_f64());
                gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
            }
        }
        let counters = [
            ("config_transfers", "Transfers taken", counts.transfers),
            ("config_transfers_refused", "Transfers refused", counts.refused),
            ("config_connections_lost", "Connections that ended with an error", counts.connections_lost),
        ];
        for (name, help, count) in counters {
            let counter = ConstCounter::new(count);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        Ok(())
    }
}
