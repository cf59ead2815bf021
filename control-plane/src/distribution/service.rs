//! Accepts the streams of nodes: who it is, whether it may, and which environment it belongs to.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use headwater_process::drain::DrainWatcher;
use headwater_process::{Policy, Supervisor};
use headwater_proto::config::{Goaway, GoawayReason, Hello, NodeMessage, ReplicaMessage};
use headwater_proto::frame::{Frame, Framed};
use headwater_tls::Peer;
use tokio::sync::{Semaphore, mpsc};
use tonic::Streaming;

use super::admission::{Admission, Refusal};
use super::endpoint::{Asked, Endpoint};
use super::metrics::{Metrics, Reason};
use super::session;
use super::stream::{Connection, Shared, run};
use crate::environment::Environment;
use crate::fleet::Fleet;

/// How long a node may take to say hello.
const HELLO_WITHIN: Duration = Duration::from_secs(10);

/// Frames between a session and its transport. Each is about 64 KiB at most, so a session never has more than a
/// few of them in memory.
const OUTGOING: usize = 2;

/// How many large transfers are sent at a time.
const LARGE_TRANSFERS: usize = 16;

/// How many nodes one replica takes, by default.
pub const MAX_NODES: usize = 20_000;

/// The southbound service of a replica.
#[derive(Clone)]
pub struct Service {
    environments: Arc<BTreeMap<Arc<str>, Environment>>,
    admission: Arc<Admission>,
    shared: Arc<Shared>,
    places: Arc<Semaphore>,
    supervisor: Supervisor,
    drain: DrainWatcher,
}

/// What a service is made of.
pub struct Parts {
    /// The environments it serves.
    pub environments: Vec<Environment>,
    /// Who may join.
    pub admission: Admission,
    /// How sessions behave.
    pub session: session::Config,
    /// Where what happens to nodes is told.
    pub fleet: Fleet,
    /// What is counted.
    pub metrics: Metrics,
    /// How many nodes are taken.
    pub max_nodes: usize,
}

// === impl Service ===

impl Service {
    /// A service over running environments.
    #[must_use]
    pub fn new(parts: Parts, supervisor: &Supervisor, drain: DrainWatcher) -> Self {
        let environments = parts
            .environments
            .into_iter()
            .map(|environment| (environment.name().clone(), environment))
            .collect();
        let shared = Shared {
            session: parts.session,
            fleet: parts.fleet,
            metrics: parts.metrics,
            large: Arc::new(Semaphore::new(LARGE_TRANSFERS)),
        };
        Self {
            environments: Arc::new(environments),
            admission: Arc::new(parts.admission),
            shared: Arc::new(shared),
            places: Arc::new(Semaphore::new(parts.max_nodes)),
            supervisor: supervisor.child("sessions"),
            drain,
        }
    }

    /// The service for a tonic server.
    #[must_use]
    pub const fn into_server(self) -> Endpoint {
        Endpoint(self)
    }

    /// Opens a node's stream; what it is told comes out of the answer.
    pub(super) fn open(&self, asked: Asked) -> mpsc::Receiver<Framed> {
        let (sender, frames) = mpsc::channel(OUTGOING);
        let service = self.clone();
        self.supervisor.spawn("session", Policy::best_effort().dropped_on_cancel(), async move {
            service.serve(asked, sender).await;
        });
        frames
    }

    async fn serve(self, asked: Asked, sender: mpsc::Sender<Framed>) {
        let Asked { peer, token, mut incoming } = asked;
        let hello = match hello(&mut incoming).await {
            Ok(hello) => hello,
            Err(detail) => {
                let goaway = Goaway { reason: GoawayReason::Protocol, detail: detail.into() };
                return say_goaway(&sender, goaway).await;
            }
        };
        let Ok(_place) = self.places.clone().try_acquire_owned() else {
            let detail = "this replica has all the nodes it takes: try another one".into();
            return say_goaway(&sender, Goaway { reason: GoawayReason::TooManyNodes, detail }).await;
        };
        match self.environment(&hello, peer.as_ref(), token.as_deref()) {
            Ok((environment, identity)) => {
                let address = peer.map_or_else(String::new, |peer| peer.address.to_string());
                let connection =
                    Connection { hello, identity, address, incoming, outgoing: sender, environment };
                run(connection, &self.shared, self.drain.clone()).await;
            }
            Err(goaway) => say_goaway(&sender, goaway).await,
        }
    }

    /// The environment a hello names, if the node may join it.
    fn environment(
        &self,
        hello: &Hello,
        peer: Option<&Peer>,
        token: Option<&str>,
    ) -> Result<(Environment, Option<String>), Goaway> {
        let identity = peer.and_then(Peer::identity);
        let admitted = self.admission.admit(&hello.environment, identity, token);
        let admitted = admitted.and_then(|name| {
            let unknown = || Refusal::UnknownEnvironment(hello.environment.clone());
            Ok((self.environments.get(&hello.environment).cloned().ok_or_else(unknown)?, name))
        });
        admitted.map_err(|refusal| {
            self.shared.metrics.refusals.get_or_create(&Reason::of(refusal.label())).inc();
            let address = peer.map(|peer| peer.address.to_string());
            tracing::warn!(node = %hello.node_id, address, %refusal, "a node was not let in");
            let reason = match refusal {
                Refusal::UnknownEnvironment(_) => GoawayReason::UnknownEnvironment,
                _ => GoawayReason::NotAllowed,
            };
            Goaway { reason, detail: refusal.to_string().into() }
        })
    }
}

async fn hello(incoming: &mut Streaming<Frame>) -> Result<Hello, String> {
    let frame = tokio::time::timeout(HELLO_WITHIN, incoming.message()).await;
    let frame = frame.map_err(|_| format!("no hello within {} s", HELLO_WITHIN.as_secs()))?;
    let frame = frame.map_err(|status| status.to_string())?.ok_or("the stream ended before a hello")?;
    match NodeMessage::decode(frame).map_err(|invalid| invalid.to_string())? {
        NodeMessage::Hello(hello) => Ok(hello),
        _ => Err("the first message of a stream is Hello".to_owned()),
    }
}

async fn say_goaway(sender: &mpsc::Sender<Framed>, goaway: Goaway) {
    let frame = ReplicaMessage::Goaway(goaway).encode();
    // The node may be gone; nobody else wants to know.
    let _ = tokio::time::timeout(HELLO_WITHIN, sender.send(frame.into())).await;
}
