//! What a run has been through. A simulation that never reaches a case proves nothing about it.

use std::collections::BTreeMap;

use serde::Serialize;

/// From so many seeds on, a case of [`EXPECTED`] that was never reached fails the run.
pub const ENOUGH_SEEDS: u64 = 2_000;

/// What many seeds together must have been through.
pub const EXPECTED: &[&str] = &[
    "answer/compacted",
    "answer/lost",
    "continuity/first",
    "continuity/proven",
    "continuity/rewound",
    "continuity/unproven",
    "fault/bumped-restore",
    "fault/compaction",
    "fault/crash",
    "fault/cut",
    "fault/lazy-sender",
    "fault/lost-answers",
    "fault/no-catch-up",
    "fault/no-progress",
    "fault/other-cluster",
    "fault/outage",
    "fault/pause",
    "fault/restart",
    "fault/restore",
    "fault/slow-reader",
    "fault/stall",
    "fault/swallow",
    "resumed",
    "stage/backing-off",
    "stage/catching-up",
    "stage/connecting",
    "stage/live",
    "stage/loading",
    "stage/proving",
    "watch/compacted",
    "watch/fragment",
    "watch/old-events",
    "watch/progress",
    "watch/several-revisions",
    "watch/silence",
    "watch/unasked-progress",
];

/// How often each case was reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Coverage(BTreeMap<&'static str, u64>);

// === impl Coverage ===

impl Coverage {
    /// A case was reached.
    pub fn reached(&mut self, case: &'static str) {
        *self.0.entry(case).or_default() += 1;
    }

    /// A case was reached `times` times.
    pub fn reached_times(&mut self, case: &'static str, times: u64) {
        if times > 0 {
            *self.0.entry(case).or_default() += times;
        }
    }

    /// Takes another run's cases in.
    pub fn merge(&mut self, other: &Self) {
        for (case, times) in &other.0 {
            *self.0.entry(case).or_default() += times;
        }
    }

    /// How often cases of one group were reached: those whose names start so.
    #[must_use]
    pub fn under(&self, group: &str) -> u64 {
        self.0.iter().filter(|(case, _)| case.starts_with(group)).map(|(_, times)| times).sum()
    }

    /// The expected cases that were never reached.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        EXPECTED.iter().copied().filter(|case| !self.0.contains_key(case)).collect()
    }
}
