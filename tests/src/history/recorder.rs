//! Writes down what a node shows of itself, as often as asked for.
//!
//! A look that gets no answer leaves nothing: a node that is stopped or killed shows nothing, and that is no breach.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use headwater_process::{Policy, Supervisor};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::{Sighting, Told, Version};
use crate::http;
use crate::planes::Node;

/// Sightings that may wait to be judged.
const WAITING_MAX: usize = 500_000;

/// What is looked at.
#[derive(Debug, Clone)]
enum Page {
    /// The version alone, on the health listener.
    Status(String),
    /// The version with all keys, on the listener of dumps. Costs the node a good deal.
    Dump(String),
}

/// Looks until it is dropped.
#[derive(Debug)]
pub struct Recorder {
    seen: Arc<Mutex<Vec<Sighting>>>,
    /// How many looks have ended, whatever came of them.
    looks: Arc<AtomicU64>,
    supervisor: Supervisor,
}

// === impl Recorder ===

impl Recorder {
    /// Of which version a node says it holds.
    #[must_use]
    pub fn of_versions(node: &Node, every: Duration) -> Self {
        Self::start(Page::Status(node.health.clone()), every)
    }

    /// Of all keys that a node holds, with their version.
    #[must_use]
    pub fn of_contents(node: &Node, every: Duration) -> Self {
        Self::start(Page::Dump(node.control.clone()), every)
    }

    /// What was seen since the last call.
    #[must_use]
    pub fn take(&self) -> Vec<Sighting> {
        std::mem::take(&mut *self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// How many looks have ended. A look that began after a moment has ended when two more have than at that moment.
    #[must_use]
    pub fn looks(&self) -> u64 {
        self.looks.load(Ordering::SeqCst)
    }

    fn start(page: Page, every: Duration) -> Self {
        let (seen, supervisor) = (Arc::new(Mutex::new(Vec::new())), Supervisor::new("recorder"));
        let looks = Arc::new(AtomicU64::new(0));
        let looking = record(page, Arc::clone(&seen), Arc::clone(&looks), every);
        supervisor.spawn("look", Policy::best_effort().dropped_on_cancel(), looking);
        Self { seen, looks, supervisor }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.supervisor.cancel();
    }
}

async fn record(page: Page, seen: Arc<Mutex<Vec<Sighting>>>, looks: Arc<AtomicU64>, every: Duration) {
    loop {
        let began = Instant::now();
        if let Ok(Some(sighting)) = page.look().await {
            push(&seen, sighting);
        }
        looks.fetch_add(1, Ordering::SeqCst);
        // A node that takes long to answer has other things to do.
        sleep(every.max(began.elapsed() * 4)).await;
    }
}

/// Without repetitions: most looks at a quiet node see what the one before saw.
fn push(seen: &Mutex<Vec<Sighting>>, sighting: Sighting) {
    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    if seen.last() != Some(&sighting) {
        assert!(seen.len() < WAITING_MAX, "nobody judges what is recorded");
        seen.push(sighting);
    }
}

// === impl Page ===

impl Page {
    /// Nothing when the node holds nothing.
    async fn look(&self) -> Result<Option<Sighting>> {
        match self {
            Self::Status(address) => {
                let status = get(address, "/status/config").await?;
                sighting(&status, &status["applied"], Told::Nothing)
            }
            Self::Dump(address) => {
                let dump = get(address, "/config_dump").await?;
                let keys = keys(&dump["resources"]).context("a resource without key or revisions")?;
                sighting(&dump["status"], &dump["version"], Told::Keys(keys))
            }
        }
    }
}

fn sighting(status: &Value, version: &Value, told: Told) -> Result<Option<Sighting>> {
    if version.is_null() {
        return Ok(None);
    }
    let life = status["instance"].as_str().context("a status has an instance")?.to_owned();
    let digest = version["digest"].as_str().context("a version has a digest")?;
    let version = Version {
        generation: version["generation"].as_u64().context("a version has a generation")?,
        revision: version["revision"].as_u64().context("a version has a revision")?,
        digest: Some(digest.parse().context("a digest is hexadecimal")?),
    };
    // Of an older generation it says nothing about this one.
    let same = status["durable"]["generation"].as_u64() == Some(version.generation);
    let durable = status["durable"]["revision"].as_u64().filter(|_| same);
    Ok(Some(Sighting { life, version, durable, told }))
}

fn keys(resources: &Value) -> Option<BTreeMap<String, (u64, u64)>> {
    let one = |it: &Value| {
        let revisions = (it["create_revision"].as_u64()?, it["mod_revision"].as_u64()?);
        Some((it["key"].as_str()?.to_owned(), revisions))
    };
    resources.as_array()?.iter().map(one).collect()
}

async fn get(address: &str, path: &str) -> Result<Value> {
    let (status, body) = http::get(address, path).await?;
    ensure!(status == 200, "{path} answers {status}");
    serde_json::from_str(&body).context("a page is JSON")
}
