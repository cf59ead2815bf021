//! What the proxy counts.

use prometheus_client::encoding::{EncodeLabelSet, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Counters, gauges and the histogram of the proxy; a clone is the same set.
#[derive(Debug, Clone)]
pub struct ProxyMetrics {
    /// Requests by class of status and by what the gateway has to say about them.
    pub requests: Family<RequestLabels, Counter>,
    /// Seconds from a request's head to the end of its answer.
    pub seconds: Histogram,
    /// Requests under way.
    pub active_requests: Gauge,
    /// Failed tries at upstream nodes, by kind.
    pub upstream_errors: Family<ErrorLabels, Counter>,
    /// Client connections by listener.
    pub connections: Family<ListenerLabels, Gauge>,
    /// TLS handshakes that came to nothing, by reason.
    pub handshake_failures: Family<ErrorLabels, Counter>,
    /// Access log lines without room in the queue, or that could not be written.
    pub access_log_dropped: Counter,
}

/// Labels of [`ProxyMetrics::requests`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RequestLabels {
    /// `2xx` and so on.
    pub status: &'static str,
    /// Who the answer comes from, or whose fault it is: `upstream`, `gateway`, `client`.
    pub origin: &'static str,
    /// `ok`, or the gateway's word for what went wrong.
    pub reason: &'static str,
}

/// One word for what went wrong.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ErrorLabels {
    /// The word.
    pub kind: &'static str,
}

/// Labels of [`ProxyMetrics::connections`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ListenerLabels {
    /// Which kind of listener.
    pub listener: Scheme,
}

/// `http` or `https`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Plain.
    Http,
    /// Over TLS.
    Https,
}

impl Scheme {
    /// The word.
    pub fn label(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

impl prometheus_client::encoding::EncodeLabelValue for Scheme {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        prometheus_client::encoding::EncodeLabelValue::encode(&self.label(), encoder)
    }
}

/// Seconds; wide enough for answers that stream for a minute.
const BUCKETS: [f64; 14] = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 60.0];

impl Default for ProxyMetrics {
    fn default() -> Self {
        Self {
            requests: Family::default(),
            seconds: Histogram::new(BUCKETS),
            active_requests: Gauge::default(),
            upstream_errors: Family::default(),
            connections: Family::default(),
            handshake_failures: Family::default(),
            access_log_dropped: Counter::default(),
        }
    }
}

impl ProxyMetrics {
    /// Makes them part of `registry`, under `proxy_`.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("proxy");
        registry.register("requests", "Requests by class of status and reason", self.requests.clone());
        registry.register(
            "request_seconds",
            "From a request's head to the end of its answer",
            self.seconds.clone(),
        );
        registry.register("active_requests", "Requests under way", self.active_requests.clone());
        registry.register(
            "upstream_errors",
            "Failed tries at upstream nodes by kind",
            self.upstream_errors.clone(),
        );
        registry.register("connections", "Client connections by listener", self.connections.clone());
        registry.register(
            "tls_handshake_failures",
            "TLS handshakes that came to nothing",
            self.handshake_failures.clone(),
        );
        registry.register(
            "access_log_dropped",
            "Access log lines that were not written",
            self.access_log_dropped.clone(),
        );
    }
}

/// `200` is `2xx`.
pub fn status_class(status: u16) -> &'static str {
    match status / 100 {
        1 => "1xx",
        2 => "2xx",
        3 => "3xx",
        4 => "4xx",
        5 => "5xx",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_told_under_its_name() {
        let metrics = ProxyMetrics::default();
        let mut registry = Registry::with_prefix("headwater");
        metrics.register(&mut registry);
        metrics
            .requests
            .get_or_create(&RequestLabels {
                status: status_class(404),
                origin: "gateway",
                reason: "route_not_found",
            })
            .inc();
        metrics.connections.get_or_create(&ListenerLabels { listener: Scheme::Https }).inc();
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for expected in [
            r#"headwater_proxy_requests_total{status="4xx",origin="gateway",reason="route_not_found"} 1"#,
            r#"headwater_proxy_connections{listener="https"} 1"#,
            "headwater_proxy_access_log_dropped_total 0",
        ] {
            assert!(text.contains(expected), "{expected} not in\n{text}");
        }
    }
}
