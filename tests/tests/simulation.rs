//! A short run of the simulated world with every `cargo test`; the long ones are `make simulate` and `make mutants`.

use headwater_tests::simulation::World;

#[test]
fn nothing_is_wrong_in_a_hundred_worlds() {
    for seed in 0..100 {
        let outcome = World::new(seed, false).run();
        assert_eq!(outcome.violation, None, "seed {seed}");
        assert!(
            outcome.steps >= 500,
            "seed {seed}: too little happened to prove anything: {}",
            outcome.steps
        );
        assert!(outcome.coverage.under("fault/") >= 3, "seed {seed}: too little went wrong");
    }
}

#[test]
fn a_seed_is_one_run() {
    for seed in [7, 77] {
        let [first, again] = [(); 2].map(|()| World::new(seed, false).run());
        assert_eq!(first.steps, again.steps);
        assert_eq!(first.coverage, again.coverage);
    }
}
