//! Drives a tracker and keeps what it emits.

use super::super::{
    Attempt, Found, Member, MemberVersion, Page, Proof, Settings, Tracker, key_hash, value_hash,
};
use headwater_model::Digest;

use super::*;
use crate::backend::{Entry, KeyRevisions};

pub(super) const CLUSTER: u64 = 0xc1;
pub(super) const MEMBER: u64 = 0xa1;

pub(super) struct Rig {
    pub(super) tracker: Tracker,
    pub(super) now: Duration,
    /// Actions not looked at yet, without the emitted events.
    pub(super) actions: Vec<Action>,
    pub(super) emitted: Vec<SourceEvent>,
    pub(super) attempt: Attempt,
    pub(super) watch_id: i64,
}

pub(super) fn entry(key: &str, create: u64, modified: u64) -> Entry {
    Entry {
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: Bytes::from(format!("{key}@{modified}")),
        create_revision: Revision(create),
        mod_revision: Revision(modified),
    }
}

pub(super) fn put(key: &str, revision: u64) -> KeyEvent {
    KeyEvent::Put(entry(key, revision, revision))
}

pub(super) fn delete(key: &str, revision: u64) -> KeyEvent {
    KeyEvent::Delete { key: Bytes::copy_from_slice(key.as_bytes()), revision: Revision(revision) }
}

pub(super) fn header(revision: u64) -> Header {
    Header { cluster_id: CLUSTER, member_id: MEMBER, revision: Revision(revision), raft_term: 2 }
}

/// Of keys that came into being where they were written last.
pub(super) fn keys_digest(keys: &[(&str, u64)]) -> Digest {
    let hash = |(key, at): &(&str, u64)| key_hash(key.as_bytes(), Revision(*at), Revision(*at));
    keys.iter().map(hash).fold(Digest::EMPTY, Digest::plus)
}

impl Rig {
    pub(super) fn new(resume: Option<ResumePoint>) -> Self {
        Self::with(Settings::default(), resume)
    }

    pub(super) fn with(settings: Settings, resume: Option<ResumePoint>) -> Self {
        let tracker = Tracker::new(settings, resume, 1);
        let mut rig = Self {
            tracker,
            now: Duration::ZERO,
            actions: Vec::new(),
            emitted: Vec::new(),
            attempt: Attempt(0),
            watch_id: 0,
        };
        rig.give(Input::Tick);
        rig
    }

    /// A file that holds `routes/1` (written at 10) and `routes/2` (at 20), safe at `revision`.
    pub(super) fn point(revision: u64) -> ResumePoint {
        let key = |key: &'static str, at| KeyRevisions {
            key: Bytes::from_static(key.as_bytes()),
            create_revision: Revision(at),
            mod_revision: Revision(at),
            value: None,
        };
        ResumePoint {
            cluster_id: CLUSTER,
            revision: Revision(revision),
            keys: vec![key("routes/1", 10), key("routes/2", 20)],
        }
    }

    pub(super) fn give(&mut self, input: Input) {
        for action in self.tracker.handle(self.now, input) {
            match action {
                Action::Emit(event) => self.emitted.push(event),
                Action::Connect { attempt } => {
                    self.attempt = attempt;
                    self.actions.push(action);
                }
                Action::OpenWatch { watch_id, .. } => {
                    self.watch_id = watch_id;
                    self.actions.push(action);
                }
                _ => self.actions.push(action),
            }
        }
    }

    /// Lets time pass, with every tick that is due on the way.
    pub(super) fn pass(&mut self, by: Duration) {
        let end = self.now + by;
        while self.tracker.next_wake() <= end {
            self.now = self.now.max(self.tracker.next_wake());
            self.give(Input::Tick);
        }
        self.now = end;
    }

    /// Lets time pass until the next try connects.
    pub(super) fn wait_for_connect(&mut self) {
        let before = self.attempt;
        while self.attempt == before {
            self.now = self.tracker.next_wake();
            self.give(Input::Tick);
        }
    }

    pub(super) fn connected_as(&mut self, version: MemberVersion) {
        let member = Member {
            endpoint: "http://etcd-1:2379".to_owned(),
            version,
            cluster_id: CLUSTER,
            member_id: MEMBER,
            learner: false,
            has_leader: true,
        };
        self.give(Input::Connected { attempt: self.attempt, member });
    }

    pub(super) fn connected(&mut self) {
        self.connected_as(MemberVersion::Known("3.6.16".to_owned()));
    }

    pub(super) fn checked(&mut self, revision: u64) {
        self.give(Input::HeaderChecked { attempt: self.attempt, header: header(revision) });
    }

    /// The proof's answer for the two keys of [`Rig::point`].
    pub(super) fn good_proof() -> Proof {
        Proof {
            header: header(500),
            count: 2,
            keys: keys_digest(&[("routes/1", 10), ("routes/2", 20)]),
            newest: Some(Found {
                create_revision: Revision(20),
                mod_revision: Revision(20),
                value: value_hash(b"routes/2@20"),
            }),
        }
    }

    pub(super) fn proof(&mut self, proof: Proof) {
        self.give(Input::ProofAnswered { attempt: self.attempt, proof });
    }

    pub(super) fn page(&mut self, revision: u64, entries: Vec<Entry>, more: bool) {
        let page = Page { header: header(revision), entries, more };
        self.give(Input::PageRead { attempt: self.attempt, page });
    }

    pub(super) fn response(&mut self, response: WatchResponse) {
        self.give(Input::WatchResponse { attempt: self.attempt, response });
    }

    pub(super) fn frame(&self, revision: u64) -> WatchResponse {
        WatchResponse {
            header: header(revision),
            watch_id: self.watch_id,
            bytes: 100,
            ..WatchResponse::default()
        }
    }

    pub(super) fn created(&mut self, revision: u64) {
        self.response(WatchResponse { created: true, ..self.frame(revision) });
    }

    pub(super) fn progress(&mut self, revision: u64) {
        self.response(WatchResponse { watch_id: -1, ..self.frame(revision) });
    }

    pub(super) fn events(&mut self, header: u64, events: Vec<KeyEvent>) {
        self.response(WatchResponse { events, ..self.frame(header) });
    }

    pub(super) fn fail(&mut self, fault: Fault) {
        self.give(Input::CallFailed { attempt: self.attempt, failure: Failure::new(fault, "it failed") });
    }

    pub(super) fn ended(&mut self, fault: Fault) {
        self.give(Input::WatchEnded { attempt: self.attempt, failure: Failure::new(fault, "it ended") });
    }

    /// Resumed from [`Rig::point`] at 100, live, with nothing emitted or asked so far.
    pub(super) fn live() -> Self {
        let mut rig = Self::new(Some(Self::point(100)));
        rig.resume(100);
        rig.created(100);
        rig.progress(100);
        rig.actions.clear();
        rig.emitted.clear();
        rig
    }

    /// From connected to the watch being opened, etcd's head at `head`.
    pub(super) fn resume(&mut self, head: u64) {
        self.connected();
        self.checked(head);
        self.proof(Self::good_proof());
    }

    pub(super) fn safe(&self) -> u64 {
        self.tracker.safe_revision().map_or(0, |revision| revision.0)
    }

    pub(super) fn stage(&self) -> Stage {
        self.tracker.state().expect("a stage was said").stage
    }

    pub(super) fn note(&self) -> String {
        self.tracker.state().and_then(|state| state.note.clone()).unwrap_or_default()
    }

    /// Emitted events other than states, taken.
    pub(super) fn told(&mut self) -> Vec<SourceEvent> {
        let told = std::mem::take(&mut self.emitted);
        told.into_iter().filter(|event| !matches!(event, SourceEvent::State(_))).collect()
    }

    pub(super) fn asked(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    pub(super) fn blamed(&mut self) -> Option<Blame> {
        self.asked().into_iter().find_map(|action| match action {
            Action::Blame(blame) => Some(blame),
            _ => None,
        })
    }
}
