//! Clients of our own that follow along, one behind each replica and one behind etcd, and tell every version they are
//! given with what led there.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use dashmap::DashMap;
use headwater_control_plane::backend::{Batch, KeyEvent, Load, SourceEvent};
use headwater_data_plane::sync::protocol::Staged;
use headwater_model::Resource;
use headwater_process::{Policy, Supervisor};
use headwater_proto::config::TransferReason;
use tokio::sync::Semaphore;

use crate::bench::node::{Node, Shared, Watcher};
use crate::follower::Follower;
use crate::history::{Fact, Sighting, Told, Version, content_key};

/// A client of a replica: the real protocol over a real stream, without disk or verdict.
#[derive(Debug)]
pub struct SyncClient {
    seen: Arc<Mutex<Vec<Sighting>>>,
    supervisor: Supervisor,
}

// === impl SyncClient ===

impl SyncClient {
    /// Of the replica at `host:port`, in the environment `default`.
    #[must_use]
    pub fn start(replica: &str, number: u64) -> Self {
        let (seen, supervisor) = (Arc::new(Mutex::new(Vec::new())), Supervisor::new("sync client"));
        let writing = Arc::clone(&seen);
        let watcher = Watcher(Box::new(move |staged| {
            writing.lock().unwrap_or_else(PoisonError::into_inner).push(given(staged));
        }));
        let shared = Shared {
            replica: replica.to_owned(),
            environment: "default",
            name: "client",
            watcher,
            values: DashMap::new(),
            starting: Arc::new(Semaphore::new(1)),
            lost: AtomicU64::new(0),
        };
        let (node, _) = Node::new(number, Arc::new(shared));
        supervisor.spawn("run", Policy::best_effort().dropped_on_cancel(), node.run());
        Self { seen, supervisor }
    }

    /// What it was given since the last call.
    #[must_use]
    pub fn take(&self) -> Vec<Sighting> {
        std::mem::take(&mut *self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for SyncClient {
    fn drop(&mut self) {
        self.supervisor.cancel();
    }
}

/// One version with the changes that led to it.
fn given(staged: &Staged) -> Sighting {
    let puts = staged.changes.puts.iter().map(|put| (put.key().as_str().to_owned(), fact(put))).collect();
    let deletes = staged.changes.deletes.iter().map(|key| key.as_str().to_owned()).collect();
    let version = Version {
        generation: staged.version.lineage.generation.0,
        revision: staged.version.revision.0,
        digest: Some(staged.version.digest),
    };
    let told = Told::Changes { puts, deletes, step: staged.reason == TransferReason::Step };
    Sighting { life: "one".to_owned(), version, durable: None, told }
}

/// The hash is computed here again, from the bytes.
fn fact(resource: &Resource) -> Fact {
    let (create, modified) = (resource.create_revision().0, resource.mod_revision().0);
    Fact::new(resource.key().as_str(), create, modified, resource.value())
}

/// What a follower of etcd was told since the last call.
#[must_use]
pub fn take(follower: &Follower) -> Vec<Sighting> {
    let told = follower.take_record();
    told.iter().filter_map(|event| heard(event)).collect()
}

fn heard(event: &SourceEvent) -> Option<Sighting> {
    let (revision, told) = match event {
        SourceEvent::Loaded(load) => (load.revision.0, loaded(load)),
        SourceEvent::Batch(batch) => (batch.revision.0, changed(batch)),
        SourceEvent::Progress(revision) => {
            (revision.0, Told::Changes { puts: Vec::new(), deletes: Vec::new(), step: true })
        }
        SourceEvent::Resumed { .. } | SourceEvent::State(_) => return None,
    };
    let version = Version { generation: 0, revision, digest: None };
    Some(Sighting { life: "one".to_owned(), version, durable: None, told })
}

fn loaded(load: &Load) -> Told {
    let facts = load.entries.iter().filter_map(|entry| {
        let key = content_key(&entry.key)?;
        Some((key.to_owned(), Fact::new(key, entry.create_revision.0, entry.mod_revision.0, &entry.value)))
    });
    Told::All(facts.collect())
}

/// A batch may hold several revisions of a key; what it comes down to is the last.
fn changed(batch: &Batch) -> Told {
    let mut last: BTreeMap<String, Option<Fact>> = BTreeMap::new();
    for event in &batch.events {
        let Some(key) = content_key(event.key()) else { continue };
        let fact = match event {
            KeyEvent::Put(entry) => {
                Some(Fact::new(key, entry.create_revision.0, entry.mod_revision.0, &entry.value))
            }
            KeyEvent::Delete { .. } => None,
        };
        last.insert(key.to_owned(), fact);
    }
    let (mut puts, mut deletes) = (Vec::new(), Vec::new());
    for (key, fact) in last {
        match fact {
            Some(fact) => puts.push((key, fact)),
            None => deletes.push(key),
        }
    }
    Told::Changes { puts, deletes, step: true }
}
