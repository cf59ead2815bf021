//! From nothing, or a file, to an open watch.

use headwater_model::Generation;

use super::super::{MemberVersion, Page, Proof, ProofQuestion, Settings, Testimony};
use super::rig::{header, keys_digest};
use super::*;
use crate::backend::Load;

fn loaded(rig: &mut Rig) -> Load {
    let told = rig.told();
    let [SourceEvent::Loaded(load), ..] = told.as_slice() else { panic!("no load first: {told:?}") };
    load.clone()
}

fn start_of_watch(rig: &mut Rig) -> Option<u64> {
    rig.asked().into_iter().find_map(|action| match action {
        Action::OpenWatch { start, .. } => Some(start.0),
        _ => None,
    })
}

#[test]
fn w28_the_watch_is_opened_after_page_one_and_before_the_others() {
    let mut rig = Rig::new(None);
    rig.connected();
    rig.checked(40);
    rig.asked();
    rig.page(42, vec![entry("routes/1", 10, 10)], true);
    assert!(matches!(rig.asked().as_slice(), [Action::CheckHeader { .. }]), "W6: checked before the create");
    rig.checked(43);
    assert_eq!(start_of_watch(&mut rig), Some(42), "W5: R, which is not still to come");
    rig.created(43);
    let asked = rig.asked();
    let [Action::ReadPage { revision: Some(Revision(42)), after: Some(after), .. }] = asked.as_slice() else {
        panic!("not the next page at the same revision: {asked:?}")
    };
    assert_eq!(after.as_ref(), b"routes/1");
    // What the watch delivers meanwhile waits, merged, and follows the load.
    rig.events(44, vec![put("routes/1", 43), put("routes/9", 43)]);
    rig.events(44, vec![delete("routes/1", 44)]);
    rig.progress(50);
    assert!(rig.told().is_empty(), "nothing before the load is whole");
    assert_eq!(rig.tracker.safe_revision(), None);
    rig.page(60, vec![entry("routes/2", 20, 20)], false);
    let told = rig.told();
    let [SourceEvent::Loaded(load), SourceEvent::Batch(batch), SourceEvent::Progress(Revision(50))] =
        told.as_slice()
    else {
        panic!("{told:?}")
    };
    assert_eq!(
        (load.revision, load.continuity.clone(), load.entries.len()),
        (Revision(42), Continuity::First, 2)
    );
    assert_eq!(*batch, Batch::new(Revision(44), vec![put("routes/9", 43), delete("routes/1", 44)]));
    assert_eq!(rig.safe(), 50);
    assert_eq!(rig.stage(), Stage::Live);
}

#[test]
fn w28_a_load_that_is_compacted_starts_over_within_a_bound() {
    let mut rig = Rig::new(None);
    let mut tries = 0;
    while rig.blamed().is_none() {
        rig.connected();
        rig.checked(40);
        rig.page(42, vec![entry("routes/1", 10, 10)], true);
        rig.checked(42);
        rig.created(42);
        rig.fail(Fault::Compacted);
        tries += 1;
        assert!(tries < 20, "no bound");
    }
    assert_eq!(tries, Settings::default().load_restarts + 1);
    assert!(rig.told().is_empty());
}

#[test]
fn pages_are_halved_when_too_big() {
    let mut rig = Rig::new(None);
    rig.connected();
    rig.checked(40);
    rig.asked();
    rig.fail(Fault::TooLarge);
    let asked = rig.asked();
    let [Action::ReadPage { limit: 2500, revision: None, .. }] = asked.as_slice() else {
        panic!("{asked:?}")
    };
    rig.page(42, vec![entry("routes/1", 10, 10)], true);
    rig.checked(42);
    rig.created(42);
    rig.asked();
    rig.fail(Fault::TooLarge);
    let asked = rig.asked();
    let [Action::ReadPage { limit: 1250, revision: Some(Revision(42)), .. }] = asked.as_slice() else {
        panic!("{asked:?}")
    };
}

#[test]
fn w5_w7_a_file_is_proven_and_resumed_at_its_safe_revision_plus_one() {
    let mut rig = Rig::new(Some(Rig::point(100)));
    rig.connected();
    rig.checked(120);
    let question = ProofQuestion { revision: Revision(100), key: Some(Bytes::from_static(b"routes/2")) };
    let attempt = rig.attempt;
    assert_eq!(rig.asked().pop(), Some(Action::Prove { attempt, question }));
    rig.proof(Rig::good_proof());
    assert_eq!(start_of_watch(&mut rig), Some(100));
    assert!(rig.told().is_empty());
    rig.created(120);
    assert_eq!(rig.told(), [SourceEvent::Resumed { cluster_id: CLUSTER }]);
    assert_eq!((rig.stage(), rig.safe()), (Stage::CatchingUp, 100));
}

#[test]
fn w7_each_part_of_the_proof_counts_and_a_rewind_needs_two_reads_a_second_apart() {
    let good = Rig::good_proof();
    let other = |found: super::super::Found| Proof { newest: Some(found), ..Rig::good_proof() };
    let found = good.newest.expect("set");
    let bad = [
        Proof { count: 3, ..good.clone() },
        // As many keys, as many deletions, and the newest one is the same: only which ones they are differs.
        Proof { keys: keys_digest(&[("routes/3", 5), ("routes/2", 20)]), ..good.clone() },
        Proof { newest: None, ..good },
        other(super::super::Found { mod_revision: Revision(21), ..found }),
        other(super::super::Found { create_revision: Revision(19), ..found }),
    ];
    for proof in bad {
        let mut rig = Rig::new(Some(Rig::point(100)));
        rig.connected();
        rig.checked(120);
        rig.proof(proof.clone());
        rig.asked();
        rig.pass(Duration::from_millis(999));
        assert!(rig.asked().is_empty(), "before the second is over");
        rig.pass(Duration::from_millis(1));
        assert!(matches!(rig.asked().as_slice(), [Action::CheckHeader { .. }]));
        rig.checked(120);
        rig.proof(proof);
        rig.page(130, vec![entry("routes/1", 10, 10)], false);
        rig.checked(130);
        rig.created(130);
        assert!(matches!(loaded(&mut rig).continuity, Continuity::Rewound { .. }));
    }
}

#[test]
fn w7_the_value_of_the_newest_key_counts_once_it_was_seen() {
    let mut rig = Rig::live();
    rig.events(130, vec![put("routes/3", 130)]);
    rig.ended(Fault::Transport);
    rig.wait_for_connect();
    rig.connected();
    rig.checked(130);
    let found = super::super::Found {
        create_revision: Revision(130),
        mod_revision: Revision(130),
        value: super::super::value_hash(b"another value"),
    };
    let keys = keys_digest(&[("routes/1", 10), ("routes/2", 20), ("routes/3", 130)]);
    rig.proof(Proof { header: header(130), count: 3, keys, newest: Some(found) });
    assert!(rig.note().contains("reading once more"), "{}", rig.note());
}

#[test]
fn w7_the_value_of_the_newest_key_counts_where_the_file_has_it() {
    for (value, same) in [(&b"{}"[..], true), (b"another value", false)] {
        let mut point = Rig::point(100);
        point.keys[1].value = Some(Bytes::from_static(b"{}"));
        let mut rig = Rig::new(Some(point));
        rig.connected();
        rig.checked(120);
        let found = super::super::Found {
            create_revision: Revision(20),
            mod_revision: Revision(20),
            value: super::super::value_hash(value),
        };
        rig.proof(Proof { newest: Some(found), ..Rig::good_proof() });
        assert_eq!(start_of_watch(&mut rig).is_some(), same, "{}", rig.note());
    }
}

#[test]
fn w6_a_head_that_rises_again_before_the_read_is_no_rewind() {
    let mut rig = Rig::new(Some(Rig::point(100)));
    rig.connected();
    rig.checked(90);
    rig.pass(secs(1));
    rig.checked(90);
    // A member that was behind has caught up: it still has the history.
    rig.page(130, vec![entry("routes/1", 10, 10)], false);
    assert!(rig.note().contains("proving again"), "{}", rig.note());
    assert!(rig.told().iter().all(|event| !matches!(event, SourceEvent::Loaded(_))));
    rig.wait_for_connect();
    rig.connected();
    rig.checked(130);
    rig.proof(Rig::good_proof());
    assert_eq!(start_of_watch(&mut rig), Some(100));
}

#[test]
fn a_doubt_that_the_second_read_does_not_confirm_is_dropped() {
    let mut rig = Rig::new(Some(Rig::point(100)));
    rig.connected();
    rig.checked(99);
    assert!(rig.note().contains("reading once more"), "{}", rig.note());
    rig.pass(secs(1));
    rig.checked(100);
    rig.proof(Rig::good_proof());
    assert_eq!(start_of_watch(&mut rig), Some(100));
}

#[test]
fn w6_a_lower_head_twice_is_a_rewind_with_evidence() {
    let mut rig = Rig::new(Some(Rig::point(100)));
    rig.connected();
    rig.checked(90);
    rig.pass(secs(1));
    rig.checked(91);
    rig.page(91, vec![], false);
    rig.checked(91);
    rig.created(91);
    let Continuity::Rewound { evidence } = loaded(&mut rig).continuity else { panic!("not rewound") };
    assert!(evidence.contains("91") && evidence.contains("100"), "{evidence}");
    assert_eq!(rig.safe(), 91, "the new history starts below the old one");
}

/// Two reads spoke of a rewind, and the other members are asked.
fn asking() -> Rig {
    let mut rig = Rig::with(Settings { members: 3, ..Settings::default() }, Some(Rig::point(100)));
    rig.connected();
    rig.checked(90);
    rig.pass(secs(1));
    rig.asked();
    rig.checked(91);
    let asked = rig.asked();
    let [Action::AskOthers { question, within, .. }] = asked.as_slice() else { panic!("{asked:?}") };
    assert_eq!((question.revision, *within), (Revision(100), secs(5)));
    rig
}

fn testimony(revision: u64, proof: Option<Proof>) -> Testimony {
    let endpoint = "http://etcd-2:2379".to_owned();
    Testimony { endpoint, header: Header { member_id: 0xa2, ..header(revision) }, proof }
}

fn answered(rig: &mut Rig, answers: Vec<Testimony>) {
    rig.give(Input::OthersAnswered { attempt: rig.attempt, answers });
}

#[test]
fn a_rewind_that_another_member_denies_changes_nothing_and_is_an_alarm() {
    let mut rig = asking();
    let agrees = testimony(95, None);
    answered(&mut rig, vec![agrees, testimony(500, Some(Rig::good_proof()))]);
    assert!(rig.note().contains("member_divergence") && rig.note().contains("etcd-2"), "{}", rig.note());
    assert_eq!(rig.blamed(), Some(Blame::Member), "another member is in turn");
    assert!(rig.told().is_empty());
    assert_eq!((rig.safe(), rig.tracker.counters().member_divergences), (100, 1));
    rig.wait_for_connect();
    rig.resume(500);
    assert_eq!(start_of_watch(&mut rig), Some(100), "it goes on where it was");
}

#[test]
fn a_rewind_counts_when_no_other_member_that_answers_denies_it() {
    let same = || Some(Rig::good_proof());
    let elsewhere = Header { cluster_id: 9, member_id: 0xa2, ..header(500) };
    let other_cluster = Testimony { header: elsewhere, ..testimony(500, same()) };
    let same_member = Testimony { header: header(500), ..testimony(500, same()) };
    let different = Some(Proof { count: 3, ..Rig::good_proof() });
    let agreeing = [
        vec![],
        vec![testimony(99, None)],
        vec![testimony(500, different)],
        vec![testimony(500, None)],
        vec![other_cluster],
        vec![same_member],
    ];
    for answers in agreeing {
        let mut rig = asking();
        answered(&mut rig, answers.clone());
        rig.page(91, vec![], false);
        rig.checked(91);
        rig.created(91);
        assert!(matches!(loaded(&mut rig).continuity, Continuity::Rewound { .. }), "{answers:?}");
        assert_eq!(rig.tracker.counters().member_divergences, 0);
    }
}

#[test]
fn asking_the_other_members_has_a_deadline() {
    let mut rig = asking();
    let attempt = rig.attempt;
    rig.pass(secs(11));
    assert_ne!(rig.attempt, attempt);
    assert!(rig.told().is_empty());
}

#[test]
fn w6_another_cluster_is_a_rewind() {
    let mut rig = Rig::new(Some(ResumePoint { cluster_id: 7, ..Rig::point(100) }));
    rig.connected();
    rig.checked(500);
    rig.pass(secs(1));
    rig.checked(500);
    rig.page(500, vec![], false);
    rig.checked(500);
    rig.created(500);
    assert!(matches!(loaded(&mut rig).continuity, Continuity::Rewound { .. }));
    assert_eq!(rig.tracker.cluster_id(), Some(CLUSTER));
}

#[test]
fn a_proof_that_is_compacted_makes_the_load_unproven() {
    let mut rig = Rig::new(Some(Rig::point(100)));
    rig.connected();
    rig.checked(120);
    rig.fail(Fault::Compacted);
    rig.page(130, vec![entry("routes/1", 10, 10)], false);
    rig.checked(130);
    rig.created(130);
    assert_eq!(loaded(&mut rig).continuity, Continuity::Unproven);
}

#[test]
fn too_far_behind_is_a_proven_load() {
    let mut rig = Rig::new(Some(Rig::point(100)));
    rig.connected();
    rig.checked(100 + 100_001);
    rig.proof(Rig::good_proof());
    assert!(matches!(rig.asked().last(), Some(Action::ReadPage { revision: None, .. })));
    rig.page(100_200, vec![entry("routes/1", 10, 10)], false);
    rig.checked(100_200);
    rig.created(100_200);
    assert_eq!(loaded(&mut rig).continuity, Continuity::Proven);
}

#[test]
fn w7_releases_that_lose_a_deletion_at_a_resume_are_read_again() {
    let mut rig = Rig::new(Some(Rig::point(100)));
    rig.connected_as(MemberVersion::Known("3.5.17".to_owned()));
    rig.checked(100);
    rig.proof(Rig::good_proof());
    assert!(matches!(rig.asked().last(), Some(Action::ReadPage { .. })));
}

#[test]
fn w23_a_bad_release_is_refused_by_name_until_it_is_gone() {
    let mut rig = Rig::new(None);
    rig.connected_as(MemberVersion::Known("3.5.1".to_owned()));
    assert_eq!(rig.stage(), Stage::Refused);
    assert!(rig.note().contains("3.5.1"), "{}", rig.note());
    assert_eq!(rig.blamed(), Some(Blame::Member));
    rig.wait_for_connect();
    assert_eq!(rig.stage(), Stage::Refused, "it does not flap");
    rig.connected();
    rig.checked(42);
    rig.page(42, vec![], false);
    rig.checked(42);
    rig.created(42);
    assert_ne!(rig.stage(), Stage::Refused);
}

#[test]
fn w18_neither_learners_nor_members_without_a_leader() {
    for (learner, has_leader) in [(true, true), (false, false)] {
        let mut rig = Rig::new(None);
        let member = super::super::Member {
            endpoint: "etcd-2".to_owned(),
            version: MemberVersion::Known("3.6.16".to_owned()),
            cluster_id: CLUSTER,
            member_id: MEMBER,
            learner,
            has_leader,
        };
        rig.give(Input::Connected { attempt: rig.attempt, member });
        assert_eq!(rig.blamed(), Some(Blame::Member));
    }
}

#[test]
fn w4_a_connection_answered_by_two_members_is_dropped() {
    let mut rig = Rig::new(None);
    rig.connected();
    rig.give(Input::HeaderChecked { attempt: rig.attempt, header: Header { member_id: 9, ..header(42) } });
    assert!(rig.note().contains("load balancer"), "{}", rig.note());
}

#[test]
fn every_stage_has_a_deadline() {
    let steps: [fn(&mut Rig); 4] = [
        |_| {},
        Rig::connected,
        |rig| {
            rig.connected();
            rig.checked(120);
        },
        |rig| rig.resume(120),
    ];
    for step in steps {
        let mut rig = Rig::new(Some(Rig::point(100)));
        step(&mut rig);
        let attempt = rig.attempt;
        rig.pass(secs(40));
        assert_ne!(rig.attempt, attempt, "it went on by itself");
    }
}

#[test]
fn w1_answers_to_an_earlier_attempt_are_not_looked_at() {
    let mut rig = Rig::new(None);
    let old = rig.attempt;
    rig.fail(Fault::Transport);
    rig.wait_for_connect();
    rig.connected();
    rig.checked(42);
    let page = Page { header: header(42), entries: vec![], more: false };
    rig.asked();
    rig.give(Input::PageRead { attempt: old, page });
    assert!(rig.asked().is_empty());
}

#[test]
fn a_reload_on_request_proves_and_reads() {
    let mut rig = Rig::live();
    rig.give(Input::Reload { reason: "the audit found a difference".to_owned(), generation: Generation(0) });
    rig.resume(100);
    rig.page(140, vec![entry("routes/1", 10, 10)], false);
    assert!(rig.note().contains("audit"), "{}", rig.note());
    rig.checked(140);
    rig.created(140);
    assert_eq!(loaded(&mut rig).continuity, Continuity::Proven);
    rig.ended(Fault::Transport);
    rig.wait_for_connect();
    rig.connected();
    rig.checked(140);
    assert!(matches!(rig.asked().last(), Some(Action::Prove { .. })), "asked for once, read once");
}

#[test]
fn a_load_for_a_higher_generation_begins_after_it_was_asked_for() {
    let mut rig = Rig::live();
    let reload = |generation| Input::Reload { reason: "a node knows more".to_owned(), generation };
    rig.give(reload(Generation(0)));
    rig.resume(100);
    rig.page(140, vec![entry("routes/1", 10, 10)], true);
    let attempt = rig.attempt;
    rig.give(reload(Generation(0)));
    assert_eq!(rig.attempt, attempt, "a load in progress reads everything anyway");
    rig.give(reload(Generation(3)));
    assert_ne!(rig.attempt, attempt, "what was read before may be of the history that is gone");
    rig.resume(100);
    rig.page(150, vec![entry("routes/1", 10, 10)], false);
    rig.checked(150);
    rig.created(150);
    assert_eq!(loaded(&mut rig).generation, Generation(3));
}
