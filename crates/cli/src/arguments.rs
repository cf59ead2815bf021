//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use headwater_process::settings::duration;

use crate::dev::Dev;
use crate::exit;

/// For `--help`.
const EXAMPLES: &str = "\
Examples:
  headwater put routes/1 '{\"uri\": \"/hello\", \"upstream_id\": \"1\"}' --wait
      write one route and return when every node serves it
  headwater apply -f gateway/ --wait
      write a folder of JSON and YAML files in one transaction
  headwater list routes -o json | jq '.[].key'
  headwater validate --from-etcd
      what nodes would reject of what is stored now, and why
  headwater nodes
      who runs which version

The connection is taken from --server, --cacert, --key and so on, or from HEADWATER_SERVER, HEADWATER_CACERT,
HEADWATER_KEY, ...; a replica in plain text is reached with --insecure.

";

/// Read and change the configuration of a gateway fleet, and see that it is applied.
#[derive(Debug, Parser)]
#[command(
    name = "headwater", version, after_help = exit::HELP, max_term_width = 100,
    after_long_help = format!("{EXAMPLES}{}", exit::HELP)
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) connection: Connection,
    #[command(flatten)]
    pub(crate) general: General,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// How to reach a replica.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Connection {
    /// The admin address of a replica.
    #[arg(
        long,
        global = true,
        env = "HEADWATER_SERVER",
        default_value = "127.0.0.1:9180",
        value_name = "HOST:PORT"
    )]
    pub(crate) server: String,
    /// The key to prove yourself with, instead of a client certificate.
    // An id of its own: `get`, `put` and `delete` have a KEY too, and one id would be one value.
    #[arg(
        id = "caller_key",
        long = "key",
        global = true,
        env = "HEADWATER_KEY",
        hide_env_values = true,
        value_name = "KEY"
    )]
    pub(crate) key: Option<String>,
    /// Who may have signed the replica's certificate (PEM).
    #[arg(long, global = true, env = "HEADWATER_CACERT", value_name = "FILE")]
    pub(crate) cacert: Option<PathBuf>,
    /// The client certificate (PEM); goes with --key-file.
    #[arg(long, global = true, env = "HEADWATER_CERT", value_name = "FILE", requires = "key_file")]
    pub(crate) cert: Option<PathBuf>,
    /// The private key of the client certificate (PEM).
    #[arg(long, global = true, env = "HEADWATER_KEY_FILE", value_name = "FILE", requires = "cert")]
    pub(crate) key_file: Option<PathBuf>,
    /// The name on the replica's certificate, where it is not the host of --server.
    #[arg(long, global = true, env = "HEADWATER_SERVER_NAME", value_name = "NAME")]
    pub(crate) server_name: Option<String>,
    /// Connect in plain text: for a replica whose admin listener says `insecure: true`.
    #[arg(long, global = true, env = "HEADWATER_INSECURE", conflicts_with_all = ["cacert", "cert"])]
    pub(crate) insecure: bool,
}

/// What holds for every command.
#[derive(Clone, Debug, Args)]
pub(crate) struct General {
    /// The environment; not needed where the replica serves only one.
    #[arg(
        long,
        short = 'e',
        global = true,
        env = "HEADWATER_ENVIRONMENT",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) environment: String,
    /// How the answer is written.
    #[arg(long, short = 'o', global = true, value_enum, default_value_t = Format::Table)]
    pub(crate) output: Format,
}

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Table,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show one resource, as the source has it now.
    ///
    /// Example: headwater get routes/1 -o yaml
    Get {
        /// `kind/id`, such as routes/1.
        key: String,
    },
    /// List the resources of a kind, or all.
    ///
    /// Example: headwater list upstreams
    List {
        /// A kind, such as routes; all without.
        kind: Option<String>,
    },
    /// Create or replace one resource.
    ///
    /// The replica validates the value as a node would, adds id and times, and refuses a reference that leads
    /// nowhere.
    ///
    /// Examples:
    ///   headwater put upstreams/1 '{"type": "roundrobin", "nodes": {"10.0.0.1:80": 1}}'
    ///   headwater put routes/1 -f route.yaml --wait
    #[command(verbatim_doc_comment)]
    Put {
        /// `kind/id`, such as routes/1.
        key: String,
        /// The value as JSON or YAML.
        #[arg(required_unless_present = "file", conflicts_with = "file")]
        value: Option<String>,
        /// Read the value from a file, or from standard input with `-`.
        #[arg(long, short = 'f', value_name = "FILE")]
        file: Option<PathBuf>,
        /// Only if the resource is at this mod revision; 0: only if it does not exist.
        #[arg(long, value_name = "REVISION")]
        if_mod_revision: Option<u64>,
        #[command(flatten)]
        wait: AfterWrite,
    },
    /// Delete one resource. Refused while another one refers to it.
    ///
    /// Example: headwater delete routes/1 --wait
    Delete {
        /// `kind/id`, such as routes/1.
        key: String,
        /// Only if the resource is at this mod revision.
        #[arg(long, value_name = "REVISION")]
        if_mod_revision: Option<u64>,
        #[command(flatten)]
        wait: AfterWrite,
    },
    /// Write many resources in one transaction.
    ///
    /// A file holds JSON or YAML documents, each of one of these forms:
    ///   {"key": "routes/1", "value": {...}}     as `get` and `list` print them
    ///   {"routes": [{"id": "1", ...}], ...}     a list for each kind, as APISIX's standalone file
    /// Resources that hold the same value already are not written. All of it is validated first; all faults are
    /// told at once, and then nothing is written.
    ///
    /// Example: headwater apply -f gateway/ -f extra.json --wait
    #[command(verbatim_doc_comment)]
    Apply {
        /// Files, folders (every .json, .yaml and .yml below), or `-` for standard input.
        #[arg(long = "file", short = 'f', value_name = "PATH", required = true)]
        files: Vec<PathBuf>,
        /// Split what does not fit one transaction (128 writes, 1.5 MiB) into several, each atomic by itself.
        #[arg(long)]
        batches: bool,
        #[command(flatten)]
        wait: AfterWrite,
    },
    /// Say what would be refused, without writing.
    ///
    /// Examples:
    ///   headwater validate -f gateway/      what `apply` would refuse
    ///   headwater validate --from-etcd      what nodes would reject of what is stored, before anyone switches
    #[command(verbatim_doc_comment)]
    Validate {
        /// Files, folders, or `-` for standard input; the forms are those of apply.
        #[arg(long = "file", short = 'f', value_name = "PATH", required_unless_present = "from_etcd")]
        files: Vec<PathBuf>,
        /// Also everything that is stored now.
        #[arg(long)]
        from_etcd: bool,
    },
    /// Show the replica, its environments and their sources.
    Status,
    /// Look into where the configuration comes from.
    Source {
        #[command(subcommand)]
        command: SourceCommand,
    },
    /// List the nodes, or forget a lost one.
    Nodes {
        #[command(subcommand)]
        command: Option<NodesCommand>,
        /// Also what each node cannot use, and why.
        #[arg(long)]
        rejects: bool,
    },
    /// Wait until a version is applied on every expected node.
    ///
    /// Writes print the version to wait for. Without one, what the replica holds now is waited for. Give the keys
    /// that the version wrote: only then are nodes seen that refuse them.
    ///
    /// Example: headwater wait 0.1234 --put routes/1 --timeout 30s
    Wait {
        /// `generation.revision`, as writes print it.
        version: Option<String>,
        /// A key that the version wrote.
        #[arg(long = "put", value_name = "KEY")]
        puts: Vec<String>,
        /// A key that the version deleted.
        #[arg(long = "deleted", value_name = "KEY")]
        deletes: Vec<String>,
        #[command(flatten)]
        limits: WaitLimits,
    },
    /// See and decide jumps that the mass-deletion guard stopped.
    Hold {
        #[command(subcommand)]
        command: HoldCommand,
    },
    /// Run both planes on this machine, with a demo upstream and route, and print what to try.
    ///
    /// Example: headwater dev --etcd 127.0.0.1:2379
    Dev(Dev),
}

#[derive(Debug, Subcommand)]
pub(crate) enum SourceCommand {
    /// Show the newest responses of an environment's watch on etcd, oldest first.
    ///
    /// What the member said, in its order, and up to which revision everything counted as delivered after each. Keys
    /// and values are not recorded. How many are kept is the replica's setting `etcd.recorder_responses`.
    ///
    /// Example: headwater source recorder --last 500 -o json | jq '.records[] | select(.kind == "ended")'
    #[command(verbatim_doc_comment)]
    Recorder {
        /// How many; 0 for all that are kept.
        #[arg(long, default_value_t = 50, value_name = "COUNT")]
        last: u32,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum NodesCommand {
    /// Expect a lost node no longer.
    ///
    /// Example: headwater nodes forget edge-7
    Forget {
        /// Its node id.
        node_id: String,
        /// One instance; every lost one of the node id without.
        #[arg(long, default_value = "", hide_default_value = true)]
        instance: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum HoldCommand {
    /// Show what is held, and the approvals there are.
    Show,
    /// Let a held jump pass, on every replica and node.
    ///
    /// Example: headwater hold approve 7f.0.90-7f.1
    Approve {
        /// The id that `hold show` prints.
        id: String,
        /// For how long nodes that come later may pass too; 30d by default.
        #[arg(long, value_parser = parse_duration, value_name = "DURATION")]
        valid: Option<Duration>,
    },
    /// Keep a jump held, and silence it until the history changes again.
    Reject {
        /// The id that `hold show` prints.
        id: String,
    },
}

/// Waiting as a part of a write.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct AfterWrite {
    /// Return when every expected node has applied it (see `headwater wait --help`).
    #[arg(long)]
    pub(crate) wait: bool,
    #[command(flatten)]
    pub(crate) limits: WaitLimits,
}

/// How a wait ends.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct WaitLimits {
    /// How long to wait, at most an hour.
    #[arg(long, value_parser = parse_duration, default_value = "60s", value_name = "DURATION")]
    pub(crate) timeout: Duration,
    /// Wait for the nodes' disks as well.
    #[arg(long)]
    pub(crate) durable: bool,
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    duration::parse(text).map_err(|error| error.to_string())
}

// === impl Connection ===

impl Connection {
    /// In plain text, without a proof: towards a replica of one's own on loopback.
    pub(crate) const fn insecure(server: String) -> Self {
        Self {
            server,
            key: None,
            cacert: None,
            cert: None,
            key_file: None,
            server_name: None,
            insecure: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound_and_its_help_names_every_exit_code() {
        Arguments::command().debug_assert();
        let help = Arguments::command().render_long_help().to_string();
        for line in exit::HELP.lines() {
            assert!(help.contains(line.trim()), "{line}");
        }
    }

    #[test]
    fn the_callers_key_is_not_the_resources() {
        for rest in [&["get", "routes/1"][..], &["put", "routes/1", "{}"], &["delete", "routes/1"]] {
            let arguments = [&["headwater", "--key", "secret"], rest].concat();
            let parsed = Arguments::try_parse_from(arguments).unwrap();
            assert_eq!(parsed.connection.key.as_deref(), Some("secret"), "{rest:?}");
            let (Command::Get { key } | Command::Put { key, .. } | Command::Delete { key, .. }) =
                parsed.command
            else {
                panic!("{rest:?}")
            };
            assert_eq!(key, "routes/1");
        }
    }

    #[test]
    fn no_argument_of_a_command_takes_the_place_of_a_global_one() {
        let whole = Arguments::command();
        let globals: Vec<_> = whole.get_arguments().filter(|argument| argument.is_global_set()).collect();
        assert!(globals.len() > 5);
        let mut commands: Vec<_> = whole.get_subcommands().collect();
        while let Some(command) = commands.pop() {
            commands.extend(command.get_subcommands());
            for argument in command.get_arguments() {
                let taken = globals.iter().any(|global| global.get_id() == argument.get_id());
                assert!(!taken, "{} of {}", argument.get_id(), command.get_name());
            }
        }
    }

    #[test]
    fn a_value_is_given_once() {
        let parse = |arguments: &[&str]| Arguments::try_parse_from([&["headwater"], arguments].concat());
        assert!(parse(&["put", "routes/1"]).is_err());
        assert!(parse(&["put", "routes/1", "{}", "-f", "x"]).is_err());
        assert!(parse(&["put", "routes/1", "{}", "--wait", "--timeout", "5s"]).is_ok());
        assert!(parse(&["validate"]).is_err());
        assert!(parse(&["list", "--insecure", "--cacert", "ca.pem"]).is_err());
    }
}
