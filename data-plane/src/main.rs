//! The data plane's process: reads its settings, runs the node until a signal, drains.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use headwater_data_plane::app;
use headwater_data_plane::config::NodeConfig;
use headwater_process::settings::{self, Sources};
use headwater_process::signals::Signals;
use headwater_process::telemetry;

/// The exit code of a static fault: settings, files, ports.
const STATIC_FAULT: u8 = 2;

/// A Headwater node: a gateway that follows its control plane and serves with or without it.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// The settings file (YAML).
    #[arg(long, short)]
    config: Option<PathBuf>,
    /// Sets one value over file and environment: `--set control_plane.insecure=true`. May be given several times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Tries the settings, files and ports, prints the settings in effect, and exits.
    #[arg(long)]
    check: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match prepare(&arguments) {
        Ok(config) => run(config, arguments.check),
        Err(sentence) => refuse(&sentence),
    }
}

fn prepare(arguments: &Arguments) -> Result<NodeConfig, String> {
    let mut sources = Sources::new();
    if let Some(file) = &arguments.config {
        sources = sources.file(file).map_err(|faults| faults.to_string())?;
    }
    let sources = sources.environment(std::env::vars()).set(arguments.set.iter().cloned());
    settings::load(sources).map_err(|faults| faults.to_string())
}

fn run(config: NodeConfig, check: bool) -> ExitCode {
    if let Err(error) = telemetry::init(&config.log) {
        return refuse(&error.to_string());
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return refuse(&format!("cannot start threads: {error}")),
    };
    runtime.block_on(async move {
        if check {
            return match app::bind(&config).await {
                Ok(_) => {
                    println!("{}", settings::dump(&config));
                    ExitCode::SUCCESS
                }
                Err(error) => refuse(&error.to_string()),
            };
        }
        match serve(config).await {
            Ok(code) => code,
            Err(error) => refuse(&error.to_string()),
        }
    })
}

async fn serve(config: NodeConfig) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::listen().context("cannot listen to signals")?;
    let running = app::bind(&config).await?.start(config);
    tokio::select! {
        signal = signals.next() => tracing::info!(?signal, "draining"),
        failure = running.ended() => tracing::error!(?failure, "ending"),
    }
    signals.exit_at_next();
    let report = running.shutdown().await;
    Ok(match report.cause {
        Some(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
        None => ExitCode::SUCCESS,
    })
}

fn refuse(sentence: &str) -> ExitCode {
    eprintln!("{sentence}");
    ExitCode::from(STATIC_FAULT)
}
