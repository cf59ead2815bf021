//! Logs and the metrics registry.
//!
//! Logs go to standard error, so that an access log or a command's answer has standard output for itself.

use std::io;
use std::str::FromStr;

use prometheus_client::registry::Registry;
use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;
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

/// Starts logging for the whole process. Only the first call takes effect, for two planes may share a process;
/// answers whether this one did.
///
/// # Errors
/// When the filter does not parse.
pub fn init(settings: &LogSettings) -> Result<bool, TelemetryError> {
    let filter = parse_filter(&settings.filter)?;
    let lines = fmt().with_env_filter(filter).with_writer(io::stderr);
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

    #[test]
    fn a_bad_filter_is_named() {
        let settings = LogSettings { filter: "headwater=loud".into(), ..LogSettings::default() };
        let error = settings.check().expect_err("no such level");
        assert!(error.to_string().contains("headwater=loud"), "{error}");
    }
}
