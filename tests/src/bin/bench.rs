//! `bench`: benchmarks on a real etcd. See `bench --help` and `bench fleet --help`.

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use headwater_tests::bench::options::{Arguments, Command, Fleet};
use headwater_tests::bench::{fleet, nodes, system, watchers};

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let run = async {
        match arguments.command {
            Command::Fleet(options) => report(&options).await,
            Command::Nodes(options) => {
                system::allow_files(options.count)?;
                nodes::run(options).await
            }
            Command::Watchers(options) => {
                system::allow_files(options.count)?;
                watchers::run(options).await
            }
        }
    };
    let result = runtime.block_on(run);
    // Receivers run until they are dropped.
    runtime.shutdown_background();
    result
}

async fn report(options: &Fleet) -> Result<()> {
    if cfg!(debug_assertions) {
        eprintln!("bench: this is a debug build, whose figures say nothing: use --release");
    }
    let report = fleet::run(options).await?;
    if options.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print!("{}", report.lines()?);
    }
    Ok(())
}
