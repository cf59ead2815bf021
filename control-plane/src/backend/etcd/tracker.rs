//! The whole life of one environment's watch, as a state machine. Pure.
//!
//! It takes what happened and the time, and answers what to do: back off, connect and look at the release, check
//! the header, prove the content, then watch on from the safe revision, or load and watch from there. The shell
//! carries out the actions; the simulation runs this same code.
//!
//! The invariant: **the safe revision moves only by a complete event batch or a trusted progress response of the
//! watch stream in use**, or by a load installed as a whole. Never by a timeout, a created response, a header, a
//! read beside the stream or anything of an attempt that was given up. The rules W1 to W32 are those of the etcd
//! watch protocol as studied for this project; each is named where it is kept.
//!
//! It must never know values (it keeps revisions and hashes), connections, or what a resource means.

mod assembly;
mod backoff;
mod held;
mod input;
mod loading;
mod merge;
mod opening;
mod outbox;
mod stream;
#[cfg(test)]
mod tests;

use std::time::Duration;

use headwater_model::{Generation, Revision};

use self::backoff::Backoff;
use self::held::Held;
pub use self::input::{
    Action, Attempt, Blame, Failure, Fault, Found, Header, Input, Member, MemberVersion, Page, Proof,
    ProofQuestion, Settings, Testimony, WatchResponse, key_hash, value_hash,
};
use self::loading::Loading;
pub use self::outbox::Outbox;
use self::stream::Stream;
use super::version_gate::Trust;
use crate::backend::{ResumePoint, SourceEvent, SourceState, Stage};

/// A tick that comes later than asked for by more than this means that our own process stood still.
const PAUSE: Duration = Duration::from_secs(1);

/// What was seen and judged so far; for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Events at or below the safe revision, dropped (W10, W11).
    pub old_events: u64,
    /// Progress responses that certified nothing: early, low, untrusted or in the middle of a change (W8, W9, W10).
    pub ignored_progress: u64,
    /// Progress responses that certified.
    pub trusted_progress: u64,
    /// Breaches of the protocol; each ended a stream and led to a full read.
    pub violations: u64,
    /// Streams that ended by silence.
    pub silences: u64,
    /// Loads completed.
    pub loads: u64,
    /// Rewinds that another member denied: nothing was changed.
    pub member_divergences: u64,
}

/// Follows one environment's watch.
#[derive(Debug)]
pub struct Tracker {
    settings: Settings,
    phase: Phase,
    attempt: Attempt,
    held: Option<Held>,
    /// What is held comes from a file and has not been proven yet.
    from_file: bool,
    member: Option<Member>,
    trust: Trust,
    /// Of the last header check of this attempt.
    checked: Header,
    /// The first of the two reads that prove a rewind.
    doubt: Option<String>,
    stream: Option<Stream>,
    loading: Option<Loading>,
    /// Why everything is to be read although it could be resumed.
    must_reload: Option<String>,
    /// The lowest generation that the next load is to be of.
    generation: Generation,
    page_keys: u32,
    load_restarts: u32,
    backoff: Backoff,
    /// Resumes that ended without a frame, one after the other.
    silent_resumes: u32,
    /// Streams that ended by silence without one progress answer, one after the other.
    unanswered: u32,
    /// A progress request was answered once: whatever stays silent since then is dead, not a proxy.
    answered_once: bool,
    /// A late tick has been excused since the last sign of the world.
    excused: bool,
    refusal: Option<String>,
    last_state: Option<SourceState>,
    counters: Counters,
    out: Vec<Action>,
    #[cfg(headwater_mutants)]
    timed_out: bool,
}

/// Where it stands. `until` is when the stage has taken too long, or is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Before the first input.
    New,
    /// Between two attempts.
    BackingOff { until: Duration },
    /// [`Action::Connect`] is out.
    Connecting { until: Duration },
    /// The header check before a resume or a load is out.
    Checking { until: Duration },
    /// The first read spoke of a rewind; the second one waits.
    Doubting { until: Duration },
    /// The content proof is out.
    Proving { until: Duration },
    /// Two reads spoke of a rewind; the other members are asked.
    Asking { until: Duration },
    /// The first page is out.
    FirstPage { until: Duration },
    /// The header check between first page and watch is out.
    CheckingLoad { until: Duration },
    /// The watch is open; a load may still be reading pages.
    Watching,
}

// === impl Tracker ===

impl Tracker {
    /// A tracker that starts with its first input. `seed` feeds the jitter.
    #[must_use]
    pub fn new(settings: Settings, resume: Option<ResumePoint>, seed: u64) -> Self {
        let backoff = Backoff::new(settings.backoff_min, settings.backoff_max, settings.members, seed);
        Self {
            phase: Phase::New,
            attempt: Attempt(0),
            from_file: resume.is_some(),
            held: resume.map(Held::from_resume),
            member: None,
            trust: Trust::NOTHING,
            checked: Header::default(),
            doubt: None,
            stream: None,
            loading: None,
            must_reload: None,
            generation: Generation(0),
            page_keys: settings.page_keys.max(1),
            load_restarts: 0,
            backoff,
            silent_resumes: 0,
            unanswered: 0,
            answered_once: false,
            excused: false,
            refusal: None,
            last_state: None,
            counters: Counters::default(),
            out: Vec::new(),
            settings,
            #[cfg(headwater_mutants)]
            timed_out: false,
        }
    }

    /// Takes what happened at `now` (since an arbitrary start, never falling) and answers what to do, in order.
    #[must_use]
    pub fn handle(&mut self, now: Duration, input: Input) -> Vec<Action> {
        if self.phase == Phase::New {
            self.connect(now);
        }
        match input {
            Input::Tick => self.on_tick(now),
            Input::Reload { reason, generation } => self.on_reload(now, reason, generation),
            Input::Connected { attempt, member } if self.is_current(attempt) => {
                self.on_connected(now, member);
            }
            Input::HeaderChecked { attempt, header } if self.is_current(attempt) => {
                self.on_header(now, header);
            }
            Input::ProofAnswered { attempt, proof } if self.is_current(attempt) => self.on_proof(now, &proof),
            Input::OthersAnswered { attempt, answers } if self.is_current(attempt) => {
                self.on_others(now, &answers);
            }
            Input::PageRead { attempt, page } if self.is_current(attempt) => self.on_page(now, page),
            Input::WatchResponse { attempt, response } if self.is_current(attempt) => {
                self.on_response(now, response);
            }
            Input::WatchEnded { attempt, failure } if self.is_current(attempt) => {
                self.on_watch_ended(now, &failure);
            }
            Input::CallFailed { attempt, failure } if self.is_current(attempt) => {
                self.on_call_failed(now, &failure);
            }
            // W1, W2: what belongs to another attempt is not looked at.
            _ => {}
        }
        std::mem::take(&mut self.out)
    }

    /// When [`Input::Tick`] is due at the latest.
    #[must_use]
    pub fn next_wake(&self) -> Duration {
        let phase = match self.phase {
            Phase::New => Duration::ZERO,
            Phase::BackingOff { until }
            | Phase::Connecting { until }
            | Phase::Checking { until }
            | Phase::Doubting { until }
            | Phase::Proving { until }
            | Phase::Asking { until }
            | Phase::FirstPage { until }
            | Phase::CheckingLoad { until } => until,
            Phase::Watching => Duration::MAX,
        };
        let page = self.loading.as_ref().and_then(|loading| loading.page_until).unwrap_or(Duration::MAX);
        let stream = self.stream.as_ref().map_or(Duration::MAX, |stream| self.stream_wake(stream));
        phase.min(page).min(stream)
    }

    /// The safe revision: everything up to it has been emitted.
    #[must_use]
    pub fn safe_revision(&self) -> Option<Revision> {
        self.held.as_ref().map(|held| held.revision)
    }

    /// The cluster of the history that is held.
    #[must_use]
    pub fn cluster_id(&self) -> Option<u64> {
        self.held.as_ref().map(|held| held.cluster_id)
    }

    /// The state as last emitted.
    #[must_use]
    pub const fn state(&self) -> Option<&SourceState> {
        self.last_state.as_ref()
    }

    /// What was seen so far.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Whether an answer belongs to what is going on; it is a sign of the world then.
    fn is_current(&mut self, attempt: Attempt) -> bool {
        let current = attempt == self.attempt && !matches!(self.phase, Phase::BackingOff { .. });
        if current {
            self.excused = false;
        }
        current
    }

    fn on_tick(&mut self, now: Duration) {
        let due = self.next_wake();
        if now < due {
            return;
        }
        // DESIGN 4.3: after a pause of our own process, what is buffered is read before time is judged.
        if now - due > PAUSE && !self.excused && !matches!(self.phase, Phase::BackingOff { .. }) {
            self.excused = true;
            self.postpone(now + PAUSE);
            return;
        }
        match self.phase {
            Phase::New | Phase::BackingOff { .. } => self.connect(now),
            Phase::Doubting { .. } => self.check_again(now),
            Phase::Connecting { until } if now >= until => {
                self.fail(now, Blame::Member, "the member did not answer a connection and Status in time");
            }
            Phase::Checking { until } | Phase::CheckingLoad { until } if now >= until => {
                self.fail(now, Blame::Silence, "the header check was not answered in time");
            }
            Phase::Proving { until } if now >= until => {
                self.fail(now, Blame::Silence, "the content proof was not answered in time");
            }
            Phase::Asking { until } if now >= until => {
                self.fail(now, Blame::Silence, "the other members were asked and nothing came back in time");
            }
            Phase::FirstPage { until } if now >= until => self.on_page_timeout(now),
            _ => self.on_stream_tick(now),
        }
    }

    /// Moves every limit that has passed to `until`.
    fn postpone(&mut self, until: Duration) {
        match &mut self.phase {
            Phase::Connecting { until: limit }
            | Phase::Checking { until: limit }
            | Phase::Doubting { until: limit }
            | Phase::Proving { until: limit }
            | Phase::Asking { until: limit }
            | Phase::FirstPage { until: limit }
            | Phase::CheckingLoad { until: limit } => *limit = (*limit).max(until),
            Phase::New | Phase::BackingOff { .. } | Phase::Watching => {}
        }
        if let Some(limit) = self.loading.as_mut().and_then(|loading| loading.page_until.as_mut()) {
            *limit = (*limit).max(until);
        }
        if let Some(stream) = &mut self.stream {
            stream.postpone(until);
        }
    }

    fn on_reload(&mut self, now: Duration, reason: String, generation: Generation) {
        let raised = generation > self.generation;
        self.generation = self.generation.max(generation);
        // A load in progress reads everything anyway. But it may have begun before the history was replaced that the
        // generation tells of, so one that is to be of it begins anew.
        if self.loading.is_some() && !raised {
            return;
        }
        self.must_reload = Some(reason);
        if self.phase == Phase::Watching || self.loading.is_some() {
            self.restart(now);
        }
    }

    /// A new attempt at once, on the same connection: nothing is wrong with it.
    fn restart(&mut self, now: Duration) {
        self.give_up();
        self.connect(now);
    }

    /// A load that lost its revision to compaction, or a stream that did, starts over, within a bound.
    fn restart_load(&mut self, now: Duration, reason: &str) {
        self.must_reload = Some(reason.to_owned());
        self.load_restarts += 1;
        if self.load_restarts > self.settings.load_restarts {
            self.load_restarts = 0;
            self.fail(
                now,
                Blame::Stream,
                &format!("{reason}, again and again: is etcd compacted too often?"),
            );
        } else {
            self.restart(now);
        }
    }

    /// W15: after any fault nothing of the attempt is used again.
    fn fail(&mut self, now: Duration, blame: Blame, note: &str) {
        self.refusal = None;
        self.back_off(now, blame, note);
    }

    fn back_off(&mut self, now: Duration, blame: Blame, note: &str) {
        self.give_up();
        self.out.push(Action::Blame(blame));
        self.phase = Phase::BackingOff { until: now + self.backoff.next() };
        self.stage(Stage::BackingOff, Some(note.to_owned()));
    }

    /// The member must not be followed, or does not let us: said until a watch is created or something else fails.
    fn refuse(&mut self, now: Duration, blame: Blame, note: String) {
        self.refusal = Some(note);
        self.back_off(now, blame, "refused");
    }

    /// A breach of the protocol: everything is read again (W11).
    fn violate(&mut self, now: Duration, what: &str) {
        self.counters.violations += 1;
        self.must_reload = Some(what.to_owned());
        self.fail(now, Blame::Stream, &format!("the watch stream broke the protocol: {what}"));
    }

    fn give_up(&mut self) {
        self.stream = None;
        self.loading = None;
        self.doubt = None;
        self.out.push(Action::Drop { attempt: self.attempt });
    }

    fn emit(&mut self, event: SourceEvent) {
        self.out.push(Action::Emit(event));
    }

    /// Tells the environment where it stands, when that has changed.
    fn stage(&mut self, stage: Stage, note: Option<String>) {
        let (stage, note) = match &self.refusal {
            Some(refusal) => (Stage::Refused, Some(refusal.clone())),
            None => (stage, note),
        };
        let state = SourceState {
            stage,
            member: self.member.as_ref().map(|member| member.endpoint.clone()).unwrap_or_default(),
            server_version: self.member.as_ref().and_then(Member::version),
            note: note.or_else(|| self.trust.note.clone()),
        };
        if self.last_state.as_ref() != Some(&state) {
            self.last_state = Some(state.clone());
            self.emit(SourceEvent::State(state));
        }
    }
}
