//! From a staged version to what requests are served by: verdict, compile, one swap.
//!
//! Owns the verdict and the newest table. Blocking and off the request path; one job at a time. It must never know
//! streams or files.

use std::sync::Arc;

use arc_swap::ArcSwap;
use headwater_model::{Content, Key, Version};
use headwater_proto::config::{FallbackAnswer, FallbackRequest, Reject, Rejects};
use imbl::OrdMap;

use super::protocol::{Applied, Staged};
use super::verdict::{Judge, Outcome, Retained, Verdict};
use crate::compile::{CompileStats, Registry, Served, Table};

/// Makes a table the one that requests are served by.
pub type Swap<U> = Box<dyn Fn(Table<U>, &Version) + Send>;

/// What is served, for dumps and status: immutable, swapped whole.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// The version, raw.
    pub version: Option<Version>,
    /// The raw content of it.
    pub content: Content,
    /// The effective content: what each key serves.
    pub served: OrdMap<Key, Served>,
    /// What is rejected, in key order.
    pub rejects: Arc<[Reject]>,
    /// What is served in place of rejected values.
    pub retained: Arc<[Retained]>,
    /// What the last change compiled.
    pub compiled: CompileStats,
}

/// The cell that holds the newest [`View`].
pub type Views = Arc<ArcSwap<View>>;

/// Something to apply.
#[derive(Debug)]
pub enum Job {
    /// A version.
    Publish(Staged),
    /// An older value of a rejected key.
    Fallback(FallbackAnswer),
}

/// What became of a [`Job`].
#[derive(Debug)]
pub enum Done {
    /// The version is served.
    Applied(Applied),
    /// Rejects changed; the version is the same.
    Judged(Rejects, Vec<FallbackRequest>),
}

/// Judges, compiles, swaps.
pub struct Applier<J, R: Registry> {
    verdict: Verdict<J>,
    table: Table<R::Upstream>,
    registry: Arc<R>,
    swap: Swap<R::Upstream>,
    views: Views,
}

// === impl Applier ===

impl<J: Judge, R: Registry> Applier<J, R> {
    /// Serves nothing yet.
    pub fn new(judge: J, registry: Arc<R>, swap: Swap<R::Upstream>, views: Views) -> Self {
        Self { verdict: Verdict::new(judge), table: Table::empty(), registry, swap, views }
    }

    /// Serves what the disk held. To be called once, before any job.
    pub fn restore(
        &mut self,
        version: &Version,
        content: &Content,
        retained: &[Retained],
        unix: u64,
    ) -> (Rejects, Vec<FallbackRequest>) {
        let outcome = self.verdict.restore(content, retained, unix);
        self.serve(outcome, version, content)
    }

    /// Does a job; `unix` are Unix seconds.
    pub fn run(&mut self, job: Job, unix: u64) -> Done {
        match job {
            Job::Publish(staged) => {
                let outcome = self.verdict.apply(&staged.changes, unix);
                let (rejects, requests) = self.serve(outcome, &staged.version, &staged.content);
                Done::Applied(Applied { version: staged.version, rejects, requests })
            }
            Job::Fallback(answer) => {
                let outcome = self.verdict.fallback(&answer);
                let view = self.views.load_full();
                let Some(version) = view.version.as_ref().filter(|_| !outcome.effective.puts.is_empty())
                else {
                    return Done::Judged(outcome.rejects, outcome.requests);
                };
                let (rejects, requests) = self.serve(outcome, version, &view.content);
                Done::Judged(rejects, requests)
            }
        }
    }

    fn serve(
        &mut self,
        outcome: Outcome,
        version: &Version,
        content: &Content,
    ) -> (Rejects, Vec<FallbackRequest>) {
        let (table, compiled) = self.table.apply(&outcome.effective, self.registry.as_ref());
        self.table = table;
        (self.swap)(self.table.clone(), version);
        self.views.store(Arc::new(View {
            version: Some(version.clone()),
            content: content.clone(),
            served: self.verdict.all_served().clone(),
            rejects: self.verdict.rejects().into(),
            retained: self.verdict.retained().into(),
            compiled,
        }));
        (outcome.rejects, outcome.requests)
    }
}
