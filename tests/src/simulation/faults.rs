//! What goes wrong, and when.

use std::time::Duration;

use super::random::Random;

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The watch connection breaks, on both sides.
    Cut,
    /// Watch responses are lost, the connection and its unary calls live on.
    Swallow,
    /// Nothing passes on the connection for a while, and nothing is lost.
    Stall,
    /// Answers of unary calls are lost now and then.
    LostAnswers,
    /// etcd ends and comes back, as it was.
    Restart,
    /// etcd is away for a while.
    Outage,
    /// What lies below a revision close to the head is compacted.
    Compaction,
    /// etcd goes back to a snapshot, under the same ids.
    Restore,
    /// The same under other ids.
    OtherCluster,
    /// The same with `--bump-revision --mark-compacted`.
    BumpedRestore,
    /// Watchers that are behind stay so.
    NoCatchUp,
    /// Progress requests are not answered.
    NoProgress,
    /// A stream's sender does not get to run.
    LazySender,
    /// The replica takes one response at a time.
    SlowReader,
    /// The replica's writer does not get to run, its source does.
    SlowWriter,
    /// The replica's process stands still.
    Pause,
    /// The replica's process ends without a word and starts again.
    Crash,
    /// Many writes at once.
    Burst,
    /// etcd takes the user's token, or the user, for none that may read.
    Denied,
    /// Messages of more than a few keys are above the decode limit.
    SmallMessages,
    /// One member of three answers as if the history had gone back.
    AstrayMember,
}

/// All of them; twice what needs another one at the right moment to show anything.
pub const FAULTS: &[Fault] = &[
    Fault::Cut,
    Fault::Swallow,
    Fault::Stall,
    Fault::LostAnswers,
    Fault::Restart,
    Fault::Outage,
    Fault::Compaction,
    Fault::Restore,
    Fault::OtherCluster,
    Fault::BumpedRestore,
    Fault::NoCatchUp,
    Fault::NoProgress,
    Fault::LazySender,
    Fault::LazySender,
    Fault::SlowReader,
    Fault::SlowWriter,
    Fault::Pause,
    Fault::Crash,
    Fault::Burst,
    Fault::Denied,
    Fault::SmallMessages,
    Fault::AstrayMember,
];

/// A fault and its time.
#[derive(Clone, Copy, Debug)]
pub struct Planned {
    /// What.
    pub fault: Fault,
    /// When it begins.
    pub at: Duration,
    /// How long it lasts, where it lasts.
    pub lasts: Duration,
}

// === impl Fault ===

impl Fault {
    /// Its name in the coverage.
    #[must_use]
    pub const fn case(self) -> &'static str {
        match self {
            Self::Cut => "fault/cut",
            Self::Swallow => "fault/swallow",
            Self::Stall => "fault/stall",
            Self::LostAnswers => "fault/lost-answers",
            Self::Restart => "fault/restart",
            Self::Outage => "fault/outage",
            Self::Compaction => "fault/compaction",
            Self::Restore => "fault/restore",
            Self::OtherCluster => "fault/other-cluster",
            Self::BumpedRestore => "fault/bumped-restore",
            Self::NoCatchUp => "fault/no-catch-up",
            Self::NoProgress => "fault/no-progress",
            Self::LazySender => "fault/lazy-sender",
            Self::SlowReader => "fault/slow-reader",
            Self::SlowWriter => "fault/slow-writer",
            Self::Pause => "fault/pause",
            Self::Crash => "fault/crash",
            Self::Burst => "fault/burst",
            Self::Denied => "fault/denied",
            Self::SmallMessages => "fault/small-messages",
            Self::AstrayMember => "fault/astray-member",
        }
    }
}

/// Draws 3 to 12 faults between two times. Some come in pairs, for one fault alone is seldom what breaks things.
#[must_use]
pub fn plan(random: &mut Random, from: Duration, to: Duration) -> Vec<Planned> {
    let mut planned = Vec::new();
    for _ in 0..random.between(3, 8) {
        let at = random.duration(from, to);
        let lasts = random.duration(Duration::from_millis(200), Duration::from_secs(45));
        planned.push(Planned { fault: *random.pick(FAULTS), at, lasts });
        if random.one_in(2) {
            let at = at + random.duration(Duration::ZERO, Duration::from_secs(4));
            planned.push(Planned { fault: *random.pick(FAULTS), at, lasts });
        }
    }
    planned
}
