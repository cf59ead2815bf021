//! `headwater`: the operators' command.
//!
//! Answers go to standard output and nothing else does, so that they pipe; progress, notes and errors go to
//! standard error. The exit code says how it ended (see [`exit`]).

use clap::Parser;

mod arguments;
mod command;
mod connection;
mod dev;
mod documents;
mod exit;
mod output;
mod progress;

use arguments::Arguments;

fn main() -> std::process::ExitCode {
    let arguments = Arguments::parse();
    let mut builder = match arguments.command {
        arguments::Command::Dev(_) => tokio::runtime::Builder::new_multi_thread(),
        _ => tokio::runtime::Builder::new_current_thread(),
    };
    let runtime = match builder.enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: the runtime cannot start: {error}");
            return exit::Exit::Failed.into();
        }
    };
    match runtime.block_on(command::run(arguments)) {
        Ok(exit) => exit.into(),
        Err(error) => {
            eprintln!("error: {error}");
            error.exit().into()
        }
    }
}
