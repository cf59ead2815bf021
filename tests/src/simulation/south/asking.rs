//! What a replica asks etcd beside its watch: about a version that a node claims, and for older values.

use std::time::Duration;

use bytes::Bytes;
use headwater_control_plane::backend::embedded::mvcc::{Interval, KeyValue, MvccError, RangeRequest};
use headwater_control_plane::backend::etcd::tracker::Input;
use headwater_control_plane::backend::{Entry, Head, ReadError};
use headwater_control_plane::environment::inquiry::{self, Answer, Inquiry, Question, Step};
use headwater_control_plane::environment::older::lookup::{Look, Lookup};
use headwater_model::{Generation, Revision, Version};
use headwater_proto::config::{FallbackAnswer, FallbackRequest};

use super::South;
use super::stream::StreamId;
use crate::simulation::etcd::PREFIX;
use crate::simulation::world::{What, World};

/// How soon a read that was not answered is tried again.
const BETWEEN_TRIES: Duration = Duration::from_secs(5);

// === impl World ===

impl World {
    /// A node claims more than the replica has: one inquiry at a time, as the writer's shell has it.
    pub(super) fn inquire(&mut self, replica: usize, claimed: &Version) {
        let plane = &self.fleet.planes[replica];
        if plane.inquiring || !self.may_raise(replica, claimed.lineage.generation) {
            return;
        }
        let Some(inquiry) = Inquiry::into(claimed, plane.core.store().snapshot().version()) else { return };
        self.fleet.planes[replica].inquiring = true;
        let step = inquiry.begin();
        self.inquiry_goes_on(replica, inquiry, step);
    }

    fn inquiry_goes_on(&mut self, replica: usize, inquiry: Inquiry, step: Step) {
        match step {
            Step::Ask(question, after) => {
                self.coverage.reached(match question {
                    Question::Heads => "inquiry/heads",
                    Question::DigestAt(_) => "inquiry/digest",
                });
                let incarnation = self.replicas[replica].incarnation;
                let after = after + self.random.duration(Duration::from_millis(1), Duration::from_millis(60));
                let asks = South::Inquires { replica, incarnation, inquiry, question };
                self.schedule.after(after, What::South(asks));
            }
            Step::Open => {
                self.coverage.reached("inquiry/open");
                self.fleet.planes[replica].inquiring = false;
            }
            Step::Take(generation, why) => {
                self.coverage.reached("inquiry/taken");
                self.fleet.planes[replica].inquiring = false;
                self.raise(replica, generation, why);
            }
        }
    }

    /// etcd answers an inquiry.
    pub(super) fn inquires(
        &mut self,
        replica: usize,
        incarnation: u64,
        mut inquiry: Inquiry,
        asked: Question,
    ) {
        if self.replicas[replica].incarnation != incarnation {
            return;
        }
        let answer = self.inquiry_answer(asked);
        self.coverage.reached(match answer {
            Answer::Heads(_) => "inquiry/answered-heads",
            Answer::Digest(_) => "inquiry/answered-digest",
            Answer::Compacted => "inquiry/compacted",
            Answer::Future => "inquiry/future",
            Answer::Nothing => "inquiry/nothing",
        });
        let step = inquiry.answered(&answer);
        self.inquiry_goes_on(replica, inquiry, step);
    }

    fn inquiry_answer(&self, asked: Question) -> Answer {
        if !self.etcd.up {
            return Answer::Nothing;
        }
        match asked {
            Question::Heads => {
                let cluster_id = self.etcd.mvcc.identity().cluster_id;
                Answer::Heads(vec![Head { cluster_id, revision: self.etcd.mvcc.revision() }])
            }
            Question::DigestAt(revision) => {
                match self.read_at(Interval::prefix(Bytes::from_static(PREFIX.as_bytes())), revision) {
                    Ok(entries) => Answer::Digest(inquiry::digest(entries)),
                    Err(ReadError::Compacted { .. }) => Answer::Compacted,
                    Err(ReadError::Future { .. }) => Answer::Future,
                    Err(ReadError::Unavailable { .. } | ReadError::Refused(_)) => Answer::Nothing,
                }
            }
        }
    }

    fn may_raise(&self, replica: usize, to: Generation) -> bool {
        let plane = &self.fleet.planes[replica];
        let generation = plane.core.store().snapshot().lineage().generation;
        plane.core.hold().standing().is_none() && (plane.raising <= generation || plane.raising < to)
    }

    /// Asks the source to read everything again for a higher generation.
    pub(super) fn raise(&mut self, replica: usize, generation: Generation, reason: String) {
        let own = self.fleet.planes[replica].core.store().snapshot().lineage().generation;
        if generation > own && self.may_raise(replica, generation) {
            self.fleet.planes[replica].raising = generation;
            self.give(replica, Input::Reload { reason, generation });
        }
    }

    /// A node asks for an older value.
    pub(super) fn fallback_wanted(&mut self, replica: usize, stream: StreamId, request: FallbackRequest) {
        match self.fleet.planes[replica].older.answer(&request) {
            Some(answer) => self.fallback_known(stream, answer),
            None => self.lookup_goes_on(replica, stream, Lookup::begin(request.clone()), request),
        }
    }

    fn fallback_known(&mut self, stream: StreamId, answer: FallbackAnswer) {
        let late = if self.random.one_in(2) { 50 } else { 8_000 };
        let after = self.random.duration(Duration::ZERO, Duration::from_millis(late));
        self.schedule.after(after, What::South(South::Fallback { stream, answer }));
    }

    fn lookup_goes_on(&mut self, replica: usize, stream: StreamId, look: Look, request: FallbackRequest) {
        let (lookup, wait) = match look {
            Look::Read(lookup) => (lookup, Duration::ZERO),
            Look::Unanswered(lookup) => (lookup, BETWEEN_TRIES),
            Look::Done(found) => {
                self.coverage.reached(if found.is_some() { "fallback/from-etcd" } else { "fallback/none" });
                let older = &mut self.fleet.planes[replica].older;
                older.remember(request.clone(), found);
                if let Some(answer) = older.answer(&request) {
                    self.fallback_known(stream, answer);
                }
                return;
            }
        };
        let incarnation = self.replicas[replica].incarnation;
        let after = wait + self.random.duration(Duration::from_millis(1), Duration::from_millis(60));
        let looks = South::LooksUp { replica, incarnation, stream, lookup, request };
        self.schedule.after(after, What::South(looks));
    }

    /// etcd answers a search for an older value.
    pub(super) fn looks_up(
        &mut self,
        replica: usize,
        incarnation: u64,
        stream: StreamId,
        lookup: Lookup,
        request: FallbackRequest,
    ) {
        if self.replicas[replica].incarnation != incarnation {
            return;
        }
        let found = if self.etcd.up {
            let (key, revision) = lookup.asks();
            let interval = Interval::single(Bytes::from(format!("{PREFIX}{key}")));
            self.read_at(interval, revision).map(|entries| entries.into_iter().next())
        } else {
            Err(ReadError::Unavailable { cause: "etcd is away".to_owned(), after: Duration::ZERO })
        };
        self.lookup_goes_on(replica, stream, lookup.answered(found), request);
    }

    fn read_at(&self, interval: Interval, revision: Revision) -> Result<Vec<Entry>, ReadError> {
        let answer = self.etcd.mvcc.range(&RangeRequest::of(interval).at(revision));
        let entry = |kv: KeyValue| {
            let KeyValue { key, value, create_revision, mod_revision, .. } = kv;
            Entry { key: key.slice(PREFIX.len()..), value, create_revision, mod_revision }
        };
        match answer {
            Ok(answer) => Ok(answer.entries.into_iter().map(entry).collect()),
            Err(MvccError::Compacted { requested, compacted }) => {
                Err(ReadError::Compacted { revision: requested, oldest: compacted })
            }
            Err(MvccError::Future { requested, current }) => {
                Err(ReadError::Future { revision: requested, head: current })
            }
            Err(refused) => Err(ReadError::Refused(refused.to_string())),
        }
    }
}
