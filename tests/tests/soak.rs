//! The soak in its short form: the same world and the same judges, one time of faults. The long one is `make soak`.

use std::time::Duration;

use headwater_tests::etcd::dependable;
use headwater_tests::soak::options::Settings;
use headwater_tests::soak::run::run;

/// Few keys and quick faults. The seed is fixed, so that two runs break the same things: etcd and processes of both
/// planes are killed or restarted, both hops frozen, cut or slowed, etcd compacted under it all.
fn short() -> Settings {
    let milliseconds = Duration::from_millis;
    Settings {
        seed: 1,
        members: 1,
        replicas: 2,
        nodes: 2,
        rate: 50,
        keys: 300,
        rounds: 1,
        busy: milliseconds(7000),
        quiet: milliseconds(500),
        gap: (milliseconds(300), milliseconds(900)),
        lasts: milliseconds(1500),
        look_inside: milliseconds(500),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_soak_finds_no_difference_and_no_broken_guarantee() {
    if !dependable("a_short_soak_finds_no_difference_and_no_broken_guarantee") {
        return;
    }
    let report = run(&short()).await;
    println!("{}", serde_json::to_string(&report).expect("a report is JSON"));
    assert!(report.passed, "{report:#?}");
    assert!(report.faults.values().sum::<u64>() >= 5, "{:?}", report.faults);
    assert!(report.changes > 100, "{} changes", report.changes);
    assert_eq!(report.guarantees.checked.len(), 6, "{:?}", report.guarantees.checked);
    assert_eq!(report.quiet_compares, 2);
}
