//! One node's session: a cursor over the store, without I/O or clock.
//!
//! Call order: [`Session::open`] with the node's `Hello`; then, in any order, [`Session::on_message`] for each of
//! the node's frames and [`Session::tick`] at or after [`Session::deadline`]; and [`Session::poll`] whenever the
//! transport takes a frame, until it answers nothing. Once [`Session::ended`] answers a goaway, it is sent and the
//! stream closed. Every call takes the newest [`Publication`]; time never goes back.
//!
//! A session holds no queue of changes. What it sends next follows from where the node is (its cursor) and what is
//! served, so a slow node gets merged state. It must never know the store's writer, other sessions, or sockets.

mod plan;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use headwater_model::digest::DIGEST_SCHEME;
use headwater_model::{Digest, Generation, Version, mutant};
use headwater_proto::config::{
    Ack, Bye, FallbackAnswer, FallbackRequest, Goaway, GoawayReason, Hello, NodeMessage, Progress, Refused,
    RefusedWhy, Rejects, ReplicaMessage, TransferReason, Welcome,
};
use headwater_proto::frame::{Frame, Framed};
use headwater_proto::limits;

use super::publication::Publication;
use super::transfer::Transfer;
use plan::{Next, Waiting};

/// How long a refusal by the node's guard is left alone unless an approval covers the jump.
const HELD_AGAIN: Duration = Duration::from_secs(30);

/// How often a node that keeps finding other digests, or is over its limit, is sent content.
const MISMATCH_AGAIN: Duration = Duration::from_secs(60);

/// How long a node that is ahead is waited for before both sides call it so.
pub const BEHIND_TIMEOUT: Duration = Duration::from_secs(10);

/// How often etcd is asked while a node is ahead.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// How a session of this replica behaves.
#[derive(Clone, Debug)]
pub struct Config {
    /// The replica's id.
    pub replica_id: Arc<str>,
    /// How often progress is sent.
    pub heartbeat: Duration,
    /// How many fallback requests of one node may wait for an answer at a time.
    pub max_fallbacks: usize,
}

/// One node's session.
#[derive(Debug)]
pub struct Session {
    config: Config,
    hello: Hello,
    /// What the node is known to hold.
    held: Option<Version>,
    sending: Option<Sending>,
    /// The target of a transfer that was sent whole and is not answered yet.
    unacked: Option<Version>,
    standoff: Option<Standoff>,
    control: VecDeque<ReplicaMessage>,
    events: Vec<SessionEvent>,
    heard: Duration,
    progress_at: Duration,
    ahead_since: Option<Duration>,
    ask_at: Duration,
    shown: (bool, bool),
    fallbacks: usize,
    ended: Option<Goaway>,
}

/// A transfer whose frames are being handed to the transport.
#[derive(Debug)]
struct Sending {
    transfer: Arc<Transfer>,
    next: usize,
}

/// A transfer that the node did not take.
#[derive(Debug)]
struct Standoff {
    why: RefusedWhy,
    target: Digest,
    again_at: Duration,
}

/// What a session tells the rest of the replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionEvent {
    /// A version is applied, or durable.
    Acked(Ack),
    /// What the node cannot use.
    Rejects(Rejects),
    /// The node did not take a transfer.
    Refused(Refused),
    /// Any other frame came.
    Heard,
    /// A transfer begins.
    Transferring {
        /// Where it leads.
        target: Version,
        /// What for.
        reason: TransferReason,
        /// The bytes of its frames.
        bytes: usize,
    },
    /// How the node stands to this replica.
    Standing {
        /// It is ahead of the replica and keeps what it has.
        held_ahead: bool,
        /// The replica has no proof of life of its source.
        degraded: bool,
    },
    /// The node holds a version above this replica's: ask etcd what is true of it.
    Ahead {
        /// What the node holds.
        held: Version,
    },
    /// The node's version carries a higher generation and the very digest that is served: take it.
    Adopt(Generation),
    /// Two digests for one lineage and revision.
    Divergence {
        /// What the node holds.
        node: Version,
        /// What this replica serves.
        replica: Version,
    },
    /// The node asks for an older value.
    Fallback(FallbackRequest),
    /// The node says that it ends, or moves.
    Bye(Bye),
}

/// What to hand to the transport next.
#[derive(Debug)]
pub enum Outgoing {
    /// A message.
    Message(Box<ReplicaMessage>),
    /// A frame of a transfer, shared with other sessions.
    Shared(Framed),
}

// === impl Outgoing ===

impl Outgoing {
    /// The encoded frame.
    #[must_use]
    pub fn into_frame(self) -> Frame {
        match self {
            Self::Message(message) => message.encode(),
            Self::Shared(framed) => framed.frame(),
        }
    }

    /// The encoded frame as it goes on the wire.
    #[must_use]
    pub fn into_framed(self) -> Framed {
        match self {
            Self::Message(message) => message.encode().into(),
            Self::Shared(framed) => framed,
        }
    }
}

// === impl Session ===

impl Session {
    /// Opens a session on a node's hello.
    ///
    /// # Errors
    /// The goaway that is to be sent instead.
    pub fn open(
        config: Config,
        hello: Hello,
        rejects_known: bool,
        publication: &Publication,
        now: Duration,
    ) -> Result<Self, Goaway> {
        refuse(&hello, publication)?;
        let welcome = Welcome {
            replica_id: config.replica_id.clone(),
            heartbeat: config.heartbeat,
            max_message_bytes: limits::MAX_MESSAGE_BYTES as u64,
            standing: publication.standing(),
            serving: publication.target().clone(),
        };
        let mut control = VecDeque::from([ReplicaMessage::Welcome(welcome)]);
        if !rejects_known {
            control.push_back(ReplicaMessage::RejectsPlease);
        }
        Ok(Self {
            config,
            held: hello.held.clone(),
            hello,
            sending: None,
            unacked: None,
            standoff: None,
            control,
            events: Vec::new(),
            heard: now,
            progress_at: now,
            ahead_since: None,
            ask_at: now,
            shown: (false, false),
            fallbacks: 0,
            ended: None,
        })
    }

    /// The node's hello.
    #[must_use]
    pub const fn hello(&self) -> &Hello {
        &self.hello
    }

    /// What the node is known to hold.
    #[must_use]
    pub const fn held(&self) -> Option<&Version> {
        self.held.as_ref()
    }

    /// Takes what there is to tell.
    pub fn take_events(&mut self) -> Vec<SessionEvent> {
        std::mem::take(&mut self.events)
    }

    /// Why the session has ended, once it has.
    #[must_use]
    pub const fn ended(&self) -> Option<&Goaway> {
        self.ended.as_ref()
    }

    /// Ends the session; the first reason stays.
    pub fn end(&mut self, reason: GoawayReason, detail: impl Into<Arc<str>>) {
        if self.ended.is_none() {
            self.ended = Some(Goaway { reason, detail: detail.into() });
        }
    }

    /// When [`Session::tick`] and [`Session::poll`] are due, whatever else happens, once `poll` has answered nothing.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        let deadline = self.tick_at();
        // Inside a transfer nothing else is sent: the transport's room is what is waited for, not the time.
        let deadline = if self.sending.is_none() { deadline.min(self.progress_at) } else { deadline };
        if self.ahead_since.is_some() { deadline.min(self.ask_at) } else { deadline }
    }

    /// When [`Session::tick`] alone is due: the deadline while the transport takes nothing.
    #[must_use]
    pub fn tick_at(&self) -> Duration {
        let silent = self.silent_at();
        self.standoff.as_ref().map_or(silent, |standoff| silent.min(standoff.again_at))
    }

    /// Judges silence. Frames that have arrived must be given to [`Session::on_message`] first.
    pub fn tick(&mut self, now: Duration) {
        if now >= self.silent_at() {
            self.end(GoawayReason::Silent, format!("no frame for {} heartbeats", limits::SILENT_HEARTBEATS));
        }
        if let Some(standoff) = &mut self.standoff
            && now >= standoff.again_at
        {
            // A mismatch stays remembered: the next try is the full content.
            match standoff.why {
                RefusedWhy::Mismatch => standoff.again_at = Duration::MAX,
                RefusedWhy::Held | RefusedWhy::OverLimit => self.standoff = None,
            }
        }
    }

    /// Takes one frame of the node.
    pub fn on_message(&mut self, message: NodeMessage, publication: &Publication, now: Duration) {
        self.heard = now;
        match message {
            NodeMessage::Hello(_) => self.end(GoawayReason::Protocol, "a second hello on one stream"),
            NodeMessage::Ack(ack) => self.on_ack(ack),
            NodeMessage::Rejects(rejects) => self.events.push(SessionEvent::Rejects(rejects)),
            NodeMessage::Refused(refused) => self.on_refused(refused, publication, now),
            NodeMessage::Receiving { .. } | NodeMessage::Alive => self.events.push(SessionEvent::Heard),
            NodeMessage::Fallback(request) => self.on_fallback(request),
            NodeMessage::Bye(bye) => self.events.push(SessionEvent::Bye(bye)),
        }
    }

    /// An older value could not be looked up.
    pub const fn fallback_lost(&mut self) {
        self.fallbacks = self.fallbacks.saturating_sub(1);
    }

    /// An older value was looked up.
    pub fn answer_fallback(&mut self, answer: FallbackAnswer) {
        self.fallbacks = self.fallbacks.saturating_sub(1);
        self.control.push_back(ReplicaMessage::Fallback(answer));
    }

    /// The next frame for the transport, if there is one to send now.
    pub fn poll(&mut self, publication: &Publication, now: Duration, now_unix: u64) -> Option<Outgoing> {
        if self.sending.is_none() {
            if let Some(message) = self.control.pop_front() {
                return Some(Outgoing::Message(Box::new(message)));
            }
            self.show_standing(publication, now);
            if self.unacked.is_none() {
                self.begin(publication, now, now_unix);
            }
            if self.ended.is_some() {
                // Progress would tell the node that it is in good hands here.
                return None;
            }
        }
        if let Some(frame) = self.next_frame() {
            return Some(Outgoing::Shared(frame));
        }
        (now >= self.progress_at).then(|| Outgoing::Message(Box::new(self.progress(publication, now))))
    }

    /// The bytes of the transfer that is being sent, for the bound on how many large ones go at a time.
    #[must_use]
    pub fn sending_bytes(&self) -> usize {
        self.sending.as_ref().map_or(0, |sending| sending.transfer.bytes)
    }

    fn silent_at(&self) -> Duration {
        self.heard + self.config.heartbeat * limits::SILENT_HEARTBEATS
    }

    fn next_frame(&mut self) -> Option<Framed> {
        let sending = self.sending.as_mut()?;
        let frame = sending.transfer.frames[sending.next].clone();
        sending.next += 1;
        if sending.next == sending.transfer.frames.len() {
            self.unacked = Some(sending.transfer.target.clone());
            self.sending = None;
        }
        Some(frame)
    }

    fn begin(&mut self, publication: &Publication, now: Duration, now_unix: u64) {
        let next = plan::next(self.held.as_ref(), self.hello.accept_degraded, publication, now_unix);
        let next = self.damped(next, publication, now, now_unix);
        if !matches!(next, Next::Wait(Waiting::Ahead | Waiting::GenerationAhead)) {
            self.ahead_since = None;
        }
        match next {
            Next::Transfer(plan) => {
                let approval = self.held.as_ref().and_then(|held| publication.approval(held, now_unix));
                let transfer = publication.transfers.get(&plan, &publication.serving, approval);
                debug_assert!(transfer.is_some(), "a plan's base lies where deletions are known");
                if let Some(transfer) = transfer {
                    let (target, reason) = (transfer.target.clone(), transfer.reason);
                    self.events.push(SessionEvent::Transferring { target, reason, bytes: transfer.bytes });
                    self.sending = Some(Sending { transfer, next: 0 });
                }
            }
            Next::Adopt(generation) if now >= self.ask_at => {
                self.ask_at = now + ASK_AGAIN;
                self.events.push(SessionEvent::Adopt(generation));
            }
            Next::Wait(Waiting::Ahead) => self.wait_ahead(now),
            Next::Wait(Waiting::GenerationAhead) => self.wait_for_generation(now),
            Next::Adopt(_) | Next::Current | Next::Wait(Waiting::Degraded | Waiting::Refused) => {}
        }
    }

    /// A refusal damps what is sent next: the guard's until an approval covers the jump or a while has passed, a
    /// mismatch's by one full transfer and then a pause.
    fn damped(&self, next: Next, publication: &Publication, now: Duration, now_unix: u64) -> Next {
        let (Some(standoff), Next::Transfer(plan)) = (&self.standoff, &next) else { return next };
        match standoff.why {
            RefusedWhy::Held if plan.reason.is_jump() && plan.approval.is_none() => {
                Next::Wait(Waiting::Refused)
            }
            RefusedWhy::OverLimit if standoff.target == publication.target().digest => {
                Next::Wait(Waiting::Refused)
            }
            RefusedWhy::Mismatch if now < standoff.again_at && standoff.again_at < Duration::MAX => {
                Next::Wait(Waiting::Refused)
            }
            RefusedWhy::Mismatch if plan.base.is_some() => {
                let held = self.held.as_ref();
                Next::Transfer(plan::full(TransferReason::Divergence, held, publication, now_unix))
            }
            _ => next,
        }
    }

    fn wait_ahead(&mut self, now: Duration) {
        self.ahead_since.get_or_insert(now);
        if let Some(held) = self.held.clone().filter(|_| now >= self.ask_at) {
            self.ask_at = now + ASK_AGAIN;
            self.events.push(SessionEvent::Ahead { held });
        }
    }

    /// etcd is asked whether it knows the node's version; where nothing comes of it, the node tries elsewhere.
    fn wait_for_generation(&mut self, now: Duration) {
        self.wait_ahead(now);
        if self.ahead_since.is_some_and(|since| now >= since + BEHIND_TIMEOUT) {
            self.end(
                GoawayReason::GenerationAhead,
                "the node's generation is above this replica's, and etcd could not be asked about it, or a held jump \
                 must be approved or rejected first",
            );
        }
    }

    fn show_standing(&mut self, publication: &Publication, now: Duration) {
        let held_ahead = self.ahead_since.is_some_and(|since| now >= since + BEHIND_TIMEOUT);
        let standing = (held_ahead, !publication.is_live());
        if standing != self.shown {
            self.shown = standing;
            self.events.push(SessionEvent::Standing { held_ahead, degraded: standing.1 });
        }
    }

    fn progress(&mut self, publication: &Publication, now: Duration) -> ReplicaMessage {
        self.progress_at = now + self.config.heartbeat;
        // What precedes this message on the stream: the last transfer sent whole, else what the node came with;
        // carried to the served revision when it is the very content that is served.
        let sent = self.unacked.as_ref().or(self.held.as_ref());
        let target = publication.target();
        let carried = sent.is_some_and(|sent| {
            publication.is_live() && sent.digest == target.digest && sent.cmp_position(target).is_le()
        });
        let delivered = if mutant::planted("progress-carries-head") {
            Some(publication.world.version().clone())
        } else if carried {
            Some(target.clone())
        } else {
            sent.cloned()
        };
        ReplicaMessage::Progress(Progress {
            delivered,
            head: publication.head(),
            source_proof_age: publication.proof_age(now),
            standing: publication.standing(),
        })
    }

    fn on_ack(&mut self, ack: Ack) {
        if let Some(applied) = &ack.applied {
            if self.unacked.as_ref() == Some(applied) {
                self.unacked = None;
                self.standoff = None;
            }
            if self.unacked.is_none() {
                self.held = Some(applied.clone());
            }
        }
        self.events.push(SessionEvent::Acked(ack));
    }

    fn on_refused(&mut self, refused: Refused, publication: &Publication, now: Duration) {
        if self.unacked.as_ref() == Some(&refused.target) {
            self.unacked = None;
        }
        self.held.clone_from(&refused.held);
        let again = self.standoff.as_ref().is_some_and(|before| before.why == refused.why);
        let again_at = match refused.why {
            RefusedWhy::Held => now + HELD_AGAIN,
            RefusedWhy::OverLimit => now + MISMATCH_AGAIN,
            RefusedWhy::Mismatch if again => now + MISMATCH_AGAIN,
            RefusedWhy::Mismatch => Duration::MAX,
        };
        if let (RefusedWhy::Mismatch, Some(node)) = (refused.why, &refused.held) {
            let replica = publication.target().clone();
            self.events.push(SessionEvent::Divergence { node: node.clone(), replica });
        }
        self.standoff = Some(Standoff { why: refused.why, target: refused.target.digest, again_at });
        self.events.push(SessionEvent::Refused(refused));
    }

    fn on_fallback(&mut self, request: FallbackRequest) {
        if self.fallbacks >= self.config.max_fallbacks {
            // The node asks again at its next change or connection; its queue must not become ours.
            self.events.push(SessionEvent::Heard);
            return;
        }
        self.fallbacks += 1;
        self.events.push(SessionEvent::Fallback(request));
    }
}

fn refuse(hello: &Hello, publication: &Publication) -> Result<(), Goaway> {
    let (reason, detail) = if hello.protocol != limits::PROTOCOL {
        let detail = format!("this replica speaks protocol {}, not {}", limits::PROTOCOL, hello.protocol);
        (GoawayReason::Protocol, detail)
    } else if hello.digest_scheme != DIGEST_SCHEME {
        let detail = format!("this replica knows digest scheme {DIGEST_SCHEME}, not {}", hello.digest_scheme);
        (GoawayReason::DigestScheme, detail)
    } else if !publication.complete {
        (GoawayReason::NotReady, "the environment has not been read completely yet".to_owned())
    } else {
        return Ok(());
    };
    Err(Goaway { reason, detail: detail.into() })
}

#[cfg(test)]
mod tests;
