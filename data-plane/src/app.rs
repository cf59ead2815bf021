//! Builds a node in order and ends it in order.
//!
//! [`bind`] takes ports and files, and fails on static faults alone; from [`Bound::start`] on nothing of the world ends
//! the node: it serves what it has, says what it lacks, and tries again.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::{ArcSwap, ArcSwapOption};
use headwater_durable::Keys;
use headwater_model::{Content, Version};
use headwater_process::drain::{DrainTrigger, DrainWatcher, drain};
use headwater_process::readiness::Condition;
use headwater_process::settings::Fault;
use headwater_process::supervisor::{Failure, Report};
use headwater_process::{Policy, Readiness, Supervisor, health, telemetry};
use headwater_proto::config::{FallbackRequest, Rejects};
use headwater_tls::ClientTls;
use headwater_tls::client::Connector;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::compile::Table;
use crate::config::NodeConfig;
use crate::control::{self, Sources};
use crate::proxy::metrics::ProxyMetrics;
use crate::proxy::{self, Configuration, Proxy, Serving};
use crate::sync::applier::{Applier, Swap, View, Views};
use crate::sync::connection::Dialler;
use crate::sync::keeper::Keeper;
use crate::sync::protocol::{Identity, Settings};
use crate::sync::stream::{Start, Stream, unix_now};
use crate::sync::verdict::{Retained, Values};
use crate::upstream::resolver::SystemLookup;
use crate::upstream::{Upstream, Upstreams};

/// How often TLS files are looked at.
const TLS_RELOAD: Duration = Duration::from_secs(10);

/// How long forced connections, and tasks after them, may take to end.
const FORCE: Duration = Duration::from_secs(5);

/// Why a node cannot start: a fault of its own static input.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A port is taken, or the address is not this machine's.
    #[error("cannot listen on {address} for {what}: {source}")]
    Listen {
        /// What for.
        what: &'static str,
        /// The address.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The proxy cannot listen or log.
    #[error(transparent)]
    Proxy(#[from] proxy::BindError),
    /// A TLS file is no good.
    #[error(transparent)]
    Tls(#[from] headwater_tls::TlsError),
    /// The TLS library refuses its own defaults.
    #[error("cannot set up TLS: {0}")]
    Library(#[from] rustls::Error),
    /// The join token cannot be read or sent.
    #[error("control_plane.token: {0}")]
    Token(String),
    /// The node has nowhere to keep its last known good.
    #[error("data_dir: {} cannot be used ({source}): make it writable, or name another", directory.display())]
    Data {
        /// The directory.
        directory: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A key of the last known good is none, or cannot be read.
    #[error("{0}")]
    StateKey(Fault),
    /// The keyring is none.
    #[error("data_encryption.keyring: {0}")]
    Keyring(String),
}

/// Where a node listens.
#[derive(Clone, Debug)]
pub struct Addresses {
    /// Plain HTTP.
    pub http: Vec<SocketAddr>,
    /// HTTPS.
    pub https: Vec<SocketAddr>,
    /// Health, status and metrics.
    pub health: SocketAddr,
    /// Dumps.
    pub control: SocketAddr,
}

/// A node that holds its ports and does nothing yet.
pub struct Bound {
    /// Where it listens.
    pub addresses: Addresses,
    supervisor: Supervisor,
    health: TcpListener,
    control: TcpListener,
    gateway: Gateway,
    registry: Registry,
    dialler: Dialler,
    tls: Option<ClientTls>,
    judge: Values,
    keys: Keys,
}

/// The serving side, bound.
struct Gateway {
    proxy: proxy::Bound,
    upstreams: Arc<Upstreams>,
    configuration: Configuration,
}

/// Gathers faults, so that all are told at once.
#[derive(Default)]
struct Faults(Vec<StartError>);

/// A node that runs.
pub struct Running {
    /// Where it listens.
    pub addresses: Addresses,
    supervisor: Supervisor,
    readiness: Readiness,
    leaving: CancellationToken,
    drain: DrainTrigger,
    grace: Duration,
}

/// All static faults of a start; never empty.
#[derive(Debug)]
pub struct StartFaults(pub Vec<StartError>);

/// Takes ports and files.
///
/// # Errors
/// Every static fault that was found.
pub async fn bind(config: &NodeConfig) -> Result<Bound, StartFaults> {
    let mut faults = Faults::default();
    let directory = &config.data_dir;
    let created = std::fs::create_dir_all(directory);
    let created =
        faults.note(created.map_err(|source| StartError::Data { directory: directory.clone(), source }));
    let health = faults.note(listen("health", config.listen.health).await);
    let control = faults.note(listen("dumps", config.listen.control).await);
    let tls = config.control_plane.tls.as_ref().map(|files| ClientTls::load(files, &[b"h2"]));
    let tls = faults.note(tls.transpose());
    let token = faults.note(token(config));
    let context = faults.note(config.context().map_err(StartError::Keyring));
    let keys = faults.note_all(config.state_keys());
    let supervisor = Supervisor::new("data-plane");
    let mut registry = telemetry::registry();
    telemetry::runtime_tasks(&mut registry, Handle::current());
    let gateway = faults.note(Gateway::bind(config, &supervisor, &mut registry));
    let (Some(health), Some(control), Some(tls), Some(token), Some(context), Some(keys), Some(gateway)) =
        (health, control, tls, token, context, created.and(keys), gateway)
    else {
        return Err(StartFaults(faults.0));
    };
    let dialler = Dialler {
        addresses: config.control_plane.addresses.clone().into(),
        connector: Connector::new(tls.clone(), config.sync.connect_timeout),
        encrypted: tls.is_some(),
        token,
    };
    let address = |listener: &TcpListener, asked| listener.local_addr().unwrap_or(asked);
    let addresses = Addresses {
        http: gateway.proxy.http_addresses(),
        https: gateway.proxy.https_addresses(),
        health: address(&health, config.listen.health),
        control: address(&control, config.listen.control),
    };
    let judge = Values { context, allowed: config.allow_governing.clone() };
    Ok(Bound { addresses, supervisor, health, control, gateway, registry, dialler, tls, judge, keys })
}

async fn listen(what: &'static str, address: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).await.map_err(|source| StartError::Listen { what, address, source })
}

fn token(
    config: &NodeConfig,
) -> Result<Option<tonic::metadata::MetadataValue<tonic::metadata::Ascii>>, StartError> {
    let plane = &config.control_plane;
    let read = |path: &PathBuf| {
        std::fs::read_to_string(path).map_err(|error| {
            StartError::Token(format!("{} cannot be read ({error}): check the path", path.display()))
        })
    };
    let text = match (&plane.token, &plane.token_file) {
        (Some(token), _) => token.expose().clone(),
        (None, Some(file)) => read(file)?,
        (None, None) => return Ok(None),
    };
    let value = format!("Bearer {}", text.trim()).parse();
    value
        .map(Some)
        .map_err(|_| StartError::Token("holds bytes that a header cannot: use visible ASCII".into()))
}

// === impl StartFaults ===

impl fmt::Display for StartFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sentences: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&sentences.join("\n"))
    }
}

impl std::error::Error for StartFaults {}

// === impl Faults ===

impl Faults {
    fn note<T, E: Into<StartError>>(&mut self, result: Result<T, E>) -> Option<T> {
        result.map_err(|error| self.0.push(error.into())).ok()
    }

    fn note_all<T>(&mut self, result: Result<T, Vec<Fault>>) -> Option<T> {
        result.map_err(|faults| self.0.extend(faults.into_iter().map(StartError::StateKey))).ok()
    }
}

// === impl Gateway ===

impl Gateway {
    fn bind(
        config: &NodeConfig,
        supervisor: &Supervisor,
        registry: &mut Registry,
    ) -> Result<Self, StartError> {
        let metrics = ProxyMetrics::default();
        metrics.register(registry);
        let configuration: Configuration = Arc::new(ArcSwapOption::empty());
        let lookup = Arc::new(SystemLookup::default());
        let upstreams = Upstreams::new(supervisor.clone(), lookup, config.proxy.resolver.clone())?;
        let proxy = Proxy::bind(&config.proxy, configuration.clone(), upstreams.clone(), metrics)?;
        Ok(Self { proxy, upstreams, configuration })
    }
}

// === impl Bound ===

impl Bound {
    /// Starts everything: first what serves health, then what the disk holds, then requests and the stream.
    #[must_use]
    pub fn start(self, config: NodeConfig) -> Running {
        let (trigger, watcher) = drain();
        let (readiness, leaving) = (Readiness::new(), CancellationToken::new());
        let running = Running {
            addresses: self.addresses.clone(),
            supervisor: self.supervisor.clone(),
            readiness: readiness.clone(),
            leaving: leaving.clone(),
            drain: trigger,
            grace: config.drain.grace,
        };
        let supervisor = self.supervisor.clone();
        let node = self.run(config, readiness, leaving, watcher);
        supervisor.spawn("node", Policy::essential(), node);
        running
    }

    async fn run(
        self,
        config: NodeConfig,
        readiness: Readiness,
        leaving: CancellationToken,
        drain: DrainWatcher,
    ) -> Result<(), tokio::task::JoinError> {
        let condition = readiness.condition("configuration");
        condition.pending("nothing on the disk and no replica reached yet");
        let views: Views = Arc::new(ArcSwap::from_pointee(View::default()));
        let swap = swap(self.gateway.configuration.clone(), condition);
        let applier = Applier::new(self.judge, self.gateway.upstreams.clone(), swap, views.clone());
        let (told, durable) = mpsc::channel(16);
        let (config, supervisor) = (Arc::new(config), self.supervisor.clone());
        let (opening, keys) = (config.clone(), self.keys);
        let opened =
            tokio::task::spawn_blocking(move || open(&opening, &keys, &supervisor, told, applier)).await?;
        if let Some(tls) = &self.tls {
            let policy = Policy::best_effort().dropped_on_cancel();
            self.supervisor.spawn("TLS files", policy, tls.watch(TLS_RELOAD));
        }
        let identity = identity(&config);
        let instance = identity.instance.clone();
        let start = Start {
            identity,
            settings: settings(&config),
            dialler: self.dialler,
            held: opened.held,
            judged: opened.judged,
            applier: opened.applier,
            views: views.clone(),
            keeper: opened.keeper.clone(),
            durable,
        };
        let (stream, statuses) = Stream::new(start, self.supervisor.clone());
        let keeper = opened.keeper;
        let (started_unix, written_unix) = (unix_now(), opened.written_unix);
        let sources = Sources { statuses, views, keeper, config, instance, started_unix, written_unix };
        let mut registry = self.registry;
        registry.register_collector(Box::new(sources.clone()));
        let pages = health::router(readiness, Arc::new(registry)).merge(control::status(sources.clone()));
        let policy = Policy::essential().dropped_on_cancel();
        let served = |listener, pages| async move { axum::serve(listener, pages).await };
        self.supervisor.spawn("health listener", policy, served(self.health, pages));
        self.supervisor.spawn("dumps listener", policy, served(self.control, control::dumps(sources)));
        self.gateway.proxy.serve(&self.supervisor, &drain);
        stream.run(leaving).await;
        Ok(())
    }
}

/// What the disk gave.
struct Restored {
    applier: Applier<Values, Upstreams>,
    keeper: Option<Keeper>,
    held: Option<(Version, Content)>,
    judged: (Rejects, Vec<FallbackRequest>),
    /// When the file was written that gave what is held (Unix seconds).
    written_unix: Option<u64>,
}

/// Opens the last known good and serves what it holds; blocks. Whatever is wrong with it, the node goes on.
fn open(
    config: &NodeConfig,
    keys: &Keys,
    supervisor: &Supervisor,
    told: mpsc::Sender<Version>,
    applier: Applier<Values, Upstreams>,
) -> Restored {
    let mut restored =
        Restored { applier, keeper: None, held: None, judged: <_>::default(), written_unix: None };
    // Before it is opened, which may write it anew under another key: what it holds is as old as before.
    let written = written(&config.last_known_good());
    let (file, interval) = (config.last_known_good(), config.sync.persist_interval);
    match Keeper::open(file, &config.environment, keys, interval, supervisor, told) {
        Err(error) => warn!("serving without a disk: {error}"),
        Ok((keeper, opened)) => {
            restored.keeper = Some(keeper);
            if let Some(written) = written {
                keep_age(&config.last_known_good(), written);
            }
            if let Some(version) = opened.version {
                let rows: Vec<Retained> = opened.retained.into_iter().map(Retained::from).collect();
                restored.judged = restored.applier.restore(&version, &opened.content, &rows, unix_now());
                info!(%version, resources = opened.content.len(), "serving the last known good");
                restored.held = Some((version, opened.content));
                let since = written.and_then(|written| written.duration_since(UNIX_EPOCH).ok());
                restored.written_unix = since.map(|since| since.as_secs());
            }
        }
    }
    restored
}

/// When a file was last written, if there is one.
fn written(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).ok()?.modified().ok()
}

/// The next start, too, tells the age of a file by its time.
fn keep_age(path: &Path, modified: SystemTime) {
    if written(path) == Some(modified) {
        return;
    }
    let set = std::fs::File::options().write(true).open(path).and_then(|file| file.set_modified(modified));
    if let Err(error) = set {
        warn!(file = %path.display(), "its age is not known any more after this start: {error}");
    }
}

/// Makes a table the served one; the first time, the node becomes ready.
fn swap(configuration: Configuration, condition: Condition) -> Swap<Arc<Upstream>> {
    let condition = Mutex::new(Some(condition));
    Box::new(move |table: Table<Arc<Upstream>>, version: &Version| {
        let version = Some(version.to_string().into());
        configuration.store(Some(Arc::new(Serving { table, version })));
        let first = condition.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(condition) = first {
            condition.met();
        }
    })
}

fn identity(config: &NodeConfig) -> Identity {
    Identity {
        node_id: config.node_id.as_str().into(),
        instance: uuid::Uuid::new_v4().to_string().into(),
        environment: config.environment.as_str().into(),
        labels: config.labels.clone(),
        build: env!("CARGO_PKG_VERSION").into(),
    }
}

fn settings(config: &NodeConfig) -> Settings {
    Settings {
        addresses: config.control_plane.addresses.len(),
        accept_degraded: config.sync.accept_degraded,
        max_content_bytes: config.sync.max_content_bytes,
        behind_timeout: config.sync.behind_timeout,
        connect_timeout: config.sync.connect_timeout,
        backoff_initial: config.sync.backoff_initial,
        backoff_cap: config.sync.backoff_cap,
    }
}

// === impl Running ===

impl Running {
    /// Waits until the node ends by itself, and answers why.
    pub async fn ended(&self) -> Option<Failure> {
        self.supervisor.ended().await
    }

    /// Says goodbye to the replica, drains requests, and ends every task. Bounded by the grace period and a few
    /// seconds.
    pub async fn shutdown(self) -> Report {
        self.readiness.begin_drain();
        self.leaving.cancel();
        let drained = self.drain.drain(self.grace, FORCE).await;
        info!(?drained, "drained");
        self.supervisor.shutdown(FORCE).await
    }
}
