//! The command line of the matrix.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

use super::cell::{Fault, Members};

/// Runs both planes against releases of etcd under faults, and writes the page about it.
///
/// A cell is a release, a number of members and a fault. A run of a cell starts etcd, a replica and two nodes as real
/// processes and a writer that never stops, plays the fault, heals it, and then compares keys, revisions and values of
/// every node with etcd. It is timed from the write (or from the fault's end, if that is later) until every node has
/// applied it.
///
/// Each finished run is a line of the state file, and is not done again: stop it at any time and start it again. The
/// first run of every cell comes before the second of any. A cell that cannot be run says why. Ends with 0 when no run
/// of the cells asked for has failed, with 1 otherwise.
///
/// `make test-etcd-matrix` provides the releases first; they lie in .cache/etcd/matrix/.
///
/// Examples:
///   matrix --dry-run
///   matrix --versions 3.6 --members single --faults killed,half-open --runs 1
///   matrix --write docs/etcd-matrix.md
///   matrix --again --write docs/etcd-matrix.md
#[derive(Debug, Clone, Parser)]
#[command(name = "matrix", verbatim_doc_comment, max_term_width = 100)]
pub struct Arguments {
    /// Releases by their minor version; the newest that is there is taken.
    #[arg(long, value_delimiter = ',', default_values_t = ["3.4", "3.5", "3.6", "3.7"].map(str::to_owned))]
    pub versions: Vec<String>,
    /// One member, three, or both.
    #[arg(long, value_delimiter = ',', default_values_t = Members::value_variants())]
    pub members: Vec<Members>,
    /// The faults; all of them without it.
    #[arg(long, value_delimiter = ',', default_values_t = Fault::value_variants(), hide_default_value = true)]
    pub faults: Vec<Fault>,
    /// How many runs each cell is to have.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub runs: u32,
    /// How many cells run at a time. Times mean less with more than one.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=8))]
    pub jobs: u8,
    /// Where finished runs are noted down.
    #[arg(long, default_value = "target/etcd-matrix.jsonl")]
    pub state: PathBuf,
    /// The page to write; it is written anew after each run.
    #[arg(long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Do runs again that failed; what they end with now replaces it.
    #[arg(long)]
    pub again: bool,
    /// Only say what would be run, and write the page of what has been.
    #[arg(long)]
    pub dry_run: bool,
}
