//! Two thousand simulated worlds with every `cargo test`, on all cores; more of them are `make simulate`, and
//! `make mutants` proves that they find what is wrong.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use headwater_tests::simulation::coverage::ENOUGH_SEEDS;
use headwater_tests::simulation::{Coverage, World};

#[test]
fn nothing_is_wrong_in_two_thousand_worlds_and_they_see_every_case() {
    let (next, coverage) = (AtomicU64::new(0), Mutex::new(Coverage::default()));
    let cores = std::thread::available_parallelism().map_or(1, Into::into);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= ENOUGH_SEEDS {
                        return;
                    }
                    check(seed, &coverage);
                }
            });
        }
    });
    let coverage = coverage.into_inner().expect("a panic would have ended the test");
    assert_eq!(coverage.missing(), Vec::<&str>::new(), "cases that no world has been through");
}

fn check(seed: u64, coverage: &Mutex<Coverage>) {
    let outcome = World::new(seed, false).run();
    assert_eq!(outcome.violation, None, "seed {seed}");
    assert!(outcome.steps >= 500, "seed {seed}: too little happened to prove anything: {}", outcome.steps);
    assert!(outcome.coverage.under("fault/") >= 3, "seed {seed}: too little went wrong");
    coverage.lock().expect("no world panics while it holds the coverage").merge(&outcome.coverage);
}

#[test]
fn a_seed_is_one_run() {
    for seed in [7, 77] {
        let [first, again] = [(); 2].map(|()| World::new(seed, false).run());
        assert_eq!(first.steps, again.steps);
        assert_eq!(first.coverage, again.coverage);
    }
}
