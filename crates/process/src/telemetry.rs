//! Logs and the metrics registry.
//!
//! Logs go to standard error, so that an access log or a command's answer has standard output for itself.

use std::fmt;
use std::io;
use std::str::FromStr;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt;

/// The form of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// The `log` section of a settings file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LogSettings {
    /// Text or JSON.
    pub format: LogFormat,
    /// What to show: a level (`info`), or levels by target (`info,headwater_control_plane=debug`).
    pub filter: String,
}

/// Logging could not start.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter is not one.
    #[error("log.filter: {filter:?} is not a filter ({reason}): write a level such as info, or target=level")]
    Filter {
        /// As given.
        filter: String,
        /// What the parser said.
        reason: String,
    },
}

/// Counts the tasks of a runtime whenever metrics are asked for.
#[derive(Debug)]
struct RuntimeTasks(Handle);

/// Starts logging for the whole process. Only the first call takes effect, for two planes may share a process;
/// answers whether this one did.
///
/// # Errors
/// When the filter does not parse.
pub fn init(settings: &LogSettings) -> Result<bool, TelemetryError> {
    let filter = parse_filter(&settings.filter)?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    let started = match settings.format {
        LogFormat::Text => lines.with_ansi(io::IsTerminal::is_terminal(&io::stderr())).finish().try_init(),
        LogFormat::Json => lines.json().flatten_event(true).finish().try_init(),
    };
    Ok(started.is_ok())
}

/// An empty registry whose metrics are named `headwater_...`.
#[must_use]
pub fn registry() -> Registry {
    Registry::with_prefix("headwater")
}

/// Registers `headwater_tasks`: how many tasks are alive in this runtime, those of libraries included. A number that
/// only rises while what is connected stays the same is a leak. Two planes in one process show the same number.
pub fn runtime_tasks(registry: &mut Registry, runtime: Handle) {
    registry.register_collector(Box::new(RuntimeTasks(runtime)));
}

// === impl RuntimeTasks ===

impl Collector for RuntimeTasks {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let alive = self.0.metrics().num_alive_tasks();
        let gauge = ConstGauge::new(i64::try_from(alive).unwrap_or(i64::MAX));
        gauge.encode(encoder.encode_descriptor("tasks", "Tasks alive", None, gauge.metric_type())?)
    }
}

// === impl LogSettings ===

impl Default for LogSettings {
    fn default() -> Self {
        Self { format: LogFormat::Text, filter: "info".into() }
    }
}

impl LogSettings {
    /// Whether the filter parses; for the validation of settings.
    ///
    /// # Errors
    /// When it does not.
    pub fn check(&self) -> Result<(), TelemetryError> {
        parse_filter(&self.filter).map(drop)
    }
}

fn parse_filter(filter: &str) -> Result<EnvFilter, TelemetryError> {
    EnvFilter::from_str(filter)
        .map_err(|error| TelemetryError::Filter { filter: filter.to_owned(), reason: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn may_be_called_twice() {
        let json = LogSettings { format: LogFormat::Json, filter: "warn,headwater_process=debug".into() };
        assert!(init(&json).expect("a good filter"));
        assert!(!init(&LogSettings::default()).expect("a good filter"), "the first call keeps its effect");
    }

    #[tokio::test]
    async fn tasks_are_counted_when_asked_for() {
        let mut registry = registry();
        runtime_tasks(&mut registry, Handle::current());
        let shown = || {
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
            let line = text.lines().find_map(|line| line.strip_prefix("headwater_tasks ")).unwrap();
            line.parse::<usize>().unwrap()
        };
        let before = shown();
        let supervisor = crate::Supervisor::new("test");
        let policy = crate::Policy::best_effort().dropped_on_cancel();
        supervisor.spawn("waits", policy, std::future::pending::<()>());
        assert_eq!(shown(), before + 1);
        let ended = supervisor.shutdown(std::time::Duration::from_secs(5)).await;
        assert_eq!((ended.late.len(), shown()), (0, before));
    }

    #[test]
    fn a_bad_filter_is_named() {
        let settings = LogSettings { filter: "headwater=loud".into(), ..LogSettings::default() };
        let error = settings.check().expect_err("no such level");
        assert!(error.to_string().contains("headwater=loud"), "{error}");
    }
}
