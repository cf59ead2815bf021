//! The streams between nodes and replicas: frames that keep their order, take time, get stuck or get lost.

use std::time::Duration;

use headwater_control_plane::distribution::session::Session;
use headwater_control_plane::fleet::RowId;
use headwater_model::{Digest, Version};
use headwater_proto::config::{Bye, NodeMessage, ReplicaMessage};

use super::{Peer, South};
use crate::simulation::link::Link;
use crate::simulation::random::Random;
use crate::simulation::world::{What, World};

/// Counts the streams of a world.
pub type StreamId = u64;

/// One stream.
#[derive(Debug)]
pub struct Stream {
    /// The node, and which of its processes.
    pub node: usize,
    /// Which of all processes.
    pub process: u64,
    /// The connection, as the node counts them.
    pub connection: u64,
    /// The other end.
    pub peer: Peer,
    /// To the replica.
    pub up: Direction,
    /// To the node.
    pub down: Direction,
    /// How many frames may be on their way to the node.
    pub window: usize,
    /// How many are.
    pub in_flight: usize,
    /// Whether the node has it open.
    pub at_node: bool,
    /// Whether the replica has.
    pub at_replica: bool,
    /// The replica's side, after the hello.
    pub served: Option<Served>,
    /// What an observer on the wire has seen.
    pub wire: Wire,
}

/// One direction of a stream.
#[derive(Debug)]
pub struct Direction {
    link: Link,
    /// Frames are lost from now on, for good: a stream that lost some never carries later ones.
    pub swallowed: bool,
    /// Each frame takes this long, until then.
    pub slow: (Duration, Duration),
}

/// The replica's side of a stream.
#[derive(Debug)]
pub struct Served {
    /// The core.
    pub session: Session,
    /// The node's row.
    pub row: RowId,
    /// When the session is to be told the time, as planned; since the world's start.
    pub due: Duration,
    /// When the transport last took a frame, on the replica's clock.
    pub taken: Duration,
    /// Looks in one moment.
    pub spins: u32,
    /// The node's farewell.
    pub bye: Option<Bye>,
}

/// What went over a stream.
#[derive(Clone, Debug, Default)]
pub struct Wire {
    /// The digests that the node held at its hello, or was sent whole since.
    pub delivered: Vec<Digest>,
    /// The target of the transfer whose parts are under way.
    pub begun: Option<Version>,
    /// Whether the base of the last transfer is one that the replica has published itself, or of the very history that
    /// it follows: then no refusal for a mismatch has an excuse.
    pub own_base: bool,
}

// === impl Direction ===

impl Direction {
    /// A direction with a random latency.
    pub fn new(random: &mut Random) -> Self {
        let low = Duration::from_micros(random.between(50, 2_000));
        let link = Link::new(low, low + Duration::from_micros(random.between(10, 30_000)));
        Self { link, swallowed: false, slow: Default::default() }
    }

    /// When something sent now arrives; nothing when it is lost.
    pub fn arrival(&mut self, now: Duration, random: &mut Random) -> Option<Duration> {
        let mut arrival = self.link.arrival(now, random);
        if now < self.slow.0 {
            arrival += self.slow.1;
            self.link.stall(arrival);
        }
        (!self.swallowed).then_some(arrival)
    }

    /// Holds everything up until a time.
    pub fn stall(&mut self, until: Duration) {
        self.link.stall(until);
    }
}

// === impl World ===

impl World {
    /// A node's frame sets out.
    pub(super) fn send_up(&mut self, id: StreamId, message: Box<NodeMessage>) {
        let now = self.schedule.now();
        let Some(stream) = self.fleet.streams.get_mut(&id) else { return };
        if let Some(arrival) = stream.up.arrival(now, &mut self.random) {
            self.schedule.at(arrival, What::South(South::ToReplica { stream: id, message }));
        }
    }

    /// A replica's frame sets out.
    pub(super) fn send_down(&mut self, id: StreamId, message: Box<ReplicaMessage>) {
        let now = self.schedule.now();
        let Some(stream) = self.fleet.streams.get_mut(&id) else { return };
        stream.in_flight += 1;
        if let Some(arrival) = stream.down.arrival(now, &mut self.random) {
            self.schedule.at(arrival, What::South(South::ToNode { stream: id, message }));
        }
    }

    /// The node's side ends. The replica is told, unless the node's machine died with it or the link is dumb.
    pub(super) fn node_side_ends(&mut self, id: StreamId, told: bool) {
        let now = self.schedule.now();
        let Some(stream) = self.fleet.streams.get_mut(&id) else { return };
        stream.at_node = false;
        if told && let Some(arrival) = stream.up.arrival(now, &mut self.random) {
            self.schedule.at(arrival, What::South(South::EndsAtReplica { stream: id }));
        }
        self.forget(id);
    }

    /// The replica's side ends; the same towards the node.
    pub(super) fn replica_side_ends(&mut self, id: StreamId, told: bool) {
        let now = self.schedule.now();
        let Some(stream) = self.fleet.streams.get_mut(&id) else { return };
        (stream.at_replica, stream.served) = (false, None);
        if told && let Some(arrival) = stream.down.arrival(now, &mut self.random) {
            self.schedule.at(arrival, What::South(South::EndsAtNode { stream: id }));
        }
        self.forget(id);
    }

    /// A stream breaks in the middle; both ends are told, each in its time.
    pub(super) fn breaks(&mut self, id: StreamId) {
        let both = [South::EndsAtReplica { stream: id }, South::EndsAtNode { stream: id }];
        for told in both {
            let after = self.random.duration(Duration::from_micros(100), Duration::from_millis(50));
            self.schedule.after(after, What::South(told));
        }
        if let Some(stream) = self.fleet.streams.get_mut(&id) {
            (stream.up.swallowed, stream.down.swallowed) = (true, true);
        }
    }

    fn forget(&mut self, id: StreamId) {
        if self.fleet.streams.get(&id).is_some_and(|stream| !stream.at_node && !stream.at_replica) {
            self.fleet.streams.remove(&id);
        }
    }
}
