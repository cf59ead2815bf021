//! The `proxy:` section of a node's configuration file: listeners, limits, time-outs, the access log.
//!
//! Every bound has a default that an untended gateway can live with; `validate` names each value that cannot work.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Everything the proxy can be told.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct ProxyConfig {
    /// Where plain HTTP is served; may be empty.
    pub http: Vec<SocketAddr>,
    /// Where HTTPS is served, with the certificates of the configuration; may be empty.
    pub https: Vec<SocketAddr>,
    /// Bounds on what a client may ask of the gateway.
    pub limits: Limits,
    /// How node names of upstreams are resolved.
    pub resolver: ResolverConfig,
    /// Where a line for every request goes.
    pub access_log: AccessLogConfig,
}

impl Default for ProxyConfig {
    fn default() -> Self {
        Self {
            http: vec![SocketAddr::from((Ipv4Addr::UNSPECIFIED, 9080))],
            https: vec![SocketAddr::from((Ipv4Addr::UNSPECIFIED, 9443))],
            limits: Limits::default(),
            resolver: ResolverConfig::default(),
            access_log: AccessLogConfig::default(),
        }
    }
}

/// Bounds on clients. Durations are seconds, with fractions allowed.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Client connections at a time, over all listeners; further ones wait in the kernel's queue.
    pub connections: usize,
    /// Bytes of one request head, 8 KiB to 16 MiB; more is answered with 431.
    pub header_bytes: usize,
    /// Header lines of one request head (HTTP/1.1); more is answered with 431.
    pub header_count: usize,
    /// Bytes of one request body; `null` is no bound. More is answered with 413.
    pub body_bytes: Option<u64>,
    /// Requests at a time on one HTTP/2 connection.
    pub concurrent_streams: u32,
    /// For a whole TLS handshake.
    #[serde(with = "seconds")]
    pub handshake_timeout: Duration,
    /// For a whole HTTP/1.1 request head.
    #[serde(with = "seconds")]
    pub header_timeout: Duration,
    /// Between two reads of a request body; then 408.
    #[serde(with = "seconds")]
    pub body_timeout: Duration,
    /// For a client that takes nothing of what is written to it.
    #[serde(with = "seconds")]
    pub write_timeout: Duration,
    /// For a connection without a request.
    #[serde(with = "seconds")]
    pub idle_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 65_536,
            header_bytes: 64 * 1024,
            header_count: 200,
            body_bytes: None,
            concurrent_streams: 128,
            handshake_timeout: Duration::from_secs(10),
            header_timeout: Duration::from_secs(60),
            body_timeout: Duration::from_secs(60),
            write_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(60),
        }
    }
}

/// How node names are resolved: by the system, off the request path.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct ResolverConfig {
    /// Between two lookups of a name that has an address. The system's resolver tells no time to live.
    #[serde(with = "seconds")]
    pub refresh: Duration,
    /// Between two lookups of a name after a failed one; the last good addresses stay in use.
    #[serde(with = "seconds")]
    pub retry: Duration,
    /// For one lookup. Also the longest a request waits for the first answer about a new name.
    #[serde(with = "seconds")]
    pub timeout: Duration,
}

impl Default for ResolverConfig {
    fn default() -> Self {
        Self {
            refresh: Duration::from_secs(5),
            retry: Duration::from_secs(1),
            timeout: Duration::from_secs(5),
        }
    }
}

/// Where a line for every request goes.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct AccessLogConfig {
    /// Off, standard output, or a file.
    pub to: AccessLogTarget,
    /// Lines that may wait for the writer; a line beyond is dropped and counted, never waited for.
    pub queue: usize,
}

impl Default for AccessLogConfig {
    fn default() -> Self {
        Self { to: AccessLogTarget::Stdout, queue: 8192 }
    }
}

/// The destination of access log lines.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum AccessLogTarget {
    /// No lines.
    Off,
    /// Standard output.
    Stdout,
    /// Appended to this file, which is opened anew when it was moved or removed.
    File(PathBuf),
}

impl ProxyConfig {
    /// Every value that cannot work, each as one sentence.
    pub fn validate(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut demand = |holds: bool, fault: &str| {
            if !holds {
                faults.push(fault.to_owned());
            }
        };
        let limits = &self.limits;
        demand(
            !(self.http.is_empty() && self.https.is_empty()),
            "proxy.http and proxy.https are both empty: name at least one address to serve on",
        );
        demand(limits.connections > 0, "proxy.limits.connections must be at least 1");
        demand(
            (8192..=16 << 20).contains(&limits.header_bytes),
            "proxy.limits.header_bytes must be between 8192 and 16777216",
        );
        demand(
            (1..=10_000).contains(&limits.header_count),
            "proxy.limits.header_count must be between 1 and 10000",
        );
        demand(limits.concurrent_streams > 0, "proxy.limits.concurrent_streams must be at least 1");
        demand(self.access_log.queue > 0, "proxy.access_log.queue must be at least 1");
        for (name, value) in [
            ("limits.handshake_timeout", limits.handshake_timeout),
            ("limits.header_timeout", limits.header_timeout),
            ("limits.body_timeout", limits.body_timeout),
            ("limits.write_timeout", limits.write_timeout),
            ("limits.idle_timeout", limits.idle_timeout),
            ("resolver.refresh", self.resolver.refresh),
            ("resolver.retry", self.resolver.retry),
            ("resolver.timeout", self.resolver.timeout),
        ] {
            demand(!value.is_zero(), &format!("proxy.{name} must be greater than 0 seconds"));
        }
        faults
    }
}

/// Durations as seconds, whole or with a fraction.
mod seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(value.as_secs_f64())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        let seconds = f64::deserialize(deserializer)?;
        Duration::try_from_secs_f64(seconds)
            .map_err(|error| D::Error::custom(format!("{seconds} is no number of seconds: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ProxyConfig, serde_json::Error> {
        serde_json::from_str(text)
    }

    #[test]
    fn the_defaults_are_valid_and_survive_a_round() {
        let config = ProxyConfig::default();
        assert_eq!(config.validate(), Vec::<String>::new());
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(parse(&text).unwrap(), config);
    }

    #[test]
    fn unknown_keys_are_refused() {
        for text in
            [r#"{"htp": []}"#, r#"{"limits": {"header_size": 1}}"#, r#"{"access_log": {"format": "x"}}"#]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn every_fault_is_named_at_once() {
        let config = parse(
            r#"{"http": [], "https": [], "limits": {"connections": 0, "header_bytes": 10, "idle_timeout": 0}}"#,
        )
        .unwrap();
        let faults = config.validate();
        assert_eq!(faults.len(), 4, "{faults:?}");
        assert!(faults.iter().any(|fault| fault.contains("proxy.limits.idle_timeout")));
    }

    #[test]
    fn fractions_of_seconds_are_read() {
        let config = parse(r#"{"limits": {"idle_timeout": 0.25}}"#).unwrap();
        assert_eq!(config.limits.idle_timeout, Duration::from_millis(250));
        assert!(parse(r#"{"limits": {"idle_timeout": -1}}"#).is_err());
    }
}
