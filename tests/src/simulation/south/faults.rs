//! What goes wrong between replicas and nodes, and on their machines.

use std::time::Duration;

use headwater_control_plane::backend::etcd::tracker::Input;
use headwater_proto::config::GoawayReason;

use super::node::Node;
use super::stream::StreamId;
use super::{Peer, South};
use crate::simulation::mirror::Mirror;
use crate::simulation::random::Random;
use crate::simulation::world::{What, World};

/// A fault of the second hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A node's stream breaks, on both sides.
    Cut,
    /// Frames to the replica are lost, the other direction goes on.
    SwallowUp,
    /// Frames to the node are lost, the other direction goes on.
    SwallowDown,
    /// Nothing passes for a while, and nothing is lost.
    Stall,
    /// Every frame to the node takes a good part of a heartbeat.
    Slow,
    /// The node reaches nobody.
    CutOff,
    /// The node's process is killed.
    Kill,
    /// The node's process ends in order, and starts again.
    Leave,
    /// The node comes back with an empty disk.
    NewDisk,
    /// The node's disk is slow.
    SlowDisk,
    /// The node's process stands still.
    Pause,
    /// A second process starts under the node's id.
    Twin,
    /// The node meets a peer that knows no generation.
    Stray,
    /// The replica ends in order, and starts again.
    Drain,
    /// The replica starts again without its file.
    LosesFile,
    /// The replica's disk is slow.
    SlowFile,
    /// The replica cannot be reached by nodes for a while.
    Unreachable,
}

/// All of them; those that need others beside them to do harm stand twice.
const FAULTS: &[Fault] = &[
    Fault::Cut,
    Fault::SwallowUp,
    Fault::SwallowDown,
    Fault::Stall,
    Fault::Slow,
    Fault::CutOff,
    Fault::CutOff,
    Fault::Kill,
    Fault::Kill,
    Fault::Leave,
    Fault::NewDisk,
    Fault::NewDisk,
    Fault::SlowDisk,
    Fault::Pause,
    Fault::Twin,
    Fault::Stray,
    Fault::Stray,
    Fault::Drain,
    Fault::LosesFile,
    Fault::LosesFile,
    Fault::SlowFile,
    Fault::Unreachable,
];

/// A fault and its time.
#[derive(Clone, Copy, Debug)]
pub struct Planned {
    /// What.
    pub fault: Fault,
    /// When it begins.
    pub at: Duration,
    /// How long it lasts, where it lasts.
    pub lasts: Duration,
}

/// Draws 2 to 8 faults between two times.
pub fn plan(random: &mut Random, from: Duration, to: Duration) -> Vec<Planned> {
    let count = random.between(2, 8);
    let drawn = (0..count).map(|_| Planned {
        at: random.duration(from, to),
        lasts: random.duration(Duration::from_millis(200), Duration::from_secs(45)),
        fault: *random.pick(FAULTS),
    });
    drawn.collect()
}

// === impl Fault ===

impl Fault {
    const fn case(self) -> &'static str {
        match self {
            Self::Cut => "fault/node-cut",
            Self::SwallowUp => "fault/node-swallow-up",
            Self::SwallowDown => "fault/node-swallow-down",
            Self::Stall => "fault/node-stall",
            Self::Slow => "fault/node-slow-link",
            Self::CutOff => "fault/node-cut-off",
            Self::Kill => "fault/node-kill",
            Self::Leave => "fault/node-leave",
            Self::NewDisk => "fault/node-new-disk",
            Self::SlowDisk => "fault/node-slow-disk",
            Self::Pause => "fault/node-pause",
            Self::Twin => "fault/node-twin",
            Self::Stray => "fault/node-stray-peer",
            Self::Drain => "fault/replica-drain",
            Self::LosesFile => "fault/replica-loses-file",
            Self::SlowFile => "fault/replica-slow-file",
            Self::Unreachable => "fault/replica-unreachable",
        }
    }
}

// === impl World ===

impl World {
    /// A fault of the second hop begins.
    pub(super) fn south_fault(&mut self, planned: Planned) {
        let Planned { fault, lasts, .. } = planned;
        let now = self.schedule.now();
        let until = now + lasts;
        let node = self.random.below(self.fleet.ordinary as u64) as usize;
        let replica = self.random.below(self.replicas.len() as u64) as usize;
        self.trace(|| format!("{fault:?} of node {node} or replica {replica} for {lasts:?}"));
        self.coverage.reached(fault.case());
        match fault {
            Fault::Cut | Fault::SwallowUp | Fault::SwallowDown | Fault::Stall | Fault::Slow => {
                self.stream_fault(fault, node, until);
            }
            Fault::CutOff => {
                self.fleet.nodes[node].cut_off = until;
                self.stream_fault(Fault::Cut, node, until);
            }
            Fault::Stray => {
                self.fleet.nodes[node].astray = until;
                self.stream_fault(Fault::Cut, node, until);
            }
            Fault::Kill | Fault::Leave | Fault::NewDisk => {
                self.node_ends(node, fault == Fault::Leave);
                if fault == Fault::NewDisk {
                    self.fleet.nodes[node].disk.lose();
                }
                let away = if self.random.one_in(2) { lasts } else { lasts / 40 };
                self.schedule.after(away, What::South(South::Starts { node }));
            }
            Fault::SlowDisk => self.fleet.nodes[node].disk.slow = (until, lasts / 8),
            Fault::Pause => {
                // One that stands still already goes on when it would have: frames wait for that moment, and a later
                // or earlier one would let others overtake them.
                let process = self.fleet.nodes[node].process.as_mut();
                if let Some(process) = process.filter(|process| process.paused_until <= now) {
                    process.paused_until = until;
                }
            }
            Fault::Twin => self.twin(node, lasts),
            Fault::Drain => self.drain(replica),
            Fault::LosesFile => {
                self.fleet.planes[replica].file.lose();
                self.crash(replica);
            }
            Fault::SlowFile => self.fleet.planes[replica].file.slow = (until, lasts / 8),
            Fault::Unreachable => {
                self.fleet.planes[replica].down_until = until;
                for id in self.streams_of_replica(replica) {
                    self.breaks(id);
                }
            }
        }
    }

    fn stream_fault(&mut self, fault: Fault, node: usize, until: Duration) {
        let lasts = until.saturating_sub(self.schedule.now());
        let Some(id) = self.fleet.nodes[node].process.as_ref().and_then(|process| process.stream) else {
            return;
        };
        if fault == Fault::Cut {
            return self.breaks(id);
        }
        let Some(stream) = self.fleet.streams.get_mut(&id) else { return };
        match fault {
            Fault::SwallowUp => stream.up.swallowed = true,
            Fault::SwallowDown => stream.down.swallowed = true,
            Fault::Stall => {
                stream.up.stall(until);
                stream.down.stall(until);
            }
            _ => stream.down.slow = (until, lasts / 6),
        }
    }

    fn streams_of_replica(&self, replica: usize) -> Vec<StreamId> {
        let of = |peer: &Peer| matches!(peer, Peer::Replica { replica: of, .. } if *of == replica);
        let streams = self.fleet.streams.iter().filter(|(_, stream)| stream.at_replica && of(&stream.peer));
        streams.map(|(id, _)| *id).collect()
    }

    /// A second process under a node's id: it reads the same file, which it may not write.
    fn twin(&mut self, node: usize, lasts: Duration) {
        let of = &self.fleet.nodes[node];
        let twin = Node {
            id: of.id.clone(),
            process: None,
            disk: of.disk.borrowed(),
            settings: of.settings.clone(),
            first: of.first,
            cut_off: Duration::ZERO,
            astray: Duration::ZERO,
            twin: true,
        };
        self.fleet.nodes.push(twin);
        let node = self.fleet.nodes.len() - 1;
        self.node_starts(node);
        let orderly = self.random.one_in(2);
        self.schedule.after(lasts, What::South(South::Ends { node, orderly }));
    }

    /// A replica ends in order: nodes are told, the file is written.
    fn drain(&mut self, replica: usize) {
        for id in self.streams_of_replica(replica) {
            if let Some(served) = self.fleet.streams.get_mut(&id).and_then(|stream| stream.served.as_mut()) {
                served.session.end(GoawayReason::Draining, "this replica is draining");
                self.serve(id);
            }
        }
        let plane = &mut self.fleet.planes[replica];
        if let Err(wrong) = plane.file.close(&plane.registry) {
            self.violation(format!("replica {replica}: {wrong}"));
        }
        self.crash(replica);
    }

    /// A replica ends without a word and starts from what its file holds.
    pub(in crate::simulation) fn crash(&mut self, replica: usize) {
        let (now, unix, epoch) = (self.schedule.now(), self.unix(), self.etcd.truth.epoch());
        self.etcd.close(|origin| origin.replica == replica);
        let told = self.random.one_in(2);
        for id in self.streams_of_replica(replica) {
            self.replica_side_ends(id, told);
        }
        let plane = &mut self.fleet.planes[replica];
        if let Err(wrong) = plane.file.crash(&plane.registry, &mut self.random) {
            self.violation(format!("replica {replica}: {wrong}"));
        }
        let plane = &mut self.fleet.planes[replica];
        let found = plane.restart(now, unix);
        let away = self.random.duration(Duration::ZERO, Duration::from_secs(20));
        if self.random.one_in(2) {
            plane.down_until = now + away;
        }
        let resume = plane.core.resume_point();
        let mirror = found.unwrap_or_else(|| Mirror::empty(epoch));
        if resume != mirror.resume_point() {
            self.violation(format!("replica {replica}: its file has lost keys that it had read"));
        }
        self.replicas[replica].crash(&mut self.random, mirror, resume);
        self.give(replica, Input::Tick);
    }
}
