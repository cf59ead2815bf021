//! Compares what is held with etcd now and then (W31): a difference is an alarm, its evidence is kept, and
//! everything is read again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use headwater_model::shape::{Shape, classify};
use headwater_model::{Content, Digest, Generation, Resource, Revision};
use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, warn};

use super::metrics::Metrics;
use crate::backend::{Entry, KeyRevisions, ReadError, Reader, SourceCommand};

/// Under an unsafe release this is all the promise rests on (DESIGN 4.2).
const UNSAFE_INTERVAL: Duration = Duration::from_secs(30);

/// Compacted audits in a row that are an alarm.
const COMPACTED_ALARM: u32 = 3;

/// Keys named as evidence.
const NAMED: usize = 20;

/// What is held, pinned at one moment.
#[derive(Clone, Debug)]
pub struct Pinned {
    /// The safe revision; content and other keys are exactly its state.
    pub revision: Revision,
    /// The content.
    pub content: Content,
    /// The keys that are not content.
    pub others: Vec<KeyRevisions>,
}

/// Pins what is held; `None` while there is nothing to audit.
pub type Pin = Arc<dyn Fn() -> Option<Pinned> + Send + Sync>;

/// A difference that an audit found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// At this revision,
    pub revision: Revision,
    /// the content held had this digest,
    pub held: Digest,
    /// etcd's had this one,
    pub found: Digest,
    /// and these keys differ (the first twenty).
    pub keys: Vec<String>,
    /// How many differ.
    pub count: usize,
}

/// Audits one environment.
pub struct Auditor {
    reader: Arc<dyn Reader>,
    pin: Pin,
    interval: Duration,
    metrics: Metrics,
    environment: String,
    last: Arc<ArcSwapOption<Finding>>,
}

/// How one audit went.
#[derive(Debug)]
enum Outcome {
    Nothing,
    Same,
    Different(Finding),
    Compacted,
    Unavailable(ReadError),
}

// === impl Auditor ===

impl Auditor {
    /// Audits `environment` every `interval` (every 30 s where an unsafe release is allowed).
    #[must_use]
    pub fn new(
        environment: &str,
        reader: Arc<dyn Reader>,
        pin: Pin,
        config: &super::EtcdConfig,
        metrics: Metrics,
    ) -> Self {
        let interval = if config.allow_unsafe_etcd {
            UNSAFE_INTERVAL.min(config.audit_interval)
        } else {
            config.audit_interval
        };
        let environment = environment.to_owned();
        Self { reader, pin, interval, metrics, environment, last: Arc::default() }
    }

    /// The last difference found, kept for status and post-mortem.
    #[must_use]
    pub fn findings(&self) -> Arc<ArcSwapOption<Finding>> {
        Arc::clone(&self.last)
    }

    /// Audits until stopped. The first one comes after a random part of the interval: replicas do not audit in step.
    pub async fn run(self, commands: mpsc::Sender<SourceCommand>, stop: CancellationToken) {
        let mut wait = self.interval.mul_f64(rand::random_range(0.0..1.0));
        let mut compacted = 0;
        while stop.run_until_cancelled(sleep(wait)).await.is_some() {
            let Some(outcome) = stop.run_until_cancelled(self.audit()).await else { return };
            self.metrics.audited(&self.environment, outcome.name());
            let was_compacted = matches!(outcome, Outcome::Compacted);
            compacted = if was_compacted { compacted + 1 } else { 0 };
            // Compacted meanwhile: sooner again.
            wait = if was_compacted { self.interval / 10 } else { self.interval };
            self.report(outcome, compacted, &commands);
        }
    }

    async fn audit(&self) -> Outcome {
        let Some(pinned) = (self.pin)() else { return Outcome::Nothing };
        match self.reader.state_at(pinned.revision).await {
            Ok(entries) => compare(&pinned, entries).map_or(Outcome::Same, Outcome::Different),
            Err(ReadError::Compacted { .. }) => Outcome::Compacted,
            Err(error) => Outcome::Unavailable(error),
        }
    }

    fn report(&self, outcome: Outcome, compacted: u32, commands: &mpsc::Sender<SourceCommand>) {
        let environment = self.environment.as_str();
        match outcome {
            Outcome::Nothing | Outcome::Same => {}
            Outcome::Different(finding) => {
                let Finding { revision, held, found, keys, count } = &finding;
                error!(environment, revision = revision.0, %held, %found, count, ?keys, "what is held differs from etcd");
                let reason =
                    format!("the audit found {count} keys that differ from etcd at revision {revision}");
                self.last.store(Some(Arc::new(finding)));
                // Full: a reload is asked for already.
                let _ = commands.try_send(SourceCommand::Reload { reason, generation: Generation(0) });
            }
            Outcome::Compacted if compacted >= COMPACTED_ALARM => {
                error!(
                    environment,
                    compacted, "no audit was possible: etcd is compacted faster than it is read"
                );
            }
            Outcome::Compacted => debug!(environment, "the audited revision was compacted meanwhile"),
            Outcome::Unavailable(error) => warn!(environment, %error, "the audit could not read etcd"),
        }
    }
}

impl std::fmt::Debug for Auditor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Auditor").field("environment", &self.environment).finish_non_exhaustive()
    }
}

// === impl Outcome ===

impl Outcome {
    const fn name(&self) -> &'static str {
        match self {
            Self::Nothing => "nothing_held",
            Self::Same => "same",
            Self::Different(_) => "different",
            Self::Compacted => "compacted",
            Self::Unavailable(_) => "unavailable",
        }
    }
}

/// Content by its digest, all other keys by their revisions.
fn compare(pinned: &Pinned, entries: Vec<Entry>) -> Option<Finding> {
    let mut content = Content::new();
    let mut others = BTreeMap::new();
    for entry in entries {
        match classify(&entry.key) {
            Shape::Content(key) => {
                let resource = Resource::new(key, entry.value, entry.create_revision, entry.mod_revision);
                content.put(Arc::new(resource));
            }
            Shape::Ignored(_) => {
                others.insert(entry.key, (entry.create_revision, entry.mod_revision));
            }
        }
    }
    let held: BTreeMap<Bytes, (Revision, Revision)> =
        pinned.others.iter().map(|key| (key.key.clone(), (key.create_revision, key.mod_revision))).collect();
    if content.digest() == pinned.content.digest() && others == held {
        return None;
    }
    let changes = headwater_model::diff::diff(&pinned.content, &content);
    let names = changes.deletes.iter().map(|key| key.as_str().to_owned());
    let names = names.chain(changes.puts.iter().map(|resource| resource.key().as_str().to_owned()));
    let odd = held.keys().chain(others.keys()).filter(|key| held.get(*key) != others.get(*key));
    let odd = odd.map(|key| String::from_utf8_lossy(key).into_owned());
    let mut keys: Vec<String> = names.chain(odd).collect();
    keys.sort_unstable();
    keys.dedup();
    let count = keys.len();
    keys.truncate(NAMED);
    Some(Finding {
        revision: pinned.revision,
        held: pinned.content.digest(),
        found: content.digest(),
        keys,
        count,
    })
}

#[cfg(test)]
mod tests;
