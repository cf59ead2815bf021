use super::*;

fn tries(left: u32) -> Tries {
    Tries { tried: Tried::default(), left, again: None }
}

fn reset() -> Failure {
    Failure::Reset("gone".into())
}

#[test]
fn each_failed_node_costs_a_try_and_is_not_tried_again() {
    let mut tries = tries(1);
    assert!(tries.next(0, &reset(), false));
    assert!(tries.tried.contains(0));
    assert!(!tries.next(1, &reset(), false), "no try is left");
}

#[test]
fn a_kept_connection_that_had_ended_costs_none_and_stays_with_its_node() {
    let mut tries = tries(0);
    for failure in [reset(), Failure::Stale] {
        assert!(tries.next(3, &failure, true));
        assert_eq!(tries.again.take(), Some(3));
    }
    assert!(!tries.next(3, &reset(), false), "over the new connection it counts");
}

#[test]
fn a_time_out_over_a_kept_connection_is_the_nodes() {
    let mut tries = tries(0);
    assert!(!tries.next(0, &Failure::ReadTimeout(std::time::Duration::from_secs(1)), true));
}

#[test]
fn a_node_without_an_address_costs_no_try_and_is_not_asked_twice() {
    let mut tries = tries(0);
    let unknown = Failure::NoAddress("a.test".into());
    assert!(tries.next(0, &unknown, false));
    assert!(!tries.next(0, &unknown, false));
}
