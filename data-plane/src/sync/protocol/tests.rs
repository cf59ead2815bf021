//! Each rule of the node's side of the stream, by name.

use bytes::Bytes;
use headwater_model::{Change, Digest, Generation, Key, Lineage, Resource, Revision};
use headwater_proto::config::{Approval, Begin, RefusedWhy, Reject, TransferPart};
use headwater_proto::limits;

use super::*;

mod connection;
mod progress;
mod transfers;

/// A node with a clock, and an open stream where asked for.
struct Node {
    protocol: Protocol,
    at: Moment,
    connection: u64,
}

fn settings(addresses: usize) -> Settings {
    Settings {
        addresses,
        accept_degraded: true,
        max_content_bytes: 10_000,
        behind_timeout: Duration::from_secs(10),
        connect_timeout: Duration::from_secs(5),
        backoff_initial: Duration::from_secs(1),
        backoff_cap: Duration::from_secs(30),
    }
}

fn identity() -> Identity {
    Identity {
        node_id: "edge-1".into(),
        instance: "i".into(),
        environment: "/apisix".into(),
        labels: BTreeMap::new(),
        build: "test".into(),
    }
}

fn lineage(generation: u64) -> Lineage {
    Lineage { cluster_id: 7, prefix: "/apisix".into(), generation: Generation(generation) }
}

fn content(keys: &[(&str, u64)]) -> Content {
    let resource = |(key, revision): &(&str, u64)| {
        let revision = Revision(*revision);
        Resource::new(Key::new(*key), Bytes::from_static(b"value"), Revision(1), revision)
    };
    keys.iter().map(resource).collect()
}

fn version(revision: u64, content: &Content) -> Version {
    Version { lineage: lineage(0), revision: Revision(revision), digest: content.digest() }
}

/// One part that holds a whole transfer.
fn transfer(from: Option<&Content>, to: &Content, target: Version, reason: TransferReason) -> TransferPart {
    let changes = diff_changes(from, to);
    let begin = Begin {
        base: from.map(Content::digest),
        target,
        reason,
        approval: None,
        changes: changes.len() as u64,
        bytes: 0,
    };
    TransferPart { begin: Some(begin), changes, last: true }
}

fn diff_changes(from: Option<&Content>, to: &Content) -> Vec<Change> {
    let changes = headwater_model::diff::diff(&from.cloned().unwrap_or_default(), to);
    let deletes = changes.deletes.into_iter().map(Change::Delete);
    deletes.chain(changes.puts.into_iter().map(Change::Put)).collect()
}

fn step(from: &Content, to: &Content, revision: u64) -> TransferPart {
    transfer(Some(from), to, version(revision, to), TransferReason::Step)
}

fn delivered(version: Version) -> ReplicaMessage {
    ReplicaMessage::Progress(Progress {
        head: version.revision,
        delivered: Some(version),
        source_proof_age: Duration::from_secs(2),
        standing: Standing::Live,
    })
}

fn welcome(serving: Version, standing: Standing) -> ReplicaMessage {
    ReplicaMessage::Welcome(Welcome {
        replica_id: "replica-1".into(),
        heartbeat: Duration::from_secs(10),
        max_message_bytes: 1 << 20,
        standing,
        serving,
    })
}

fn refusals(actions: &[Action]) -> Vec<RefusedWhy> {
    let why = |action: &Action| match action {
        Action::Send(NodeMessage::Refused(refused)) => Some(refused.why),
        _ => None,
    };
    actions.iter().filter_map(why).collect()
}

fn acks(actions: &[Action]) -> Vec<Ack> {
    let ack = |action: &Action| match action {
        Action::Send(NodeMessage::Ack(ack)) => Some(ack.clone()),
        _ => None,
    };
    actions.iter().filter_map(ack).collect()
}

fn staged(actions: &[Action]) -> Option<Staged> {
    actions.iter().find_map(|action| match action {
        Action::Publish(staged) => Some(staged.clone()),
        _ => None,
    })
}

fn connect(actions: &[Action]) -> Option<(usize, Duration)> {
    actions.iter().find_map(|action| match action {
        Action::Connect { address, after, .. } => Some((*address, *after)),
        _ => None,
    })
}

fn hello(actions: &[Action]) -> Option<Hello> {
    actions.iter().find_map(|action| match action {
        Action::Send(NodeMessage::Hello(hello)) => Some(hello.clone()),
        _ => None,
    })
}

// === impl Node ===

impl Node {
    fn new(settings: Settings, held: Option<(Version, Content)>) -> Self {
        let at = Moment { now: Duration::from_secs(100), unix: 1_000, random: 0.5 };
        let mut protocol = Protocol::new(identity(), settings, held);
        let actions = protocol.start(at);
        assert!(matches!(actions[..], [Action::Connect { connection: 1, address: 0, .. }]));
        Self { protocol, at, connection: 1 }
    }

    /// A node that holds this at revision 10, greeted by a live replica that serves the same.
    fn holding(content: &Content) -> Self {
        let held = version(10, content);
        let mut node = Self::new(settings(2), Some((held.clone(), content.clone())));
        node.open();
        node.hear(welcome(held, Standing::Live));
        node
    }

    fn empty() -> Self {
        let mut node = Self::new(settings(1), None);
        node.open();
        node.hear(welcome(version(10, &Content::new()), Standing::Live));
        node
    }

    fn open(&mut self) -> Vec<Action> {
        self.protocol.opened(self.connection, self.at)
    }

    fn hear(&mut self, message: ReplicaMessage) -> Vec<Action> {
        self.protocol.received(self.connection, message, self.at)
    }

    fn part(&mut self, part: TransferPart) -> Vec<Action> {
        self.hear(ReplicaMessage::Part(part))
    }

    fn applied(&mut self, version: Version) -> Vec<Action> {
        let result = Applied { version, rejects: Rejects::default(), requests: Vec::new() };
        self.protocol.applied(result, self.at)
    }

    fn after(&mut self, seconds: u64) -> Vec<Action> {
        self.at.now += Duration::from_secs(seconds);
        self.at.unix += seconds;
        self.protocol.tick(self.at)
    }

    fn held(&self) -> (u64, u64) {
        let held = self.protocol.held().expect("holds something");
        (held.lineage.generation.0, held.revision.0)
    }
}
