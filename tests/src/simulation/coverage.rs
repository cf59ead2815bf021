//! What a run has been through. A simulation that never reaches a case proves nothing about it.

use std::collections::BTreeMap;

use serde::Serialize;

/// From so many seeds on, a case of [`EXPECTED`] that was never reached fails the run.
pub const ENOUGH_SEEDS: u64 = 2_000;

/// What many seeds together must have been through.
pub const EXPECTED: &[&str] = &[
    "answer/compacted",
    "answer/denied",
    "answer/lost",
    "answer/too-large",
    "continuity/first",
    "continuity/proven",
    "continuity/rewound",
    "continuity/unproven",
    "fallback/from-etcd",
    "fallback/none",
    "fault/astray-member",
    "fault/bumped-restore",
    "fault/burst",
    "fault/compaction",
    "fault/crash",
    "fault/cut",
    "fault/denied",
    "fault/lazy-sender",
    "fault/lost-answers",
    "fault/no-catch-up",
    "fault/no-progress",
    "fault/node-cut",
    "fault/node-cut-off",
    "fault/node-kill",
    "fault/node-leave",
    "fault/node-new-disk",
    "fault/node-pause",
    "fault/node-slow-disk",
    "fault/node-slow-link",
    "fault/node-stall",
    "fault/node-stray-peer",
    "fault/node-swallow-down",
    "fault/node-swallow-up",
    "fault/node-twin",
    "fault/other-cluster",
    "fault/outage",
    "fault/pause",
    "fault/replica-drain",
    "fault/replica-loses-file",
    "fault/replica-slow-file",
    "fault/replica-unreachable",
    "fault/restart",
    "fault/restore",
    "fault/slow-reader",
    "fault/slow-writer",
    "fault/small-messages",
    "fault/stall",
    "fault/swallow",
    "fleet/outdated",
    "fleet/two-of-one-id",
    "generation/adopted",
    "generation/raised",
    "goaway/draining",
    "goaway/generation-ahead",
    "goaway/not-ready",
    "goaway/silent",
    "hold/an-operator-approves",
    "hold/an-operator-rejects",
    "hold/approved",
    "hold/approved-at-node",
    "hold/began",
    "hold/dissolved",
    "refused/held",
    "refused/mismatch",
    "refused/mismatch-on-another-line",
    "inquiry/answered-digest",
    "inquiry/answered-heads",
    "inquiry/compacted",
    "inquiry/digest",
    "inquiry/future",
    "inquiry/heads",
    "inquiry/nothing",
    "inquiry/open",
    "inquiry/taken",
    "members/asked",
    "members/diverged",
    "reject/any",
    "reject/nothing-served",
    "reject/retained",
    "resumed",
    "session/ahead",
    "session/bye",
    "session/degraded",
    "session/divergence",
    "stage/backing-off",
    "stage/catching-up",
    "stage/connecting",
    "stage/live",
    "stage/loading",
    "stage/proving",
    "stray/progress",
    "stray/transfer",
    "stray/welcome",
    "transfer/approved",
    "transfer/divergence",
    "transfer/first",
    "transfer/other-lineage",
    "transfer/reloaded",
    "transfer/rewound",
    "transfer/several-parts",
    "transfer/step",
    "transfer/too-old",
    "wait/applied",
    "wait/cannot-say",
    "wait/cannot-say-yet",
    "wait/expired",
    "wait/held",
    "wait/history-replaced",
    "wait/no-nodes",
    "wait/node-applied",
    "wait/node-behind",
    "wait/node-held",
    "wait/node-lost",
    "wait/node-not-durable",
    "wait/node-refused",
    "wait/node-rejects-unknown",
    "wait/pending",
    "wait/refused",
    "watch/compacted",
    "watch/fragment",
    "watch/old-events",
    "watch/progress",
    "watch/several-revisions",
    "watch/silence",
    "watch/too-large",
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

    /// A case was reached, if it was.
    pub fn reached_if(&mut self, case: &'static str, reached: bool) {
        if reached {
            self.reached(case);
        }
    }

    /// A case was reached, if there was one.
    pub fn reached_some(&mut self, case: Option<&'static str>) {
        if let Some(case) = case {
            self.reached(case);
        }
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
