//! The commands: each asks the replica, and turns its answer into a document, a text and an exit code.

use crate::arguments::{Arguments, Command, Format, NodesCommand, SourceCommand};
use crate::connection::Replica;
use crate::exit::{Error, Exit};
use crate::{dev, documents, progress};

mod holds;
mod nodes;
mod reading;
mod recorder;
mod status;
mod validate;
mod wait;
mod writing;

/// What every command needs beside its own arguments.
pub(crate) struct Asked {
    replica: Replica,
    environment: String,
    format: Format,
}

/// Runs the command. What can be wrong without a connection is told before one is opened.
pub(crate) async fn run(arguments: Arguments) -> Result<Exit, Error> {
    let Arguments { connection, general, command } = arguments;
    let command = match command {
        Command::Dev(arguments) => return dev::run(arguments).await,
        command => command,
    };
    let prepared = prepare(command)?;
    let server = format!("connecting to {}", connection.server);
    let replica = progress::during(&server, Replica::connect(&connection)).await?;
    let asked = Asked { replica, environment: general.environment, format: general.output };
    match prepared {
        Prepared::Write(write) => writing::run(&asked, write).await,
        Prepared::Validate { writes, stored } => validate::run(&asked, writes, stored).await,
        Prepared::Other(command) => other(&asked, command).await,
    }
}

/// A command whose files have been read.
enum Prepared {
    Write(writing::Request),
    Validate { writes: Vec<headwater_proto::admin::Write>, stored: bool },
    Other(Command),
}

fn prepare(command: Command) -> Result<Prepared, Error> {
    Ok(match command {
        Command::Put { key, value, file, if_mod_revision, wait } => {
            let value = documents::value(file.as_deref(), value.as_deref())?;
            Prepared::Write(writing::Request::put(key, value, if_mod_revision, wait))
        }
        Command::Delete { key, if_mod_revision, wait } => {
            Prepared::Write(writing::Request::delete(key, if_mod_revision, wait))
        }
        Command::Apply { files, batches, wait } => {
            Prepared::Write(writing::Request::apply(documents::read(&files)?, batches, wait))
        }
        Command::Validate { files, from_etcd } => {
            Prepared::Validate { writes: documents::read(&files)?, stored: from_etcd }
        }
        other => Prepared::Other(other),
    })
}

async fn other(asked: &Asked, command: Command) -> Result<Exit, Error> {
    match command {
        Command::Get { key } => reading::get(asked, key).await,
        Command::List { kind } => reading::list(asked, kind.unwrap_or_default()).await,
        Command::Status => status::run(asked).await,
        Command::Source { command: SourceCommand::Recorder { last } } => recorder::run(asked, last).await,
        Command::Nodes { command: None, rejects } => nodes::list(asked, rejects).await,
        Command::Nodes { command: Some(NodesCommand::Forget { node_id, instance }), .. } => {
            nodes::forget(asked, node_id, instance).await
        }
        Command::Wait { version, puts, deletes, limits } => {
            wait::run(asked, version, puts, deletes, limits).await
        }
        Command::Hold { command } => holds::run(asked, command).await,
        Command::Put { .. }
        | Command::Delete { .. }
        | Command::Apply { .. }
        | Command::Validate { .. }
        | Command::Dev(_) => {
            unreachable!("`prepare` turned these into requests, and dev has its own way")
        }
    }
}
