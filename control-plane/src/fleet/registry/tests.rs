use headwater_model::{Digest, Generation, Lineage};
use headwater_proto::config::RefusedWhy;

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn version(revision: u64) -> Version {
    let lineage = Lineage { cluster_id: 7, prefix: "/apisix".into(), generation: Generation(0) };
    Version { lineage, revision: Revision(revision), digest: Digest(u128::from(revision)) }
}

fn id(node: &str, instance: &str) -> RowId {
    RowId { node_id: node.into(), instance: instance.into() }
}

fn hello(node: &str, instance: &str, connection: u64) -> Hello {
    Hello {
        protocol: 1,
        node_id: node.into(),
        instance: instance.into(),
        connection,
        environment: "default".into(),
        labels: [("zone".to_owned(), "a".to_owned())].into(),
        build: "0.1.0".into(),
        digest_scheme: 1,
        held: None,
        accept_degraded: true,
        rejects_count: 0,
        rejects_hash: Digest::EMPTY,
    }
}

fn reject(key: &str, revision: u64) -> Reject {
    Reject {
        key: Key::new(key),
        mod_revision: Revision(revision),
        reason: "uri: not a string".into(),
        served: None,
        since_unix: 5,
        governs: 0,
    }
}

fn join(registry: &mut Registry, hello: Hello, now: Duration) -> bool {
    let row = id(&hello.node_id, &hello.instance);
    let connection = hello.connection;
    let happened = Happened::Joined {
        hello: Box::new(hello),
        identity: Some("CN=n".into()),
        peer: "10.0.0.1:5000".into(),
    };
    registry.apply(FleetEvent { row, connection, happened }, now)
}

fn tell(registry: &mut Registry, row: &RowId, connection: u64, happened: Happened, now: Duration) -> bool {
    registry.apply(FleetEvent { row: row.clone(), connection, happened }, now)
}

fn left(bye: Option<Bye>) -> Happened {
    Happened::Left { bye, reason: "the stream was reset".into() }
}

fn registry() -> Registry {
    Registry::new("r1", HOUR, 1_000)
}

fn expected(registry: &Registry, now: Duration) -> Vec<String> {
    registry.expected(None, now).map(|row| row.id.instance.to_string()).collect()
}

#[test]
fn an_event_of_an_older_connection_is_ignored() {
    let mut registry = registry();
    let row = id("n1", "a");
    join(&mut registry, hello("n1", "a", 2), at(1));
    assert!(!join(&mut registry, hello("n1", "a", 1), at(2)));
    assert!(!tell(&mut registry, &row, 1, left(None), at(2)));
    let ack = Ack { applied: Some(version(5)), durable: None };
    assert!(!tell(&mut registry, &row, 1, Happened::Acked(ack.clone()), at(2)));
    assert_eq!(
        registry.row(&row).map(|row| (row.state.clone(), row.applied.clone())),
        Some((RowState::Live, None))
    );
    assert!(tell(&mut registry, &row, 2, Happened::Acked(ack), at(3)));
    assert_eq!(registry.row(&row).and_then(|row| row.applied.clone()), Some(version(5)));
    assert_eq!(registry.outdated(), 3);
}

#[test]
fn a_new_instance_replaces_the_lost_rows_of_its_id_only() {
    let mut registry = registry();
    for (node, instance) in [("n1", "a"), ("n1", "b"), ("n2", "c")] {
        join(&mut registry, hello(node, instance, 1), at(1));
        tell(&mut registry, &id(node, instance), 1, left(None), at(2));
    }
    join(&mut registry, hello("n1", "d", 1), at(3));
    assert_eq!(expected(&registry, at(3)), ["d", "c"]);
}

#[test]
fn two_live_instances_both_count_and_are_flagged() {
    let mut registry = registry();
    join(&mut registry, hello("n1", "a", 1), at(1));
    join(&mut registry, hello("n1", "b", 1), at(1));
    join(&mut registry, hello("n10", "c", 1), at(1));
    assert_eq!(expected(&registry, at(1)), ["a", "b", "c"]);
    let flagged: Vec<bool> = registry.rows().map(|row| registry.is_duplicate(row)).collect();
    assert_eq!(flagged, [true, true, false]);
}

#[test]
fn the_same_node_id_in_another_environment_is_another_node() {
    let mut registry = registry();
    join(&mut registry, hello("n1", "a", 1), at(1));
    tell(&mut registry, &id("n1", "a"), 1, left(None), at(1));
    let elsewhere = Hello { environment: "staging".into(), ..hello("n1", "b", 1) };
    join(&mut registry, elsewhere, at(2));
    assert_eq!(expected(&registry, at(2)), ["a", "b"]);
    assert_eq!(registry.expected(Some("staging"), at(2)).count(), 1);
}

#[test]
fn lost_rows_are_expected_for_the_retention_and_leaving_ones_never() {
    let mut registry = registry();
    for (instance, bye) in [("a", None), ("b", Some(Bye::Leaving)), ("c", Some(Bye::Moving))] {
        join(&mut registry, hello(instance, instance, 1), at(1));
        tell(&mut registry, &id(instance, instance), 1, left(bye), at(10));
    }
    assert_eq!(expected(&registry, at(3609)), ["a", "c"]);
    assert_eq!(expected(&registry, at(3610)), [""; 0]);
    registry.expire(at(3609));
    assert_eq!(registry.counts(), Counts { live: 0, lost: 2, left: 1 });
    registry.expire(at(3610));
    assert_eq!(registry.counts(), Counts::default());
}

#[test]
fn a_lost_node_can_be_forgotten_and_a_live_one_cannot() {
    let mut registry = registry();
    let row = id("n1", "a");
    join(&mut registry, hello("n1", "a", 1), at(1));
    assert_eq!(registry.forget(&row), Err(ForgetError::Live(row.clone())));
    tell(&mut registry, &row, 1, left(None), at(2));
    assert_eq!(registry.forget(&row), Ok(()));
    assert_eq!(registry.forget(&row), Err(ForgetError::Unknown(row)));
}

#[test]
fn rejects_are_unknown_until_the_whole_set_was_sent() {
    let mut registry = registry();
    let set = [reject("routes/1", 4), reject("routes/2", 5)];
    let says = Hello { rejects_count: 2, rejects_hash: Reject::set_hash(&set), ..hello("n1", "a", 1) };
    assert!(!registry.knows_rejects(&says));
    join(&mut registry, says.clone(), at(1));
    let row = id("n1", "a");
    let some = Rejects { full: false, rejected: vec![set[0].clone()], cleared: vec![] };
    tell(&mut registry, &row, 1, Happened::Rejects(some), at(2));
    assert_eq!(registry.row(&row).map(|row| row.rejects_known), Some(false));
    let all = Rejects { full: true, rejected: set.to_vec(), cleared: vec![] };
    tell(&mut registry, &row, 1, Happened::Rejects(all), at(2));
    assert_eq!(registry.row(&row).map(|row| (row.rejects_known, row.rejects.len())), Some((true, 2)));

    // The node comes back as a new process with the same rejects, from its disk: known by count and hash.
    tell(&mut registry, &row, 1, left(None), at(3));
    let restarted = Hello { instance: "b".into(), ..says };
    assert!(registry.knows_rejects(&restarted));
    join(&mut registry, restarted, at(4));
    assert_eq!(
        registry.row(&id("n1", "b")).map(|row| (row.rejects_known, row.rejects.len())),
        Some((true, 2))
    );

    let cleared = Rejects { full: false, rejected: vec![], cleared: vec![Key::new("routes/1")] };
    tell(&mut registry, &id("n1", "b"), 1, Happened::Rejects(cleared), at(5));
    assert_eq!(registry.row(&id("n1", "b")).map(|row| row.rejects.len()), Some(1));
}

#[test]
fn a_refusal_stands_until_a_later_version_is_applied() {
    let mut registry = registry();
    let row = id("n1", "a");
    join(&mut registry, hello("n1", "a", 1), at(1));
    let begun = Happened::Transferring { target: version(9), reason: TransferReason::Reloaded };
    tell(&mut registry, &row, 1, begun, at(1));
    let refused = Refused {
        target: version(9),
        why: RefusedWhy::Held,
        held: Some(version(4)),
        held_resources: 10,
        removed_resources: 9,
        detail: "removes 9 of 10 resources".into(),
    };
    tell(&mut registry, &row, 1, Happened::Refused(refused), at(2));
    let held = registry.row(&row).unwrap();
    assert_eq!((held.in_flight.clone(), held.applied.clone()), (None, Some(version(4))));
    for (revision, stands) in [(4, true), (10, false)] {
        let ack = Ack { applied: Some(version(revision)), durable: None };
        tell(&mut registry, &row, 1, Happened::Acked(ack), at(3));
        assert_eq!(registry.row(&row).unwrap().refused.is_some(), stands, "{revision}");
    }
}

#[test]
fn a_reconnect_of_the_same_process_keeps_what_its_disk_was_said_to_hold() {
    let mut registry = registry();
    let row = id("n1", "a");
    join(&mut registry, hello("n1", "a", 1), at(1));
    let ack = Ack { applied: Some(version(5)), durable: Some(version(4)) };
    tell(&mut registry, &row, 1, Happened::Acked(ack), at(1));
    join(&mut registry, Hello { held: Some(version(5)), ..hello("n1", "a", 2) }, at(2));
    assert_eq!(registry.row(&row).and_then(|row| row.durable.clone()), Some(version(4)));
    tell(&mut registry, &row, 2, left(None), at(3));
    join(&mut registry, Hello { held: Some(version(5)), ..hello("n1", "b", 1) }, at(4));
    assert_eq!(registry.row(&id("n1", "b")).and_then(|row| row.durable.clone()), None);
}

#[test]
fn a_roster_carries_expected_nodes_over_a_restart() {
    let mut before = registry();
    join(&mut before, hello("n1", "a", 1), at(1));
    join(&mut before, hello("n2", "b", 1), at(1));
    join(&mut before, hello("n3", "c", 1), at(1));
    tell(&mut before, &id("n2", "b"), 1, left(None), at(10));
    tell(&mut before, &id("n3", "c"), 1, left(Some(Bye::Leaving)), at(10));
    let roster: Vec<Expected> = before.roster(at(100)).collect();
    assert_eq!(roster.iter().map(|seen| seen.seen_unix).collect::<Vec<_>>(), [1_100, 1_010]);

    let mut after = Registry::new("r1", HOUR, 1_200);
    for seen in roster {
        after.expect(seen, Duration::ZERO);
    }
    assert_eq!(expected(&after, at(1)), ["a", "b"]);
    assert!(join(&mut after, hello("n1", "a", 7), at(2)));
    assert_eq!(after.counts(), Counts { live: 1, lost: 1, left: 0 });
}
