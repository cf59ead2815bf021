//! Cells of the matrix: which there are, and which make no sense.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// How many members etcd has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Members {
    /// One.
    Single,
    /// Three, all of which the replica is told.
    Three,
}

/// What is done to etcd, or to the way to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// Nothing: a release to rely on is followed, an unsafe one is refused by default.
    Gate,
    /// kill -9 of the member that is followed.
    Killed,
    /// SIGSTOP, and SIGCONT once it is noticed.
    Paused,
    /// SIGTERM and a start on the same data; of three members one after the other.
    Restarted,
    /// The member that is followed no longer reaches its peers; we reach it all the same.
    CutOff,
    /// Nothing passes between replica and member any more, and nothing is closed.
    Blackholed,
    /// The connections that are open pass nothing any more; new ones do.
    HalfOpen,
    /// 150 ms more in each direction.
    Latency,
    /// Compaction to the newest revision in a loop, with connections cut in between.
    Compacted,
    /// Defragmentation of every member in a loop while values are written.
    Defragmented,
    /// The space quota is used up: etcd refuses writes, then space is made and the alarm disarmed.
    NoSpace,
    /// All members restored from an older snapshot, plainly: the revision falls back.
    Restored,
    /// As before, with `--bump-revision --mark-compacted`.
    Bumped,
    /// The data directory is wiped: of a single member, that is everything; of three, the one that is followed, which
    /// is then replaced.
    Wiped,
}

/// One cell.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Cell {
    /// The release, such as `3.6.17`.
    pub version: String,
    /// One member or three.
    pub members: Members,
    /// The fault.
    pub fault: Fault,
}

/// What a stand needs for a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Needs {
    /// The replica reaches members through proxies.
    pub proxies: bool,
    /// Members reach each other through proxies.
    pub peer_links: bool,
    /// `--quota-backend-bytes`.
    pub quota: Option<u64>,
    /// The release's `etcdutl`.
    pub etcdutl: bool,
}

// === impl Members ===

impl Members {
    /// The number.
    #[must_use]
    pub const fn count(self) -> usize {
        match self {
            Self::Single => 1,
            Self::Three => 3,
        }
    }
}

impl fmt::Display for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Single => "single",
            Self::Three => "three",
        })
    }
}

// === impl Fault ===

impl Fault {
    /// A few words for the page.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Gate => "none (version gate)",
            Self::Killed => "kill -9",
            Self::Paused => "SIGSTOP, SIGCONT",
            Self::Restarted => "restart",
            Self::CutOff => "member cut off from its peers",
            Self::Blackholed => "blackholed connection",
            Self::HalfOpen => "half-open connection",
            Self::Latency => "latency",
            Self::Compacted => "compaction in a loop",
            Self::Defragmented => "defragmentation",
            Self::NoSpace => "NOSPACE",
            Self::Restored => "snapshot restore, plain",
            Self::Bumped => "snapshot restore, bumped",
            Self::Wiped => "wiped data directory",
        }
    }

    /// Why it makes no sense there, if so.
    #[must_use]
    pub const fn senseless(self, members: Members) -> Option<&'static str> {
        match (self, members) {
            (Self::CutOff, Members::Single) => Some("a single member has no peers"),
            _ => None,
        }
    }

    /// Whether what etcd holds afterwards is no continuation of what it held before.
    #[must_use]
    pub const fn ends_history(self, members: Members) -> bool {
        match self {
            Self::Restored | Self::Bumped => true,
            Self::Wiped => matches!(members, Members::Single),
            _ => false,
        }
    }

    /// What a stand must have for it.
    #[must_use]
    pub fn needs(self) -> Needs {
        match self {
            Self::Blackholed | Self::HalfOpen | Self::Latency | Self::Compacted => {
                Needs { proxies: true, ..Needs::default() }
            }
            Self::CutOff => Needs { peer_links: true, ..Needs::default() },
            Self::NoSpace => Needs { quota: Some(super::faults::space::QUOTA), ..Needs::default() },
            Self::Restored | Self::Bumped => Needs { etcdutl: true, ..Needs::default() },
            Self::Gate | Self::Killed | Self::Paused | Self::Restarted | Self::Defragmented | Self::Wiped => {
                Needs::default()
            }
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.to_possible_value().as_ref().map_or("", |value| value.get_name()))
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<7} {:<6} {:<12}", self.version, self.members, self.fault)
    }
}
