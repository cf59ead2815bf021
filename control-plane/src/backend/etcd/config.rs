//! The `etcd` section of the settings.
//!
//! Unknown keys are refused by the settings loader for the whole tree, so nothing here says so again.

use std::path::PathBuf;
use std::time::Duration;

use headwater_process::settings::{Fault, Secret, duration};
use serde::{Deserialize, Serialize};

use super::tracker::Settings as TrackerSettings;

/// More responses of the watch than this are not kept: about 2 MB an environment.
const MAX_RECORDED: usize = 10_000;

/// How to reach etcd and how long to believe it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EtcdConfig {
    /// The members' client URLs, `http://host:2379` or `https://host:2379`; names are resolved at each try.
    pub endpoints: Vec<String>,
    /// The user, where etcd asks for one.
    pub user: Option<String>,
    /// Its password; or
    pub password: Option<Secret<String>>,
    /// the file that holds it, read again at each connection and whenever etcd wants to know again.
    pub password_file: Option<PathBuf>,
    /// For `https` endpoints.
    pub tls: Option<TlsConfig>,
    /// For opening a connection, its first answer included.
    #[serde(with = "duration")]
    pub connect_timeout: Duration,
    /// For one read or write beside the watch.
    #[serde(with = "duration")]
    pub request_timeout: Duration,
    /// For one page of a load, and for the content proof.
    #[serde(with = "duration")]
    pub page_timeout: Duration,
    /// How often progress is asked for on a watch.
    #[serde(with = "duration")]
    pub progress_interval: Duration,
    /// A watch without any frame for so long is dead.
    #[serde(with = "duration")]
    pub liveness_timeout: Duration,
    /// The same until the first frame after a resume; doubled per failure.
    #[serde(with = "duration")]
    pub catch_up_timeout: Duration,
    /// With etcd's head more revisions ahead than this, everything is read instead of resuming.
    pub resume_span: u64,
    /// How often the watch is reopened where progress is never answered.
    #[serde(with = "duration")]
    pub reopen_interval: Duration,
    /// How often what is held is compared with etcd.
    #[serde(with = "duration")]
    pub audit_interval: Duration,
    /// How many responses of the watch are kept for `headwater source recorder`, at most 10,000; 0 keeps none.
    pub recorder_responses: usize,
    /// Follow members whose release loses or reorders watch events. Only an audit every 30 s stands in for it.
    pub allow_unsafe_etcd: bool,
    /// The release to assume where the user may not ask for it.
    pub assume_version: Option<String>,
}

/// TLS towards etcd. Files are read again at each connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TlsConfig {
    /// The authority (PEM) that signed the members' certificates.
    pub ca: PathBuf,
    /// The client certificate (PEM), for mTLS.
    pub cert: Option<PathBuf>,
    /// Its key (PEM).
    pub key: Option<PathBuf>,
    /// The name on the members' certificates, where it is not the endpoint's host.
    pub server_name: Option<String>,
}

// === impl EtcdConfig ===

impl Default for EtcdConfig {
    fn default() -> Self {
        let tracker = TrackerSettings::default();
        Self {
            endpoints: Vec::new(),
            user: None,
            password: None,
            password_file: None,
            tls: None,
            connect_timeout: tracker.connect_timeout,
            request_timeout: Duration::from_secs(5),
            page_timeout: tracker.page_timeout,
            progress_interval: tracker.progress_interval,
            liveness_timeout: tracker.liveness_timeout,
            catch_up_timeout: tracker.catch_up_timeout,
            resume_span: tracker.resume_span,
            reopen_interval: tracker.reopen_interval,
            audit_interval: Duration::from_secs(300),
            recorder_responses: 1000,
            allow_unsafe_etcd: false,
            assume_version: None,
        }
    }
}

impl EtcdConfig {
    /// What is wrong with the section as a whole, `path` being its key.
    #[must_use]
    pub fn check(&self, path: &str) -> Vec<Fault> {
        let mut faults = Vec::new();
        let mut fault = |key: &str, message: String| {
            faults.push(Fault { path: format!("{path}.{key}"), message, origin: None });
        };
        if self.endpoints.is_empty() {
            fault("endpoints", "name at least one member, such as http://127.0.0.1:2379".to_owned());
        }
        for (index, endpoint) in self.endpoints.iter().enumerate() {
            if let Some(message) = self.endpoint_fault(endpoint) {
                fault(&format!("endpoints[{index}]"), message);
            }
        }
        if self.user.is_some() != (self.password.is_some() || self.password_file.is_some()) {
            fault("user", "user and password (or password_file) go together: set both or neither".to_owned());
        }
        if self.password.is_some() && self.password_file.is_some() {
            fault("password_file", "password is set as well: keep one of them".to_owned());
        }
        if let Some(tls) = &self.tls {
            if tls.ca.as_os_str().is_empty() {
                fault(
                    "tls.ca",
                    "name the PEM file of the authority that signed etcd's certificates".to_owned(),
                );
            }
            if tls.cert.is_some() != tls.key.is_some() {
                fault("tls.cert", "cert and key go together: set both or neither".to_owned());
            }
        }
        // W20: never faster; etcd would take it, but it proves nothing more.
        if self.progress_interval < Duration::from_millis(100) {
            fault("progress_interval", "must be at least 100ms".to_owned());
        }
        if self.liveness_timeout < self.progress_interval * 2 {
            fault(
                "liveness_timeout",
                "must be at least twice progress_interval: one lost answer is no death".to_owned(),
            );
        }
        if self.recorder_responses > MAX_RECORDED {
            fault("recorder_responses", format!("must be at most {MAX_RECORDED}: one answer shows them all"));
        }
        if self.audit_interval < Duration::from_secs(1) {
            fault("audit_interval", "must be at least 1s: an audit reads everything".to_owned());
        }
        faults
    }

    fn endpoint_fault(&self, endpoint: &str) -> Option<String> {
        let secure = endpoint.starts_with("https://");
        if !secure && !endpoint.starts_with("http://") {
            return Some(format!(
                "{endpoint:?} has no scheme: write http://{endpoint} or https://{endpoint}"
            ));
        }
        if endpoint.parse::<http::Uri>().is_err() {
            return Some(format!("{endpoint:?} is not a URL: write http://host:port"));
        }
        match (secure, &self.tls) {
            (true, None) => Some("an https endpoint needs the tls section (at least tls.ca)".to_owned()),
            (false, Some(_)) => Some("the tls section is set: write https:// for every endpoint".to_owned()),
            _ => None,
        }
    }

    /// The tracker's part of it.
    #[must_use]
    pub fn tracker(&self) -> TrackerSettings {
        TrackerSettings {
            members: u32::try_from(self.endpoints.len()).unwrap_or(u32::MAX).max(1),
            progress_interval: self.progress_interval,
            liveness_timeout: self.liveness_timeout,
            catch_up_timeout: self.catch_up_timeout,
            resume_span: self.resume_span,
            reopen_interval: self.reopen_interval,
            connect_timeout: self.connect_timeout,
            page_timeout: self.page_timeout,
            proof_timeout: self.page_timeout,
            allow_unsafe_etcd: self.allow_unsafe_etcd,
            assume_version: self.assume_version.clone(),
            ..TrackerSettings::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(config: &EtcdConfig) -> Vec<String> {
        config.check("etcd").into_iter().map(|fault| fault.path).collect()
    }

    #[test]
    fn all_faults_are_named_at_once() {
        let config = EtcdConfig {
            endpoints: vec!["127.0.0.1:2379".to_owned(), "https://etcd:2379".to_owned()],
            user: Some("root".to_owned()),
            liveness_timeout: Duration::from_secs(6),
            ..EtcdConfig::default()
        };
        let expected = ["etcd.endpoints[0]", "etcd.endpoints[1]", "etcd.user", "etcd.liveness_timeout"];
        assert_eq!(paths(&config), expected);
        assert_eq!(paths(&EtcdConfig::default()), ["etcd.endpoints"]);
    }

    #[test]
    fn a_plain_and_a_secure_set_up_pass() {
        let plain = EtcdConfig { endpoints: vec!["http://etcd:2379".to_owned()], ..EtcdConfig::default() };
        assert!(paths(&plain).is_empty());
        let tls = TlsConfig { ca: "ca.pem".into(), ..TlsConfig::default() };
        let secure = EtcdConfig {
            endpoints: vec!["https://etcd:2379".to_owned()],
            tls: Some(tls.clone()),
            ..plain.clone()
        };
        assert!(paths(&secure).is_empty());
        assert_eq!(paths(&EtcdConfig { tls: Some(tls), ..plain }), ["etcd.endpoints[0]"]);
    }
}
