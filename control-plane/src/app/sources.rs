//! The environments of a replica, each with its source: from etcd, or from an embedded store of its own.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use headwater_durable::Keys;
use headwater_model::Revision;
use headwater_model::resources::Context;
use headwater_process::{Policy, Supervisor};
use prometheus_client::registry::Registry;

use crate::backend::KeyRevisions;
use crate::backend::embedded::{EmbeddedStore, OpenError, Settings};
use crate::backend::etcd::auditor::Pinned;
use crate::backend::etcd::{Auditor, EtcdCluster, EtcdCommit, EtcdConfig, EtcdReader, EtcdSource, Metrics};
use crate::config::{Config, EmbeddedConfig, EnvironmentConfig};
use crate::distribution::admission::JoinRules;
use crate::environment::core::Core;
use crate::environment::disk::{self, Disk, Found};
use crate::environment::keeper::Keeper;
use crate::environment::{Clock, Environment, Parts};
use crate::fleet::Fleet;
use crate::last_known_good;

/// How often an embedded store says that everything was delivered.
const EMBEDDED_PROGRESS: Duration = Duration::from_secs(1);

/// A source that cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The embedded store's file.
    #[error("embedded.directory: {}: {source}", file.display())]
    Embedded {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        source: OpenError,
    },
    /// The last known good cannot be read: a fault of the device. A damaged file is none.
    #[error("state_dir: {}: {source}", file.display())]
    LastKnownGood {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        source: last_known_good::Error,
    },
    /// The system gives no thread to write the last known good with.
    #[error("no thread can be started to keep the last known good ({0}): raise the limit of threads")]
    Thread(std::io::Error),
}

/// Opens the last known good of every environment that follows etcd; an embedded store is its own.
pub(super) fn open(config: &Config, keys: &Keys, clock: Clock) -> Result<Vec<Found>, SourceError> {
    if config.etcd.is_none() {
        return Ok(Vec::new());
    }
    let open = |environment: &EnvironmentConfig| {
        let file = config.state_dir.join(format!("{}.last-known-good", environment.name));
        let name: Arc<str> = environment.name.as_str().into();
        let found = disk::open(&file, &environment.prefix, &name, keys, clock.unix())
            .map_err(|source| SourceError::LastKnownGood { file: file.clone(), source })?;
        for fault in &found.faults {
            tracing::warn!(environment = %name, file = %file.display(), %fault, "the last known good");
        }
        Ok(found)
    };
    config.environments.iter().map(open).collect()
}

/// Starts every environment, from its opened file where it has one.
pub(super) fn start(
    config: &Config,
    keys: &Keys,
    files: Vec<Found>,
    fleet: &Fleet,
    clock: Clock,
    registry: &mut Registry,
    supervisor: &Supervisor,
) -> Result<Vec<Environment>, SourceError> {
    match (&config.etcd, &config.embedded) {
        (Some(etcd), _) => from_etcd(config, etcd, files, fleet, clock, registry, supervisor),
        (None, embedded) => {
            let embedded = embedded.clone().unwrap_or_default();
            config
                .environments
                .iter()
                .map(|environment| from_embedded(environment, &embedded, keys, clock, supervisor))
                .collect()
        }
    }
}

/// What parsing values needs; the settings were checked before.
pub(super) fn context(config: &Config) -> Context {
    Context { keyring: config.keyring().unwrap_or_default() }
}

/// Who may join an environment.
pub(super) fn join_rules(environment: &EnvironmentConfig) -> (Arc<str>, JoinRules) {
    let tokens: BTreeMap<String, String> = environment
        .join
        .tokens
        .iter()
        .map(|token| (token.name.clone(), token.token.expose().clone()))
        .collect();
    let rules = JoinRules { identities: environment.join.identities.clone(), tokens };
    (environment.name.as_str().into(), rules)
}

/// All environments over one connection to etcd.
fn from_etcd(
    config: &Config,
    etcd: &EtcdConfig,
    files: Vec<Found>,
    fleet: &Fleet,
    clock: Clock,
    registry: &mut Registry,
    supervisor: &Supervisor,
) -> Result<Vec<Environment>, SourceError> {
    let metrics = Metrics::register(registry);
    let cluster = EtcdCluster::new(etcd.clone(), metrics.clone());
    let start = |(environment, found): (&EnvironmentConfig, Found)| {
        let (name, prefix): (Arc<str>, _) = (environment.name.as_str().into(), environment.prefix.as_str());
        let file = Disk::new(found.file, name.clone(), fleet.clone());
        let keeper = Keeper::start(&name, file).map_err(SourceError::Thread)?;
        let source = EtcdSource::new(cluster.clone(), prefix);
        let parts = Parts {
            name,
            prefix: prefix.into(),
            recorder: Some(source.recorder().clone()),
            source: Box::new(source),
            reader: Arc::new(EtcdReader::new(cluster.clone(), prefix)),
            commit: Arc::new(EtcdCommit::new(cluster.clone(), prefix)),
            core: found.core,
            keeper: Some(keeper),
        };
        let environment = Environment::start(parts, clock, supervisor);
        audit(&environment, etcd, metrics.clone(), supervisor);
        Ok(environment)
    };
    config.environments.iter().zip(files).map(start).collect()
}

/// Compares what is held with etcd from time to time.
fn audit(environment: &Environment, etcd: &EtcdConfig, metrics: Metrics, supervisor: &Supervisor) {
    let held = environment.clone();
    let pin = Arc::new(move || {
        let shown = held.publication();
        let other = |(key, (create_revision, mod_revision)): (&Bytes, &(Revision, Revision))| KeyRevisions {
            key: key.clone(),
            create_revision: *create_revision,
            mod_revision: *mod_revision,
            value: None,
        };
        shown.is_live().then(|| Pinned {
            revision: shown.world.version().revision,
            content: shown.world.content().clone(),
            others: shown.others.iter().map(other).collect(),
        })
    });
    let auditor = Auditor::new(environment.name(), environment.reader().clone(), pin, etcd, metrics);
    let (commands, stop) = (environment.commands(), supervisor.token());
    let name = format!("audit of {}", environment.name());
    supervisor.spawn(name, Policy::essential(), auditor.run(commands, stop));
}

fn from_embedded(
    environment: &EnvironmentConfig,
    embedded: &EmbeddedConfig,
    keys: &Keys,
    clock: Clock,
    supervisor: &Supervisor,
) -> Result<Environment, SourceError> {
    let file = embedded.directory.join(format!("{}.store", environment.name));
    let settings = Settings { file: file.clone(), keys: keys.clone(), progress_interval: EMBEDDED_PROGRESS };
    let store = EmbeddedStore::open(&settings, supervisor)
        .map_err(|source| SourceError::Embedded { file, source })?;
    let mut core = Core::new(environment.prefix.as_str().into(), clock.unix());
    // Nobody has been told of this environment yet, so there is nothing to publish.
    let _ = core.take_generation(store.generation());
    let parts = Parts {
        name: environment.name.as_str().into(),
        prefix: environment.prefix.as_str().into(),
        source: Box::new(store.source()),
        reader: Arc::new(store.clone()),
        commit: Arc::new(store),
        recorder: None,
        core,
        keeper: None,
    };
    Ok(Environment::start(parts, clock, supervisor))
}
