//! Puts a replica together, in order: addresses are bound first, so that a port in use ends the start before
//! anything else happened; then files, environments, and last the services that let others in.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use headwater_process::drain::{DrainTrigger, DrainWatcher, Drained, drain};
use headwater_process::settings::Faults;
use headwater_process::supervisor::Failure;
use headwater_process::{Policy, Readiness, Supervisor, telemetry};
use headwater_proto::limits;
use headwater_tls::{Incoming, ServerFiles, ServerTls, TlsError};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;

use crate::admin::grpc::{self, Shared};
use crate::admin::metrics::Gauges;
use crate::admin::{self, Access, Admin, ReplicaInfo};
use crate::config::Config;
use crate::distribution::admission::Admission;
use crate::distribution::service::{self, Service};
use crate::distribution::{metrics, session};
use crate::environment::{Clock, Environment};
use crate::fleet::{Expected, Fleet};

mod health;
mod sources;

pub use sources::SourceError;

/// For a TLS handshake.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);
/// How often certificate files are looked at.
const CERTIFICATES_EVERY: Duration = Duration::from_secs(10);
/// What is given to work that does not end within the grace period, and to tasks.
const FORCE_WITHIN: Duration = Duration::from_secs(5);
/// HTTP/2 pings keep middle boxes from dropping a quiet stream.
const KEEPALIVE_EVERY: Duration = Duration::from_secs(20);

/// A running replica.
#[derive(Debug)]
pub struct Bound {
    /// Where it listens.
    pub addresses: Addresses,
    supervisor: Supervisor,
    readiness: Readiness,
    drain: DrainTrigger,
    grace: Duration,
}

/// The addresses as they are bound: a configured port 0 is a real one here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// For nodes.
    pub southbound: SocketAddr,
    /// For operators.
    pub admin: SocketAddr,
    /// For health and metrics.
    pub health: SocketAddr,
}

/// Why a replica did not start: a fault of its own static input, in a sentence with the cure.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A port is taken, or an address is not this host's.
    #[error("{key}: {address} cannot be listened on ({source}): free it, or set another address")]
    Bind {
        /// The setting.
        key: &'static str,
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// A certificate or key is no good.
    #[error("{key}: {source}")]
    Tls {
        /// The setting.
        key: &'static str,
        /// What is wrong.
        source: TlsError,
    },
    /// The state directory cannot be used.
    #[error("state_dir: {} cannot be used ({source}): make it writable, or name another", directory.display())]
    State {
        /// The directory.
        directory: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Keys of files of state are none, or cannot be read.
    #[error("{0}")]
    StateKeys(Faults),
    /// A source cannot be opened.
    #[error(transparent)]
    Source(Box<SourceError>),
}

impl From<SourceError> for StartError {
    fn from(error: SourceError) -> Self {
        Self::Source(Box::new(error))
    }
}

/// One listener before anybody is let in.
struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    tls: Option<ServerTls>,
}

/// Looks at everything static that the settings name, without listening or writing: for `--check`.
///
/// # Errors
/// All faults.
pub fn check(config: &Config) -> Vec<StartError> {
    let listeners =
        [("southbound.tls", config.southbound.tls.as_ref()), ("admin.tls", config.admin.tls.as_ref())];
    listeners.into_iter().filter_map(|(key, files)| load_tls(key, files).err()).collect()
}

/// Starts a replica. Must be called inside a tokio runtime.
///
/// # Errors
/// A static fault; nothing is left running then.
pub async fn start(config: Config) -> Result<Bound, StartError> {
    let southbound = listener("southbound", config.southbound.listen, config.southbound.tls.as_ref()).await?;
    let admin = listener("admin", config.admin.listen, config.admin.tls.as_ref()).await?;
    let health = listener("health", config.health.listen, None).await?;
    let addresses =
        Addresses { southbound: southbound.address, admin: admin.address, health: health.address };
    let supervisor = Supervisor::new("control-plane");
    let readiness = Readiness::new();
    let (trigger, watcher) = drain();
    let parts = Parts { config, supervisor: supervisor.clone(), readiness: readiness.clone(), watcher };
    match parts.assemble(southbound, admin, health).await {
        Ok(grace) => Ok(Bound { addresses, supervisor, readiness, drain: trigger, grace }),
        Err(error) => {
            let _ = supervisor.shutdown(FORCE_WITHIN).await;
            Err(error)
        }
    }
}

/// What the assembly hands around.
struct Parts {
    config: Config,
    supervisor: Supervisor,
    readiness: Readiness,
    watcher: DrainWatcher,
}

// === impl Parts ===

impl Parts {
    async fn assemble(
        self,
        southbound: Listener,
        admin: Listener,
        health: Listener,
    ) -> Result<Duration, StartError> {
        let directory = &self.config.state_dir;
        std::fs::create_dir_all(directory)
            .map_err(|source| StartError::State { directory: directory.clone(), source })?;
        let clock = Clock::start();
        let replica: Arc<str> = self.config.replica_id.clone().unwrap_or_else(host_name).into();
        let mut registry = telemetry::registry();
        let keys = self.config.state_keys().map_err(|faults| StartError::StateKeys(Faults(faults)))?;
        let files = sources::open(&self.config, &keys, clock)?;
        let expected: Vec<Expected> = files.iter().flat_map(|found| found.expected.clone()).collect();
        let fleet = Fleet::start(&replica, self.config.lost_retention, expected, &self.supervisor);
        let environments =
            sources::start(&self.config, &keys, files, &fleet, clock, &mut registry, &self.supervisor)?;
        for environment in &environments {
            self.await_complete(environment.clone());
        }
        let access = Access::new(self.config.admin.callers.clone(), self.config.admin.insecure);
        access.register(&mut registry);
        let operators = self.admin(&environments, &fleet, &replica, clock);
        let nodes = self.service(environments, fleet, &replica, &mut registry);
        let refused = Counter::default();
        registry.register("handshakes_refused", "TLS handshakes that failed", refused.clone());

        registry.register_collector(Box::new(Gauges::new(operators.clone())));

        let listening = self.readiness.condition("listeners");
        health::serve(health.socket, &self, operators.clone(), registry);
        self.serve_nodes(southbound, nodes, refused.clone());
        let shared = Shared::new(operators, access, self.supervisor.child("admin"));
        let incoming = self.incoming(admin, "admin", refused);
        let watcher = self.watcher.clone();
        self.supervisor.spawn("admin", Policy::essential(), grpc::serve(shared, incoming, watcher));
        listening.met();
        Ok(self.config.drain_grace)
    }

    fn admin(
        &self,
        environments: &[Environment],
        fleet: &Fleet,
        replica: &Arc<str>,
        clock: Clock,
    ) -> Arc<Admin> {
        let context = sources::context(&self.config);
        let served = environments.iter().map(|environment| {
            let view = Arc::new(environment.clone());
            let (reader, commit) = (environment.reader().clone(), environment.commit().clone());
            let recorder = environment.recorder().cloned();
            admin::Environment::new(view, reader, commit, context.clone()).recorded_by(recorder)
        });
        let replica = ReplicaInfo {
            id: replica.clone(),
            started_unix: clock.unix(),
            heartbeat: self.config.southbound.heartbeat,
            approval_retention: self.config.approval_retention,
            peers: self.config.peers.clone(),
        };
        Arc::new(Admin::new(served, fleet.clone(), replica))
    }

    fn service(
        &self,
        environments: Vec<Environment>,
        fleet: Fleet,
        replica: &Arc<str>,
        registry: &mut Registry,
    ) -> Service {
        let parts = service::Parts {
            environments,
            admission: Admission {
                environments: self.config.environments.iter().map(sources::join_rules).collect(),
                insecure: self.config.southbound.insecure,
            },
            session: session::Config {
                replica_id: replica.clone(),
                heartbeat: self.config.southbound.heartbeat,
                max_fallbacks: limits::MAX_FALLBACKS,
            },
            fleet,
            metrics: metrics::Metrics::register(registry),
            max_nodes: self.config.southbound.max_nodes,
        };
        Service::new(parts, &self.supervisor, self.watcher.clone())
    }

    fn serve_nodes(&self, listener: Listener, service: Service, refused: Counter) {
        let incoming = self.incoming(listener, "southbound", refused);
        let mut watcher = self.watcher.clone();
        self.supervisor.spawn("southbound", Policy::essential(), async move {
            tonic::transport::Server::builder()
                .http2_keepalive_interval(Some(KEEPALIVE_EVERY))
                .add_service(service.into_server())
                .serve_with_incoming_shutdown(incoming, async move { watcher.draining().await })
                .await
        });
    }

    /// The connections of a listener; its certificates are looked at from here on.
    fn incoming(&self, listener: Listener, name: &'static str, refused: Counter) -> Incoming {
        if let Some(tls) = &listener.tls {
            let policy = Policy::best_effort().dropped_on_cancel();
            self.supervisor.spawn(format!("{name} certificates"), policy, tls.watch(CERTIFICATES_EVERY));
        }
        let on_refused = Arc::new(move |address: SocketAddr, error: &std::io::Error| {
            refused.inc();
            tracing::warn!(%address, %error, listener = name, "a TLS handshake failed");
        });
        Incoming::new(listener.socket, listener.tls, HANDSHAKE_WITHIN, on_refused)
    }

    /// Readiness waits for the environment, for a bounded time: one that does not load must not hold up the others.
    fn await_complete(&self, environment: Environment) {
        let condition = self.readiness.condition(format!("environment {}", environment.name()));
        let limit = self.config.start_deadline;
        let policy = Policy::best_effort().dropped_on_cancel();
        self.supervisor.spawn("start of an environment", policy, async move {
            let mut wakes = environment.wakes();
            let complete = async {
                loop {
                    wakes.borrow_and_update();
                    let shown = environment.publication();
                    if shown.complete {
                        return;
                    }
                    condition.pending(format!("the source is {}", shown.source.stage.label()));
                    let _ = tokio::time::timeout(Duration::from_millis(500), wakes.changed()).await;
                }
            };
            if tokio::time::timeout(limit, complete).await.is_ok() {
                condition.met();
                return;
            }
            let source = &environment.publication().source;
            let note = source.note.as_deref().unwrap_or("it gave no reason");
            let reason =
                format!("not loaded within {limit:?}, the source is {}: {note}", source.stage.label());
            tracing::error!(environment = %environment.name(), %reason, "starting without an environment");
            condition.waived(reason);
        });
    }
}

// === impl Bound ===

impl Bound {
    /// Waits for an essential failure; never returns without one, unless the replica was shut down.
    pub async fn failed(&self) -> Option<Failure> {
        self.supervisor.ended().await
    }

    /// The readiness, as `/readyz` shows it.
    #[must_use]
    pub const fn readiness(&self) -> &Readiness {
        &self.readiness
    }

    /// Drains: not ready, nobody new, streams told to go, then the end of every task. Answers the failure that
    /// ended it, if one did.
    pub async fn shutdown(self) -> Option<Failure> {
        self.readiness.begin_drain();
        if self.drain.drain(self.grace, FORCE_WITHIN).await == Drained::ByForce {
            tracing::warn!("connections did not end within the grace period and were dropped");
        }
        self.supervisor.shutdown(FORCE_WITHIN).await.cause
    }
}

async fn listener(
    key: &'static str,
    address: SocketAddr,
    files: Option<&ServerFiles>,
) -> Result<Listener, StartError> {
    let tls = load_tls(key, files)?;
    let bind = |source| StartError::Bind { key, address, source };
    let socket = TcpListener::bind(address).await.map_err(bind)?;
    let address = socket.local_addr().map_err(bind)?;
    Ok(Listener { socket, address, tls })
}

fn load_tls(key: &'static str, files: Option<&ServerFiles>) -> Result<Option<ServerTls>, StartError> {
    files
        .map(|files| ServerTls::load(files, &[b"h2"]))
        .transpose()
        .map_err(|source| StartError::Tls { key, source })
}

/// What the host calls itself, for a replica without a configured id.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "replica".into() } else { name.to_owned() }
}

#[cfg(test)]
mod tests;
