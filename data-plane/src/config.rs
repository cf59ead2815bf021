//! The node's settings: one YAML file, environment variables and `--set` over it.
//!
//! Only what is written here exists; an unknown key is refused, and all faults are told at once.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use headwater_durable::Keys;
use headwater_model::resources::{Context, Keyring};
use headwater_process::settings::{self, Fault, Secret, StateEncryption, duration};
use headwater_process::telemetry::LogSettings;
use headwater_proto::limits;
use headwater_tls::ClientFiles;
use serde::{Deserialize, Serialize};

use crate::proxy::config::ProxyConfig;

/// Everything a node can be told.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeConfig {
    /// The node's id: how operators name it. Required.
    pub node_id: String,
    /// The environment it belongs to.
    pub environment: String,
    /// Free labels, shown beside the node.
    pub labels: BTreeMap<String, String>,
    /// Where the control plane is and how to reach it.
    pub control_plane: ControlPlane,
    /// Bounds and times of the stream.
    pub sync: SyncConfig,
    /// The directory of the last known good; it must exist.
    pub data_dir: PathBuf,
    /// The keys under which the last known good is encrypted.
    pub state_encryption: StateEncryption,
    /// Keys of governing values (`global_rules/1`) that are passed over although they cannot be honoured.
    pub allow_governing: BTreeSet<String>,
    /// The keys of encrypted fields.
    pub data_encryption: DataEncryption,
    /// The proxy.
    pub proxy: ProxyConfig,
    /// Health, status and dumps.
    pub listen: Listen,
    /// How an end goes.
    pub drain: DrainConfig,
    /// Logs.
    pub log: LogSettings,
}

/// Where the control plane is and how to reach it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ControlPlane {
    /// `host:port` of each replica, tried in this order. Required.
    pub addresses: Vec<String>,
    /// TLS towards it; required unless `insecure`.
    pub tls: Option<ClientFiles>,
    /// Allows plain text.
    pub insecure: bool,
    /// The join token.
    pub token: Option<Secret<String>>,
    /// A file that holds the join token, instead of `token`.
    pub token_file: Option<PathBuf>,
}

/// Bounds and times of the stream.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct SyncConfig {
    /// Whether an empty node takes content from a replica without proof of life of its source, after one round.
    pub accept_degraded: bool,
    /// The most bytes of values that are taken.
    pub max_content_bytes: u64,
    /// How long a replica that is behind this node is waited for.
    #[serde(with = "duration")]
    pub behind_timeout: Duration,
    /// How long dialling may take.
    #[serde(with = "duration")]
    pub connect_timeout: Duration,
    /// The first delay before a further try.
    #[serde(with = "duration")]
    pub backoff_initial: Duration,
    /// The longest delay before a further try.
    #[serde(with = "duration")]
    pub backoff_cap: Duration,
    /// How often the newest version is brought to the disk at most.
    #[serde(with = "duration")]
    pub persist_interval: Duration,
}

/// The keys of encrypted fields.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DataEncryption {
    /// Sixteen bytes each; the first that fits is used. Without any, APISIX's default ring.
    pub keyring: Vec<Secret<String>>,
}

/// Health, status and dumps.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Listen {
    /// Health, status and metrics.
    pub health: SocketAddr,
    /// Dumps.
    pub control: SocketAddr,
}

/// How an end goes.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct DrainConfig {
    /// How long requests under way may take.
    #[serde(with = "duration")]
    pub grace: Duration,
}

// === impl NodeConfig ===

impl NodeConfig {
    /// What parsing values needs to know.
    ///
    /// # Errors
    /// When a key of the ring is none.
    pub fn context(&self) -> Result<Context, String> {
        let keys = &self.data_encryption.keyring;
        if keys.is_empty() {
            return Ok(Context::default());
        }
        let keyring = Keyring::new(keys.iter().map(|key| key.expose().as_bytes()));
        keyring.map(|keyring| Context { keyring }).map_err(|error| error.to_string())
    }

    /// The keys of the last known good; read from their files each time.
    ///
    /// # Errors
    /// Every fault of them.
    pub fn state_keys(&self) -> Result<Keys, Vec<Fault>> {
        let keys = self.state_encryption.read("state_encryption")?;
        Ok(Keys::new(keys.iter().map(|key| *key.expose())))
    }

    /// The file of the last known good.
    #[must_use]
    pub fn last_known_good(&self) -> PathBuf {
        let name: String =
            self.environment.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        self.data_dir.join(format!("node-{name}.lkg"))
    }

    fn check_identity(&self, faults: &mut Vec<Fault>) {
        let long = |text: &str| text.len() > limits::MAX_NAME_BYTES;
        if self.node_id.is_empty() || long(&self.node_id) {
            let message = format!("must have 1 to {} bytes: give this node a name", limits::MAX_NAME_BYTES);
            faults.push(Fault::new("node_id", message));
        }
        if self.environment.is_empty() || long(&self.environment) {
            let message = "must be the name of one of the control plane's environments, such as default";
            faults.push(Fault::new("environment", message));
        }
        let bad = self.labels.iter().any(|(name, value)| name.is_empty() || long(name) || long(value));
        if bad || self.labels.len() > limits::MAX_LABELS {
            let (most, bytes) = (limits::MAX_LABELS, limits::MAX_NAME_BYTES);
            let message = format!("may be at most {most}, with names and values of at most {bytes} bytes");
            faults.push(Fault::new("labels", message));
        }
    }

    fn check_control_plane(&self, faults: &mut Vec<Fault>) {
        let plane = &self.control_plane;
        if plane.addresses.is_empty() {
            let message = "is empty: name at least one replica as host:port, such as 127.0.0.1:9190";
            faults.push(Fault::new("control_plane.addresses", message));
        }
        for (index, address) in plane.addresses.iter().enumerate() {
            if let Err(error) = headwater_tls::client::endpoint(address, false) {
                faults.push(Fault::new(format!("control_plane.addresses[{index}]"), error.to_string()));
            }
        }
        match (&plane.tls, plane.insecure) {
            (None, false) => {
                let message =
                    "is missing: name ca (and cert and key for mTLS), or set control_plane.insecure to true";
                faults.push(Fault::new("control_plane.tls", message));
            }
            (Some(_), true) => {
                let message = "contradicts control_plane.tls: remove one of them";
                faults.push(Fault::new("control_plane.insecure", message));
            }
            _ => {}
        }
        if plane.token.is_some() && plane.token_file.is_some() {
            let message = "contradicts control_plane.token: remove one of them";
            faults.push(Fault::new("control_plane.token_file", message));
        }
    }
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self {
            node_id: String::new(),
            environment: "default".into(),
            labels: BTreeMap::new(),
            control_plane: ControlPlane::default(),
            sync: SyncConfig::default(),
            data_dir: "/var/lib/headwater".into(),
            state_encryption: StateEncryption::default(),
            allow_governing: BTreeSet::new(),
            data_encryption: DataEncryption::default(),
            proxy: ProxyConfig::default(),
            listen: Listen::default(),
            drain: DrainConfig::default(),
            log: LogSettings::default(),
        }
    }
}

impl settings::Settings for NodeConfig {
    fn check(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        self.check_identity(&mut faults);
        self.check_control_plane(&mut faults);
        if self.sync.max_content_bytes == 0 {
            faults.push(Fault::new("sync.max_content_bytes", "must be at least 1"));
        }
        if self.sync.connect_timeout.is_zero() || self.sync.backoff_initial.is_zero() {
            let message = "connect_timeout and backoff_initial must be longer than 0s";
            faults.push(Fault::new("sync", message));
        }
        if self.data_dir.exists() && !self.data_dir.is_dir() {
            let message = format!("{} is no directory: name another one", self.data_dir.display());
            faults.push(Fault::new("data_dir", message));
        }
        if let Err(encryption) = self.state_keys() {
            faults.extend(encryption);
        }
        if let Err(error) = self.context() {
            faults.push(Fault::new("data_encryption.keyring", error));
        }
        if let Err(error) = self.log.check() {
            faults.push(Fault::new("log.filter", error.to_string()));
        }
        faults.extend(self.proxy.validate().into_iter().map(|fault| Fault::new("", fault)));
        faults
    }
}

impl Default for SyncConfig {
    fn default() -> Self {
        Self {
            accept_degraded: true,
            max_content_bytes: 1 << 30,
            behind_timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(5),
            backoff_initial: Duration::from_millis(500),
            backoff_cap: Duration::from_secs(30),
            persist_interval: Duration::from_millis(100),
        }
    }
}

impl Default for Listen {
    fn default() -> Self {
        Self {
            health: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 9081)),
            control: SocketAddr::from((Ipv4Addr::LOCALHOST, 9082)),
        }
    }
}

impl Default for DrainConfig {
    fn default() -> Self {
        Self { grace: Duration::from_secs(30) }
    }
}

#[cfg(test)]
mod tests {
    use headwater_process::settings::{Sources, load};

    use super::*;

    #[test]
    fn a_small_file_is_enough() {
        let text =
            "node_id: a\ndata_dir: /tmp\ncontrol_plane: {addresses: ['127.0.0.1:9190'], insecure: true}\n";
        let config: NodeConfig = load(Sources::new().text("node.yaml", text)).expect("valid");
        assert_eq!(config.environment, "default");
        assert!(config.last_known_good().ends_with("node-default.lkg"));
    }

    #[test]
    fn all_faults_are_told_at_once_and_by_name() {
        let text = "environment: ''\ndata_dir: /dev/null\ncontrol_plane: {addresses: [x]}\n";
        let faults =
            load::<NodeConfig>(Sources::new().text("node.yaml", text)).expect_err("faults").to_string();
        for path in ["node_id", "environment", "control_plane.addresses[0]", "control_plane.tls", "data_dir"]
        {
            assert!(faults.contains(path), "{path} in {faults}");
        }
    }

    #[test]
    fn keys_of_the_state_are_read_and_all_their_faults_told_at_once() {
        let plane =
            "node_id: a\ndata_dir: /tmp\ncontrol_plane: {addresses: ['127.0.0.1:9190'], insecure: true}\n";
        let read = |keys: &str| {
            let text = format!("{plane}state_encryption: {{keys: {keys}}}\n");
            load::<NodeConfig>(Sources::new().text("node.yaml", text))
        };
        let key = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
        let config = read(&format!("[{{key: {key}}}]")).expect("valid");
        assert_eq!(config.state_keys().expect("valid").first(), Keys::new([[1; 32]]).first());
        assert!(!settings::dump(&config).contains(key));
        let faults = read("[{key: short}, {file: /no/such/key}]").expect_err("faults");
        let paths: Vec<&str> = faults.0.iter().map(|fault| fault.path.as_str()).collect();
        assert_eq!(paths, ["state_encryption.keys[0].key", "state_encryption.keys[1].file"]);
        let faults = read(&format!("[{{keys: {key}}}]")).expect_err("unknown");
        assert_eq!(faults.0[0].path, "state_encryption.keys[0].keys");
    }

    /// The example's section on encryption, which is a comment there.
    const ENCRYPTION: &str = "# state_encryption:\n#   keys:\n#     - {file: /etc/headwater/state.key}\n";

    #[test]
    fn the_production_example_loads_and_its_encryption_can_be_taken_in() {
        let example = include_str!("../../deploy/data-plane.yaml");
        let read = |text: &str| {
            let sources = Sources::new().text("node.yaml", text).set(["data_dir=/tmp".to_owned()]);
            load::<NodeConfig>(sources)
        };
        let config = read(example).expect("valid");
        assert!(config.control_plane.tls.is_some() && config.state_encryption.keys.is_empty());
        let encrypted = example.replace(ENCRYPTION, &ENCRYPTION.replace("# ", "").replace('#', ""));
        let faults = read(&encrypted).expect_err("no such file here");
        let paths: Vec<&str> = faults.0.iter().map(|fault| fault.path.as_str()).collect();
        assert_eq!(paths, ["state_encryption.keys[0].file"]);
    }

    #[test]
    fn unknown_keys_are_refused_and_secrets_are_never_shown() {
        let text = "node_id: a\nencryption: {key: k}\n";
        let faults = load::<NodeConfig>(Sources::new().text("node.yaml", text)).expect_err("unknown");
        assert!(faults.to_string().contains("encryption"), "{faults}");
        let plane = ControlPlane { token: Some(Secret::new("t0ken".into())), ..ControlPlane::default() };
        let dump = settings::dump(&NodeConfig { control_plane: plane, ..NodeConfig::default() });
        assert!(!dump.contains("t0ken"), "{dump}");
    }
}
