//! The open watch: its responses, one by one, and its silence.

use std::time::Duration;

use headwater_model::Revision;
use headwater_model::mutant::planted;

use super::assembly::{Assembled, Assembly};
use super::input::{Action, Blame, Failure, Fault, Settings, WatchResponse};
use super::{Phase, Tracker};
use crate::backend::{Batch, KeyEvent, SourceEvent, Stage};

/// Said of a proxy (W29).
pub(super) const PROXY: &str = "there is an etcd grpc-proxy between: it answers no progress requests and hides the member. Point the endpoints at the members themselves";

/// Progress is asked for after this at first, then at doubled distances up to the interval (W20: never faster).
const FIRST_ASK: Duration = Duration::from_millis(250);

/// One watch stream with one watcher.
#[derive(Debug)]
pub(super) struct Stream {
    /// Everything up to it was delivered on this stream, on top of the state it was opened for.
    pub(super) safe: Revision,
    watch_id: i64,
    /// When the created response came.
    created: Option<Duration>,
    created_until: Duration,
    assembly: Assembly,
    /// The last revision of the last complete batch.
    last_batch: Option<Revision>,
    last_frame: Duration,
    /// A frame has come since created.
    framed: bool,
    answered: bool,
    /// There is something to catch up.
    behind: bool,
    ask_at: Duration,
    ask_gap: Duration,
    /// Silence is not judged before this: our own process stood still.
    not_before: Duration,
}

// === impl Stream ===

impl Stream {
    pub(super) fn new(
        now: Duration,
        safe: Revision,
        watch_id: i64,
        behind: bool,
        settings: &Settings,
    ) -> Self {
        Self {
            safe,
            watch_id,
            created: None,
            created_until: now + settings.check_timeout,
            assembly: Assembly::new(settings.assembly_bytes),
            last_batch: None,
            last_frame: now,
            framed: false,
            answered: false,
            behind,
            ask_at: Duration::MAX,
            ask_gap: FIRST_ASK.min(settings.progress_interval),
            not_before: Duration::ZERO,
        }
    }

    /// Moves the limits of silence to `until`.
    pub(super) fn postpone(&mut self, until: Duration) {
        self.created_until = self.created_until.max(until);
        self.not_before = until;
    }
}

// === impl Tracker ===

impl Tracker {
    /// When something is due on the stream.
    pub(super) fn stream_wake(&self, stream: &Stream) -> Duration {
        match stream.created {
            None => stream.created_until,
            Some(_) => stream.ask_at.min(self.dead_at(stream)),
        }
    }

    /// When the stream is dead unless a frame comes.
    fn dead_at(&self, stream: &Stream) -> Duration {
        stream.not_before.max(stream.last_frame + self.silence_limit(stream))
    }

    /// DESIGN 4.3: how long this stream may be silent.
    fn silence_limit(&self, stream: &Stream) -> Duration {
        let settings = &self.settings;
        if planted("silence-is-idleness") {
            return Duration::from_secs(u64::from(u32::MAX));
        }
        let limit = if stream.framed || !stream.behind {
            settings.liveness_timeout
        } else {
            settings.catch_up_timeout.saturating_mul(2_u32.saturating_pow(self.silent_resumes.min(6)))
        };
        if self.is_never_answered() { limit.max(settings.reopen_interval) } else { limit }
    }

    /// W29: no progress request was ever answered, and two streams in a row were silent from beginning to end. Only
    /// then: a watch that dies silently again and again must be found dead as quickly each time. (A proxy that lets
    /// events through costs a reopened watch after each quiet time, which loses nothing.)
    fn is_never_answered(&self) -> bool {
        !self.answered_once && self.unanswered >= 2
    }

    pub(super) fn on_stream_tick(&mut self, now: Duration) {
        if self.loading.as_ref().and_then(|loading| loading.page_until).is_some_and(|until| now >= until) {
            return self.on_page_timeout(now);
        }
        let Some(stream) = &self.stream else { return };
        if stream.created.is_none() {
            if now >= stream.created_until {
                self.fail(now, Blame::Silence, "the watch was not created in time");
            }
            return;
        }
        if now >= self.dead_at(stream) {
            let silent = now - stream.last_frame;
            return self.on_silence(now, silent);
        }
        if now >= stream.ask_at {
            self.ask(now);
        }
    }

    /// W8: only ever after created. W20: at a steady, slow pace; an unanswered request is simply repeated.
    fn ask(&mut self, now: Duration) {
        let interval = self.settings.progress_interval;
        let Some(stream) = &mut self.stream else { return };
        stream.ask_gap = if stream.answered { interval } else { (stream.ask_gap * 2).min(interval) };
        stream.ask_at = now + stream.ask_gap;
        self.out.push(Action::RequestProgress { attempt: self.attempt });
    }

    /// Silence is not idleness. The safe revision stays where it is: a timeout delivers nothing (W1).
    fn on_silence(&mut self, now: Duration, silent: Duration) {
        let Some(stream) = &self.stream else { return };
        self.counters.silences += 1;
        if !stream.answered && !stream.framed {
            self.unanswered = self.unanswered.saturating_add(1);
        }
        if !stream.framed && stream.behind {
            self.silent_resumes = self.silent_resumes.saturating_add(1);
        }
        #[cfg(headwater_mutants)]
        if self.loading.is_none() {
            self.timed_out = true;
        }
        let note = if self.is_never_answered() {
            format!("no progress request is ever answered: {PROXY}")
        } else {
            format!("the watch was silent for {:.1} s", silent.as_secs_f64())
        };
        self.fail(now, Blame::Silence, &note);
    }

    pub(super) fn on_response(&mut self, now: Duration, response: WatchResponse) {
        if self.phase != Phase::Watching || self.stream.is_none() {
            return;
        }
        // W17: fields before words.
        if response.compact_revision > Revision::ZERO {
            #[cfg(headwater_mutants)]
            if planted("resumed-at-the-compact-revision") {
                return self.resume_at(now, response.compact_revision);
            }
            return self.restart_load(now, "the watch was cancelled: what it needs next has been compacted");
        }
        if response.cancelled {
            return self.on_cancelled(now, &response.cancel_reason);
        }
        if !self.is_same_stream(now, &response) {
            return;
        }
        if response.created {
            self.on_created(now);
            if planted("created-certifies") {
                self.certify_header(response.header.revision);
            }
            return;
        }
        if response.events.is_empty() && !response.fragment {
            self.on_progress(now, &response);
        } else {
            self.on_events(now, response);
        }
    }

    /// W4, W29: the same cluster and member as checked, and our own watch id.
    fn is_same_stream(&mut self, now: Duration, response: &WatchResponse) -> bool {
        let Some(stream) = &self.stream else { return false };
        let header = response.header;
        let ours = response.watch_id == stream.watch_id;
        if header.cluster_id == 0 || header.member_id == 0 || (response.created && !ours) {
            self.refuse(now, Blame::Member, PROXY.to_owned());
            return false;
        }
        if header.cluster_id != self.checked.cluster_id || header.member_id != self.checked.member_id {
            self.fail(now, Blame::Member, "the watch was answered by another member than was checked");
            return false;
        }
        if !ours && !response.events.is_empty() {
            self.violate(now, "events of a watcher that was never created");
            return false;
        }
        true
    }

    /// A created response certifies nothing at all (W1, W2); it only allows to ask.
    fn on_created(&mut self, now: Duration) {
        let Some(stream) = &mut self.stream else { return };
        if stream.created.is_some() {
            return self.violate(now, "one watcher was created twice");
        }
        stream.created = Some(now);
        stream.last_frame = now;
        stream.ask_at = now + stream.ask_gap;
        self.refusal = None;
        if self.loading.is_some() {
            return self.next_page(now);
        }
        if std::mem::take(&mut self.from_file) {
            let cluster_id = self.checked.cluster_id;
            self.emit(SourceEvent::Resumed { cluster_id });
        }
        self.announce_liveness();
    }

    /// Says whether the stream has shown a frame yet.
    pub(super) fn announce_liveness(&mut self) {
        if self.loading.is_some() {
            return;
        }
        if self.stream.as_ref().is_some_and(|stream| stream.framed) {
            return self.stage(Stage::Live, None);
        }
        let note = self.is_never_answered().then(|| {
            let every = self.settings.reopen_interval.as_secs();
            format!("progress is never answered, the watch is reopened every {every} s: {PROXY}")
        });
        self.stage(Stage::CatchingUp, note);
    }

    /// Any frame after created is proof of life.
    fn on_frame(&mut self, now: Duration) {
        let Some(stream) = &mut self.stream else { return };
        stream.last_frame = stream.last_frame.max(now);
        if !std::mem::replace(&mut stream.framed, true) {
            self.silent_resumes = 0;
            self.announce_liveness();
        }
    }

    fn on_progress(&mut self, now: Duration, response: &WatchResponse) {
        let Some(stream) = &self.stream else { return };
        // W8: nothing that came before created is believed.
        let created = stream.created.is_some() || planted("progress-before-created");
        if !created {
            self.counters.ignored_progress += 1;
            return;
        }
        // W9 and W10: complete, addressed to us, of a release that may be believed, and not lower than before.
        let addressed = response.watch_id == -1 || response.watch_id == stream.watch_id;
        let certifies = addressed
            && self.trust.progress
            && !stream.assembly.is_pending()
            && response.header.revision >= stream.safe
            && response.header.revision > Revision::ZERO;
        if addressed {
            self.on_answer(now, response.header.revision);
        }
        if !certifies {
            self.counters.ignored_progress += 1;
            return;
        }
        self.counters.trusted_progress += 1;
        self.certify(response.header.revision);
    }

    /// Progress is answered: proof of life, whether or not it certifies.
    fn on_answer(&mut self, now: Duration, revision: Revision) {
        let Some(stream) = self.stream.as_mut().filter(|stream| stream.created.is_some()) else { return };
        stream.answered = true;
        (self.unanswered, self.answered_once) = (0, true);
        // W25: a lagging member's word does not reset it.
        if revision >= stream.safe {
            self.backoff.reset();
        }
        self.on_frame(now);
    }

    /// W1 (iii): everything up to the revision was delivered on this stream.
    fn certify(&mut self, revision: Revision) {
        let Some(stream) = &mut self.stream else { return };
        stream.safe = revision;
        if self.loading.is_some() {
            return;
        }
        if let Some(held) = &mut self.held {
            held.revision = revision;
        }
        self.emit(SourceEvent::Progress(revision));
    }

    /// The mutants: a header that is ahead of what was delivered moves the safe revision.
    fn certify_header(&mut self, header: Revision) {
        if self.stream.as_ref().is_some_and(|stream| header > stream.safe) {
            self.certify(header);
        }
    }

    fn on_events(&mut self, now: Duration, response: WatchResponse) {
        let Some(stream) = &mut self.stream else { return };
        if stream.created.is_none() {
            return self.violate(now, "events came before the watch was created");
        }
        let header = response.header.revision;
        let assembled = stream.assembly.take(response);
        self.on_frame(now);
        match assembled {
            Assembled::Pending => {}
            Assembled::Complete(events) => {
                self.deliver(now, events);
                if planted("header-certifies") {
                    self.certify_header(header);
                }
            }
            Assembled::Violation(what) => self.violate(now, &what),
            // W13: by pages, not by resuming at the same revision for ever.
            Assembled::TooLarge => {
                self.restart_load(now, "one change is above the bound of a watch: read by pages instead");
            }
        }
    }

    /// W1 (ii): whole revisions, above the safe one, move it to the last of them.
    fn deliver(&mut self, now: Duration, events: Vec<KeyEvent>) {
        let Some(stream) = &self.stream else { return };
        let (safe, last_batch) = (stream.safe, stream.last_batch);
        let (old, fresh): (Vec<_>, Vec<_>) = events.into_iter().partition(|event| event.revision() <= safe);
        self.counters.old_events += old.len() as u64;
        if let Some(what) = self.breach(&old, last_batch) {
            return self.violate(now, &what);
        }
        let Some(revision) = fresh.last().map(KeyEvent::revision) else { return };
        if let Some(stream) = &mut self.stream {
            stream.safe = revision;
            stream.last_batch = Some(revision);
        }
        self.backoff.reset();
        let batch = Batch::new(revision, fresh);
        if let Some(loading) = &mut self.loading {
            return loading.hold_back(batch);
        }
        if let Some(held) = &mut self.held {
            batch.events.iter().for_each(|event| held.apply(event));
            held.revision = revision;
        }
        self.emit(SourceEvent::Batch(batch));
    }

    /// W10: old events are ignored. W11: unless they prove that one revision was split over two responses, or that
    /// something certified had not been delivered.
    fn breach(&self, old: &[KeyEvent], last_batch: Option<Revision>) -> Option<String> {
        let held = self.held.as_ref().filter(|_| self.loading.is_none());
        for event in old {
            let split =
                Some(event.revision()) == last_batch && held.is_none_or(|held| !held.is_repeat(event));
            if split {
                return Some(format!("revision {} was split over two responses", event.revision()));
            }
            let missed = held.is_some_and(|held| held.was_missed(event));
            // The second guard of that mutant: without it the fault would heal itself by a full read.
            if missed && !planted("progress-before-created") {
                return Some(format!("revision {} came after it had been certified", event.revision()));
            }
        }
        None
    }

    /// W15, W17: a cancelled watcher is never kept; known reasons by their words.
    fn on_cancelled(&mut self, now: Duration, reason: &str) {
        if reason.contains("compacted") {
            return self.restart_load(now, "the watch was cancelled: what it needs next has been compacted");
        }
        let fault = if reason.contains("invalid auth token") || reason.contains("auth store is old") {
            Fault::Token
        } else if reason.contains("permission denied") || reason.contains("user name is empty") {
            Fault::Denied
        } else if reason.contains("no leader") {
            Fault::NoLeader
        } else {
            Fault::Other
        };
        let reason = if reason.is_empty() { "no reason given" } else { reason };
        self.fail_by(now, &Failure::new(fault, format!("the watch was cancelled: {reason}")));
    }

    pub(super) fn on_watch_ended(&mut self, now: Duration, failure: &Failure) {
        match failure.fault {
            Fault::Compacted => {
                self.restart_load(now, "the watch ended: what it needs next has been compacted");
            }
            // W13: the same batch would come again at each resume from here.
            Fault::TooLarge => {
                self.restart_load(
                    now,
                    "a batch of the watch is above the decode limit: read by pages instead",
                );
            }
            _ => self.fail_by(now, failure),
        }
    }
}
