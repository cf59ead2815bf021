//! Readiness by named conditions: a process part is ready when every condition it announced was met and it is not
//! draining.
//!
//! Success is explicit. A [`Condition`] that is dropped unmet, by a panic for instance, has failed and says so in the
//! body of `/readyz`. Nothing here knows of recency: what was ready stays ready until a drain.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The readiness of one process part; a clone is the same readiness.
#[derive(Debug, Clone, Default)]
pub struct Readiness(Arc<Mutex<State>>);

/// One announced condition, held by whoever will meet it.
#[derive(Debug)]
#[must_use = "dropped without `met` a condition has failed"]
pub struct Condition {
    name: String,
    readiness: Readiness,
}

/// A view of the readiness at one moment; its text is the body of `/readyz`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Whether requests should be sent here.
    pub ready: bool,
    /// Whether a drain has begun.
    pub draining: bool,
    /// Name and state of each condition that is not plainly met, in order of name.
    pub open: Vec<(String, Progress)>,
}

/// Where a condition stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// Not met yet; what it is doing, where known.
    Pending(String),
    /// Met, or given up visibly, so that it holds nothing up; with a reason to show in the second case.
    Settled(Option<String>),
    /// Will not be met: its holder ended.
    Failed(String),
}

#[derive(Debug, Default)]
struct State {
    conditions: BTreeMap<String, Progress>,
    draining: bool,
}

// === impl Readiness ===

impl Readiness {
    /// Ready, until the first condition is announced.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Announces a condition. A second one of the same name replaces the first one's state.
    pub fn condition(&self, name: impl Into<String>) -> Condition {
        let name = name.into();
        self.set(&name, Progress::Pending("not started".into()));
        Condition { name, readiness: self.clone() }
    }

    /// Not ready from here on.
    pub fn begin_drain(&self) {
        self.lock().draining = true;
    }

    /// The state now.
    #[must_use]
    pub fn report(&self) -> Report {
        let state = self.lock();
        let open: Vec<_> = state
            .conditions
            .iter()
            .filter(|(_, progress)| **progress != Progress::Settled(None))
            .map(|(name, progress)| (name.clone(), progress.clone()))
            .collect();
        let settled = open.iter().all(|(_, progress)| matches!(progress, Progress::Settled(_)));
        Report { ready: settled && !state.draining, draining: state.draining, open }
    }

    fn set(&self, name: &str, progress: Progress) {
        self.lock().conditions.insert(name.to_owned(), progress);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while holding it; if something did, the map is still whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Condition ===

impl Condition {
    /// Says what it is doing meanwhile.
    pub fn pending(&self, doing: impl Into<String>) {
        self.readiness.set(&self.name, Progress::Pending(doing.into()));
    }

    /// Met.
    pub fn met(self) {
        self.settle(Progress::Settled(None));
    }

    /// Given up visibly: holds nothing up any longer, and the body says why.
    pub fn waived(self, reason: impl Into<String>) {
        self.settle(Progress::Settled(Some(reason.into())));
    }

    /// Will not be met.
    pub fn failed(self, reason: impl Into<String>) {
        self.settle(Progress::Failed(reason.into()));
    }

    fn settle(mut self, progress: Progress) {
        let name = std::mem::take(&mut self.name);
        self.readiness.set(&name, progress);
        // The empty name tells `drop` that this one is settled.
    }
}

impl Drop for Condition {
    fn drop(&mut self) {
        if !self.name.is_empty() {
            self.readiness.set(&self.name, Progress::Failed("ended without becoming ready".into()));
        }
    }
}

// === impl Report ===

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", if self.ready { "ready" } else { "not ready" })?;
        if self.draining {
            writeln!(f, "draining")?;
        }
        for (name, progress) in &self.open {
            match progress {
                Progress::Pending(doing) => writeln!(f, "pending: {name}: {doing}")?,
                Progress::Settled(None) => {}
                Progress::Settled(Some(reason)) => writeln!(f, "given up: {name}: {reason}")?,
                Progress::Failed(reason) => writeln!(f, "failed: {name}: {reason}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_when_every_condition_is_met() {
        let readiness = Readiness::new();
        let listen = readiness.condition("southbound listener");
        let load = readiness.condition("environment /apisix");
        load.pending("reading page 3");
        listen.met();
        assert_eq!(
            readiness.report().to_string(),
            "not ready\npending: environment /apisix: reading page 3\n"
        );
        load.met();
        assert_eq!(readiness.report().to_string(), "ready\n");
        assert!(readiness.report().ready);
    }

    #[test]
    fn dropped_without_success_is_failed() {
        let readiness = Readiness::new();
        let condition = readiness.condition("configuration");
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            condition.pending("about to go wrong");
            panic!("it went wrong");
        }));
        assert!(panicked.is_err());
        let report = readiness.report();
        assert!(!report.ready);
        assert_eq!(report.to_string(), "not ready\nfailed: configuration: ended without becoming ready\n");
    }

    #[test]
    fn given_up_visibly_holds_nothing_up() {
        let readiness = Readiness::new();
        readiness.condition("environment /b").waived("not loaded within 60 s");
        assert_eq!(
            readiness.report().to_string(),
            "ready\ngiven up: environment /b: not loaded within 60 s\n"
        );
    }

    #[test]
    fn a_drain_flips_it() {
        let readiness = Readiness::new();
        readiness.condition("listener").met();
        readiness.begin_drain();
        assert_eq!(readiness.report().to_string(), "not ready\ndraining\n");
    }

    #[test]
    fn failed_says_why() {
        let readiness = Readiness::new();
        readiness.condition("x").failed("no such file");
        assert_eq!(readiness.report().to_string(), "not ready\nfailed: x: no such file\n");
    }
}
