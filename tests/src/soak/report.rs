//! What came of a soak.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;

use super::levels::Life;
use crate::history::Checks;

/// The last line of standard output.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// Whether nothing was wrong.
    pub passed: bool,
    /// What everything was drawn from.
    pub seed: u64,
    /// How long it took, to the second.
    pub minutes: f64,
    /// Writes that etcd has confirmed.
    pub changes: u64,
    /// Revisions that the log of etcd holds.
    pub revisions: u64,
    /// By kind.
    pub faults: BTreeMap<String, u64>,
    /// Times at which everybody was compared with etcd.
    pub quiet_compares: u64,
    /// The longest that it took in a quiet time until all were equal, in seconds.
    pub slowest_compare_seconds: f64,
    /// What differed after the deadline.
    pub differences: Vec<String>,
    /// What is promised of what nodes and clients see.
    pub guarantees: Guarantees,
    /// What each of our processes used, by life.
    pub levels: Vec<Life>,
    /// What lay above its level.
    pub levels_above: Vec<String>,
    /// Why it could not go on, if it could not.
    pub failure: Option<String>,
    /// Where the logs are, when something was wrong.
    pub folder: Option<PathBuf>,
}

/// What is promised of what nodes and clients see.
#[derive(Debug, Default, Serialize)]
pub struct Guarantees {
    /// How often each was looked at.
    pub checked: Checks,
    /// How often one was not kept.
    pub violated: u64,
    /// The first of them.
    pub breaches: Vec<String>,
}

// === impl Report ===

impl Report {
    /// Whether nothing was wrong, and anything was looked at.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        let looked = self.quiet_compares > 0 && self.guarantees.checked.values().all(|count| *count > 0);
        looked
            && !self.guarantees.checked.is_empty()
            && self.differences.is_empty()
            && self.guarantees.violated == 0
            && self.levels_above.is_empty()
            && self.failure.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Guarantee;

    fn clean() -> Report {
        let guarantees = Guarantees { checked: [(Guarantee::Atomic, 1)].into(), ..Guarantees::default() };
        Report { quiet_compares: 1, guarantees, ..Report::default() }
    }

    #[test]
    fn whatever_is_wrong_fails_it_and_so_does_looking_at_nothing() {
        assert!(clean().is_clean());
        let wrong: [fn(&mut Report); 6] = [
            |it| it.quiet_compares = 0,
            |it| it.guarantees.checked.clear(),
            |it| it.differences.push("r0 lacks routes/1".to_owned()),
            |it| it.guarantees.violated = 1,
            |it| it.levels_above.push("n0: 900 tasks".to_owned()),
            |it| it.failure = Some("r0 has ended".to_owned()),
        ];
        for make in wrong {
            let mut report = clean();
            make(&mut report);
            assert!(!report.is_clean(), "{report:?}");
        }
    }
}
