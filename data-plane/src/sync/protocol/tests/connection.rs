//! Dialling, silence, life, goodbye.

use headwater_proto::config::Goaway;

use super::*;

#[test]
fn hello_names_what_is_held_and_the_acknowledgement_follows_the_welcome() {
    let held = content(&[("routes/1", 2)]);
    let mut node = Node::new(settings(1), Some((version(10, &held), held.clone())));
    let hello = hello(&node.open()).expect("sent");
    assert_eq!((hello.held, hello.connection), (Some(version(10, &held)), 1));
    let ack = acks(&node.hear(welcome(version(10, &held), Standing::Live))).remove(0);
    assert_eq!(ack, Ack { applied: Some(version(10, &held)), durable: Some(version(10, &held)) });
}

#[test]
fn addresses_take_turns_and_the_delay_grows_by_rounds_up_to_the_cap() {
    let mut node = Node::new(settings(2), None);
    node.at.random = 1.0;
    let mut tries = Vec::new();
    for connection in 1..=14 {
        let (address, after) = connect(&node.protocol.closed(connection, "refused", node.at)).expect("again");
        tries.push((address, after.as_secs()));
    }
    assert_eq!(tries[..4], [(1, 1), (0, 1), (1, 2), (0, 2)]);
    assert_eq!(tries[13], (0, 30));
}

#[test]
fn only_health_starts_the_delay_over() {
    let held = content(&[("routes/1", 2)]);
    let mut node = Node::new(settings(1), Some((version(10, &held), held.clone())));
    node.at.random = 1.0;
    for (healthy, delay) in [(false, 1), (false, 2), (true, 1)] {
        node.open();
        node.hear(welcome(version(10, &held), Standing::Live));
        if healthy {
            node.hear(delivered(version(10, &held)));
        }
        let actions = node.protocol.closed(node.connection, "reset", node.at);
        assert_eq!(connect(&actions).expect("again").1, Duration::from_secs(delay));
        node.connection += 1;
    }
}

#[test]
fn dialling_ends_after_its_timeout() {
    let mut node = Node::new(settings(1), None);
    assert!(node.after(4).is_empty());
    assert!(matches!(node.after(1)[..], [Action::Close { connection: 1, .. }, Action::Connect { .. }]));
    assert!(node.open().is_empty(), "a late success of the given up connection is nothing");
}

#[test]
fn three_heartbeats_of_silence_are_death_whatever_the_transport_says() {
    let held = content(&[("routes/1", 2)]);
    let mut node = Node::holding(&held);
    for _ in 0..2 {
        assert!(node.after(10).is_empty());
    }
    assert!(node.after(9).is_empty());
    let actions = node.after(1);
    assert!(matches!(actions[..], [Action::Close { .. }, Action::Connect { address: 1, .. }]));
}

#[test]
fn after_a_pause_of_the_process_what_came_meanwhile_is_read_first() {
    let held = content(&[("routes/1", 2)]);
    let mut node = Node::holding(&held);
    assert!(node.after(3_600).is_empty());
    node.hear(delivered(version(10, &held)));
    assert!(node.after(5).is_empty(), "the buffered frame was proof of life");
}

#[test]
fn receiving_is_said_every_heartbeat_while_receiving_and_while_applying() {
    let (old, new) = (content(&[("routes/1", 2)]), content(&[("routes/1", 12)]));
    let mut node = Node::holding(&old);
    let whole = step(&old, &new, 12);
    node.part(TransferPart { last: false, ..whole });
    let receiving = |actions: &[Action]| matches!(actions, [Action::Send(NodeMessage::Receiving { bytes })] if *bytes > 0);
    assert!(receiving(&node.after(10)));
    assert!(node.after(5).is_empty());
    node.part(TransferPart { begin: None, changes: Vec::new(), last: true });
    assert!(receiving(&node.after(5)), "applying");
    node.applied(version(12, &new));
    assert!(node.after(5).is_empty());
}

#[test]
fn an_empty_node_asks_all_others_before_it_takes_degraded_content() {
    let mut node = Node::new(settings(2), None);
    let degraded = || welcome(version(10, &Content::new()), Standing::Degraded { since_unix: 5 });
    for _ in 0..2 {
        assert!(!hello(&node.open()).expect("sent").accept_degraded);
        let actions = node.hear(degraded());
        assert!(matches!(actions[0], Action::Send(NodeMessage::Bye(Bye::Moving))));
        node.connection += 1;
    }
    assert!(hello(&node.open()).expect("sent").accept_degraded, "after one round");
    assert!(node.hear(degraded()).is_empty());
    let new = content(&[("routes/1", 2)]);
    let part = transfer(None, &new, version(10, &new), TransferReason::First);
    assert!(staged(&node.part(part)).is_some());
    assert_eq!(node.protocol.status(node.at.now).standing, Some(Standing::Degraded { since_unix: 5 }));
}

#[test]
fn goaway_sends_the_node_to_the_next_address_with_its_content() {
    let held = content(&[("routes/1", 2)]);
    for reason in [GoawayReason::Draining, GoawayReason::UnknownEnvironment, GoawayReason::GenerationAhead] {
        let mut node = Node::holding(&held);
        let goaway = Goaway { reason, detail: "because".into() };
        let actions = node.hear(ReplicaMessage::Goaway(goaway));
        assert_eq!(connect(&actions).expect("goes on").0, 1);
        let status = node.protocol.status(node.at.now);
        assert!(status.last_error.expect("told").0.contains("because"));
        assert_eq!(status.held_ahead_since_unix.is_some(), reason == GoawayReason::GenerationAhead);
        assert_eq!(node.held(), (0, 10));
    }
}

#[test]
fn a_stale_connection_says_nothing() {
    let held = content(&[("routes/1", 2)]);
    let mut node = Node::holding(&held);
    node.protocol.closed(1, "reset", node.at);
    let further = version(99, &held);
    assert!(node.protocol.received(1, delivered(further), node.at).is_empty());
    assert!(node.protocol.closed(1, "again", node.at).is_empty());
    assert_eq!(node.held(), (0, 10));
}

#[test]
fn a_hello_waits_for_a_version_that_is_being_published() {
    let (old, new) = (content(&[("routes/1", 2)]), content(&[("routes/1", 12)]));
    let mut node = Node::holding(&old);
    let target = staged(&node.part(step(&old, &new, 12))).expect("published").version;
    node.protocol.closed(1, "reset", node.at);
    node.connection = 2;
    assert!(node.open().is_empty());
    assert_eq!(hello(&node.applied(target.clone())).expect("sent").held, Some(target));
}

#[test]
fn a_frame_before_the_welcome_and_a_second_welcome_end_the_stream() {
    let held = content(&[("routes/1", 2)]);
    let mut node = Node::new(settings(1), None);
    node.open();
    assert!(matches!(node.hear(delivered(version(10, &held)))[..], [Action::Close { .. }, ..]));
    let mut node = Node::holding(&held);
    let again = welcome(version(10, &held), Standing::Live);
    assert!(matches!(node.hear(again)[..], [Action::Close { .. }, ..]));
}

#[test]
fn leaving_says_so_and_dials_no_more() {
    let mut node = Node::holding(&content(&[("routes/1", 2)]));
    let actions = node.protocol.leave(Bye::Leaving, node.at);
    assert!(matches!(actions[..], [Action::Send(NodeMessage::Bye(Bye::Leaving)), Action::Close { .. }]));
    assert!(node.after(1_000).is_empty());
    assert_eq!(node.protocol.status(node.at.now).phase, Phase::Stopped);
}

#[test]
fn an_idle_stream_stays_open_and_ready_for_an_hour_and_for_seven_days() {
    let held = content(&[("routes/1", 2)]);
    for hours in [1, 7 * 24] {
        let mut node = Node::holding(&held);
        let end = node.at.now + Duration::from_secs(hours * 3_600);
        let mut next_progress = node.at.now;
        while node.at.now < end {
            node.at.now = node.protocol.wake().min(next_progress).max(node.at.now);
            if node.at.now >= next_progress {
                next_progress += Duration::from_secs(10);
                let actions = node.hear(delivered(version(10, &held)));
                assert!(matches!(actions[..], [Action::Send(NodeMessage::Alive)]));
            }
            assert!(node.protocol.tick(node.at).is_empty(), "nothing is torn down while nothing happens");
        }
        assert_eq!(node.protocol.status(node.at.now).phase, Phase::Open);
    }
}
