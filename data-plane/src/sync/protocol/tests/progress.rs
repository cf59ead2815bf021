//! Progress: judged in order, certifying only what is held.

use super::*;

#[test]
fn equal_content_takes_revision_and_generation_without_payload() {
    let held = content(&[("routes/1", 2)]);
    let mut node = Node::holding(&held);
    let target = Version { lineage: lineage(2), ..version(40, &held) };
    let actions = node.hear(delivered(target.clone()));
    assert!(matches!(actions[0], Action::Send(NodeMessage::Alive)));
    assert_eq!(acks(&actions)[0].applied, Some(target));
    assert!(matches!(actions.last(), Some(Action::Persist(_))));
    assert_eq!(node.held(), (2, 40));
}

#[test]
fn a_lower_revision_or_generation_is_never_taken() {
    let held = content(&[("routes/1", 2)]);
    let mut node = Node::holding(&held);
    node.hear(delivered(Version { lineage: lineage(2), ..version(40, &held) }));
    for lower in [Version { lineage: lineage(2), ..version(39, &held) }, version(90, &held)] {
        assert!(acks(&node.hear(delivered(lower))).is_empty());
        assert_eq!(node.held(), (2, 40));
    }
}

#[test]
fn another_digest_at_the_same_place_is_reported() {
    let held = content(&[("routes/1", 2)]);
    let mut node = Node::holding(&held);
    let claim = version(10, &content(&[("routes/1", 3)]));
    assert_eq!(refusals(&node.hear(delivered(claim))), [RefusedWhy::Mismatch]);
    let elsewhere = version(11, &content(&[("routes/1", 3)]));
    assert!(refusals(&node.hear(delivered(elsewhere))).is_empty(), "only delivered versions are compared");
}

#[test]
fn progress_is_judged_after_the_transfer_before_it() {
    let (old, new) = (content(&[("routes/1", 2)]), content(&[("routes/1", 12)]));
    let mut node = Node::holding(&old);
    let target = staged(&node.part(step(&old, &new, 12))).expect("published").version;
    let later = Version { revision: Revision(15), ..target.clone() };
    let actions = node.hear(delivered(later.clone()));
    assert!(acks(&actions).is_empty() && node.held() == (0, 10), "nothing is certified before it is served");
    assert!(matches!(actions[..], [Action::Send(NodeMessage::Alive)]), "but the replica hears of life");
    let actions = node.applied(target.clone());
    let applied: Vec<_> = acks(&actions).into_iter().filter_map(|ack| ack.applied).collect();
    assert_eq!(applied, [target, later]);
}

#[test]
fn progress_inside_a_transfer_ends_the_stream() {
    let (old, new) = (content(&[("routes/1", 2)]), content(&[("routes/1", 12)]));
    let mut node = Node::holding(&old);
    let mut part = step(&old, &new, 12);
    part.last = false;
    node.part(part);
    let actions = node.hear(delivered(version(12, &new)));
    assert!(matches!(actions[..], [Action::Close { .. }, Action::Connect { .. }]));
    assert_eq!(node.held(), (0, 10));
}

#[test]
fn ages_of_proof_are_shown_for_each_hop() {
    let held = content(&[("routes/1", 2)]);
    let mut node = Node::holding(&held);
    node.hear(delivered(version(10, &held)));
    node.after(5);
    let status = node.protocol.status(node.at.now);
    assert_eq!(status.hop_age, Some(Duration::from_secs(5)));
    assert_eq!(status.source_age, Some(Duration::from_secs(7)), "the source's age adds to the hop's");
}

#[test]
fn a_node_ahead_of_its_replica_shows_it_and_tries_the_others_slowly() {
    let held = content(&[("routes/1", 2)]);
    let mut node = Node::holding(&held);
    let behind = |node: &mut Node| node.hear(delivered(version(8, &held)));
    behind(&mut node);
    assert_eq!(node.protocol.status(node.at.now).held_ahead_since_unix, Some(1_000));
    assert!(node.after(9).is_empty(), "waits first");
    let actions = node.after(1);
    assert!(matches!(actions[0], Action::Send(NodeMessage::Bye(Bye::Moving))));
    assert_eq!(connect(&actions).expect("goes on").0, 1);
    node.connection = 2;
    node.open();
    node.hear(welcome(version(12, &held), Standing::Live));
    node.hear(delivered(version(12, &held)));
    assert_eq!(node.protocol.status(node.at.now).held_ahead_since_unix, None);
    assert_eq!(node.held(), (0, 12));
}
