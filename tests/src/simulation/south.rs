//! The second hop: replicas, nodes, the streams between them, their files, operators.
//!
//! A replica's half is its real [`Core`](headwater_control_plane::environment::core::Core), sessions and registry; a
//! node is its real protocol and applier. What is modelled are the shells: connections, devices, latencies, processes
//! that end. What is checked is in [`claims`], [`line`](mod@line), [`wire`], [`checks`], [`waits`] and [`converged`].

pub mod asking;
pub mod checks;
pub mod claims;
pub mod converged;
pub mod disk;
pub mod faults;
pub mod file;
pub mod line;
pub mod node;
pub mod operator;
pub mod plane;
pub mod process;
pub mod session;
pub mod stray;
pub mod stream;
pub mod waits;
pub mod wire;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use headwater_control_plane::distribution::publication::Publication;
use headwater_control_plane::environment::inquiry::{Inquiry, Question};
use headwater_control_plane::environment::older::lookup::Lookup;
use headwater_proto::config::{Approval, FallbackAnswer, FallbackRequest, NodeMessage, ReplicaMessage};

use self::faults::Planned;
use self::node::{Node, Step};
use self::plane::Plane;
use self::stream::{Stream, StreamId};
use self::waits::{Asked, Ended};
use super::random::Random;
use super::world::{ACTIVE, What, World};

/// The environment's name.
pub const ENVIRONMENT: &str = "default";

/// Its prefix, without the slash.
pub const PREFIX: &str = "/apisix";

/// Unix time (seconds) at the start of a world.
pub const UNIX_AT_ZERO: u64 = 1_700_000_000;

/// The other end of a node's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// One life of a replica.
    Replica {
        /// Which.
        replica: usize,
        /// Which life.
        incarnation: u64,
    },
    /// The peer that knows no generation.
    Stray,
}

/// What happens next on the second hop.
#[derive(Debug)]
pub enum South {
    /// A fault begins.
    Begins(Planned),
    /// A node's process starts.
    Starts {
        /// Which node.
        node: usize,
    },
    /// A node's process ends.
    Ends {
        /// Which node.
        node: usize,
        /// With a goodbye.
        orderly: bool,
    },
    /// Something happens to a node's process.
    Node {
        /// Which node.
        node: usize,
        /// Which process.
        process: u64,
        /// What.
        step: Step,
    },
    /// A stream is open, as the node learns now.
    Opened {
        /// Which.
        stream: StreamId,
    },
    /// A frame arrives at a replica.
    ToReplica {
        /// On which stream.
        stream: StreamId,
        /// What it says.
        message: Box<NodeMessage>,
    },
    /// A frame arrives at a node.
    ToNode {
        /// On which stream.
        stream: StreamId,
        /// What it says.
        message: Box<ReplicaMessage>,
    },
    /// The replica learns that a stream has ended.
    EndsAtReplica {
        /// Which.
        stream: StreamId,
    },
    /// The node learns that a stream has ended.
    EndsAtNode {
        /// Which.
        stream: StreamId,
    },
    /// A session is to be told the time.
    SessionDue {
        /// Of which stream.
        stream: StreamId,
    },
    /// An older value was looked up.
    Fallback {
        /// For which stream.
        stream: StreamId,
        /// What was found.
        answer: FallbackAnswer,
    },
    /// etcd answers a replica about a version that a node claims.
    Inquires {
        /// Which.
        replica: usize,
        /// In which life.
        incarnation: u64,
        /// What is looked into.
        inquiry: Inquiry,
        /// What was asked.
        question: Question,
    },
    /// etcd answers a replica that looks for an older value.
    LooksUp {
        /// Which.
        replica: usize,
        /// In which life.
        incarnation: u64,
        /// Who wants it.
        stream: StreamId,
        /// The search.
        lookup: Lookup,
        /// What for.
        request: FallbackRequest,
    },
    /// A replica's file is written.
    FileWritten {
        /// Whose.
        replica: usize,
        /// In which life.
        incarnation: u64,
    },
    /// The stray peer says what it holds.
    StrayBeats {
        /// On which stream.
        stream: StreamId,
    },
    /// An operator looks at what is held.
    Operates,
    /// An operator asks whether a change is applied.
    Asks(Box<Asked>),
}

/// The state of the second hop.
#[derive(Debug)]
pub struct Fleet {
    /// The replicas' halves.
    pub planes: Vec<Plane>,
    /// The nodes; twins stand behind the ordinary ones.
    pub nodes: Vec<Node>,
    /// How many of them are ordinary.
    pub ordinary: usize,
    /// The streams that one side at least has open.
    pub streams: BTreeMap<StreamId, Stream>,
    /// How many were ever opened.
    pub opened: StreamId,
    /// How many processes were ever started.
    pub processes: u64,
    /// Those that have ended, by their instance.
    pub ended: BTreeMap<Arc<str>, Ended>,
    /// What operators have approved.
    pub approvals: Vec<Approval>,
}

// === impl Fleet ===

impl Fleet {
    /// Two or three nodes and so many replicas.
    pub fn new(random: &mut Random, replicas: usize) -> Self {
        let heartbeat = Duration::from_secs(*random.pick(&[2, 10]));
        let ordinary = random.between(2, 3) as usize;
        Self {
            planes: (0..replicas).map(|replica| Plane::new(random, replica, heartbeat)).collect(),
            nodes: (0..ordinary).map(|node| Node::new(random, node, replicas)).collect(),
            ordinary,
            streams: BTreeMap::new(),
            opened: 0,
            processes: 0,
            ended: BTreeMap::new(),
            approvals: Vec::new(),
        }
    }
}

// === impl World ===

impl World {
    /// Plans what happens on the second hop from the start.
    pub(super) fn start_south(&mut self) {
        for planned in faults::plan(&mut self.random, Duration::from_secs(5), ACTIVE) {
            self.schedule.at(planned.at, What::South(South::Begins(planned)));
        }
        for node in 0..self.fleet.nodes.len() {
            let late = if self.random.one_in(4) { ACTIVE / 2 } else { Duration::from_secs(2) };
            let at = self.random.duration(Duration::ZERO, late);
            self.schedule.at(at, What::South(South::Starts { node }));
        }
        self.schedule.after(Duration::from_secs(1), What::South(South::Operates));
    }

    /// Something happens on the second hop.
    pub(super) fn south(&mut self, south: South) {
        match south {
            South::Begins(planned) => self.south_fault(planned),
            South::Starts { node } => self.node_starts(node),
            South::Ends { node, orderly } => self.node_ends(node, orderly),
            South::Node { node, process, step } => self.node_step(node, process, step),
            South::Opened { stream } => self.opened(stream),
            South::ToReplica { stream, message } => self.reaches_replica(stream, message),
            South::ToNode { stream, message } => self.reaches_node(stream, message),
            South::EndsAtReplica { stream } => self.ends_at_replica(stream),
            South::EndsAtNode { stream } => self.ends_at_node(stream),
            South::SessionDue { stream } => self.session_due(stream),
            South::Fallback { stream, answer } => self.fallback_found(stream, answer),
            South::Inquires { replica, incarnation, inquiry, question } => {
                self.inquires(replica, incarnation, inquiry, question);
            }
            South::LooksUp { replica, incarnation, stream, lookup, request } => {
                self.looks_up(replica, incarnation, stream, lookup, request);
            }
            South::FileWritten { replica, incarnation } => self.file_written(replica, incarnation),
            South::StrayBeats { stream } => self.stray_beats(stream),
            South::Operates => self.operates(),
            South::Asks(asked) => self.asks(*asked),
        }
    }

    /// Unix time, in seconds.
    pub(super) fn unix(&self) -> u64 {
        UNIX_AT_ZERO + self.schedule.now().as_secs()
    }

    /// What a replica's sessions see, and its clock.
    fn view(&self, replica: usize) -> (Arc<Publication>, Duration) {
        let plane = &self.fleet.planes[replica];
        (plane.publication.clone(), plane.now(self.schedule.now()))
    }
}
