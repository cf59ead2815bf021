//! One simulated node: the real protocol over a real stream, with values in memory only.
//!
//! It accepts every value: no verdict, no proxy, no disk, so nothing is ever acknowledged as durable.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dashmap::DashMap;
use headwater_data_plane::sync::protocol::{Action, Applied, Identity, Moment, Protocol, Settings, Staged};
use headwater_model::{Change, Content, Key, Resource, Version};
use headwater_proto::config::{NodeMessage, Rejects, ReplicaMessage};
use headwater_proto::frame::Frame;
use headwater_proto::limits;
use headwater_proto::service::config_client::ConfigClient;
use headwater_tls::client::{Connector, endpoint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Streaming};

/// Frames that may wait to be sent.
const SEND_QUEUE: usize = 64;

/// For opening a connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// Is shown what a node publishes; `Debug` because its owner is.
pub struct Watcher(pub Box<dyn Fn(&Staged) + Send + Sync>);

/// What all nodes of the process share.
#[derive(Debug)]
pub struct Shared {
    /// `host:port` of the replica.
    pub replica: String,
    /// The environment to join.
    pub environment: &'static str,
    /// What the nodes are called, before their numbers.
    pub name: &'static str,
    /// Is shown each version as it is published.
    pub watcher: Watcher,
    /// The newest resource of each key that any node has, so that equal ones are held once.
    pub values: DashMap<Key, Arc<Resource>>,
    /// Nodes that may be without content at a time.
    pub starting: Arc<Semaphore>,
    /// How often a connection was lost or could not be opened.
    pub lost: AtomicU64,
}

/// What a node holds, for others to look at.
pub type Held = Arc<Mutex<Option<(Version, Content)>>>;

/// One node.
#[derive(Debug)]
pub struct Node {
    protocol: Protocol,
    shared: Arc<Shared>,
    held: Held,
    began: Instant,
    open: Option<Open>,
    starting: Option<OwnedSemaphorePermit>,
}

#[derive(Debug)]
struct Open {
    number: u64,
    frames: mpsc::Sender<Frame>,
    incoming: Streaming<Frame>,
}

// === impl Watcher ===

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watcher")
    }
}

// === impl Shared ===

impl Shared {
    /// The one resource that stands for all that are equal to this one.
    fn intern(&self, resource: Arc<Resource>) -> Arc<Resource> {
        let mut known = self.values.entry(resource.key().clone()).or_insert_with(|| resource.clone());
        if **known == *resource {
            return known.clone();
        }
        if known.mod_revision() < resource.mod_revision() {
            *known = resource.clone();
        }
        resource
    }

    fn intern_all(&self, message: &mut ReplicaMessage) {
        let ReplicaMessage::Part(part) = message else { return };
        for change in &mut part.changes {
            if let Change::Put(resource) = change {
                *resource = self.intern(resource.clone());
            }
        }
    }
}

// === impl Node ===

impl Node {
    /// A node that holds nothing, and the cell that shows what it holds.
    #[must_use]
    pub fn new(number: u64, shared: Arc<Shared>) -> (Self, Held) {
        let identity = Identity {
            node_id: format!("{}-{number}", shared.name).into(),
            instance: format!("{}-{number}", std::process::id()).into(),
            environment: shared.environment.into(),
            labels: std::collections::BTreeMap::new(),
            build: "bench".into(),
        };
        let settings = Settings {
            addresses: 1,
            accept_degraded: false,
            max_content_bytes: 4 << 30,
            behind_timeout: Duration::from_secs(10),
            connect_timeout: CONNECT_WITHIN,
            backoff_initial: Duration::from_millis(100),
            backoff_cap: Duration::from_secs(5),
        };
        let held = Held::default();
        let protocol = Protocol::new(identity, settings, None);
        let began = Instant::now();
        let node = Self { protocol, shared, held: held.clone(), began, open: None, starting: None };
        (node, held)
    }

    /// Runs until it is dropped.
    pub async fn run(mut self) {
        self.starting = self.shared.starting.clone().acquire_owned().await.ok();
        let at = self.moment();
        let mut actions = self.protocol.start(at);
        loop {
            actions = self.carry_out(actions).await;
            if !actions.is_empty() {
                continue;
            }
            let wake = self.began + self.protocol.wake();
            let next = async {
                match &mut self.open {
                    Some(open) => (open.number, open.incoming.message().await),
                    None => std::future::pending().await,
                }
            };
            actions = tokio::select! {
                (number, frame) = next => self.heard(number, frame),
                () = tokio::time::sleep_until(wake) => {
                    let at = self.moment();
                    self.protocol.tick(at)
                }
            };
        }
    }

    fn heard(&mut self, number: u64, frame: Result<Option<Frame>, tonic::Status>) -> Vec<Action> {
        let frame = frame.map_err(|status| status.to_string());
        let frame = frame.and_then(|frame| frame.ok_or_else(|| "the replica closed the stream".to_owned()));
        let decoded =
            frame.and_then(|frame| ReplicaMessage::decode(frame).map_err(|error| error.to_string()));
        match decoded {
            Ok(mut message) => {
                self.shared.intern_all(&mut message);
                let at = self.moment();
                self.protocol.received(number, message, at)
            }
            Err(why) => self.closed(number, &why),
        }
    }

    async fn carry_out(&mut self, actions: Vec<Action>) -> Vec<Action> {
        let mut further = Vec::new();
        for action in actions {
            match action {
                Action::Connect { connection, after, .. } => {
                    further.extend(self.connect(connection, after).await);
                }
                Action::Send(message) => further.extend(self.send(&message)),
                Action::Close { why, .. } => {
                    self.count_lost(&why);
                    self.open = None;
                }
                Action::Publish(staged) => further.extend(self.publish(staged)),
                // There is no disk, and nothing is rejected that an older value could stand in for.
                Action::Persist(_) | Action::Fallback(_) => {}
            }
        }
        further
    }

    async fn connect(&mut self, connection: u64, after: Duration) -> Vec<Action> {
        self.open = None;
        tokio::time::sleep(after).await;
        match self.dial().await {
            Ok((frames, incoming)) => {
                self.open = Some(Open { number: connection, frames, incoming });
                let at = self.moment();
                self.protocol.opened(connection, at)
            }
            Err(why) => self.closed(connection, &format!("{why:#}")),
        }
    }

    async fn dial(&self) -> anyhow::Result<(mpsc::Sender<Frame>, Streaming<Frame>)> {
        let endpoint = endpoint(&self.shared.replica, false)?;
        let channel = endpoint.connect_with_connector(Connector::new(None, CONNECT_WITHIN)).await?;
        let (frames, outgoing) = mpsc::channel(SEND_QUEUE);
        let mut client = ConfigClient::new(channel).max_decoding_message_size(limits::MAX_MESSAGE_BYTES);
        let incoming = client.sync(Request::new(ReceiverStream::new(outgoing))).await?.into_inner();
        Ok((frames, incoming))
    }

    fn send(&mut self, message: &NodeMessage) -> Vec<Action> {
        let Some(open) = &self.open else { return Vec::new() };
        if open.frames.try_send(message.encode()).is_ok() {
            return Vec::new();
        }
        let number = open.number;
        self.closed(number, "the replica takes no frames")
    }

    fn closed(&mut self, number: u64, why: &str) -> Vec<Action> {
        self.count_lost(why);
        self.open = None;
        let at = self.moment();
        self.protocol.closed(number, why, at)
    }

    fn count_lost(&self, why: &str) {
        let before = self.shared.lost.fetch_add(1, Ordering::Relaxed);
        if before == 0 {
            eprintln!("{}: a node lost its connection: {why}", self.shared.name);
        }
    }

    fn publish(&mut self, staged: Staged) -> Vec<Action> {
        let (version, content) = (staged.version.clone(), staged.content.clone());
        let applied = Applied { version: version.clone(), rejects: Rejects::default(), requests: Vec::new() };
        let at = self.moment();
        let actions = self.protocol.applied(applied, at);
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = Some((version, content));
        (self.shared.watcher.0)(&staged);
        self.starting = None;
        actions
    }

    fn moment(&self) -> Moment {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Moment { now: self.began.elapsed(), unix, random: rand::random() }
    }
}
