//! Keeps a real world going under faults and compares it with etcd again and again; see `soak --help`.

use std::process::ExitCode;

use clap::Parser;
use headwater_tests::soak::options::Arguments;
use headwater_tests::soak::run::run;

#[tokio::main]
async fn main() -> ExitCode {
    let report = run(&Arguments::parse().settings()).await;
    match serde_json::to_string(&report) {
        Ok(line) => println!("{line}"),
        Err(error) => {
            eprintln!("soak: the report cannot be written: {error}");
            return ExitCode::from(2);
        }
    }
    match (report.passed, report.quiet_compares) {
        (true, _) => ExitCode::SUCCESS,
        (false, 0) => ExitCode::from(2),
        (false, _) => ExitCode::FAILURE,
    }
}
