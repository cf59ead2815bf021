//! The command line of the benchmark.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Benchmarks of Headwater on a real etcd, on this machine alone.
///
/// Build with --release: figures of a debug build say nothing. Everything runs on the loopback and in plain text, and
/// shares the machine's cores, so compare figures of one run or of one machine only.
#[derive(Debug, Parser)]
#[command(name = "bench", max_term_width = 100)]
pub struct Arguments {
    /// What to measure.
    #[command(subcommand)]
    pub command: Command,
}

/// What to measure.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// One replica that feeds many nodes: how soon they have a change, and what it costs.
    ///
    /// Starts etcd and fills it with RESOURCES routes, starts one replica process and one process with NODES
    /// simulated nodes (the real protocol over a TCP connection of their own; no proxy, no disk, every value is
    /// accepted), then puts UPDATES values at RATE a second. At the end every node's keys, revisions and values are
    /// compared with what etcd holds; a difference fails the run.
    ///
    /// Contenders come after the nodes are gone, one after another, with as many receivers, as often, as many bytes.
    ///
    /// Examples:
    ///   bench fleet --nodes 1000 --updates 1000 --rate 20 --json
    ///   bench fleet --nodes 1000 --updates 1000 --rate 20 --json --against direct,floor,bare-tonic
    #[command(verbatim_doc_comment)]
    Fleet(Fleet),
    /// One replica that has to read everything again, though nothing has changed.
    ///
    /// Starts etcd and fills it with RESOURCES routes, starts one replica process behind a proxy and a few simulated
    /// nodes, cuts the replica off, writes elsewhere, compacts beyond what the replica has seen, and heals the
    /// connection. Beside it a process of its own reads and decodes the very pages, which is what a reload costs at
    /// the least.
    ///
    /// Example: bench reload --resources 100000 --json
    #[command(verbatim_doc_comment)]
    Reload(Reload),
    /// One replica with nothing to do: first with etcd there, then with etcd away.
    ///
    /// Example: bench idle --seconds 60 --down 300 --json
    #[command(verbatim_doc_comment)]
    Idle(Idle),
    /// The process that reads pages.
    #[command(hide = true)]
    Reading(Reading),
    /// The process of simulated nodes.
    #[command(hide = true)]
    Nodes(Nodes),
    /// The process of clients that watch etcd themselves.
    #[command(hide = true)]
    Watchers(Watchers),
    /// The process of clients that watch through etcd's JSON gateway.
    #[command(hide = true)]
    JsonWatchers(Watchers),
    /// One side of a contender.
    #[command(hide = true)]
    Contender(Contender),
}

/// How large the benchmark is.
#[derive(Debug, Clone, Args)]
pub struct Fleet {
    /// How many nodes. Each takes a file descriptor here and one at the replica.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub nodes: u64,
    /// How many values are put while it is measured.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub updates: u64,
    /// How many of them a second; started on time however long the ones before take.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub rate: u64,
    /// The bytes of each value.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(256..=1_000_000))]
    pub value_bytes: u64,
    /// How many resources there are; the updates go round them.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub resources: u64,
    /// Measure these contenders too, after the nodes are gone, one after another.
    #[arg(long, value_enum, value_delimiter = ',')]
    pub against: Vec<Against>,
    /// Before the updates, measure for so many seconds what the replica does with nothing to do.
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=3600))]
    pub idle: u64,
    /// Print one line of JSON instead of a list.
    #[arg(long)]
    pub json: bool,
    /// The replica's heartbeat, in seconds. Answers about the fleet begin two heartbeats after its start.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=60))]
    pub heartbeat: u64,
    /// Measure this build of headwater-control-plane, instead of building the one beside this program.
    #[arg(long, value_name = "FILE")]
    pub control_plane: Option<PathBuf>,
}

/// How large the reload is.
#[derive(Debug, Clone, Args)]
pub struct Reload {
    /// How many resources there are.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub resources: u64,
    /// The bytes of each.
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u64).range(256..=1_000_000))]
    pub value_bytes: u64,
    /// How many nodes are connected.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub nodes: u64,
    /// Print one line of JSON instead of a list.
    #[arg(long)]
    pub json: bool,
    /// Measure this build of headwater-control-plane, instead of building the one beside this program.
    #[arg(long, value_name = "FILE")]
    pub control_plane: Option<PathBuf>,
}

/// For how long nothing happens.
#[derive(Debug, Clone, Args)]
pub struct Idle {
    /// Seconds with etcd there.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: u64,
    /// Seconds with etcd away.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub down: u64,
    /// How many resources there are.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub resources: u64,
    /// Print one line of JSON instead of a list.
    #[arg(long)]
    pub json: bool,
    /// Measure this build of headwater-control-plane, instead of building the one beside this program.
    #[arg(long, value_name = "FILE")]
    pub control_plane: Option<PathBuf>,
}

/// The process that reads pages.
#[derive(Debug, Clone, Args)]
pub struct Reading {
    /// `http://host:port` of etcd.
    #[arg(long)]
    pub etcd: String,
}

/// What else is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Against {
    /// Clients that watch etcd themselves, each by one prefix watch on a connection of its own.
    Direct,
    /// Clients that watch through etcd's JSON gateway, as APISIX does.
    Json,
    /// Clients that watch through `etcd grpc-proxy` of the same program.
    GrpcProxy,
    /// A loop that writes the same bytes to as many sockets and reads a reply of 40 bytes from each.
    Floor,
    /// A bidirectional tonic stream each, of the same bytes and a reply of 40.
    BareTonic,
}

/// One side of a contender.
#[derive(Debug, Clone, Args)]
pub struct Contender {
    /// Which.
    #[arg(long, value_enum)]
    pub role: Role,
    /// `host:port` of the server.
    #[arg(long)]
    pub address: String,
    /// How many receivers.
    #[arg(long)]
    pub count: u64,
    /// The bytes of a message.
    #[arg(long)]
    pub bytes: usize,
}

/// The sides of the contenders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// Writes to sockets.
    FloorWriter,
    /// Reads from them.
    FloorReaders,
    /// Serves streams.
    TonicServer,
    /// Reads them.
    TonicClients,
}

// === impl Against ===

impl Against {
    /// What the names of its figures begin with.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Json => "json",
            Self::GrpcProxy => "grpc_proxy",
            Self::Floor => "floor",
            Self::BareTonic => "bare_tonic",
        }
    }
}

// === impl Role ===

impl Role {
    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::FloorWriter => "floor-writer",
            Self::FloorReaders => "floor-readers",
            Self::TonicServer => "tonic-server",
            Self::TonicClients => "tonic-clients",
        }
    }
}

/// The process of simulated nodes.
#[derive(Debug, Clone, Args)]
pub struct Nodes {
    /// `host:port` of the replica.
    #[arg(long)]
    pub replica: String,
    /// `http://host:port` of etcd, for the comparison at the end.
    #[arg(long)]
    pub etcd: String,
    /// How many nodes.
    #[arg(long)]
    pub count: u64,
}

/// The process of watching clients.
#[derive(Debug, Clone, Args)]
pub struct Watchers {
    /// `http://host:port` of etcd.
    #[arg(long)]
    pub etcd: String,
    /// How many clients.
    #[arg(long)]
    pub count: u64,
}

// === impl Fleet ===

impl Fleet {
    /// The time between two updates.
    #[must_use]
    pub fn pace(&self) -> Duration {
        Duration::from_secs(1) / u32::try_from(self.rate).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_holds_together_and_refuses_what_cannot_be_measured() {
        Arguments::command().debug_assert();
        for role in Role::value_variants() {
            assert_eq!(Role::from_str(role.name(), false).as_ref(), Ok(role));
        }
        for wrong in ["--nodes=0", "--rate=0", "--updates=0", "--value-bytes=16", "--against=nothing"] {
            assert!(Arguments::try_parse_from(["bench", "fleet", wrong]).is_err(), "{wrong}");
        }
    }
}
