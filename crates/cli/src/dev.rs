//! `headwater dev`: both planes in one process, a demo upstream and a demo route, on loopback only.
//!
//! Nothing here is special to it: the planes are started as their own programs start them, with settings that suit
//! one person at one machine. Everything listens on 127.0.0.1 in plain text, and nothing else is offered.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use headwater_control_plane::app as control_plane;
use headwater_control_plane::backend::etcd::EtcdConfig;
use headwater_control_plane::config::{Config, EmbeddedConfig, EnvironmentConfig};
use headwater_data_plane::app as data_plane;
use headwater_data_plane::config::NodeConfig;
use headwater_process::signals::Signals;
use headwater_process::telemetry::{self, LogSettings};

use crate::arguments::Connection;
use crate::exit::{Error, Exit};
use crate::progress;

mod demo;
mod upstream;

/// How long the first configuration may take.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// The arguments of `headwater dev`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Dev {
    /// Follow a real etcd instead of the embedded store.
    #[arg(long, value_name = "HOST:PORT")]
    etcd: Option<String>,
    /// The key prefix.
    #[arg(long, default_value = "/apisix", value_name = "PREFIX")]
    prefix: String,
    /// Keep what is stored here, and find it again at the next start; a temporary folder without.
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
    /// Take whatever ports are free instead of 9080, 9443, 9081, 9082, 9180, 9181 and 9190.
    #[arg(long)]
    any_port: bool,
    /// Log at this level (error, warn, info, debug); requests are not logged.
    #[arg(long, default_value = "warn", value_name = "LEVEL")]
    log: String,
}

/// Runs until a signal.
pub(crate) async fn run(arguments: Dev) -> Result<Exit, Error> {
    let mut signals = Signals::listen().map_err(|error| Error::Answer(format!("no signals: {error}")))?;
    let log = LogSettings { filter: arguments.log.clone(), ..LogSettings::default() };
    telemetry::init(&log).map_err(|error| Error::Usage(format!("--log: {error}")))?;
    let folder = Folder::open(arguments.dir.as_deref())?;
    let replica = control_plane::start(replica_config(&arguments, folder.path())?).await;
    let replica = replica.map_err(|error| Error::Usage(at_dev(&error.to_string())))?;
    let config = node_config(&arguments, folder.path(), replica.addresses.southbound)?;
    let node = data_plane::bind(&config).await.map_err(|error| Error::Usage(at_dev(&error.to_string())))?;
    let node = node.start(config);
    let demo = upstream::serve().await?;
    let admin = Connection::insecure(replica.addresses.admin.to_string());
    let written =
        progress::during("starting both planes", demo::write(&admin, demo.address, READY_WITHIN)).await;
    let ended = match written {
        Ok(()) => {
            print!("{}", demo::welcome(&arguments.store(), &replica.addresses, &node.addresses));
            tokio::select! {
                _ = signals.next() => Ok(Exit::Done),
                failure = replica.failed() => Err(ended("control plane", failure)),
                failure = node.ended() => Err(ended("data plane", failure)),
            }
        }
        Err(error) => Err(error),
    };
    signals.exit_at_next();
    let _ = node.shutdown().await;
    let _ = replica.shutdown().await;
    demo.stop().await;
    ended
}

/// The folder of everything that is kept; a temporary one is removed at the end.
enum Folder {
    Given(PathBuf),
    Temporary(PathBuf),
}

// === impl Folder ===

impl Folder {
    fn open(given: Option<&Path>) -> Result<Self, Error> {
        let folder = match given {
            Some(path) => Self::Given(path.to_owned()),
            None => {
                Self::Temporary(std::env::temp_dir().join(format!("headwater-dev-{}", std::process::id())))
            }
        };
        let problem = |error: std::io::Error| Error::File {
            path: folder.path().to_owned(),
            problem: format!("cannot be created ({error}): name another one with --dir"),
        };
        for part in ["control-plane", "data-plane", "store"] {
            std::fs::create_dir_all(folder.path().join(part)).map_err(problem)?;
        }
        Ok(folder)
    }

    fn path(&self) -> &Path {
        match self {
            Self::Given(path) | Self::Temporary(path) => path,
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Self::Temporary(path) = self {
            // What stays behind in the system's temporary folder is cleared by the system.
            let _ = std::fs::remove_dir_all(path);
        }
    }
}

// === impl Dev ===

impl Dev {
    fn address(&self, port: u16) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, if self.any_port { 0 } else { port }))
    }

    fn store(&self) -> String {
        match (&self.etcd, &self.dir) {
            (Some(etcd), _) => format!("etcd at {etcd}"),
            (None, Some(dir)) => format!("the embedded store in {}", dir.display()),
            (None, None) => "the embedded store, gone when this ends (keep it with --dir)".to_owned(),
        }
    }
}

fn replica_config(arguments: &Dev, folder: &Path) -> Result<Config, Error> {
    let mut config = Config {
        replica_id: Some("dev".to_owned()),
        state_dir: folder.join("control-plane"),
        environments: vec![EnvironmentConfig {
            name: "default".to_owned(),
            prefix: arguments.prefix.clone(),
            join: <_>::default(),
        }],
        drain_grace: Duration::from_secs(1),
        ..Config::default()
    };
    match &arguments.etcd {
        Some(etcd) => {
            let endpoint = if etcd.contains("://") { etcd.clone() } else { format!("http://{etcd}") };
            config.etcd = Some(EtcdConfig { endpoints: vec![endpoint], ..EtcdConfig::default() });
        }
        None => config.embedded = Some(EmbeddedConfig { directory: folder.join("store") }),
    }
    config.southbound.listen = arguments.address(9190);
    config.southbound.insecure = true;
    config.admin.listen = arguments.address(9180);
    config.admin.insecure = true;
    config.health.listen = arguments.address(9181);
    checked(config)
}

fn node_config(arguments: &Dev, folder: &Path, southbound: SocketAddr) -> Result<NodeConfig, Error> {
    let mut config = NodeConfig {
        node_id: "dev-node".to_owned(),
        environment: "default".to_owned(),
        data_dir: folder.join("data-plane"),
        ..NodeConfig::default()
    };
    config.control_plane.addresses = vec![southbound.to_string()];
    config.control_plane.insecure = true;
    config.proxy.http = vec![arguments.address(9080)];
    config.proxy.https = vec![arguments.address(9443)];
    config.proxy.access_log.to = headwater_data_plane::proxy::config::AccessLogTarget::Off;
    config.listen.health = arguments.address(9081);
    config.listen.control = arguments.address(9082);
    config.drain.grace = Duration::from_secs(1);
    checked(config)
}

fn checked<T: headwater_process::settings::Settings>(config: T) -> Result<T, Error> {
    let faults = config.check();
    if faults.is_empty() {
        return Ok(config);
    }
    let sentences: Vec<String> = faults.iter().map(ToString::to_string).collect();
    Err(Error::Usage(sentences.join("\n")))
}

fn at_dev(error: &str) -> String {
    format!("{error}\n(`headwater dev --any-port` takes whatever ports are free)")
}

fn ended(plane: &str, failure: Option<headwater_process::supervisor::Failure>) -> Error {
    let reason = failure.map_or_else(|| "without a reason".to_owned(), |failure| failure.to_string());
    Error::Answer(format!("the {plane} ended: {reason}"))
}
