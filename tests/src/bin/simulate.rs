//! Runs simulated worlds and says what they found, as one JSON line or for people.
//!
//! Ends with 0 when nothing was wrong, 1 when something was (or, from enough seeds on, when a case was never
//! reached), 2 when it could not run.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use clap::Parser;
use headwater_tests::simulation::coverage::ENOUGH_SEEDS;
use headwater_tests::simulation::{Coverage, World};
use serde::Serialize;

/// Runs the simulated world: real cores, a modelled etcd, virtual time, faults drawn from a seed.
#[derive(Debug, Parser)]
#[command(name = "simulate", version)]
struct Arguments {
    /// How many seeds to run.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 0)]
    first_seed: u64,
    /// Print one JSON line.
    #[arg(long)]
    json: bool,
    /// Print what happens, to standard error; one seed after the other.
    #[arg(long)]
    trace: bool,
    /// Plant a fault in the code under test (builds with --cfg headwater_mutants only) and stop when it is found.
    #[arg(long)]
    mutant: Option<String>,
}

#[derive(Debug, Default, Serialize)]
struct Summary {
    seeds: u64,
    steps: u64,
    violations: u64,
    seconds: f64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    never_reached: Vec<&'static str>,
    coverage: Coverage,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(name) = &arguments.mutant
        && let Err(why) = plant(name)
    {
        eprintln!("{why}");
        return ExitCode::from(2);
    }
    let summary = run(&arguments);
    print(&arguments, &summary);
    if summary.violations == 0 && summary.never_reached.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

#[cfg(headwater_mutants)]
fn plant(name: &str) -> Result<(), String> {
    let names = headwater_model::mutant::NAMES.join(", ");
    headwater_model::mutant::choose(name)
        .map_err(|name| format!("no mutant is called {name}; there are: {names}"))
}

#[cfg(not(headwater_mutants))]
fn plant(name: &str) -> Result<(), String> {
    Err(format!("the mutant {name} is not in this build: build with RUSTFLAGS=\"--cfg headwater_mutants\""))
}

/// Runs the seeds on all cores. With a mutant the first violation ends the run.
fn run(arguments: &Arguments) -> Summary {
    let began = Instant::now();
    let last = arguments.first_seed + arguments.seeds;
    let next = AtomicU64::new(arguments.first_seed);
    let summary = Mutex::new(Summary::default());
    let cores = std::thread::available_parallelism().map_or(1, Into::into);
    std::thread::scope(|scope| {
        for _ in 0..if arguments.trace { 1 } else { cores } {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= last {
                        return;
                    }
                    let outcome = World::new(seed, arguments.trace).run();
                    let mut summary = summary.lock().expect("no run panics while it holds the summary");
                    summary.seeds += 1;
                    summary.steps += outcome.steps;
                    summary.coverage.merge(&outcome.coverage);
                    if let Some(violation) = outcome.violation {
                        summary.violations += 1;
                        report(arguments, seed, &violation);
                        if arguments.mutant.is_some() {
                            next.store(last, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    let mut summary = summary.into_inner().expect("no run panics while it holds the summary");
    summary.seconds = began.elapsed().as_secs_f64();
    if summary.seeds >= ENOUGH_SEEDS && arguments.mutant.is_none() {
        summary.never_reached = summary.coverage.missing();
    }
    summary
}

fn report(arguments: &Arguments, seed: u64, violation: &str) {
    let mutant = arguments.mutant.as_ref().map(|name| format!(" --mutant {name}")).unwrap_or_default();
    let command = "cargo run --release -p headwater-tests --bin simulate --";
    eprintln!("seed {seed}, {violation}");
    eprintln!("replay: {command} --first-seed {seed} --seeds 1 --trace{mutant}");
}

fn print(arguments: &Arguments, summary: &Summary) {
    if arguments.json {
        let line = serde_json::to_string(summary).expect("numbers and names can be written as JSON");
        println!("{line}");
        return;
    }
    println!(
        "{} seeds, {} steps, {} violations in {:.1} s",
        summary.seeds, summary.steps, summary.violations, summary.seconds
    );
    for case in &summary.never_reached {
        println!("never reached: {case}");
    }
}
