//! The modelled shell of a replica's source: it carries out the tracker's actions over connections that fail.

use bytes::Bytes;
use headwater_control_plane::backend::embedded::mvcc::{
    self, Event, EventKind, First, Interval, KeyValue, MvccError, RangeRequest,
};
use headwater_control_plane::backend::etcd::tracker::{
    Action, Attempt, Blame, Failure, Fault, Found, Header, Input, Member, MemberVersion, Page, Proof,
    ProofQuestion, WatchResponse, key_hash, value_hash,
};
use headwater_control_plane::backend::{Entry, KeyEvent, SourceEvent, Stage};
use headwater_model::{Digest, Revision};

use super::coverage::Coverage;
use super::etcd::{Origin, PREFIX};
use super::replica::Connection;
use super::world::{What, World};

/// A call on its way to etcd.
#[derive(Clone, Debug)]
pub enum Call {
    /// Maintenance.Status.
    Status,
    /// A linearizable read of which only the header counts.
    Header,
    /// The proof's first read.
    Prove(ProofQuestion),
    /// The proof's second read, with what the first one found.
    ProveKey(ProofQuestion, Proof),
    /// What every other member has to say.
    Others(ProofQuestion),
    /// A page of a load.
    Page {
        /// At this revision, or the newest.
        revision: Option<Revision>,
        /// After this key, relative.
        after: Option<Bytes>,
        /// So many keys.
        limit: u32,
    },
    /// Opens the stream.
    Open {
        /// From here on.
        start: Revision,
        /// Under this id.
        watch_id: i64,
    },
    /// Asks for progress.
    Progress,
    /// Closes the stream.
    Close,
}

/// Over what something comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// The watch connection: lost when it is cut.
    Watch,
    /// The other connection, or the replica itself.
    Other,
}

impl World {
    /// Gives the tracker something and carries out what it wants.
    pub fn give(&mut self, replica: usize, input: Input) {
        let now = self.schedule.now();
        let actions = self.replicas[replica].tracker.handle(now, input);
        for action in actions {
            self.carry_out(replica, action);
        }
        let replica_state = &mut self.replicas[replica];
        let wake = replica_state.tracker.next_wake();
        if wake < replica_state.wake {
            replica_state.wake = wake;
            let incarnation = replica_state.incarnation;
            self.schedule.at(wake, What::Wakes { replica, incarnation });
        }
    }

    fn carry_out(&mut self, replica: usize, action: Action) {
        match action {
            Action::Connect { attempt } => self.connect(replica, attempt),
            Action::CheckHeader { .. } => self.call(replica, Call::Header),
            Action::Prove { question, .. } => self.call(replica, Call::Prove(question)),
            Action::AskOthers { question, .. } => {
                self.coverage.reached("members/asked");
                self.call(replica, Call::Others(question));
            }
            Action::ReadPage { revision, after, limit, .. } => {
                self.call(replica, Call::Page { revision, after, limit });
            }
            Action::OpenWatch { start, watch_id, .. } => self.call(replica, Call::Open { start, watch_id }),
            Action::RequestProgress { .. } => self.call(replica, Call::Progress),
            Action::Drop { .. } => self.call(replica, Call::Close),
            Action::Blame(blame) => self.replicas[replica].blame = Some(blame),
            Action::Emit(event) => self.emitted(replica, event),
        }
    }

    /// A fault that is not the stream's alone asks for another connection.
    fn connect(&mut self, replica: usize, attempt: Attempt) {
        let state = &mut self.replicas[replica];
        state.attempt = attempt;
        let elsewhere = matches!(state.blame.take(), Some(Blame::Silence | Blame::Member));
        if elsewhere || !state.connection.open {
            let (incarnation, old) = (state.incarnation, state.connection.id);
            state.connection = Connection { open: true, ..Connection::new(old + 1, &mut self.random) };
            self.etcd.close(|origin| {
                (origin.replica, origin.incarnation, origin.connection) == (replica, incarnation, old)
            });
        }
        self.call(replica, Call::Status);
    }

    pub(super) fn origin(&self, replica: usize) -> Origin {
        let state = &self.replicas[replica];
        Origin {
            replica,
            incarnation: state.incarnation,
            connection: state.connection.id,
            attempt: state.attempt,
        }
    }

    fn call(&mut self, replica: usize, call: Call) {
        let origin = self.origin(replica);
        let now = self.schedule.now();
        let state = &mut self.replicas[replica];
        let link =
            if matches!(call, Call::Page { .. }) { &mut state.side.0 } else { &mut state.connection.up };
        let arrival = link.arrival(now, &mut self.random);
        self.schedule.at(arrival, What::Arrives { origin, call });
    }

    /// A call reaches etcd, unless its connection is gone.
    pub(super) fn arrives(&mut self, origin: Origin, call: Call) {
        let paging = matches!(call, Call::Page { .. });
        if !paging && !self.is_connected(origin) {
            return;
        }
        if !self.etcd.up {
            let refused = Failure::new(Fault::Transport, "connection refused");
            let input = Input::CallFailed { attempt: origin.attempt, failure: refused };
            return self.answer(origin, Via::Other, input);
        }
        if let Some(denied) = self.denial(origin, &call) {
            return self.answer(origin, if paging { Via::Other } else { Via::Watch }, denied);
        }
        match call {
            Call::Open { start, watch_id } => {
                let lazy_until = self.etcd.lazy_sender;
                self.etcd.open(origin, start, watch_id, lazy_until);
                let epoch = self.etcd.truth.epoch();
                self.replicas[origin.replica].epochs.insert(origin.attempt, epoch);
            }
            Call::Progress if self.schedule.now() < self.etcd.no_progress => {}
            Call::Progress => self.etcd.progress(origin),
            Call::Close => self.etcd.close(|other| *other == origin),
            call => {
                let via = if paging { Via::Other } else { Via::Watch };
                if self.schedule.now() < self.lost_answers && self.random.one_in(3) {
                    return self.coverage.reached("answer/lost");
                }
                let input = self.unary(origin, call);
                self.answer(origin, via, input);
            }
        }
    }

    fn unary(&mut self, origin: Origin, call: Call) -> Input {
        let attempt = origin.attempt;
        let header = self.header_at(origin, &call);
        match call {
            Call::Others(question) => {
                Input::OthersAnswered { attempt, answers: self.others(origin, &question) }
            }
            Call::Status => Input::Connected { attempt, member: self.member(header) },
            Call::Prove(question) => match self.prove(&question) {
                Ok(mut proof) => {
                    proof.header.member_id = header.member_id;
                    if question.key.is_none() {
                        return Input::ProofAnswered { attempt, proof };
                    }
                    // The second read goes out when the first one is back.
                    self.call(origin.replica, Call::ProveKey(question, proof));
                    Input::Tick
                }
                Err(error) => self.failed(attempt, &error),
            },
            Call::ProveKey(question, proof) => match self.prove_key(&question) {
                Ok(newest) => Input::ProofAnswered { attempt, proof: Proof { newest, ..proof } },
                Err(error) => self.failed(attempt, &error),
            },
            Call::Page { revision, after, limit } => {
                let mut interval = prefix();
                if let Some(after) = after {
                    interval = interval.after(&absolute(&after));
                }
                let request = RangeRequest::of(interval).limit(limit as usize);
                match self.etcd.mvcc.range(&request.at(revision.unwrap_or_default())) {
                    Ok(answer) if self.is_too_large(answer.entries.len()) && limit > 1 => {
                        self.coverage.reached("answer/too-large");
                        Input::CallFailed { attempt, failure: too_large() }
                    }
                    Ok(answer) => {
                        let entries = answer.entries.into_iter().map(entry).collect();
                        Input::PageRead { attempt, page: Page { header, entries, more: answer.more } }
                    }
                    Err(error) => self.failed(attempt, &error),
                }
            }
            Call::Header | Call::Open { .. } | Call::Progress | Call::Close => {
                Input::HeaderChecked { attempt, header }
            }
        }
    }

    fn member(&self, header: Header) -> Member {
        Member {
            endpoint: "etcd".to_owned(),
            version: MemberVersion::Known(self.version.to_owned()),
            cluster_id: header.cluster_id,
            member_id: header.member_id,
            learner: false,
            has_leader: true,
        }
    }

    pub(super) fn prove(&self, question: &ProofQuestion) -> Result<Proof, MvccError> {
        let request = RangeRequest { keys_only: true, ..RangeRequest::of(prefix()).at(question.revision) };
        let answer = self.etcd.mvcc.range(&request)?;
        let keys =
            answer.entries.iter().map(|kv| key_hash(&relative(&kv.key), kv.create_revision, kv.mod_revision));
        Ok(Proof {
            header: tracker_header(answer.header),
            count: answer.count as u64,
            keys: keys.fold(Digest::EMPTY, Digest::plus),
            newest: None,
        })
    }

    pub(super) fn prove_key(&self, question: &ProofQuestion) -> Result<Option<Found>, MvccError> {
        let key = question.key.as_ref().map(|key| absolute(key)).unwrap_or_default();
        let answer = self.etcd.mvcc.range(&RangeRequest::of(Interval::single(key)).at(question.revision))?;
        Ok(answer.entries.into_iter().next().map(|kv| Found {
            create_revision: kv.create_revision,
            mod_revision: kv.mod_revision,
            value: value_hash(&kv.value),
        }))
    }

    fn failed(&mut self, attempt: Attempt, error: &MvccError) -> Input {
        let fault = match error {
            MvccError::Compacted { .. } => {
                self.coverage.reached("answer/compacted");
                Fault::Compacted
            }
            _ => Fault::Other,
        };
        Input::CallFailed { attempt, failure: Failure::new(fault, error.to_string()) }
    }

    fn answer(&mut self, origin: Origin, via: Via, input: Input) {
        if matches!(input, Input::Tick) {
            return;
        }
        let now = self.schedule.now();
        let state = &mut self.replicas[origin.replica];
        let link = if via == Via::Watch { &mut state.connection.down } else { &mut state.side.1 };
        let arrival = link.arrival(now, &mut self.random);
        self.schedule.at(arrival, What::Answers { origin, via, input: Box::new(input) });
    }

    /// Something comes back to a replica, unless it or its connection is gone.
    pub(super) fn answers(&mut self, origin: Origin, via: Via, input: Input) {
        let responds = matches!(input, Input::WatchResponse { .. });
        if responds
            && let Some(served) = self.etcd.streams.values_mut().find(|served| served.origin == origin)
        {
            served.in_flight = served.in_flight.saturating_sub(1);
        }
        let now = self.schedule.now();
        let state = &mut self.replicas[origin.replica];
        let gone = via == Via::Watch && (state.connection.id != origin.connection || !state.connection.open);
        if state.incarnation != origin.incarnation || gone {
            return;
        }
        if now < state.paused_until {
            return state.inbox.push_back(input);
        }
        self.give(origin.replica, input);
    }

    pub(super) fn is_connected(&self, origin: Origin) -> bool {
        let state = &self.replicas[origin.replica];
        state.incarnation == origin.incarnation
            && state.connection.id == origin.connection
            && state.connection.open
    }

    /// Sends what the streams have to say.
    pub(super) fn pump(&mut self) {
        let now = self.schedule.now();
        for stream in self.etcd.streams.keys().copied().collect::<Vec<_>>() {
            while let Some(served) = self.etcd.streams.get_mut(&stream) {
                let origin = served.origin;
                if now < served.lazy_until || served.in_flight >= self.replicas[origin.replica].window {
                    break;
                }
                let first = if self.random.one_in(2) { First::Control } else { First::Data };
                let Some(response) = self.etcd.mvcc.poll(stream, first) else { break };
                let early = response.is_progress() && !served.created;
                served.created |= response.created;
                served.swallowed |= now < self.replicas[origin.replica].connection.swallow_until;
                let swallowed = served.swallowed;
                served.in_flight += usize::from(!swallowed);
                self.saw(&response, early);
                if swallowed {
                    continue;
                }
                let mut response = watch_response(response);
                if self.is_too_large(response.events.len()) {
                    self.coverage.reached("watch/too-large");
                    self.etcd.close(|other| *other == origin);
                    let ended = Input::WatchEnded { attempt: origin.attempt, failure: too_large() };
                    self.answer(origin, Via::Watch, ended);
                    break;
                }
                response.header.member_id = self.member_id(origin);
                self.answer(origin, Via::Watch, Input::WatchResponse { attempt: origin.attempt, response });
            }
        }
    }

    fn saw(&mut self, response: &mvcc::WatchResponse, early: bool) {
        let revisions = |response: &mvcc::WatchResponse| {
            let first = response.events.first().map(|event| event.kv.mod_revision);
            first != response.events.last().map(|event| event.kv.mod_revision)
        };
        let cases = [
            ("watch/compacted", response.compact_revision > Revision::ZERO),
            ("watch/fragment", response.fragment),
            ("watch/several-revisions", revisions(response)),
            ("watch/progress", response.is_progress() && response.watch_id == -1),
            ("watch/unasked-progress", response.is_progress() && response.watch_id != -1),
            ("watch/early-progress", early),
        ];
        for (case, _) in cases.into_iter().filter(|(_, reached)| *reached) {
            self.coverage.reached(case);
        }
    }

    fn emitted(&mut self, replica: usize, event: SourceEvent) {
        if let SourceEvent::State(state) = &event {
            self.coverage.reached(stage(state.stage));
        }
        self.trace(|| format!("replica {replica}: {event:?}"));
        let state = &mut self.replicas[replica];
        let epoch = state.epochs.get(&state.attempt).copied().unwrap_or_else(|| self.etcd.truth.epoch());
        if let Err(wrong) = state.source.take(&event, epoch, &self.etcd.truth, &mut self.coverage) {
            self.violation(format!("replica {replica}: {wrong}"));
        }
        self.replicas[replica].waiting.push(event, epoch);
        self.hand_over(replica);
    }

    /// Gives a replica's writer what its source has for it, if it gets to run.
    pub(super) fn hand_over(&mut self, replica: usize) {
        let now = self.schedule.now();
        while now >= self.replicas[replica].writer_until {
            let state = &mut self.replicas[replica];
            let Some((event, epoch)) = state.waiting.pop() else { return };
            let epoch = epoch.unwrap_or_else(|| self.etcd.truth.epoch());
            let mut seen = Coverage::default();
            if let Err(wrong) = state.mirror.take(&event, epoch, &self.etcd.truth, &mut seen) {
                self.violation(format!("replica {replica}: its writer: {wrong}"));
            }
            self.taken(replica, event);
        }
    }
}

fn too_large() -> Failure {
    Failure::new(Fault::TooLarge, "decoded message length too large")
}

const fn stage(stage: Stage) -> &'static str {
    match stage {
        Stage::BackingOff => "stage/backing-off",
        Stage::Connecting => "stage/connecting",
        Stage::Proving => "stage/proving",
        Stage::Loading => "stage/loading",
        Stage::CatchingUp => "stage/catching-up",
        Stage::Live => "stage/live",
        Stage::Refused => "stage/refused",
        Stage::Stopped => "stage/stopped",
    }
}

fn prefix() -> Interval {
    Interval::prefix(Bytes::from_static(PREFIX.as_bytes()))
}

fn absolute(key: &[u8]) -> Bytes {
    [PREFIX.as_bytes(), key].concat().into()
}

fn relative(key: &Bytes) -> Bytes {
    key.slice(PREFIX.len()..)
}

fn entry(kv: KeyValue) -> Entry {
    Entry {
        key: relative(&kv.key),
        value: kv.value,
        create_revision: kv.create_revision,
        mod_revision: kv.mod_revision,
    }
}

fn key_event(event: Event) -> KeyEvent {
    match event.kind {
        EventKind::Put => KeyEvent::Put(entry(event.kv)),
        EventKind::Delete => {
            KeyEvent::Delete { key: relative(&event.kv.key), revision: event.kv.mod_revision }
        }
    }
}

pub(super) const fn tracker_header(header: mvcc::Header) -> Header {
    let mvcc::Header { cluster_id, member_id, revision, raft_term } = header;
    Header { cluster_id, member_id, revision, raft_term }
}

fn watch_response(response: mvcc::WatchResponse) -> WatchResponse {
    let bytes = response.encoded_len();
    let mvcc::WatchResponse {
        header,
        watch_id,
        created,
        cancelled,
        compact_revision,
        cancel_reason,
        fragment,
        events,
    } = response;
    WatchResponse {
        header: tracker_header(header),
        watch_id,
        created,
        cancelled,
        compact_revision,
        cancel_reason,
        fragment,
        events: events.into_iter().map(key_event).collect(),
        bytes,
    }
}
