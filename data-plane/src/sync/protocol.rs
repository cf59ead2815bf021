//! The node's side of the stream, without I/O: what it says, what it takes, what it publishes.
//!
//! Whoever drives it dials where [`Action::Connect`] says, passes in what happens, and carries out the actions in
//! their order. It never knows sockets, files, clocks or what a value means.
//!
//! Invariants: nothing is published whose digest is not the promised one; a generation is never lowered; a step never
//! lowers a revision; progress is judged after the transfer before it; nothing is acknowledged as applied before
//! requests are served by it, nor as durable before the disk has it.

mod judge;
mod link;
mod rejects;
mod status;
#[cfg(test)]
mod tests;
mod transfer;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use headwater_model::{Changes, Content, Version, mutant};
use headwater_proto::config::{
    Ack, Bye, FallbackAnswer, FallbackRequest, Goaway, GoawayReason, Hello, NodeMessage, Progress, Rejects,
    ReplicaMessage, Standing, TransferReason, Welcome,
};
use headwater_proto::limits;

use link::Link;
use rejects::Mirror;
pub use status::{Counts, Phase, RefusedTransfer, Status};
use transfer::Staging;

/// How many messages may wait for a version that is being published. A replica that keeps the order of the protocol
/// sends a handful.
const MAX_WAITING: usize = 1024;

/// The outside of one input: when it happens, and chance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moment {
    /// Time since an arbitrary start; never goes back.
    pub now: Duration,
    /// Unix seconds: approvals end by them, and status shows them.
    pub unix: u64,
    /// An even random number in `0.0..1.0`, for jitter.
    pub random: f64,
}

/// Who this node says it is.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The configured id.
    pub node_id: Arc<str>,
    /// Random per process start.
    pub instance: Arc<str>,
    /// The environment it belongs to.
    pub environment: Arc<str>,
    /// Free labels.
    pub labels: BTreeMap<String, String>,
    /// The program's version.
    pub build: Arc<str>,
}

/// Bounds and times.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How many addresses there are; at least 1.
    pub addresses: usize,
    /// Whether an empty node takes content from a replica without proof of life of its source, after one round over
    /// the addresses.
    pub accept_degraded: bool,
    /// The most bytes of values that are taken.
    pub max_content_bytes: u64,
    /// How long a replica that is behind this node is waited for before another address is tried.
    pub behind_timeout: Duration,
    /// How long dialling may take.
    pub connect_timeout: Duration,
    /// The first delay before a further try.
    pub backoff_initial: Duration,
    /// The longest delay before a further try.
    pub backoff_cap: Duration,
}

/// What the driver must do.
#[derive(Clone, Debug)]
pub enum Action {
    /// Wait `after`, dial, then call [`Protocol::opened`] or [`Protocol::closed`] with this connection's number.
    Connect {
        /// The number of the connection, from 1.
        connection: u64,
        /// The index of the configured address.
        address: usize,
        /// How long to wait first.
        after: Duration,
    },
    /// Write to the open stream.
    Send(NodeMessage),
    /// End the open stream (or the dialling) of this number. It need not be reported as closed.
    Close {
        /// The number of the connection.
        connection: u64,
        /// Why, in a sentence.
        why: Arc<str>,
    },
    /// Judge and compile the changes, swap once, then call [`Protocol::applied`].
    Publish(Staged),
    /// Bring the version to the disk, then call [`Protocol::durable`].
    Persist(Persist),
    /// Give the answer to the verdict.
    Fallback(FallbackAnswer),
}

/// A transfer that passed every check and is to be published.
#[derive(Clone, Debug)]
pub struct Staged {
    /// What it leads to.
    pub version: Version,
    /// All of its content.
    pub content: Content,
    /// What differs from the content published before. An unchanged resource is the same allocation.
    pub changes: Changes,
    /// What the transfer was for.
    pub reason: TransferReason,
}

/// What the disk is to hold.
#[derive(Clone, Debug)]
pub struct Persist {
    /// The version.
    pub version: Version,
    /// All of its content.
    pub content: Content,
    /// What differs from the persisted version before.
    pub changes: Changes,
}

/// The result of a [`Staged`].
#[derive(Clone, Debug)]
pub struct Applied {
    /// Its version: requests are served by it now.
    pub version: Version,
    /// What it changed about the rejects.
    pub rejects: Rejects,
    /// Fallbacks to ask for.
    pub requests: Vec<FallbackRequest>,
}

/// The state machine of one node's stream.
#[derive(Debug)]
pub struct Protocol {
    identity: Identity,
    settings: Settings,
    link: Link,
    content: Content,
    applied: Option<Version>,
    durable: Option<Version>,
    staging: Option<Staging>,
    publishing: Option<Staged>,
    waiting: VecDeque<ReplicaMessage>,
    rejects: Mirror,
    peer: Peer,
    record: status::Record,
    out: Vec<Action>,
}

/// What the replica of the open stream said about itself.
#[derive(Clone, Debug, Default)]
struct Peer {
    replica_id: Option<Arc<str>>,
    standing: Option<Standing>,
    /// Whether this stream's hello took degraded content.
    accepts_degraded: bool,
    /// Whether something was refused on this stream since a version was last taken.
    was_refused: bool,
    /// Since when it has been behind this node, or without proof of life of its source.
    unfit_since: Option<Duration>,
}

// === impl Protocol ===

impl Protocol {
    /// A node that holds `held`, from its own disk, or nothing. What came from the disk counts as applied and durable.
    #[must_use]
    pub fn new(identity: Identity, settings: Settings, held: Option<(Version, Content)>) -> Self {
        let link = Link::new(&settings);
        let (applied, content) = held.map_or_else(Default::default, |(v, c)| (Some(v), c));
        Self {
            identity,
            settings,
            link,
            content,
            durable: applied.clone(),
            applied,
            staging: None,
            publishing: None,
            waiting: VecDeque::new(),
            rejects: Mirror::default(),
            peer: Peer::default(),
            record: status::Record::default(),
            out: Vec::new(),
        }
    }

    /// The version that requests are served by.
    #[must_use]
    pub const fn held(&self) -> Option<&Version> {
        self.applied.as_ref()
    }

    /// The raw content of [`held`](Self::held).
    #[must_use]
    pub const fn content(&self) -> &Content {
        &self.content
    }

    /// Begins: dials the first address.
    pub fn start(&mut self, at: Moment) -> Vec<Action> {
        self.dial(at, Duration::ZERO);
        self.actions()
    }

    /// The dialled connection is open.
    pub fn opened(&mut self, connection: u64, at: Moment) -> Vec<Action> {
        if self.link.open(connection, at.now) && self.publishing.is_none() {
            self.hello(at);
        }
        self.actions()
    }

    /// The connection could not be opened, or has ended.
    pub fn closed(&mut self, connection: u64, why: &str, at: Moment) -> Vec<Action> {
        if self.link.is_current(connection) {
            self.lost(why, at);
        }
        self.actions()
    }

    /// A message came.
    pub fn received(&mut self, connection: u64, message: ReplicaMessage, at: Moment) -> Vec<Action> {
        if self.link.is_open(connection) {
            self.link.heard(at.now);
            self.record.proof(at.now);
            self.take(message, at);
        }
        self.actions()
    }

    /// Time passed. To be called at [`wake`](Self::wake) at the latest.
    pub fn tick(&mut self, at: Moment) -> Vec<Action> {
        if let Some(why) = self.link.overdue(at.now) {
            self.abandon(&why, at);
        } else if self.is_unfit_too_long(at.now) {
            self.link.moved_on();
            self.move_on("the replica stays behind this node or without proof of its source", at);
        } else if self.link.is_greeted()
            && self.link.is_quiet(at.now)
            && let Some(bytes) = self.bytes_under_way()
        {
            self.send(NodeMessage::Receiving { bytes }, at);
        }
        self.actions()
    }

    /// When [`tick`](Self::tick) is due next.
    #[must_use]
    pub fn wake(&self) -> Duration {
        self.link.wake()
    }

    /// The published version is served now.
    pub fn applied(&mut self, result: Applied, at: Moment) -> Vec<Action> {
        let Some(staged) = self.publishing.take_if(|staged| staged.version == result.version) else {
            return self.actions();
        };
        let Staged { version, content, changes, reason } = staged;
        self.content = content.clone();
        self.record.transferred(reason, at.unix);
        if self.link.is_open_now() && !self.link.is_greeted() {
            // The hello waited for this, so that it names what is held.
            self.rejects.take(&result.rejects, result.requests);
            self.take_version(version, content, changes, at);
            self.hello(at);
            return self.actions();
        }
        self.link.healthy();
        self.verdict_changed(result.rejects, Vec::new(), at);
        self.take_version(version, content, changes, at);
        self.verdict_changed(Rejects::default(), result.requests, at);
        while self.publishing.is_none()
            && let Some(message) = self.waiting.pop_front()
        {
            self.take(message, at);
        }
        self.actions()
    }

    /// The disk has this version.
    pub fn durable(&mut self, version: Version, at: Moment) -> Vec<Action> {
        if self.durable.as_ref() != Some(&version) {
            self.durable = Some(version);
            self.acknowledge(at);
        }
        self.actions()
    }

    /// Rejects changed without a new version (a fallback was taken, or a restart found them), or fallbacks are wanted.
    pub fn judged(&mut self, rejects: Rejects, requests: Vec<FallbackRequest>, at: Moment) -> Vec<Action> {
        self.verdict_changed(rejects, requests, at);
        self.actions()
    }

    /// Ends for good: says goodbye, and dials no more.
    pub fn leave(&mut self, bye: Bye, at: Moment) -> Vec<Action> {
        if self.link.is_greeted() {
            self.send(NodeMessage::Bye(bye), at);
        }
        self.close("this node leaves");
        self.link.stop();
        self.forget_stream();
        self.actions()
    }

    fn actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.out)
    }

    fn send(&mut self, message: NodeMessage, at: Moment) {
        if self.link.is_open_now() {
            self.link.said(at.now);
            self.out.push(Action::Send(message));
        }
    }

    fn hello(&mut self, at: Moment) {
        self.peer.accepts_degraded =
            self.settings.accept_degraded && self.applied.is_none() && self.link.has_tried_all();
        let hello = Hello {
            protocol: limits::PROTOCOL,
            node_id: self.identity.node_id.clone(),
            instance: self.identity.instance.clone(),
            connection: self.link.connection(),
            environment: self.identity.environment.clone(),
            labels: self.identity.labels.clone(),
            build: self.identity.build.clone(),
            digest_scheme: headwater_model::digest::DIGEST_SCHEME,
            held: self.applied.clone(),
            accept_degraded: self.peer.accepts_degraded,
            rejects_count: self.rejects.count(),
            rejects_hash: self.rejects.hash(),
        };
        self.link.greet();
        self.send(NodeMessage::Hello(hello), at);
    }

    /// Takes a message in stream order.
    fn take(&mut self, message: ReplicaMessage, at: Moment) {
        match message {
            ReplicaMessage::Goaway(goaway) => self.goaway(&goaway, at),
            ReplicaMessage::Welcome(welcome) if self.peer.replica_id.is_none() => self.welcome(&welcome, at),
            ReplicaMessage::Welcome(_) => self.violation("a second welcome", at),
            _ if self.peer.replica_id.is_none() => self.violation("a frame before the welcome", at),
            ReplicaMessage::Part(part) if self.publishing.is_some() => {
                self.wait(ReplicaMessage::Part(part), at);
            }
            ReplicaMessage::Part(part) => self.part(part, at),
            _ if self.staging.is_some() => self.violation("a frame inside a transfer", at),
            ReplicaMessage::Progress(progress) => self.progress(progress, at),
            ReplicaMessage::Fallback(answer) => {
                self.rejects.answered(&answer);
                self.out.push(Action::Fallback(answer));
                self.ask_fallbacks(at);
            }
            ReplicaMessage::RejectsPlease => {
                for rejects in self.rejects.full() {
                    self.send(NodeMessage::Rejects(rejects), at);
                }
            }
        }
    }

    /// Keeps a message until the version that is being published is served.
    fn wait(&mut self, message: ReplicaMessage, at: Moment) {
        if self.waiting.len() >= MAX_WAITING {
            return self.violation("more transfers begun than acknowledged", at);
        }
        self.waiting.push_back(message);
    }

    fn welcome(&mut self, welcome: &Welcome, at: Moment) {
        if welcome.max_message_bytes > limits::MAX_MESSAGE_BYTES as u64 {
            let why = format!(
                "the replica sends frames of up to {} bytes, this node takes {}: lower max_message_bytes there",
                welcome.max_message_bytes,
                limits::MAX_MESSAGE_BYTES
            );
            return self.abandon(&why, at);
        }
        self.link.heartbeat(welcome.heartbeat);
        self.peer.replica_id = Some(welcome.replica_id.clone());
        self.stands(welcome.standing, Some(&welcome.serving), welcome.serving.revision, at);
        if self.is_useless(welcome.standing) {
            return self
                .move_on("the replica has no proof of life of its source, and this node holds nothing", at);
        }
        if self.applied.is_some() {
            self.acknowledge(at);
        }
        self.ask_fallbacks(at);
    }

    fn ask_fallbacks(&mut self, at: Moment) {
        for request in self.rejects.ask() {
            self.send(NodeMessage::Fallback(request), at);
        }
    }

    fn progress(&mut self, progress: Progress, at: Moment) {
        self.send(NodeMessage::Alive, at);
        let early = mutant::planted("progress-judged-before-apply");
        if self.publishing.is_some() && !early {
            // Only the newest of a run of progress tells anything.
            if matches!(self.waiting.back(), Some(ReplicaMessage::Progress(_))) {
                self.waiting.pop_back();
            }
            return self.wait(ReplicaMessage::Progress(progress), at);
        }
        self.judge(&progress, at);
    }

    fn goaway(&mut self, goaway: &Goaway, at: Moment) {
        let why = format!("the replica ends the stream ({}): {}", goaway.reason.label(), goaway.detail);
        if goaway.reason == GoawayReason::GenerationAhead {
            self.record.ahead(at.unix);
        }
        self.abandon(&why, at);
    }

    fn acknowledge(&mut self, at: Moment) {
        if self.link.is_greeted() && self.peer.replica_id.is_some() {
            let durable = if mutant::planted("durable-acked-before-sync") {
                self.applied.clone()
            } else {
                self.durable.clone()
            };
            self.send(NodeMessage::Ack(Ack { applied: self.applied.clone(), durable }), at);
        }
    }

    /// Holds this version from now on: acknowledges it and hands it to the disk.
    fn take_version(&mut self, version: Version, content: Content, changes: Changes, at: Moment) {
        self.applied = Some(version.clone());
        self.peer.was_refused = false;
        self.record.taken();
        self.acknowledge(at);
        self.out.push(Action::Persist(Persist { version, content, changes }));
    }

    fn verdict_changed(&mut self, rejects: Rejects, requests: Vec<FallbackRequest>, at: Moment) {
        self.rejects.take(&rejects, requests);
        if !self.link.is_greeted() || self.peer.replica_id.is_none() {
            return;
        }
        for rejects in rejects::in_frames(rejects) {
            self.send(NodeMessage::Rejects(rejects), at);
        }
        self.ask_fallbacks(at);
    }

    fn bytes_under_way(&self) -> Option<u64> {
        let published = self.publishing.as_ref().map(|staged| staged.content.value_bytes());
        self.staging.as_ref().map(Staging::bytes).or(published)
    }
}
