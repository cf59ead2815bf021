//! Drives one session over its gRPC stream.
//!
//! The session decides; this loop only waits: for a frame of the node, for room in the transport, for a change of
//! what is served, for the session's deadline, for answers. It hands one frame to the transport at a time.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use headwater_model::Version;
use headwater_process::drain::DrainWatcher;
use headwater_proto::config::{
    Bye, FallbackAnswer, GoawayReason, Hello, NodeMessage, ReplicaMessage, TransferReason,
};
use headwater_proto::frame::{Frame, Framed};
use headwater_proto::limits::{PART_BYTES, TRANSFER_TIMEOUT};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tonic::Streaming;

use super::metrics::{self, Metrics, Reason};
use super::session::{self, Session, SessionEvent};
use crate::environment::{Clock, Environment};
use crate::fleet::{Fleet, FleetEvent, Happened, RowId};

/// From how many bytes on a transfer is large: only a few of them are sent at a time.
const LARGE_BYTES: usize = 1 << 20;

/// Frames handed over in one turn of the loop; then the node is listened to again.
const FRAMES_A_TURN: usize = 4;

/// Up to how many bytes a transfer is answered before anybody could look: the registry hears of it only if it is
/// still under way at the session's next deadline, a heartbeat at most.
const SOON_THERE_BYTES: usize = PART_BYTES;

/// What all sessions of a replica share.
pub struct Shared {
    /// How sessions behave.
    pub session: session::Config,
    /// Where what happens to nodes is told.
    pub fleet: Fleet,
    /// What is counted.
    pub metrics: Metrics,
    /// Admits large transfers.
    pub large: Arc<Semaphore>,
}

/// One node's stream, after its hello.
pub struct Connection {
    /// What the node said of itself.
    pub hello: Hello,
    /// The name it may join under.
    pub identity: Option<String>,
    /// Its address.
    pub address: String,
    /// Its further frames.
    pub incoming: Streaming<Frame>,
    /// Frames for it.
    pub outgoing: mpsc::Sender<Framed>,
    /// Where it belongs.
    pub environment: Environment,
}

struct Driver<'a> {
    session: Session,
    environment: Environment,
    shared: &'a Shared,
    row: RowId,
    connection: u64,
    clock: Clock,
    fallbacks: FuturesUnordered<Fallback>,
    bye: Option<Bye>,
    /// When the transport last took a frame.
    taken: Duration,
    /// Whether the session may have something to send.
    wants: bool,
    admitted: Option<OwnedSemaphorePermit>,
    /// A small transfer that is under way, which the registry hears of only if it is not answered soon.
    untold: Option<(Version, TransferReason)>,
}

/// The transport takes nothing any more.
struct Closed;

type Fallback = futures_util::future::BoxFuture<'static, Option<FallbackAnswer>>;

/// A place among the large transfers; nothing when the process ends.
async fn admission(large: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    large.clone().acquire_owned().await.ok()
}

/// Runs a node's session to its end.
pub async fn run(connection: Connection, shared: &Shared, drain: DrainWatcher) {
    let Connection { hello, identity, address, incoming, outgoing, environment } = connection;
    let clock = environment.clock();
    let row = RowId { node_id: hello.node_id.clone(), instance: hello.instance.clone() };
    let known = shared.fleet.knows_rejects(&hello);
    let publication = environment.publication();
    let session = match Session::open(shared.session.clone(), hello.clone(), known, &publication, clock.now())
    {
        Ok(session) => session,
        Err(goaway) => {
            shared.metrics.refusals.get_or_create(&Reason::of(goaway.reason.label())).inc();
            let frame = ReplicaMessage::Goaway(goaway).encode();
            let _ = tokio::time::timeout(TRANSFER_TIMEOUT, outgoing.send(frame.into())).await;
            return;
        }
    };
    let connection = hello.connection;
    let label = metrics::Environment { environment: environment.name().to_string() };
    let gauge = shared.metrics.sessions.get_or_create_owned(&label);
    gauge.inc();
    let joined = Happened::Joined { hello: Box::new(hello), identity, peer: address };
    let mut driver = Driver {
        session,
        shared,
        row,
        connection,
        clock,
        environment,
        fallbacks: FuturesUnordered::new(),
        bye: None,
        taken: clock.now(),
        wants: true,
        admitted: None,
        untold: None,
    };
    driver.tell(joined).await;
    let reason = driver.drive(incoming, &outgoing, drain).await;
    gauge.dec();
    driver.finish(reason, &outgoing).await;
}

// === impl Driver ===

impl Driver<'_> {
    /// Runs until the stream or the session ends; answers why the stream did, if it did.
    async fn drive(
        &mut self,
        mut incoming: Streaming<Frame>,
        outgoing: &mpsc::Sender<Framed>,
        mut drain: DrainWatcher,
    ) -> Option<String> {
        let mut wakes = self.environment.wakes();
        let mut timer = std::pin::pin!(tokio::time::sleep_until(self.clock.at(self.deadline())));
        loop {
            if self.hand_over(outgoing).is_err() {
                return Some("the node closed the stream".to_owned());
            }
            self.forward_events().await;
            if self.session.ended().is_some() {
                return None;
            }
            // Deadlines move once a heartbeat, far more rarely than this loop turns.
            let deadline = self.clock.at(self.deadline());
            if timer.deadline() != deadline {
                timer.as_mut().reset(deadline);
            }
            let waits = self.waits_for_admission();
            tokio::select! {
                () = drain.draining() => self.session.end(GoawayReason::Draining, "this replica is draining"),
                frame = incoming.message() => match frame {
                    Ok(Some(frame)) => self.on_frame(frame),
                    Ok(None) => return Some("the node closed the stream".to_owned()),
                    Err(status) => return Some(format!("the stream broke: {}", status.message())),
                },
                permit = admission(&self.shared.large), if waits => self.admitted = permit,
                permit = outgoing.reserve(), if self.wants && !waits => match permit {
                    Ok(permit) => self.send(permit),
                    Err(_) => return Some("the node closed the stream".to_owned()),
                },
                changed = wakes.changed() => match changed {
                    Ok(()) => self.wants = true,
                    Err(_) => self.session.end(GoawayReason::Draining, "the environment has ended"),
                },
                Some(answer) = self.fallbacks.next() => {
                    match answer {
                        Some(answer) => {
                            self.session.answer_fallback(answer);
                            self.wants = true;
                        }
                        // The node asks again on its next stream.
                        None => self.session.fallback_lost(),
                    }
                }
                () = timer.as_mut() => {
                    // What has arrived while this process slept is judged before time is.
                    while let Some(Ok(Some(frame))) = incoming.message().now_or_never() {
                        self.on_frame(frame);
                    }
                    self.on_deadline().await;
                }
            }
        }
    }

    /// Gives the transport what there is to send, while it has room, so that an update costs one turn of the loop.
    fn hand_over(&mut self, outgoing: &mpsc::Sender<Framed>) -> Result<(), Closed> {
        for _ in 0..FRAMES_A_TURN {
            if !self.wants || self.waits_for_admission() {
                break;
            }
            match outgoing.try_reserve() {
                Ok(permit) => self.send(permit),
                Err(TrySendError::Full(())) => break,
                Err(TrySendError::Closed(())) => return Err(Closed),
            }
        }
        Ok(())
    }

    /// What is to be sent waits for room or for its turn, not for time: a node that reads slowly must not keep this
    /// loop turning.
    fn deadline(&self) -> Duration {
        if !self.wants {
            return self.session.deadline();
        }
        let deadline = self.session.tick_at();
        if self.waits_for_admission() {
            deadline.min(self.taken + self.shared.session.heartbeat)
        } else if self.is_stuck_sending() {
            deadline.min(self.taken + TRANSFER_TIMEOUT)
        } else {
            deadline
        }
    }

    fn is_stuck_sending(&self) -> bool {
        self.wants && self.session.sending_bytes() > 0
    }

    async fn on_deadline(&mut self) {
        let now = self.clock.now();
        self.session.tick(now);
        if self.is_stuck_sending() && now >= self.taken + TRANSFER_TIMEOUT {
            let detail = format!("no byte of a transfer was taken for {} s", TRANSFER_TIMEOUT.as_secs());
            self.session.end(GoawayReason::TransferStalled, detail);
        }
        self.wants = true;
        if let Some((target, reason)) = self.untold.take() {
            self.tell(Happened::Transferring { target, reason }).await;
        }
    }

    /// Large transfers wait for their turn, though never so long that the node takes the silence for death.
    fn waits_for_admission(&self) -> bool {
        self.session.sending_bytes() > LARGE_BYTES
            && self.admitted.is_none()
            && self.clock.now() < self.taken + self.shared.session.heartbeat
    }

    fn send(&mut self, permit: mpsc::Permit<'_, Framed>) {
        let publication = self.environment.publication();
        let now = self.clock.now();
        match self.session.poll(&publication, now, self.clock.unix()) {
            Some(outgoing) => {
                let framed = outgoing.into_framed();
                self.shared.metrics.bytes.inc_by(framed.len() as u64);
                permit.send(framed);
                self.taken = now;
            }
            None => self.wants = false,
        }
        if self.session.sending_bytes() == 0 {
            self.admitted = None;
        }
    }

    fn on_frame(&mut self, frame: Frame) {
        match NodeMessage::decode(frame) {
            Ok(message) => {
                let publication = self.environment.publication();
                self.session.on_message(message, &publication, self.clock.now());
                self.wants = true;
            }
            Err(invalid) => self.session.end(GoawayReason::Protocol, invalid.to_string()),
        }
    }

    async fn forward_events(&mut self) {
        for event in self.session.take_events() {
            match event {
                SessionEvent::Acked(ack) => {
                    self.untold = None;
                    self.tell(Happened::Acked(ack)).await;
                }
                SessionEvent::Rejects(rejects) => self.tell(Happened::Rejects(rejects)).await,
                SessionEvent::Refused(refused) => {
                    let reason = Reason::of(refused.why.label());
                    self.shared.metrics.refused_transfers.get_or_create(&reason).inc();
                    tracing::warn!(
                        node = %self.row.node_id, target = %refused.target, why = refused.why.label(),
                        "a node did not take a transfer: {}", refused.detail
                    );
                    self.untold = None;
                    self.tell(Happened::Refused(refused)).await;
                }
                SessionEvent::Heard => self.tell(Happened::Heard).await,
                SessionEvent::Transferring { target, reason, bytes } => {
                    self.shared.metrics.transfers.get_or_create(&Reason::of(reason.label())).inc();
                    if bytes > SOON_THERE_BYTES {
                        self.tell(Happened::Transferring { target, reason }).await;
                    } else {
                        self.untold = Some((target, reason));
                    }
                }
                SessionEvent::Standing { held_ahead, degraded } => {
                    self.tell(Happened::Standing { held_ahead, degraded }).await;
                }
                SessionEvent::Ahead { held } => self.environment.node_ahead(held).await,
                SessionEvent::Adopt(generation) => self.environment.adopt(generation).await,
                SessionEvent::Divergence { node, replica } => {
                    self.shared.metrics.divergences.inc();
                    self.environment.divergence(node, replica).await;
                }
                SessionEvent::Fallback(request) => {
                    let environment = self.environment.clone();
                    self.fallbacks.push(async move { environment.fallback(request).await }.boxed());
                }
                SessionEvent::Bye(bye) => self.bye = Some(bye),
            }
        }
    }

    async fn tell(&mut self, happened: Happened) {
        let event = FleetEvent { row: self.row.clone(), connection: self.connection, happened };
        // The registry ends only with the process.
        let _ = self.shared.fleet.tell(event).await;
    }

    async fn finish(mut self, closed: Option<String>, outgoing: &mpsc::Sender<Framed>) {
        let (label, reason) = match (self.session.ended(), closed) {
            (Some(goaway), _) => {
                (goaway.reason.label(), format!("{}: {}", goaway.reason.label(), goaway.detail))
            }
            (None, Some(closed)) if self.bye.is_some() => ("bye", closed),
            (None, closed) => ("closed", closed.unwrap_or_default()),
        };
        self.shared.metrics.ends.get_or_create(&Reason::of(label)).inc();
        if let Some(goaway) = self.session.ended().cloned() {
            let frame = ReplicaMessage::Goaway(goaway).encode();
            // A stream that takes nothing is dropped with whatever it was not told.
            let _ = outgoing.try_send(frame.into());
        }
        tracing::info!(node = %self.row.node_id, %reason, "a session ended");
        let bye = self.bye;
        self.tell(Happened::Left { bye, reason }).await;
    }
}
