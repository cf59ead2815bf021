//! Fallbacks are asked for a few at a time, however many are wanted.

use headwater_proto::config::{FallbackAnswer, FallbackRequest, Rejects};
use headwater_proto::limits::MAX_FALLBACKS;

use super::*;

/// More than any queue of frames holds.
const WANTED: u64 = 1000;

fn request(number: u64, below: u64) -> FallbackRequest {
    let key = Key::new(format!("routes/{number:04}"));
    FallbackRequest { key, create_revision: Revision(1), below: Revision(below) }
}

fn reject(request: &FallbackRequest) -> Reject {
    Reject {
        key: request.key.clone(),
        mod_revision: request.below,
        reason: "no".into(),
        served: None,
        since_unix: 1,
        governs: 0,
    }
}

/// What the verdict says of a version in which all of these cannot be used.
fn judged(node: &mut Node, requests: Vec<FallbackRequest>) -> Vec<Action> {
    let rejected = requests.iter().map(reject).collect();
    node.protocol.judged(Rejects { full: false, rejected, cleared: Vec::new() }, requests, node.at)
}

fn asked(actions: &[Action]) -> Vec<FallbackRequest> {
    let request = |action: &Action| match action {
        Action::Send(NodeMessage::Fallback(request)) => Some(request.clone()),
        _ => None,
    };
    actions.iter().filter_map(request).collect()
}

fn none(request: &FallbackRequest) -> ReplicaMessage {
    let FallbackRequest { key, create_revision, below } = request.clone();
    ReplicaMessage::Fallback(FallbackAnswer { key, create_revision, rejected: below, found: None })
}

#[test]
fn only_so_many_are_under_way_and_each_answer_makes_room_for_the_next() {
    let held = content(&[("routes/1", 2)]);
    let mut node = Node::holding(&held);
    let mut under_way = asked(&judged(&mut node, (0..WANTED).map(|number| request(number, 5)).collect()));
    let mut all = Vec::new();
    while let Some(next) = under_way.pop() {
        assert!(under_way.len() < MAX_FALLBACKS, "{} under way", under_way.len() + 1);
        under_way.extend(asked(&node.hear(none(&next))));
        all.push(next);
    }
    all.sort_by(|one, other| one.key.cmp(&other.key));
    assert_eq!(all, (0..WANTED).map(|number| request(number, 5)).collect::<Vec<_>>(), "each once");
}

#[test]
fn what_was_not_answered_is_asked_for_again_on_the_next_connection() {
    let held = content(&[("routes/1", 2)]);
    let mut node = Node::holding(&held);
    let requests: Vec<_> = (0..WANTED).map(|number| request(number, 5)).collect();
    assert_eq!(asked(&judged(&mut node, requests.clone())), requests[..MAX_FALLBACKS]);
    // A newer value of one that is under way is another question.
    assert!(asked(&judged(&mut node, vec![request(0, 7)])).is_empty(), "there is no room");
    node.protocol.closed(node.connection, "gone", node.at);
    node.connection += 1;
    node.open();
    let again = asked(&node.hear(welcome(version(10, &held), Standing::Live)));
    assert_eq!((again.len(), &again[0]), (MAX_FALLBACKS, &request(0, 7)));
}
