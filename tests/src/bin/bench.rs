//! `bench`: benchmarks on a real etcd. See `bench --help` and `bench fleet --help`.

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use headwater_tests::bench::options::{Arguments, Command, Contender, Role};
use headwater_tests::bench::{
    bare_tonic, fleet, floor, idle, json_watchers, nodes, reading, reload, system, watchers,
};

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
    let alone = matches!(&arguments.command, Command::Contender(it) if it.role == Role::FloorReaders);
    let mut runtime = if alone {
        // One loop over all sockets, as on the other side.
        tokio::runtime::Builder::new_current_thread()
    } else {
        tokio::runtime::Builder::new_multi_thread()
    };
    let runtime = runtime.enable_all().build()?;
    let run = async {
        match arguments.command {
            Command::Fleet(options) => {
                let report = fleet::run(&options).await?;
                print(options.json, &report, report.lines()?)
            }
            Command::Reload(options) => {
                let report = reload::run(&options).await?;
                print(options.json, &report, report.lines()?)
            }
            Command::Idle(options) => {
                let report = idle::run(&options).await?;
                print(options.json, &report, report.lines()?)
            }
            Command::Reading(options) => reading::run(options).await,
            Command::Nodes(options) => {
                system::allow_files(options.count)?;
                nodes::run(options).await
            }
            Command::Watchers(options) => {
                system::allow_files(options.count)?;
                watchers::run(options).await
            }
            Command::JsonWatchers(options) => {
                system::allow_files(options.count)?;
                json_watchers::run(options).await
            }
            Command::Contender(options) => contend(options).await,
        }
    };
    let result = runtime.block_on(run);
    // Receivers run until they are dropped.
    runtime.shutdown_background();
    result
}

async fn contend(options: Contender) -> Result<()> {
    system::allow_files(options.count)?;
    match options.role {
        Role::FloorWriter => floor::write(options).await,
        Role::FloorReaders => floor::read(options).await,
        Role::TonicServer => bare_tonic::serve(options).await,
        Role::TonicClients => bare_tonic::receive(options).await,
    }
}

fn print(json: bool, report: &impl serde::Serialize, lines: String) -> Result<()> {
    if cfg!(debug_assertions) {
        eprintln!("bench: this is a debug build, whose figures say nothing: use --release");
    }
    if json {
        println!("{}", serde_json::to_string(report)?);
    } else {
        print!("{lines}");
    }
    Ok(())
}
