//! `headwater-control-plane`: one replica of the control plane.
//!
//! Exit codes: 0 ended as asked, 1 an essential part failed, 2 a fault of its own settings or files.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use headwater_control_plane::app::{self, Bound};
use headwater_control_plane::config::Config;
use headwater_process::settings::{self, Faults, Sources};
use headwater_process::signals::Signals;
use headwater_process::telemetry;

const FAILED: u8 = 1;
const STATIC_FAULT: u8 = 2;

/// One replica of Headwater's control plane.
///
/// Settings come from the file, then from environment variables (HEADWATER__ETCD__USER=root sets etcd.user), then
/// from --set. Unknown keys are refused; all faults are told at once.
#[derive(Debug, Parser)]
#[command(name = "headwater-control-plane", version, max_term_width = 100)]
struct Arguments {
    /// The settings file (YAML).
    #[arg(long, short = 'c', env = "HEADWATER_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Set one key over the file, such as --set etcd.user=root; the value is YAML.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Check the settings and the files they name, and exit: 0 when all is well, 2 otherwise.
    #[arg(long)]
    check: bool,
    /// Print the settings in force, secrets redacted, and exit.
    #[arg(long)]
    dump: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let config = match load(&arguments) {
        Ok(config) => config,
        Err(faults) => return fault(&faults),
    };
    if arguments.dump {
        print!("{}", settings::dump(&config));
        return ExitCode::SUCCESS;
    }
    if arguments.check {
        let faults = app::check(&config);
        faults.iter().for_each(|fault| eprintln!("error: {fault}"));
        return if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(STATIC_FAULT) };
    }
    if let Err(error) = telemetry::init(&config.log) {
        return fault(&error);
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: the runtime cannot start: {error}");
            return ExitCode::from(FAILED);
        }
    };
    runtime.block_on(run(config))
}

fn load(arguments: &Arguments) -> Result<Config, Faults> {
    let mut sources = Sources::new();
    if let Some(file) = &arguments.config {
        sources = sources.file(file)?;
    }
    settings::load(sources.environment(std::env::vars()).set(arguments.set.iter().cloned()))
}

async fn run(config: Config) -> ExitCode {
    let mut signals = match Signals::listen() {
        Ok(signals) => signals,
        Err(error) => {
            eprintln!("error: signals cannot be listened to: {error}");
            return ExitCode::from(FAILED);
        }
    };
    let bound = match app::start(config).await {
        Ok(bound) => bound,
        Err(error) => return fault(&error),
    };
    announce(&bound);
    tokio::select! {
        signal = signals.next() => tracing::info!(?signal, "draining"),
        failure = bound.failed() => tracing::error!(?failure, "ending"),
    }
    signals.exit_at_next();
    match bound.shutdown().await {
        None => ExitCode::SUCCESS,
        Some(failure) => {
            eprintln!("error: {failure}");
            ExitCode::from(FAILED)
        }
    }
}

fn announce(bound: &Bound) {
    let addresses = bound.addresses;
    tracing::info!(
        southbound = %addresses.southbound, admin = %addresses.admin, health = %addresses.health,
        "the replica listens"
    );
}

fn fault(fault: &dyn std::fmt::Display) -> ExitCode {
    eprintln!("error: {fault}");
    ExitCode::from(STATIC_FAULT)
}
