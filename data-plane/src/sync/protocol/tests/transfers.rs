//! Transfers: staging, promise, guard, limits.

use super::*;

const FOUR: &[(&str, u64)] = &[("routes/1", 2), ("routes/2", 2), ("upstreams/1", 2), ("upstreams/2", 2)];

#[test]
fn a_transfer_is_published_acknowledged_and_persisted_in_that_order() {
    let (old, new) = (content(FOUR), content(&[("routes/1", 12), ("routes/2", 2), ("upstreams/1", 2)]));
    let mut node = Node::holding(&old);
    let actions = node.part(step(&old, &new, 12));
    let staged = staged(&actions).expect("published");
    assert_eq!((staged.changes.deletes.len(), staged.changes.puts.len()), (1, 1));
    assert!(acks(&actions).is_empty(), "nothing is acknowledged before it is served");
    assert_eq!(node.held(), (0, 10));

    let actions = node.applied(staged.version.clone());
    assert_eq!(acks(&actions)[0].applied.as_ref(), Some(&staged.version));
    assert_eq!(
        acks(&actions)[0].durable.as_ref().map(|v| v.revision.0),
        Some(10),
        "not before the disk has it"
    );
    assert!(matches!(actions.last(), Some(Action::Persist(persist)) if persist.content == new));

    let actions = node.protocol.durable(staged.version.clone(), node.at);
    assert_eq!(acks(&actions)[0].durable, Some(staged.version));
}

#[test]
fn unchanged_resources_of_a_full_transfer_keep_their_allocation_and_are_no_changes() {
    let (old, new) = (content(FOUR), content(&[("routes/1", 2), ("routes/2", 12), ("upstreams/1", 2)]));
    let mut node = Node::holding(&old);
    let actions = node.part(transfer(None, &new, version(12, &new), TransferReason::TooOld));
    let staged = staged(&actions).expect("published");
    assert_eq!((staged.changes.deletes.len(), staged.changes.puts.len()), (1, 1));
    let (kept, before) = (staged.content.get("routes/1").unwrap(), old.get("routes/1").unwrap());
    assert!(Arc::ptr_eq(kept, before));
}

#[test]
fn another_digest_than_promised_is_refused_and_the_content_kept() {
    let (old, new) = (content(FOUR), content(&[("routes/9", 12)]));
    let mut node = Node::holding(&old);
    let mut part = step(&old, &new, 12);
    part.begin.as_mut().unwrap().target.digest = Digest(5);
    let actions = node.part(part);
    assert_eq!(refusals(&actions), [RefusedWhy::Mismatch]);
    assert!(staged(&actions).is_none() && node.protocol.content() == &old);
}

#[test]
fn a_lost_change_is_a_mismatch() {
    let (old, new) = (content(FOUR), content(&[("routes/1", 12), ("routes/2", 12)]));
    let mut node = Node::holding(&old);
    let mut part = step(&old, &new, 12);
    part.changes.pop();
    assert_eq!(refusals(&node.part(part)), [RefusedWhy::Mismatch]);
}

#[test]
fn what_was_in_flight_on_another_base_at_a_refusal_is_dropped_without_a_report() {
    let (old, other) = (content(FOUR), content(&[("routes/7", 3)]));
    let mut node = Node::holding(&old);
    let mut wrong = step(&old, &other, 12);
    wrong.begin.as_mut().unwrap().target.digest = Digest(5);
    assert_eq!(refusals(&node.part(wrong)), [RefusedWhy::Mismatch]);
    let mut part = step(&other, &old, 12);
    let rest = TransferPart { begin: None, changes: part.changes.split_off(1), last: true };
    part.last = false;
    assert!(node.part(part).is_empty());
    assert!(node.part(rest).is_empty());
    assert_eq!(node.protocol.status(node.at.now).counts.dropped, 1);
    assert!(staged(&node.part(step(&old, &other, 12))).is_some(), "the next one is taken");
}

#[test]
fn a_base_that_nothing_explains_ends_the_stream() {
    let (old, other) = (content(FOUR), content(&[("routes/7", 3)]));
    let mut node = Node::holding(&old);
    let mut part = step(&other, &old, 12);
    part.last = false;
    // In silence the replica would wait for an answer for ever.
    let actions = node.part(part);
    assert!(actions.iter().any(|action| matches!(action, Action::Close { .. })), "{actions:?}");
    assert!(
        actions.iter().any(|action| matches!(action, Action::Connect { connection: 2, .. })),
        "{actions:?}"
    );
    assert_eq!((node.protocol.content(), node.protocol.status(node.at.now).receiving), (&old, None));
}

#[test]
fn parts_may_stop_anywhere_and_nothing_of_them_is_served() {
    let (old, new) = (content(FOUR), content(&[("routes/1", 12), ("routes/2", 12)]));
    let mut node = Node::holding(&old);
    let mut part = step(&old, &new, 12);
    part.last = false;
    node.part(part);
    node.protocol.closed(1, "reset", node.at);
    assert_eq!(node.protocol.content(), &old);
    assert_eq!(node.protocol.status(node.at.now).receiving, None);
}

#[test]
fn a_transfer_above_the_limit_is_refused_at_its_beginning_and_while_it_comes() {
    let old = content(FOUR);
    let mut node = Node::holding(&old);
    let mut part = step(&old, &content(&[("routes/1", 12)]), 12);
    part.begin.as_mut().unwrap().bytes = 10_001;
    assert_eq!(refusals(&node.part(part)), [RefusedWhy::OverLimit]);

    let mut big = old.clone();
    let value = Bytes::from(vec![b'x'; 10_001]);
    big.put(Arc::new(Resource::new(Key::new("routes/big"), value, Revision(1), Revision(12))));
    assert_eq!(refusals(&node.part(step(&old, &big, 12))), [RefusedWhy::OverLimit]);
    assert_eq!(node.protocol.content(), &old);
}

#[test]
fn more_changes_than_announced_end_the_stream() {
    let (old, new) = (content(FOUR), content(&[("routes/1", 12), ("routes/2", 12)]));
    let mut node = Node::holding(&old);
    let mut part = step(&old, &new, 12);
    part.begin.as_mut().unwrap().changes = 1;
    assert!(matches!(node.part(part)[..], [Action::Close { .. }, Action::Connect { .. }]));
}

#[test]
fn a_step_never_lowers_a_revision_nor_changes_the_lineage() {
    let (old, new) = (content(FOUR), content(&[("routes/1", 12)]));
    let mut node = Node::holding(&old);
    assert_eq!(refusals(&node.part(step(&old, &new, 9))), [RefusedWhy::Mismatch]);
    let other = Version { lineage: lineage(1), ..version(12, &new) };
    let part = transfer(Some(&old), &new, other, TransferReason::Step);
    assert_eq!(refusals(&node.part(part)), [RefusedWhy::Mismatch]);
}

#[test]
fn a_jump_may_lower_a_revision_but_never_a_generation() {
    let old = content(FOUR);
    let new = content(&[("routes/1", 3), ("routes/2", 2), ("upstreams/1", 2)]);
    let mut node = Node::holding(&old);
    let target = Version { lineage: lineage(1), ..version(5, &new) };
    let actions = node.part(transfer(None, &new, target.clone(), TransferReason::Rewound));
    assert!(staged(&actions).is_some());
    node.applied(target);
    assert_eq!(node.held(), (1, 5));
    let part = transfer(None, &old, version(20, &old), TransferReason::Divergence);
    assert_eq!(refusals(&node.part(part)), [RefusedWhy::Mismatch]);
    assert_eq!(node.held(), (1, 5));
}

#[test]
fn the_guard_holds_a_jump_that_removes_more_than_half() {
    let (old, new) = (content(FOUR), content(&[("routes/1", 2)]));
    for reason in [TransferReason::Reloaded, TransferReason::TooOld, TransferReason::OtherLineage] {
        let mut node = Node::holding(&old);
        let base = (reason == TransferReason::Reloaded).then_some(&old);
        let actions = node.part(transfer(base, &new, version(12, &new), reason));
        assert_eq!(refusals(&actions), [RefusedWhy::Held], "{reason:?}");
        let refused = node.protocol.status(node.at.now).refused.expect("shown").refused;
        assert_eq!((refused.held_resources, refused.removed_resources), (4, 3));
        assert_eq!(node.protocol.content(), &old);
    }
}

#[test]
fn the_guard_holds_a_jump_that_removes_the_last_route_or_certificate() {
    for (last, rest) in [("routes/1", "ssls/1"), ("ssls/1", "routes/1")] {
        let old = content(&[(last, 2), (rest, 2), ("upstreams/1", 2)]);
        let new = content(&[(rest, 2), ("upstreams/1", 2)]);
        let mut node = Node::holding(&old);
        let part = transfer(Some(&old), &new, version(12, &new), TransferReason::Reloaded);
        assert_eq!(refusals(&node.part(part)), [RefusedWhy::Held]);
    }
}

#[test]
fn a_step_is_never_guarded() {
    let (old, new) = (content(FOUR), Content::new());
    let mut node = Node::holding(&old);
    assert!(staged(&node.part(step(&old, &new, 12))).is_some());
}

#[test]
fn an_approval_that_covers_the_jump_lets_it_pass_and_no_other_does() {
    let (old, new) = (content(FOUR), content(&[("routes/1", 2)]));
    let good = Approval {
        id: "a".into(),
        from: lineage(0),
        base_at_most: Revision(10),
        to: lineage(0),
        expires_unix: 1_001,
    };
    for (approval, passes) in [
        (good.clone(), true),
        (Approval { expires_unix: 1_000, ..good.clone() }, false),
        (Approval { base_at_most: Revision(9), ..good.clone() }, false),
        (Approval { to: lineage(1), ..good }, false),
    ] {
        let mut node = Node::holding(&old);
        let mut part = transfer(Some(&old), &new, version(12, &new), TransferReason::Reloaded);
        part.begin.as_mut().unwrap().approval = Some(approval.clone());
        assert_eq!(staged(&node.part(part)).is_some(), passes, "{approval:?}");
    }
}

#[test]
fn an_empty_node_takes_anything_first() {
    let mut node = Node::empty();
    let new = content(&[("routes/1", 2)]);
    let actions = node.part(transfer(None, &new, version(12, &new), TransferReason::First));
    node.applied(staged(&actions).expect("published").version);
    assert_eq!(node.held(), (0, 12));
}

#[test]
fn an_empty_environment_is_a_configuration_too() {
    let mut node = Node::empty();
    let new = Content::new();
    let actions = node.part(transfer(None, &new, version(12, &new), TransferReason::First));
    assert!(staged(&actions).is_some());
}

#[test]
fn a_jump_to_what_is_held_costs_nothing() {
    let old = content(FOUR);
    let mut node = Node::holding(&old);
    let target = Version { lineage: lineage(1), ..version(4, &old) };
    let actions = node.part(transfer(None, &old, target.clone(), TransferReason::Rewound));
    assert!(staged(&actions).is_none());
    assert_eq!(acks(&actions)[0].applied, Some(target));
    assert!(matches!(actions.last(), Some(Action::Persist(persist)) if persist.changes.is_empty()));
}

#[test]
fn reasons_that_are_not_yet_sent_as_differences_are_refused_by_name() {
    let (old, new) = (content(FOUR), content(&[("routes/1", 12)]));
    let mut node = Node::holding(&old);
    let actions = node.part(transfer(Some(&old), &new, version(12, &new), TransferReason::TooOld));
    assert_eq!(refusals(&actions), [RefusedWhy::Mismatch]);
    let detail = node.protocol.status(node.at.now).refused.unwrap().refused.detail;
    assert!(detail.contains("too_old") && detail.contains("not yet"), "{detail}");
}

#[test]
fn while_a_version_is_published_further_parts_wait_for_it() {
    let old = content(FOUR);
    let (first, second) = (content(&[("routes/1", 12)]), content(&[("routes/1", 13)]));
    let mut node = Node::holding(&old);
    let one = staged(&node.part(step(&old, &first, 12))).expect("published");
    assert!(node.part(step(&first, &second, 13)).is_empty());
    let actions = node.applied(one.version);
    assert_eq!(staged(&actions).expect("published in turn").version, version(13, &second));
}

#[test]
fn rejects_that_a_version_brings_stand_before_its_acknowledgement_and_fallbacks_after() {
    let (old, new) = (content(FOUR), content(&[("routes/1", 12), ("routes/2", 2), ("upstreams/1", 2)]));
    let mut node = Node::holding(&old);
    let version = staged(&node.part(step(&old, &new, 12))).expect("published").version;
    let reject = Reject {
        key: Key::new("routes/1"),
        mod_revision: Revision(12),
        reason: "bad".into(),
        served: None,
        since_unix: 1,
        governs: 0,
    };
    let request =
        FallbackRequest { key: reject.key.clone(), create_revision: Revision(1), below: Revision(12) };
    let rejects = Rejects { full: false, rejected: vec![reject], cleared: Vec::new() };
    let result = Applied { version, rejects, requests: vec![request] };
    let actions = node.protocol.applied(result, node.at);
    let order: Vec<_> = actions
        .iter()
        .map(|action| match action {
            Action::Send(NodeMessage::Rejects(_)) => "rejects",
            Action::Send(NodeMessage::Ack(_)) => "ack",
            Action::Send(NodeMessage::Fallback(_)) => "fallback",
            Action::Persist(_) => "persist",
            other => panic!("unexpected {other:?}"),
        })
        .collect();
    assert_eq!(order, ["rejects", "ack", "persist", "fallback"]);
    let actions = node.hear(ReplicaMessage::RejectsPlease);
    assert!(
        matches!(&actions[..], [Action::Send(NodeMessage::Rejects(all))] if all.full && all.rejected.len() == 1)
    );
}
