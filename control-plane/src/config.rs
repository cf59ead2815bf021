//! The settings of a replica: one YAML file, environment variables and `--set` over it.
//!
//! Only what types cannot say is checked in `check`, all of it at once.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use headwater_durable::Keys;
use headwater_model::resources::{Keyring, KeyringError};
use headwater_process::settings::{Fault, Secret, Settings, StateEncryption, duration};
use headwater_process::telemetry::LogSettings;
use headwater_tls::ServerFiles;
use serde::{Deserialize, Serialize};

use crate::admin::access::Caller;
use crate::backend::etcd::EtcdConfig;

mod check;

#[cfg(test)]
mod tests;

/// The settings of a replica.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Config {
    /// What the replica calls itself; the host's name when it is not given.
    pub replica_id: Option<String>,
    /// Where the replica keeps its last known good of each environment.
    pub state_dir: PathBuf,
    /// The keys under which files of state are encrypted: the last known good, and the embedded store.
    pub state_encryption: StateEncryption,
    /// The configurations it serves, each a key prefix.
    pub environments: Vec<EnvironmentConfig>,
    /// Configuration from etcd. Either this or `embedded`.
    pub etcd: Option<EtcdConfig>,
    /// Configuration from a file of this replica's own, without etcd.
    pub embedded: Option<EmbeddedConfig>,
    /// Where nodes connect.
    pub southbound: SouthboundConfig,
    /// Where operators connect.
    pub admin: AdminConfig,
    /// Where health and metrics are read, in plain text: they hold no secrets.
    pub health: HealthConfig,
    /// The admin addresses of the other replicas of the fleet. While there are any, waits are refused.
    pub peers: Vec<String>,
    /// Keys of encrypted fields.
    pub data_encryption: DataEncryption,
    /// How long a lost node is expected to come back.
    #[serde(with = "duration")]
    pub lost_retention: Duration,
    /// How long an approval of a held jump covers nodes that come later.
    #[serde(with = "duration")]
    pub approval_retention: Duration,
    /// How long an environment may take to be complete before readiness no longer waits for it.
    #[serde(with = "duration")]
    pub start_deadline: Duration,
    /// How long connections may take to end at a drain.
    #[serde(with = "duration")]
    pub drain_grace: Duration,
    /// Logs.
    pub log: LogSettings,
}

/// One configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvironmentConfig {
    /// What nodes and operators call it.
    pub name: String,
    /// Its key prefix, such as `/apisix`, without a trailing slash.
    pub prefix: String,
    /// Which nodes may join it.
    #[serde(default)]
    pub join: JoinConfig,
}

/// Which nodes may join an environment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JoinConfig {
    /// DNS names or URIs in the nodes' client certificates.
    pub identities: Vec<String>,
    /// Tokens, each with the name it is shown under.
    pub tokens: Vec<JoinToken>,
}

/// A token that lets nodes join.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinToken {
    /// What logs and rows call it.
    pub name: String,
    /// At least 16 characters.
    pub token: Secret<String>,
}

/// The embedded store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EmbeddedConfig {
    /// The folder of its files, one for each environment.
    pub directory: PathBuf,
}

/// The listener for nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SouthboundConfig {
    /// The address.
    pub listen: SocketAddr,
    /// Its certificate, and whose client certificates are taken.
    pub tls: Option<ServerFiles>,
    /// Plain text, and every node that connects may join. For a trusted network only.
    pub insecure: bool,
    /// How often progress is told, and a node is heard at least.
    #[serde(with = "duration")]
    pub heartbeat: Duration,
    /// How many nodes are taken.
    pub max_nodes: usize,
}

/// The listener for operators.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AdminConfig {
    /// The address.
    pub listen: SocketAddr,
    /// Its certificate, and whose client certificates are taken.
    pub tls: Option<ServerFiles>,
    /// Plain text; and without callers whoever reaches the listener may do everything.
    pub insecure: bool,
    /// Who may do what.
    pub callers: Vec<Caller>,
}

/// The listener for health and metrics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HealthConfig {
    /// The address.
    pub listen: SocketAddr,
}

/// Keys of encrypted fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DataEncryption {
    /// Keys of 16 or 32 bytes; each is tried. APISIX's own default ring where it is not given.
    pub keyring: Option<Vec<Secret<String>>>,
}

// === impl Config ===

impl Config {
    /// The keys of encrypted fields.
    ///
    /// # Errors
    /// Names the first key that is none.
    pub fn keyring(&self) -> Result<Keyring, KeyringError> {
        match &self.data_encryption.keyring {
            None => Ok(Keyring::default()),
            Some(keys) => Keyring::new(keys.iter().map(|key| key.expose().as_bytes())),
        }
    }

    /// The keys of files of state; read from their files each time.
    ///
    /// # Errors
    /// Every fault of them.
    pub fn state_keys(&self) -> Result<Keys, Vec<Fault>> {
        let keys = self.state_encryption.read("state_encryption")?;
        Ok(Keys::new(keys.iter().map(|key| *key.expose())))
    }
}

impl Settings for Config {
    fn check(&self) -> Vec<Fault> {
        check::all(self)
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            replica_id: None,
            state_dir: "/var/lib/headwater/control-plane".into(),
            state_encryption: StateEncryption::default(),
            environments: vec![EnvironmentConfig {
                name: "default".into(),
                prefix: "/apisix".into(),
                join: JoinConfig::default(),
            }],
            etcd: None,
            embedded: None,
            southbound: SouthboundConfig::default(),
            admin: AdminConfig::default(),
            health: HealthConfig::default(),
            peers: Vec::new(),
            data_encryption: DataEncryption::default(),
            lost_retention: crate::fleet::registry::LOST_RETENTION,
            approval_retention: Duration::from_secs(crate::approval::RETENTION_SECONDS),
            start_deadline: Duration::from_secs(60),
            drain_grace: Duration::from_secs(10),
            log: LogSettings::default(),
        }
    }
}

impl Default for EmbeddedConfig {
    fn default() -> Self {
        Self { directory: "/var/lib/headwater/store".into() }
    }
}

impl Default for SouthboundConfig {
    fn default() -> Self {
        Self {
            listen: (Ipv4Addr::UNSPECIFIED, 9190).into(),
            tls: None,
            insecure: false,
            heartbeat: Duration::from_secs(10),
            max_nodes: 20_000,
        }
    }
}

impl Default for AdminConfig {
    fn default() -> Self {
        Self { listen: (Ipv4Addr::LOCALHOST, 9180).into(), tls: None, insecure: false, callers: Vec::new() }
    }
}

impl Default for HealthConfig {
    fn default() -> Self {
        Self { listen: (Ipv4Addr::UNSPECIFIED, 9181).into() }
    }
}
