//! The tracker's two planted faults lose a change in the pure loss scenarios: so those scenarios can fail.
//!
//! Only in a build with `--cfg headwater_mutants`. A mutant is chosen once per process, so each has a process of its
//! own: this test starts itself again under the name of each.
#![cfg(headwater_mutants)]

use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use headwater_control_plane::backend::etcd::tracker::{
    Action, Attempt, Header, Input, Member, MemberVersion, Proof, Settings, Tracker, WatchResponse,
};
use headwater_control_plane::backend::{Entry, KeyEvent, ResumePoint, SourceEvent};
use headwater_model::{Revision, mutant};

const CHOSEN: &str = "HEADWATER_TEST_MUTANT";

#[test]
fn each_planted_fault_loses_the_change() {
    for name in ["advance-on-timeout", "progress-before-created"] {
        let this = std::env::current_exe().expect("the test runs from a file");
        let run = Command::new(this)
            .args(["--exact", "the_scenario_of_the_chosen_mutant", "--nocapture"])
            .env(CHOSEN, name)
            .status()
            .expect("the test can start itself");
        assert!(run.success(), "{name} goes unnoticed");
    }
}

/// Without a choice it is the sound tracker's turn, and nothing is lost.
#[test]
fn the_scenario_of_the_chosen_mutant() {
    let chosen = std::env::vars().find_map(|(name, value)| (name == CHOSEN).then_some(value));
    if let Some(name) = &chosen {
        mutant::choose(name).expect("a mutant of that name");
    }
    assert_eq!(after_silence(), chosen.as_deref() == Some("advance-on-timeout"), "lost after silence");
    let early = early_progress();
    assert_eq!(early, chosen.as_deref() == Some("progress-before-created"), "lost to an early progress");
}

/// A change is written while the stream is silent; is it lost?
fn after_silence() -> bool {
    let mut rig = Rig::new();
    rig.resume(100);
    rig.respond(WatchResponse { created: true, ..rig.frame(100) });
    rig.respond(WatchResponse { watch_id: -1, ..rig.frame(100) });
    rig.until_connect();
    rig.resume(101);
    rig.respond(WatchResponse { created: true, ..rig.frame(101) });
    // The server delivers from the start it was asked for.
    if rig.start <= 101 {
        rig.respond(WatchResponse { events: vec![written()], ..rig.frame(101) });
    }
    rig.respond(WatchResponse { watch_id: -1, ..rig.frame(101) });
    rig.safe >= 101 && !rig.delivered
}

/// A change is on its way when a progress answer overtakes the created response; is it lost?
fn early_progress() -> bool {
    let mut rig = Rig::new();
    rig.resume(101);
    rig.respond(WatchResponse { watch_id: -1, ..rig.frame(101) });
    rig.respond(WatchResponse { created: true, ..rig.frame(101) });
    rig.respond(WatchResponse { events: vec![written()], ..rig.frame(101) });
    rig.safe >= 101 && !rig.delivered
}

fn written() -> KeyEvent {
    KeyEvent::Put(Entry {
        key: Bytes::from_static(b"routes/1"),
        value: Bytes::from_static(b"{}"),
        create_revision: Revision(101),
        mod_revision: Revision(101),
    })
}

struct Rig {
    tracker: Tracker,
    now: Duration,
    attempt: Attempt,
    start: u64,
    watch_id: i64,
    safe: u64,
    delivered: bool,
}

impl Rig {
    fn new() -> Self {
        let nothing = ResumePoint { cluster_id: 1, revision: Revision(100), keys: vec![] };
        let tracker = Tracker::new(Settings::default(), Some(nothing), 1);
        let (now, attempt) = (Duration::ZERO, Attempt(0));
        let mut rig = Self { tracker, now, attempt, start: 0, watch_id: 0, safe: 0, delivered: false };
        rig.give(Input::Tick);
        rig
    }

    fn give(&mut self, input: Input) {
        for action in self.tracker.handle(self.now, input) {
            match action {
                Action::Connect { attempt } => self.attempt = attempt,
                Action::OpenWatch { start, watch_id, .. } => {
                    (self.start, self.watch_id) = (start.0, watch_id)
                }
                Action::Emit(SourceEvent::Batch(batch)) => {
                    self.delivered = true;
                    self.safe = batch.revision.0;
                }
                Action::Emit(SourceEvent::Progress(revision)) => self.safe = revision.0,
                _ => {}
            }
        }
    }

    fn until_connect(&mut self) {
        let before = self.attempt;
        while self.attempt == before {
            self.now = self.tracker.next_wake();
            self.give(Input::Tick);
        }
    }

    fn resume(&mut self, head: u64) {
        let attempt = self.attempt;
        let member = Member {
            endpoint: "http://etcd:2379".to_owned(),
            version: MemberVersion::Known("3.6.16".to_owned()),
            cluster_id: 1,
            member_id: 2,
            learner: false,
            has_leader: true,
        };
        self.give(Input::Connected { attempt, member });
        self.give(Input::HeaderChecked { attempt, header: header(head) });
        self.give(Input::ProofAnswered {
            attempt,
            proof: Proof { header: header(head), count: 0, newer: None, newest: None },
        });
    }

    fn frame(&self, revision: u64) -> WatchResponse {
        WatchResponse { header: header(revision), watch_id: self.watch_id, ..WatchResponse::default() }
    }

    fn respond(&mut self, response: WatchResponse) {
        self.give(Input::WatchResponse { attempt: self.attempt, response });
    }
}

fn header(revision: u64) -> Header {
    Header { cluster_id: 1, member_id: 2, revision: Revision(revision), raft_term: 2 }
}
