use std::collections::BTreeMap;

use headwater_model::{Digest, Lineage};
use headwater_proto::config::{Ack, Hello, Refused, Reject, Rejects};

use super::super::registry::{FleetEvent, Happened, LOST_RETENTION};
use super::*;

const HEARTBEAT: Duration = Duration::from_secs(10);
/// Long enough after the start of the replica.
const LATER: Duration = Duration::from_secs(100);

/// A store told by its facts.
#[derive(Clone)]
struct Facts {
    generation: u64,
    revision: u64,
    held: BTreeMap<&'static str, (u64, u64)>,
    tombstones: BTreeMap<&'static str, u64>,
    known_since: u64,
    unproven_at: Option<u64>,
    /// An older one.
    unproven_before: Option<u64>,
    /// Up to where everything was known before them.
    unproven_from: u64,
    hold: Option<String>,
}

impl StoreFacts for Facts {
    fn version(&self) -> Version {
        version(self.generation, self.revision)
    }
    fn held(&self, key: &Key) -> Option<HeldAt> {
        let (modified, changed) = self.held.get(key.as_str())?;
        Some(HeldAt { mod_revision: Revision(*modified), changed_at: Revision(*changed) })
    }
    fn tombstone(&self, key: &Key) -> Option<Revision> {
        self.tombstones.get(key.as_str()).copied().map(Revision)
    }
    fn deletions_known_since(&self) -> Revision {
        Revision(self.known_since)
    }
    fn unproven_at(&self) -> Option<Revision> {
        self.unproven_at.map(Revision)
    }
    fn unproven_from(&self, at: Revision) -> Option<Revision> {
        let is_one = self.unproven_at == Some(at.0) || self.unproven_before == Some(at.0);
        is_one.then_some(Revision(self.unproven_from))
    }
    fn confirms(&self, version: &Version) -> bool {
        version.digest != FOREIGN
    }
    fn hold(&self) -> Option<String> {
        self.hold.clone()
    }
}

/// Of content that the store never had.
const FOREIGN: Digest = Digest(u128::MAX);

fn version(generation: u64, revision: u64) -> Version {
    let generation = Generation(generation);
    let lineage = Lineage { cluster_id: 7, prefix: "/apisix".into(), generation };
    Version { lineage, revision: Revision(revision), digest: Digest(u128::from(revision)) }
}

/// routes/1 was written at 50, the store stands at 60 and knows deletions after 10.
fn facts() -> Facts {
    Facts {
        generation: 0,
        revision: 60,
        held: [("routes/1", (50, 50))].into(),
        tombstones: BTreeMap::new(),
        known_since: 10,
        unproven_at: None,
        unproven_before: None,
        unproven_from: 0,
        hold: None,
    }
}

fn put_at(revision: u64) -> Wait {
    Wait {
        environment: "default".into(),
        cluster_id: None,
        generation: Generation(0),
        revision: Revision(revision),
        keys: vec![(Key::new("routes/1"), Expectation::Put)],
        durable: false,
    }
}

fn delete_at(revision: u64) -> Wait {
    Wait { keys: vec![(Key::new("routes/1"), Expectation::Delete)], ..put_at(revision) }
}

struct Fleet(Registry);

impl Fleet {
    fn new() -> Self {
        Self(Registry::new("r1", LOST_RETENTION, 0))
    }

    fn tell(&mut self, node: &str, instance: &str, happened: Happened, now: Duration) {
        let row = RowId { node_id: node.into(), instance: instance.into() };
        assert!(self.0.apply(FleetEvent { row, connection: 1, happened }, now));
    }

    fn joins(
        &mut self,
        node: &str,
        instance: &str,
        held: Option<Version>,
        rejects: &[Reject],
        now: Duration,
    ) {
        let hello = Hello {
            protocol: 1,
            node_id: node.into(),
            instance: instance.into(),
            connection: 1,
            environment: "default".into(),
            labels: BTreeMap::new(),
            build: "0.1.0".into(),
            digest_scheme: 1,
            held,
            accept_degraded: true,
            rejects_count: rejects.len() as u64,
            rejects_hash: Reject::set_hash(rejects),
        };
        let happened = Happened::Joined { hello: Box::new(hello), identity: None, peer: "p".into() };
        self.tell(node, instance, happened, now);
    }

    fn acks(&mut self, node: &str, instance: &str, applied: Version, durable: Option<Version>) {
        self.tell(node, instance, Happened::Acked(Ack { applied: Some(applied), durable }), LATER);
    }

    fn is_lost(&mut self, node: &str, instance: &str, now: Duration) {
        let left = Happened::Left { bye: None, reason: "silent for three heartbeats".into() };
        self.tell(node, instance, left, now);
    }

    fn answer(&self, question: &Wait, facts: &Facts, now: Duration) -> Answer {
        let clock = Clock { now, started_at: Duration::ZERO, heartbeat: HEARTBEAT };
        evaluate(question, &self.0, facts, clock)
    }
}

/// One node, live, at this revision of generation 0, rejecting nothing.
fn one_node_at(revision: u64) -> Fleet {
    let mut fleet = Fleet::new();
    fleet.joins("n1", "a", Some(version(0, revision)), &[], LATER);
    fleet
}

fn reject(key: &str) -> Reject {
    Reject {
        key: Key::new(key),
        mod_revision: Revision(50),
        reason: "uri: is not a string".into(),
        served: None,
        since_unix: 1,
        governs: 0,
    }
}

#[test]
fn a_version_that_the_store_never_had_does_not_count() {
    let mut fleet = Fleet::new();
    let foreign = Version { digest: FOREIGN, ..version(0, 55) };
    fleet.joins("n1", "a", Some(foreign), &[], LATER);
    assert_eq!(fleet.answer(&put_at(50), &facts(), LATER).outcome, Outcome::Pending);
    fleet.acks("n1", "a", version(0, 60), None);
    assert_eq!(fleet.answer(&put_at(50), &facts(), LATER).outcome, Outcome::Applied);
}

#[test]
fn applied_when_every_node_stands_at_the_version_or_later() {
    let mut fleet = one_node_at(49);
    assert_eq!(fleet.answer(&put_at(50), &facts(), LATER).outcome, Outcome::Pending);
    fleet.acks("n1", "a", version(0, 50), None);
    let answer = fleet.answer(&put_at(50), &facts(), LATER);
    assert_eq!(answer.outcome, Outcome::Applied, "{answer:?}");
    assert_eq!(answer.sentence, "0.50 is applied on 1 of 1 nodes");
}

#[test]
fn nobody_there_is_no_success() {
    let answer = Fleet::new().answer(&put_at(50), &facts(), LATER);
    assert_eq!(answer.outcome, Outcome::NoNodes);
    assert!(!answer.outcome.is_final());
}

#[test]
fn replica_just_restarted() {
    let fleet = one_node_at(60);
    let before = HEARTBEAT * HEARTBEATS_TO_RETURN - Duration::from_millis(1);
    assert_eq!(fleet.answer(&put_at(50), &facts(), before).outcome, Outcome::CannotSayYet);
    let after = HEARTBEAT * HEARTBEATS_TO_RETURN;
    assert_eq!(fleet.answer(&put_at(50), &facts(), after).outcome, Outcome::Applied);
}

#[test]
fn node_lost() {
    let mut fleet = one_node_at(60);
    fleet.joins("n2", "b", Some(version(0, 60)), &[], LATER);
    fleet.is_lost("n2", "b", LATER);
    let answer = fleet.answer(&put_at(50), &facts(), LATER + HEARTBEAT);
    assert_eq!(answer.outcome, Outcome::Pending);
    let reason = "silent for three heartbeats".into();
    assert_eq!(answer.nodes[1].standing, Standing::NotHeardFrom { lost_for: HEARTBEAT, reason });
    assert_eq!(fleet.answer(&put_at(50), &facts(), LATER + LOST_RETENTION).outcome, Outcome::Applied);
}

#[test]
fn node_refusing() {
    let mut fleet = one_node_at(60);
    fleet.joins("n2", "b", Some(version(0, 60)), &[reject("routes/1")], LATER);
    let answer = fleet.answer(&put_at(50), &facts(), LATER);
    assert_eq!(answer.outcome, Outcome::Pending, "it has not said yet what it rejects");
    assert_eq!(answer.nodes[1].standing, Standing::RejectsUnknown);
    let all = Rejects { full: true, rejected: vec![reject("routes/1")], cleared: vec![] };
    fleet.tell("n2", "b", Happened::Rejects(all), LATER);
    let answer = fleet.answer(&put_at(50), &facts(), LATER);
    assert_eq!(answer.outcome, Outcome::Refused);
    assert!(answer.outcome.is_final());
    let reason = "uri: is not a string".into();
    assert_eq!(answer.nodes[1].standing, Standing::Refused { key: Key::new("routes/1"), reason });

    let by_revision = Wait { keys: vec![], ..put_at(50) };
    let answer = fleet.answer(&by_revision, &facts(), LATER);
    assert_eq!(answer.outcome, Outcome::Applied);
    assert!(answer.notes[0].contains("by revision alone"), "{:?}", answer.notes);
}

#[test]
fn history_replaced() {
    let fleet = one_node_at(60);
    let rewound = Facts { generation: 1, ..facts() };
    assert_eq!(fleet.answer(&put_at(50), &rewound, LATER).outcome, Outcome::HistoryReplaced);

    let other_cluster = Wait { cluster_id: Some(8), ..put_at(50) };
    assert_eq!(fleet.answer(&other_cluster, &facts(), LATER).outcome, Outcome::HistoryReplaced);

    let write_is_gone = Facts { held: [("routes/1", (40, 40))].into(), ..facts() };
    assert_eq!(fleet.answer(&put_at(50), &write_is_gone, LATER).outcome, Outcome::HistoryReplaced);

    // A restore that looked like a compaction: an older value at a new changed_at.
    let restored = Facts { held: [("routes/1", (40, 60))].into(), unproven_at: Some(60), ..facts() };
    assert_eq!(fleet.answer(&put_at(50), &restored, LATER).outcome, Outcome::HistoryReplaced);

    let never_there = Facts { held: BTreeMap::new(), ..facts() };
    assert_eq!(fleet.answer(&put_at(50), &never_there, LATER).outcome, Outcome::HistoryReplaced);
}

#[test]
fn two_processes_under_one_node_id() {
    let mut fleet = one_node_at(60);
    fleet.joins("n1", "b", Some(version(0, 40)), &[], LATER);
    let answer = fleet.answer(&put_at(50), &facts(), LATER);
    assert_eq!(answer.outcome, Outcome::Pending);
    assert!(answer.nodes.iter().all(|node| node.duplicate));
    assert!(answer.notes.iter().any(|note| note.contains("two processes")), "{:?}", answer.notes);
    fleet.acks("n1", "b", version(0, 55), None);
    assert_eq!(fleet.answer(&put_at(50), &facts(), LATER).outcome, Outcome::Applied);
}

#[test]
fn key_overwritten() {
    let fleet = one_node_at(60);
    let overwritten = Facts { held: [("routes/1", (58, 58))].into(), ..facts() };
    let answer = fleet.answer(&put_at(50), &overwritten, LATER);
    assert_eq!(answer.outcome, Outcome::Applied);
    assert!(answer.notes[0].contains("overwritten since"), "{:?}", answer.notes);
}

#[test]
fn put_and_delete_merged_while_a_node_was_away() {
    let mut fleet = one_node_at(49);
    let deleted = Facts { held: BTreeMap::new(), tombstones: [("routes/1", 55)].into(), ..facts() };
    fleet.is_lost("n1", "a", LATER);
    assert_eq!(fleet.answer(&put_at(50), &deleted, LATER).outcome, Outcome::Pending);
    fleet.joins("n1", "a", Some(version(0, 49)), &[], LATER);
    // The node goes from 49 to 60 in one step and never sees the put; both waits end all the same.
    fleet.acks("n1", "a", version(0, 60), None);
    assert_eq!(fleet.answer(&put_at(50), &deleted, LATER).outcome, Outcome::Applied);
    assert_eq!(fleet.answer(&delete_at(55), &deleted, LATER).outcome, Outcome::Applied);
}

#[test]
fn node_killed_and_back() {
    let mut fleet = one_node_at(60);
    fleet.acks("n1", "a", version(0, 60), Some(version(0, 45)));
    let durable = Wait { durable: true, ..put_at(50) };
    assert_eq!(fleet.answer(&put_at(50), &facts(), LATER).outcome, Outcome::Applied);
    let answer = fleet.answer(&durable, &facts(), LATER);
    assert_eq!((answer.outcome, &answer.nodes[0].standing), (Outcome::Pending, &Standing::NotDurable));
    fleet.is_lost("n1", "a", LATER);
    assert_eq!(fleet.answer(&put_at(50), &facts(), LATER).outcome, Outcome::Pending);
    // It is back from its disk, at an older version than it had applied.
    fleet.joins("n1", "b", Some(version(0, 45)), &[], LATER);
    let answer = fleet.answer(&put_at(50), &facts(), LATER);
    assert_eq!((answer.outcome, answer.nodes.len()), (Outcome::Pending, 1));
    assert_eq!(answer.nodes[0].standing, Standing::Behind);
    fleet.acks("n1", "b", version(0, 60), Some(version(0, 60)));
    assert_eq!(fleet.answer(&durable, &facts(), LATER).outcome, Outcome::Applied);
}

#[test]
fn a_node_of_another_lineage_is_behind_whatever_its_number() {
    let mut fleet = Fleet::new();
    let mut elsewhere = version(0, 900);
    elsewhere.lineage.cluster_id = 8;
    fleet.joins("n1", "a", Some(elsewhere), &[], LATER);
    fleet.joins("n2", "b", Some(version(3, 1)), &[], LATER);
    let answer = fleet.answer(&put_at(50), &facts(), LATER);
    assert!(answer.nodes.iter().all(|node| node.standing == Standing::Behind), "{answer:?}");
}

#[test]
fn what_the_store_no_longer_knows_is_said() {
    let fleet = one_node_at(60);
    let forgotten = Facts { held: BTreeMap::new(), known_since: 50, ..facts() };
    assert_eq!(fleet.answer(&delete_at(50), &forgotten, LATER).outcome, Outcome::CannotSay);
    let known = Facts { tombstones: [("routes/1", 50)].into(), known_since: 49, ..forgotten };
    assert_eq!(fleet.answer(&delete_at(50), &known, LATER).outcome, Outcome::Applied);
    assert_eq!(fleet.answer(&put_at(50), &known, LATER).outcome, Outcome::HistoryReplaced);

    // Found gone by a reload that may be a restore: the put may never have been of this history.
    let unproven = Facts { tombstones: [("routes/1", 58)].into(), unproven_at: Some(58), ..known };
    assert_eq!(fleet.answer(&put_at(50), &unproven, LATER).outcome, Outcome::CannotSay);
    let twice = Facts { unproven_at: Some(60), unproven_before: Some(58), ..unproven };
    assert_eq!(fleet.answer(&put_at(50), &twice, LATER).outcome, Outcome::CannotSay);
    // Or found written later: a restored history may have had that write, and never the version.
    let written = Facts { held: [("routes/1", (55, 58))].into(), tombstones: BTreeMap::new(), ..twice };
    assert_eq!(fleet.answer(&put_at(50), &written, LATER).outcome, Outcome::CannotSay);
    assert_eq!(fleet.answer(&put_at(55), &written, LATER).outcome, Outcome::Applied);
    // What it was at 55 had been known, and it is another one now.
    let otherwise = Facts { unproven_from: 56, ..written };
    assert_eq!(fleet.answer(&put_at(55), &otherwise, LATER).outcome, Outcome::HistoryReplaced);
}

#[test]
fn across_an_unproven_reload_a_node_must_have_what_shows_the_version() {
    // Lost by the restore that the reload at 55 met, and written again at 58.
    let again = Facts { held: [("routes/1", (58, 58))].into(), unproven_at: Some(55), ..facts() };
    for (at, outcome) in [(56, Outcome::Pending), (58, Outcome::Applied)] {
        assert_eq!(one_node_at(at).answer(&put_at(50), &again, LATER).outcome, outcome, "{at}");
    }
    let proven = Facts { unproven_at: None, ..again };
    assert_eq!(one_node_at(56).answer(&put_at(50), &proven, LATER).outcome, Outcome::Applied);
}

#[test]
fn a_node_ahead_of_the_store_has_not_answered() {
    let answer = one_node_at(61).answer(&put_at(50), &facts(), LATER);
    assert_eq!(answer.outcome, Outcome::Pending);
    assert_eq!(answer.nodes[0].standing, Standing::Behind);
}

#[test]
fn a_replica_that_has_not_come_so_far_says_so() {
    let fleet = one_node_at(70);
    let answer = fleet.answer(&put_at(65), &facts(), LATER);
    assert_eq!(answer.outcome, Outcome::Pending);
    assert!(answer.sentence.contains("stands at 0.60"), "{}", answer.sentence);
}

#[test]
fn a_hold_is_answered_as_one() {
    let mut fleet = one_node_at(40);
    let held = Facts { hold: Some("removes 9 of 10 resources".into()), ..facts() };
    let answer = fleet.answer(&put_at(50), &held, LATER);
    assert_eq!(answer.outcome, Outcome::Held);
    assert!(answer.sentence.starts_with("held: approve or reject"), "{}", answer.sentence);
    let refused = Refused {
        target: version(0, 55),
        why: RefusedWhy::Held,
        held: Some(version(0, 40)),
        held_resources: 10,
        removed_resources: 9,
        detail: "removes 9 of 10 resources".into(),
    };
    fleet.tell("n1", "a", Happened::Refused(refused), LATER);
    let answer = fleet.answer(&put_at(50), &facts(), LATER);
    assert_eq!((answer.outcome, answer.outcome.is_final()), (Outcome::Held, true));
}
