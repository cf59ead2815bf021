//! The connection's side of the protocol: which address, when to dial, who is silent, when to go elsewhere.
//!
//! Addresses are tried in their configured order, one after the other; the delay grows by rounds, and starts over only
//! after health (progress that was judged, or a transfer that was applied).

use std::time::Duration;

use headwater_process::Backoff;
use headwater_proto::config::{Bye, NodeMessage};
use headwater_proto::limits;

use super::{Action, Moment, Peer, Phase, Protocol, Settings};

/// How much longer an unfit replica is waited for once all addresses were found unfit.
const SLOWER: u32 = 6;

/// The state of the connection.
#[derive(Debug)]
pub(super) struct Link {
    addresses: usize,
    address: usize,
    connection: u64,
    state: State,
    backoff: Backoff,
    connect_timeout: Duration,
    behind_timeout: Duration,
    heartbeat: Duration,
    heard_at: Duration,
    said_at: Duration,
    seen_at: Duration,
    /// Tries that ended since the last health.
    tried: usize,
    /// Moves away from replicas that were unfit, since one was not.
    moves: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Dialling { until: Duration },
    Open,
    Greeted,
    Stopped,
}

// === impl Link ===

impl Link {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            addresses: settings.addresses.max(1),
            address: 0,
            connection: 0,
            state: State::Idle,
            backoff: Backoff::new(settings.backoff_initial, settings.backoff_cap),
            connect_timeout: settings.connect_timeout,
            behind_timeout: settings.behind_timeout,
            heartbeat: limits::HEARTBEAT,
            heard_at: Duration::ZERO,
            said_at: Duration::ZERO,
            seen_at: Duration::ZERO,
            tried: 0,
            moves: 0,
        }
    }

    pub(super) const fn connection(&self) -> u64 {
        self.connection
    }

    pub(super) const fn address(&self) -> usize {
        self.address
    }

    pub(super) const fn phase(&self) -> Phase {
        match self.state {
            State::Idle | State::Dialling { .. } => Phase::Dialling,
            State::Open | State::Greeted => Phase::Open,
            State::Stopped => Phase::Stopped,
        }
    }

    pub(super) const fn is_current(&self, connection: u64) -> bool {
        self.connection == connection && !matches!(self.state, State::Idle | State::Stopped)
    }

    pub(super) const fn is_open(&self, connection: u64) -> bool {
        self.connection == connection && self.is_open_now()
    }

    pub(super) const fn is_open_now(&self) -> bool {
        matches!(self.state, State::Open | State::Greeted)
    }

    /// Whether the hello was sent.
    pub(super) const fn is_greeted(&self) -> bool {
        matches!(self.state, State::Greeted)
    }

    pub(super) const fn is_stopped(&self) -> bool {
        matches!(self.state, State::Stopped)
    }

    pub(super) const fn has_tried_all(&self) -> bool {
        self.tried >= self.addresses
    }

    pub(super) const fn has_others(&self) -> bool {
        self.addresses > 1
    }

    pub(super) fn open(&mut self, connection: u64, now: Duration) -> bool {
        let dialled = self.connection == connection && matches!(self.state, State::Dialling { .. });
        if dialled {
            self.state = State::Open;
            self.heartbeat = limits::HEARTBEAT;
            (self.heard_at, self.said_at, self.seen_at) = (now, now, now);
        }
        dialled
    }

    pub(super) const fn greet(&mut self) {
        self.state = State::Greeted;
    }

    pub(super) const fn stop(&mut self) {
        self.state = State::Stopped;
    }

    pub(super) const fn heard(&mut self, now: Duration) {
        self.heard_at = now;
    }

    pub(super) const fn said(&mut self, now: Duration) {
        self.said_at = now;
    }

    pub(super) const fn healthy(&mut self) {
        self.backoff.reset();
        self.tried = 0;
    }

    pub(super) const fn moved_on(&mut self) {
        self.moves += 1;
    }

    pub(super) const fn fit(&mut self) {
        self.moves = 0;
    }

    /// Takes over the replica's heartbeat; zero means the default.
    pub(super) const fn heartbeat(&mut self, heartbeat: Duration) {
        if !heartbeat.is_zero() {
            self.heartbeat = heartbeat;
        }
    }

    /// Whether nothing was sent for a heartbeat.
    pub(super) fn is_quiet(&self, now: Duration) -> bool {
        now >= self.said_at + self.heartbeat
    }

    /// How long a replica may stay unfit before another address is tried.
    pub(super) fn patience(&self) -> Duration {
        if self.moves >= self.addresses { self.behind_timeout * SLOWER } else { self.behind_timeout }
    }

    /// Why the connection is given up at this time, if it is.
    ///
    /// After a pause of this process nothing is judged in the first look, for what came meanwhile was not read yet.
    pub(super) fn overdue(&mut self, now: Duration) -> Option<String> {
        let paused = now.saturating_sub(self.seen_at) > self.heartbeat * 2;
        self.seen_at = now;
        let silence = self.heartbeat * limits::SILENT_HEARTBEATS;
        match self.state {
            State::Dialling { until } if now >= until => {
                Some(format!("no connection within {} s", self.connect_timeout.as_secs()))
            }
            State::Open | State::Greeted if !paused && now >= self.heard_at + silence => {
                Some(format!("silent for {} s", silence.as_secs()))
            }
            _ => None,
        }
    }

    /// When time is to be judged next.
    pub(super) fn wake(&self) -> Duration {
        match self.state {
            State::Idle | State::Stopped => Duration::MAX,
            State::Dialling { until } => until,
            State::Open | State::Greeted => {
                let silent = self.heard_at + self.heartbeat * limits::SILENT_HEARTBEATS;
                let quiet = self.said_at + self.heartbeat;
                let soon = self.seen_at + self.heartbeat;
                // Never in the past of the last look, so that a driver which sleeps until then makes progress.
                silent.min(quiet).min(soon).max(self.seen_at + self.heartbeat / 4)
            }
        }
    }

    /// The next try: at the next address, after a delay that grows once all were tried.
    fn next(&mut self, random: f64) -> Duration {
        self.tried = self.tried.saturating_add(1);
        self.address = (self.address + 1) % self.addresses;
        if self.tried.is_multiple_of(self.addresses) {
            self.backoff.next(random)
        } else {
            self.backoff.clone().next(random)
        }
    }
}

// === impl Protocol ===

impl Protocol {
    /// Dials the current address after a delay.
    pub(super) fn dial(&mut self, at: Moment, after: Duration) {
        self.link.connection += 1;
        self.link.state = State::Dialling { until: at.now + after + self.link.connect_timeout };
        let (connection, address) = (self.link.connection, self.link.address);
        self.out.push(Action::Connect { connection, address, after });
    }

    /// The connection is gone: tries the next address.
    pub(super) fn lost(&mut self, why: &str, at: Moment) {
        self.record.error(why, at.unix);
        self.forget_stream();
        if !self.link.is_stopped() {
            let after = self.link.next(at.random);
            self.dial(at, after);
        }
    }

    /// Gives the connection up and tries the next address.
    pub(super) fn abandon(&mut self, why: &str, at: Moment) {
        self.close(why);
        self.lost(why, at);
    }

    /// Goes to the next address of its own accord.
    pub(super) fn move_on(&mut self, why: &str, at: Moment) {
        self.send(NodeMessage::Bye(Bye::Moving), at);
        self.abandon(why, at);
    }

    /// The replica broke the protocol.
    pub(super) fn violation(&mut self, what: &str, at: Moment) {
        self.abandon(&format!("the replica broke the protocol: {what}"), at);
    }

    pub(super) fn close(&mut self, why: &str) {
        if !matches!(self.link.state, State::Idle | State::Stopped) {
            self.out.push(Action::Close { connection: self.link.connection, why: why.into() });
        }
    }

    pub(super) fn forget_stream(&mut self) {
        self.peer = Peer::default();
        self.rejects.forget_stream();
        self.staging = None;
        self.waiting.clear();
    }

    /// Whether the replica has been behind, or without proof of its source, for so long that another address should
    /// be tried.
    pub(super) fn is_unfit_too_long(&self, now: Duration) -> bool {
        self.link.has_others()
            && self.publishing.is_none()
            && self.peer.unfit_since.is_some_and(|since| now >= since + self.link.patience())
    }
}
