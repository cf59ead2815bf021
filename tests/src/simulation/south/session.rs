//! Drives the replica's sessions as its shell does: frames in, frames out while the transport takes them, time.

use std::time::Duration;

use headwater_control_plane::backend::etcd::tracker::Input;
use headwater_control_plane::distribution::session::{Session, SessionEvent};
use headwater_control_plane::fleet::{FleetEvent, Happened, RowId};
use headwater_model::Generation;
use headwater_proto::config::{FallbackAnswer, GoawayReason, Hello, NodeMessage, ReplicaMessage};
use headwater_proto::limits::TRANSFER_TIMEOUT;

use super::stream::{Served, StreamId};
use super::{Peer, South};
use crate::simulation::world::{What, World};

/// Looks in one moment that are too many.
const SPINS: u32 = 1_000;

// === impl World ===

impl World {
    /// A node's frame arrives at its peer.
    pub(super) fn reaches_replica(&mut self, id: StreamId, message: Box<NodeMessage>) {
        let Some(stream) = self.fleet.streams.get(&id).filter(|stream| stream.at_replica) else { return };
        let Peer::Replica { replica, .. } = stream.peer else { return self.stray_takes(id, &message) };
        let paused = self.replicas[replica].paused_until;
        if self.schedule.now() < paused {
            return self.schedule.at(paused, What::South(South::ToReplica { stream: id, message }));
        }
        match (*message, stream.served.is_some()) {
            (NodeMessage::Hello(hello), false) => self.greeted(id, replica, hello),
            (message, true) => {
                let (publication, now) = self.view(replica);
                if let Some(session) = self.session(id) {
                    session.on_message(message, &publication, now);
                }
                self.forward(id, replica);
                self.serve(id);
            }
            (message, false) => {
                self.violation(format!("the node's first frame on a stream is no hello: {message:?}"));
            }
        }
    }

    fn greeted(&mut self, id: StreamId, replica: usize, hello: Hello) {
        let (publication, now) = self.view(replica);
        let row = RowId { node_id: hello.node_id.clone(), instance: hello.instance.clone() };
        let plane = &mut self.fleet.planes[replica];
        let known = plane.registry.knows_rejects(&hello);
        let session = match Session::open(plane.config.clone(), hello.clone(), known, &publication, now) {
            Ok(session) => session,
            Err(goaway) => {
                self.coverage.reached(goaway_case(goaway.reason));
                self.send_down(id, Box::new(ReplicaMessage::Goaway(goaway)));
                return self.replica_side_ends(id, true);
            }
        };
        let connection = hello.connection;
        let held = hello.held.as_ref().map(|held| held.digest);
        let joined = Happened::Joined { hello: Box::new(hello), identity: None, peer: "node".to_owned() };
        plane.registry.apply(FleetEvent { row: row.clone(), connection, happened: joined }, now);
        if let Some(stream) = self.fleet.streams.get_mut(&id) {
            stream.wire.delivered.extend(held);
            stream.served =
                Some(Served { session, row, due: Duration::MAX, taken: now, bye: None, spins: 0 });
        }
        self.serve(id);
    }

    /// All sessions of a replica look whether there is something to send.
    pub(super) fn serve_all(&mut self, replica: usize) {
        let of = |peer: &Peer| matches!(peer, Peer::Replica { replica: of, .. } if *of == replica);
        let streams = self.fleet.streams.iter().filter(|(_, stream)| of(&stream.peer));
        for id in streams.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.serve(id);
        }
    }

    /// Hands frames to the transport while it takes them, then plans when the session is due.
    pub(super) fn serve(&mut self, id: StreamId) {
        let unix = self.unix();
        while let Some(stream) = self.fleet.streams.get_mut(&id)
            && let Peer::Replica { replica, .. } = stream.peer
            && stream.in_flight < stream.window
            && let Some(served) = &mut stream.served
            && served.session.ended().is_none()
        {
            let plane = &self.fleet.planes[replica];
            let now = plane.now(self.schedule.now());
            let Some(outgoing) = served.session.poll(&plane.publication, now, unix) else { break };
            served.taken = now;
            match ReplicaMessage::decode(outgoing.into_frame()) {
                Ok(message) => {
                    self.inspect(id, replica, &message);
                    self.send_down(id, Box::new(message));
                }
                Err(invalid) => {
                    self.violation(format!("replica {replica}: sends what is no frame: {invalid}"));
                }
            }
            self.forward(id, replica);
        }
        self.plan_session(id);
    }

    fn plan_session(&mut self, id: StreamId) {
        let Some(stream) = self.fleet.streams.get_mut(&id) else { return };
        let Peer::Replica { replica, .. } = stream.peer else { return };
        let Some(served) = &mut stream.served else { return };
        if let Some(goaway) = served.session.ended().cloned() {
            let reason = goaway.detail.to_string();
            self.coverage.reached(goaway_case(goaway.reason));
            self.send_down(id, Box::new(ReplicaMessage::Goaway(goaway)));
            self.left(id, replica, reason);
            return self.replica_side_ends(id, true);
        }
        let full = stream.in_flight >= stream.window;
        let mut due = if full { served.session.tick_at() } else { served.session.deadline() };
        if served.session.sending_bytes() > 0 {
            due = due.min(served.taken + TRANSFER_TIMEOUT);
        }
        let due = self.fleet.planes[replica].started + due;
        if due < served.due {
            served.spins = if due <= self.schedule.now() { served.spins + 1 } else { 0 };
            if served.spins > SPINS {
                return self
                    .violation(format!("replica {replica}: a session wants to be woken again and again"));
            }
            served.due = due;
            self.schedule.at(due, What::South(South::SessionDue { stream: id }));
        }
    }

    pub(super) fn session_due(&mut self, id: StreamId) {
        let Some(stream) = self.fleet.streams.get_mut(&id) else { return };
        let (Peer::Replica { replica, .. }, Some(served)) = (stream.peer, &mut stream.served) else { return };
        let now = self.schedule.now();
        let paused = self.replicas[replica].paused_until;
        if now < paused {
            // What has arrived meanwhile is read before time is judged.
            let then = paused + Duration::from_micros(1);
            return self.schedule.at(then, What::South(South::SessionDue { stream: id }));
        }
        if now < served.due {
            return;
        }
        served.due = Duration::MAX;
        let now = self.fleet.planes[replica].now(now);
        served.session.tick(now);
        if served.session.sending_bytes() > 0 && now >= served.taken + TRANSFER_TIMEOUT {
            served.session.end(GoawayReason::TransferStalled, "no byte of a transfer was taken");
        }
        self.forward(id, replica);
        self.serve(id);
    }

    /// Carries out what a session wants told.
    fn forward(&mut self, id: StreamId, replica: usize) {
        let Some(session) = self.session(id) else { return };
        for event in session.take_events() {
            match event {
                SessionEvent::Acked(ack) => self.tell(id, replica, Happened::Acked(ack)),
                SessionEvent::Rejects(rejects) => self.tell(id, replica, Happened::Rejects(rejects)),
                SessionEvent::Refused(refused) => self.tell(id, replica, Happened::Refused(refused)),
                SessionEvent::Heard => self.tell(id, replica, Happened::Heard),
                SessionEvent::Transferring { target, reason, .. } => {
                    self.tell(id, replica, Happened::Transferring { target, reason });
                }
                SessionEvent::Standing { held_ahead, degraded } => {
                    self.coverage.reached_if("session/held-ahead", held_ahead);
                    self.coverage.reached_if("session/degraded", degraded);
                    self.tell(id, replica, Happened::Standing { held_ahead, degraded });
                }
                SessionEvent::Ahead { held } => {
                    self.coverage.reached("session/ahead");
                    self.inquire(replica, &held);
                }
                SessionEvent::Adopt(generation) => {
                    self.coverage.reached("generation/adopted");
                    let reason = format!("a node holds what is served as generation {generation}");
                    self.raise(replica, generation, reason);
                }
                SessionEvent::Divergence { node, replica: own } => {
                    self.coverage.reached("session/divergence");
                    let reason = format!("a node holds {node:?} where this replica serves {own:?}");
                    self.give(replica, Input::Reload { reason, generation: Generation(0) });
                }
                SessionEvent::Fallback(request) => {
                    self.fallback_wanted(replica, id, request);
                }
                SessionEvent::Bye(bye) => {
                    self.coverage.reached("session/bye");
                    if let Some(served) =
                        self.fleet.streams.get_mut(&id).and_then(|stream| stream.served.as_mut())
                    {
                        served.bye = Some(bye);
                    }
                }
            }
        }
    }

    pub(super) fn fallback_found(&mut self, id: StreamId, answer: FallbackAnswer) {
        if let Some(session) = self.session(id) {
            session.answer_fallback(answer);
            self.serve(id);
        }
    }

    /// The node's side of a stream has ended, as far as the replica can tell.
    pub(super) fn ends_at_replica(&mut self, id: StreamId) {
        let Some(stream) = self.fleet.streams.get(&id).filter(|stream| stream.at_replica) else { return };
        if let Peer::Replica { replica, .. } = stream.peer {
            let paused = self.replicas[replica].paused_until;
            if self.schedule.now() < paused {
                return self.schedule.at(paused, What::South(South::EndsAtReplica { stream: id }));
            }
            self.left(id, replica, "the stream ended".to_owned());
        }
        self.replica_side_ends(id, false);
    }

    fn left(&mut self, id: StreamId, replica: usize, reason: String) {
        let bye = self.fleet.streams.get(&id).and_then(|stream| stream.served.as_ref()?.bye);
        self.tell(id, replica, Happened::Left { bye, reason });
    }

    fn tell(&mut self, id: StreamId, replica: usize, happened: Happened) {
        let Some(stream) = self.fleet.streams.get(&id) else { return };
        let Some(served) = &stream.served else { return };
        let event = FleetEvent { row: served.row.clone(), connection: stream.connection, happened };
        let plane = &mut self.fleet.planes[replica];
        let now = plane.now(self.schedule.now());
        if !plane.registry.apply(event, now) {
            self.coverage.reached("fleet/outdated");
        }
    }

    fn session(&mut self, id: StreamId) -> Option<&mut Session> {
        Some(&mut self.fleet.streams.get_mut(&id)?.served.as_mut()?.session)
    }
}

const fn goaway_case(reason: GoawayReason) -> &'static str {
    match reason {
        GoawayReason::Draining => "goaway/draining",
        GoawayReason::NotReady => "goaway/not-ready",
        GoawayReason::Silent => "goaway/silent",
        GoawayReason::GenerationAhead => "goaway/generation-ahead",
        GoawayReason::TransferStalled => "goaway/transfer-stalled",
        GoawayReason::UnknownEnvironment
        | GoawayReason::NotAllowed
        | GoawayReason::DigestScheme
        | GoawayReason::Protocol
        | GoawayReason::TooManyNodes => "goaway/other",
    }
}
