//! The environments of a replica, each with its source: from etcd, or from an embedded store of its own.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
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
use crate::environment::{Clock, Environment, Parts};

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
}

/// Starts every environment.
pub(super) fn start(
    config: &Config,
    clock: Clock,
    registry: &mut Registry,
    supervisor: &Supervisor,
) -> Result<Vec<Environment>, SourceError> {
    match (&config.etcd, &config.embedded) {
        (Some(etcd), _) => Ok(from_etcd(config, etcd, clock, registry, supervisor)),
        (None, embedded) => {
            let embedded = embedded.clone().unwrap_or_default();
            config
                .environments
                .iter()
                .map(|environment| from_embedded(environment, &embedded, clock, supervisor))
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
    clock: Clock,
    registry: &mut Registry,
    supervisor: &Supervisor,
) -> Vec<Environment> {
    let metrics = Metrics::register(registry);
    let cluster = EtcdCluster::new(etcd.clone(), metrics.clone());
    let start = |environment: &EnvironmentConfig| {
        let prefix = environment.prefix.as_str();
        let parts = Parts {
            name: environment.name.as_str().into(),
            prefix: prefix.into(),
            source: Box::new(EtcdSource::new(cluster.clone(), prefix)),
            reader: Arc::new(EtcdReader::new(cluster.clone(), prefix)),
            commit: Arc::new(EtcdCommit::new(cluster.clone(), prefix)),
            core: Core::new(prefix.into(), clock.unix()),
            keeper: None,
        };
        let environment = Environment::start(parts, clock, supervisor);
        audit(&environment, etcd, metrics.clone(), supervisor);
        environment
    };
    config.environments.iter().map(start).collect()
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
    clock: Clock,
    supervisor: &Supervisor,
) -> Result<Environment, SourceError> {
    let file = embedded.directory.join(format!("{}.store", environment.name));
    let settings = Settings { file: file.clone(), progress_interval: EMBEDDED_PROGRESS };
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
        core,
        keeper: None,
    };
    Ok(Environment::start(parts, clock, supervisor))
}
