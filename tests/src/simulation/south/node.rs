//! Drives the nodes as their shell does: dialling, frames, publishing, the disk, time; and processes that end.

use std::sync::Arc;
use std::time::Duration;

use headwater_data_plane::sync::applier::{Done, Job};
use headwater_data_plane::sync::last_known_good::Group;
use headwater_data_plane::sync::protocol::{Action, Moment, Settings};
use headwater_proto::config::{Bye, NodeMessage, ReplicaMessage};

use super::disk::Disk;
use super::process::{Process, instance};
use super::stream::{Direction, Stream, StreamId, Wire};
use super::{Peer, South, waits};
use crate::simulation::random::Random;
use crate::simulation::world::{ACTIVE, What, World};

/// What waits before the newest state is written.
const PERSIST_INTERVAL: Duration = Duration::from_millis(100);

/// How long publishing takes at most when faults are over.
const QUICK: Duration = Duration::from_millis(500);

/// Looks in one moment that are too many.
const SPINS: u32 = 1_000;

/// A node: a machine with a file, and mostly a process.
#[derive(Debug)]
pub struct Node {
    /// The configured id.
    pub id: Arc<str>,
    /// The process, while it runs.
    pub process: Option<Process>,
    /// The file.
    pub disk: Disk,
    /// Bounds and times.
    pub settings: Settings,
    /// At which replica its list of addresses begins.
    pub first: usize,
    /// Dialling leads nowhere until then.
    pub cut_off: Duration,
    /// Dialling leads to a peer that knows no generation until then.
    pub astray: Duration,
    /// A second process under another node's id, for a while.
    pub twin: bool,
}

/// What happens to one process of one node.
#[derive(Debug)]
pub enum Step {
    /// It may dial now.
    Dials {
        /// Its number for the connection.
        connection: u64,
        /// The index of the address.
        address: usize,
    },
    /// Dialling failed.
    Fails {
        /// The number of the connection.
        connection: u64,
    },
    /// A job is done.
    Applies,
    /// The file is written.
    Writes,
    /// The file is synced.
    Syncs,
    /// Time is to be told.
    Wakes,
}

// === impl Node ===

impl Node {
    /// A machine that has never run.
    pub fn new(random: &mut Random, id: usize, replicas: usize) -> Self {
        let settings = Settings {
            addresses: replicas,
            accept_degraded: random.one_in(2),
            max_content_bytes: 64 << 20,
            behind_timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(5),
            backoff_initial: Duration::from_millis(500),
            backoff_cap: Duration::from_secs(15),
        };
        Self {
            id: format!("node {id}").into(),
            process: None,
            disk: Disk::new(random),
            settings,
            first: id % replicas,
            cut_off: Duration::ZERO,
            astray: Duration::ZERO,
            twin: false,
        }
    }
}

// === impl World ===

impl World {
    fn moment(&mut self) -> Moment {
        let random = self.random.below(1 << 20) as f64 / f64::from(1 << 20);
        Moment { now: self.schedule.now(), unix: self.unix(), random }
    }

    /// A node's process starts.
    pub(super) fn node_starts(&mut self, node: usize) {
        if self.fleet.nodes[node].process.is_some() {
            return;
        }
        self.fleet.processes += 1;
        let number = self.fleet.processes;
        let slowest = *self.random.pick(&[10, 10, 500, 15_000]);
        let pace = Duration::from_millis(slowest);
        let at = self.moment();
        let Node { id, disk, settings, process, .. } = &mut self.fleet.nodes[node];
        let checked = disk.check();
        let (started, actions) = Process::start((number, &*id), settings.clone(), disk.found(), pace, at);
        *process = Some(started);
        self.trace(|| format!("node {node}: process {number} starts"));
        if let Err(wrong) = checked {
            self.violation(format!("node {node}: {wrong}"));
        }
        self.check_view(node);
        self.act(node, actions);
    }

    /// A node's process ends. In order it says goodbye and writes its file; a kill leaves what was synced.
    pub(super) fn node_ends(&mut self, node: usize, orderly: bool) {
        let at = self.moment();
        let Some(process) = &mut self.fleet.nodes[node].process else { return };
        if orderly {
            let actions = process.protocol.leave(Bye::Leaving, at);
            self.act(node, actions);
        }
        let Some(process) = self.fleet.nodes[node].process.take() else { return };
        if orderly {
            self.fleet.nodes[node].disk.close();
        } else {
            self.fleet.nodes[node].disk.crash(&mut self.random);
        }
        self.trace(|| format!("node {node}: process {} ends, orderly: {orderly}", process.number));
        let told = orderly || self.random.one_in(2);
        let streams = self.fleet.streams.iter();
        let own = streams.filter(|(_, stream)| stream.at_node && stream.process == process.number);
        for id in own.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.node_side_ends(id, told);
        }
        self.fleet.ended.insert(instance(process.number), waits::Ended::of(&process));
    }

    /// Something happens to a process, unless it has ended; while it stands still, later.
    pub(super) fn node_step(&mut self, node: usize, process: u64, step: Step) {
        let Some(state) = self.fleet.nodes[node].process.as_mut().filter(|state| state.number == process)
        else {
            return;
        };
        let paused = state.paused_until;
        if self.schedule.now() < paused {
            return self.schedule.at(paused, What::South(South::Node { node, process, step }));
        }
        match step {
            Step::Dials { connection, address } => self.dials(node, connection, address),
            Step::Fails { connection } => self.dialling_failed(node, connection),
            Step::Applies => self.applies(node),
            Step::Writes => self.writes(node),
            Step::Syncs => self.syncs(node),
            Step::Wakes => self.node_wakes(node),
        }
    }

    fn plan(&mut self, node: usize, after: Duration, step: Step) {
        let Some(process) = self.fleet.nodes[node].process.as_ref().map(|process| process.number) else {
            return;
        };
        self.schedule.after(after, What::South(South::Node { node, process, step }));
    }

    /// Calls the protocol and carries out what it wants.
    fn step_protocol(&mut self, node: usize, step: impl FnOnce(&mut Process, Moment) -> Vec<Action>) {
        let at = self.moment();
        let Some(process) = self.fleet.nodes[node].process.as_mut() else { return };
        let actions = step(process, at);
        self.act(node, actions);
    }

    /// Carries out actions in their order, begins the next job, looks at what is held, and plans when to look again.
    pub(super) fn act(&mut self, node: usize, actions: Vec<Action>) {
        for action in actions {
            self.carry_out_of_node(node, action);
        }
        self.next_job(node);
        self.check_held(node);
        let Some(process) = self.fleet.nodes[node].process.as_mut() else { return };
        let wake = process.protocol.wake();
        if wake < process.wake {
            process.wake = wake;
            let number = process.number;
            let step = South::Node { node, process: number, step: Step::Wakes };
            self.schedule.at(wake, What::South(step));
        }
    }

    fn carry_out_of_node(&mut self, node: usize, action: Action) {
        let Some(process) = self.fleet.nodes[node].process.as_mut() else { return };
        match action {
            Action::Connect { connection, address, after } => {
                process.dialling = Some(connection);
                if let Some(id) = process.stream.take() {
                    self.node_side_ends(id, true);
                }
                self.plan(node, after, Step::Dials { connection, address });
            }
            Action::Send(message) => {
                let Some(id) = process.stream else { return };
                self.inspect_node(id, node, &message);
                match NodeMessage::decode(message.encode()) {
                    Ok(message) => self.send_up(id, Box::new(message)),
                    Err(invalid) => self.violation(format!("node {node}: sends what is no frame: {invalid}")),
                }
            }
            Action::Close { .. } => {
                process.dialling = None;
                if let Some(id) = process.stream.take() {
                    self.node_side_ends(id, true);
                }
            }
            Action::Publish(staged) => {
                process.publishing = Some((staged.version.clone(), staged.reason));
                self.check_guard(node, &staged);
                if let Some(process) = self.fleet.nodes[node].process.as_mut() {
                    process.jobs.push_back(Job::Publish(staged));
                }
            }
            Action::Fallback(answer) => process.jobs.push_back(Job::Fallback(answer)),
            Action::Persist(persist) => {
                let retained = process.group(persist.version.clone()).retained;
                self.keep(node, Group { version: persist.version, content: persist.content, retained });
            }
        }
    }

    fn keep(&mut self, node: usize, group: Group) {
        if self.fleet.nodes[node].disk.keep(group) {
            self.plan(node, PERSIST_INTERVAL, Step::Writes);
        }
    }

    fn writes(&mut self, node: usize) {
        let now = self.schedule.now();
        let disk = &mut self.fleet.nodes[node].disk;
        disk.write();
        let takes = disk.takes(now, &mut self.random);
        self.plan(node, takes, Step::Syncs);
    }

    fn syncs(&mut self, node: usize) {
        let (version, more) = self.fleet.nodes[node].disk.sync();
        if more {
            self.plan(node, PERSIST_INTERVAL, Step::Writes);
        }
        if let Some(version) = version {
            self.step_protocol(node, |process, at| process.protocol.durable(version, at));
        }
    }

    fn next_job(&mut self, node: usize) {
        let Some(process) = self.fleet.nodes[node].process.as_mut() else { return };
        if process.busy || process.jobs.is_empty() {
            return;
        }
        process.busy = true;
        let pace = if self.schedule.now() < ACTIVE { process.pace } else { process.pace.min(QUICK) };
        let takes = self.random.duration(Duration::from_micros(100), pace);
        self.plan(node, takes, Step::Applies);
    }

    fn applies(&mut self, node: usize) {
        let at = self.moment();
        let Some(process) = self.fleet.nodes[node].process.as_mut() else { return };
        process.busy = false;
        let Some(job) = process.jobs.pop_front() else { return };
        let actions = match process.desk.0.run(job, at.unix) {
            Done::Applied(applied) => process.protocol.applied(applied, at),
            Done::Judged(rejects, requests) => {
                let version = process.protocol.held().cloned();
                let group = version.map(|version| process.group(version));
                let actions = process.protocol.judged(rejects, requests, at);
                if let Some(group) = group {
                    self.keep(node, group);
                }
                actions
            }
        };
        self.check_view(node);
        self.act(node, actions);
    }

    fn node_wakes(&mut self, node: usize) {
        let now = self.schedule.now();
        let Some(process) = self.fleet.nodes[node].process.as_mut().filter(|process| now >= process.wake)
        else {
            return;
        };
        let since = std::mem::replace(&mut process.wake, Duration::MAX);
        self.step_protocol(node, |process, at| process.protocol.tick(at));
        let Some(process) = self.fleet.nodes[node].process.as_mut() else { return };
        process.spins = if process.wake <= since { process.spins + 1 } else { 0 };
        if process.spins > SPINS {
            self.violation(format!("node {node}: wants to be woken again and again at {now:?}"));
        }
    }

    fn dials(&mut self, node: usize, connection: u64, address: usize) {
        let now = self.schedule.now();
        let Node { process: Some(process), cut_off, astray, first, .. } = &self.fleet.nodes[node] else {
            return;
        };
        if process.dialling != Some(connection) || now < *cut_off {
            return;
        }
        let replica = (first + address) % self.replicas.len();
        let generation = process.protocol.held().map_or(0, |held| held.lineage.generation.0);
        let peer = if now < *astray && generation > 0 {
            Peer::Stray
        } else if now < self.fleet.planes[replica].down_until {
            let after = self.random.duration(Duration::from_micros(100), Duration::from_millis(20));
            return self.plan(node, after, Step::Fails { connection });
        } else {
            Peer::Replica { replica, incarnation: self.replicas[replica].incarnation }
        };
        let process = process.number;
        self.fleet.opened += 1;
        let id = self.fleet.opened;
        let window = *self.random.pick(&[1, 2, 8, 64]);
        let (up, down) = (Direction::new(&mut self.random), Direction::new(&mut self.random));
        let stream = Stream {
            node,
            process,
            connection,
            peer,
            up,
            down,
            window,
            in_flight: 0,
            at_node: true,
            at_replica: true,
            served: None,
            wire: Wire::default(),
        };
        self.fleet.streams.insert(id, stream);
        let after = self.random.duration(Duration::from_micros(200), Duration::from_millis(60));
        self.schedule.after(after, What::South(South::Opened { stream: id }));
    }

    fn dialling_failed(&mut self, node: usize, connection: u64) {
        self.step_protocol(node, |process, at| process.protocol.closed(connection, "connection refused", at));
    }

    /// The node learns that its stream is open.
    pub(super) fn opened(&mut self, id: StreamId) {
        let Some(stream) = self.fleet.streams.get(&id) else { return };
        let (node, number, connection) = (stream.node, stream.process, stream.connection);
        let process = self.fleet.nodes[node].process.as_mut().filter(|process| process.number == number);
        let Some(process) = process.filter(|process| process.dialling == Some(connection)) else {
            // Given up meanwhile.
            return self.node_side_ends(id, true);
        };
        process.stream = Some(id);
        self.step_protocol(node, |process, at| process.protocol.opened(connection, at));
    }

    /// A frame arrives at a node.
    pub(super) fn reaches_node(&mut self, id: StreamId, message: Box<ReplicaMessage>) {
        let now = self.schedule.now();
        let Some(stream) = self.fleet.streams.get_mut(&id) else { return };
        let (node, number, connection) = (stream.node, stream.process, stream.connection);
        let process = self.fleet.nodes[node].process.as_ref().filter(|process| process.number == number);
        if let Some(process) = process.filter(|process| now < process.paused_until) {
            let paused = process.paused_until;
            return self.schedule.at(paused, What::South(South::ToNode { stream: id, message }));
        }
        stream.in_flight = stream.in_flight.saturating_sub(1);
        if process.is_some_and(|process| process.stream == Some(id)) {
            self.step_protocol(node, |process, at| process.protocol.received(connection, *message, at));
        }
        self.serve(id);
    }

    /// A node learns that its stream has ended.
    pub(super) fn ends_at_node(&mut self, id: StreamId) {
        let now = self.schedule.now();
        let Some(stream) = self.fleet.streams.get(&id).filter(|stream| stream.at_node) else { return };
        let (node, number, connection) = (stream.node, stream.process, stream.connection);
        let process = self.fleet.nodes[node].process.as_mut().filter(|process| process.number == number);
        let process = process.filter(|process| process.stream == Some(id));
        if let Some(process) = &process
            && now < process.paused_until
        {
            let paused = process.paused_until;
            return self.schedule.at(paused, What::South(South::EndsAtNode { stream: id }));
        }
        let current = process.map(|process| process.stream = None).is_some();
        self.node_side_ends(id, false);
        if current {
            self.step_protocol(node, |process, at| {
                process.protocol.closed(connection, "the stream ended", at)
            });
        }
    }
}
