//! The writer of an environment, without I/O or clock: source events in, publications out.
//!
//! It joins the store, which always follows the source, with the hold, which decides what is served, and with what
//! is known of the source's life. Its shell is [`Environment`](super::Environment).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use headwater_model::shape::is_content;
use headwater_model::{Generation, Revision, Version};
use imbl::OrdMap;

use crate::approval;
use crate::backend::{
    Continuity, Entry, KeyEvent, KeyRevisions, ResumePoint, SourceEvent, SourceState, Stage,
};
use crate::distribution::publication::{HeldJump, Publication};
use crate::distribution::transfer::Transfers;
use crate::hold::{Hold, Judged};
use crate::store::{Outcome, Snapshot, Store};

/// The writer's state.
#[derive(Debug)]
pub struct Core {
    store: Store,
    hold: Hold,
    source: SourceState,
    last_proof: Option<Duration>,
    degraded_since: Option<u64>,
    /// Keys below the prefix that are no content: the content proof is over all keys.
    others: OrdMap<Bytes, (Revision, Revision)>,
    transfers: Arc<Transfers>,
    transfers_for: Option<Version>,
    unreadable: BTreeMap<Bytes, String>,
}

/// What an event led to.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Whether sessions are to be woken: what is served, its generation or its standing differ.
    pub wake: bool,
    /// What the store made of it, when it changed.
    pub outcome: Option<Outcome>,
    /// How a reload connected to what was held.
    pub reloaded: Option<Continuity>,
    /// What the hold made of it, when it changed.
    pub judged: Option<Judged>,
    /// What the file has to take over: everything, or the keys that changed.
    pub keep: Keep,
}

/// What has to reach the last known good.
#[derive(Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// Nothing.
    #[default]
    Nothing,
    /// The safe revision alone.
    Revision,
    /// The changes of these events.
    Events(Vec<KeyEvent>),
    /// Everything: a reload, a new generation, or a hold that began or ended.
    Everything,
}

// === impl Core ===

impl Core {
    /// An environment that holds nothing yet. It is degraded until its source is live.
    #[must_use]
    pub fn new(prefix: Arc<str>, now_unix: u64) -> Self {
        Self::with(Store::new(prefix), Hold::default(), OrdMap::new(), now_unix)
    }

    /// An environment that goes on from its last known good.
    #[must_use]
    pub fn resume(
        snapshot: Snapshot,
        hold: Hold,
        others: OrdMap<Bytes, (Revision, Revision)>,
        now_unix: u64,
    ) -> Self {
        Self::with(Store::resume(snapshot), hold, others, now_unix)
    }

    fn with(store: Store, hold: Hold, others: OrdMap<Bytes, (Revision, Revision)>, now_unix: u64) -> Self {
        let source = SourceState {
            stage: Stage::Connecting,
            member: String::new(),
            server_version: None,
            note: Some("not started yet".to_owned()),
        };
        Self {
            store,
            hold,
            source,
            last_proof: None,
            degraded_since: Some(now_unix),
            others,
            transfers: Arc::default(),
            transfers_for: None,
            unreadable: BTreeMap::new(),
        }
    }

    /// The store.
    #[must_use]
    pub const fn store(&self) -> &Store {
        &self.store
    }

    /// The hold.
    #[must_use]
    pub const fn hold(&self) -> &Hold {
        &self.hold
    }

    /// Keys below the prefix that are no content, with their create and mod revisions.
    #[must_use]
    pub const fn others(&self) -> &OrdMap<Bytes, (Revision, Revision)> {
        &self.others
    }

    /// Approvals that cannot be read, with the reason.
    #[must_use]
    pub const fn unreadable_approvals(&self) -> &BTreeMap<Bytes, String> {
        &self.unreadable
    }

    /// Where the source may resume, when a complete state is held.
    #[must_use]
    pub fn resume_point(&self) -> Option<ResumePoint> {
        if !self.store.is_complete() {
            return None;
        }
        let snapshot = self.store.snapshot();
        let content = snapshot.content().iter().map(|resource| KeyRevisions {
            key: Bytes::copy_from_slice(resource.key().as_str().as_bytes()),
            create_revision: resource.create_revision(),
            mod_revision: resource.mod_revision(),
            value: Some(resource.value().clone()),
        });
        let others = self.others.iter().map(|(key, (create, modified))| KeyRevisions {
            key: key.clone(),
            create_revision: *create,
            mod_revision: *modified,
            value: None,
        });
        let mut keys: Vec<_> = content.chain(others).collect();
        keys.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        Some(ResumePoint {
            cluster_id: snapshot.lineage().cluster_id,
            revision: snapshot.version().revision,
            keys,
        })
    }

    /// Takes one event of the source, in stream order.
    pub fn on_event(&mut self, event: SourceEvent, now: Duration, now_unix: u64) -> Effects {
        match event {
            SourceEvent::Loaded(load) => {
                self.last_proof = Some(now);
                let raised = load.generation > self.store.snapshot().lineage().generation;
                let jump = match load.continuity {
                    Continuity::Proven => raised,
                    Continuity::First | Continuity::Unproven | Continuity::Rewound { .. } => true,
                };
                let others = self.others.clone();
                self.reset_others(&load.entries);
                let served = self.hold.serving(self.store.snapshot()).clone();
                let outcome = self.store.load(&load);
                let judged = self.hold.judge(&served, self.store.snapshot(), jump, now_unix);
                let differs = outcome.published || changed(&judged) || others != self.others;
                Effects {
                    wake: outcome.published || changed(&judged),
                    outcome: Some(outcome),
                    reloaded: Some(load.continuity),
                    judged: Some(judged),
                    // What was read again unchanged is in the file: only where it was read is news.
                    keep: if differs { Keep::Everything } else { Keep::Revision },
                }
            }
            SourceEvent::Resumed { cluster_id } => {
                self.store.resumed(cluster_id);
                Effects::default()
            }
            SourceEvent::Batch(batch) => {
                self.last_proof = Some(now);
                let approvals_changed = self.take_others(&batch.events);
                let served = self.hold.serving(self.store.snapshot()).clone();
                let outcome = self.store.apply(&batch);
                let judged = self.hold.judge(&served, self.store.snapshot(), false, now_unix);
                let ended = changed(&judged);
                Effects {
                    wake: outcome.published || ended || approvals_changed,
                    outcome: Some(outcome),
                    reloaded: None,
                    judged: Some(judged),
                    keep: if ended { Keep::Everything } else { Keep::Events(batch.events) },
                }
            }
            SourceEvent::Progress(revision) => {
                self.last_proof = Some(now);
                self.store.progress(revision);
                Effects { keep: Keep::Revision, ..Effects::default() }
            }
            SourceEvent::State(state) => self.on_state(state, now, now_unix),
        }
    }

    /// Takes a higher generation whose version carries the very digest that is served.
    pub fn take_generation(&mut self, generation: Generation) -> Effects {
        // While a jump is held, what is served is of another history than the store's newest.
        if self.hold.standing().is_some() || !self.store.adopt(generation) {
            return Effects::default();
        }
        Effects { wake: true, keep: Keep::Everything, ..Effects::default() }
    }

    /// An operator rejects the held jump. `false` when none is held.
    pub const fn reject_hold(&mut self) -> bool {
        self.hold.reject()
    }

    /// What is shown to sessions and operators now.
    pub fn publication(&mut self) -> Publication {
        let world = Arc::new(self.store.snapshot().clone());
        let serving = match self.hold.standing() {
            Some(standing) => Arc::new(standing.frozen.clone()),
            None => world.clone(),
        };
        if self.transfers_for.as_ref() != Some(serving.version()) {
            self.transfers_for = Some(serving.version().clone());
            self.transfers = Arc::default();
        }
        Publication {
            serving,
            world,
            complete: self.store.is_complete(),
            hold: self.hold.standing().map(|standing| HeldJump {
                since_unix: standing.since_unix,
                removal: standing.removal,
                rejected: standing.rejected,
            }),
            others: self.others.clone(),
            ignored: self.store.ignored().clone(),
            approvals: self.hold.approvals().values().cloned().collect(),
            source: self.source.clone(),
            last_proof: self.last_proof,
            degraded_since: self.degraded_since,
            transfers: self.transfers.clone(),
        }
    }

    fn on_state(&mut self, state: SourceState, now: Duration, now_unix: u64) -> Effects {
        let was = self.degraded_since.is_none();
        let live = state.is_live();
        self.source = state;
        if live {
            self.last_proof = Some(now);
            self.degraded_since = None;
        } else {
            self.degraded_since.get_or_insert(now_unix);
        }
        Effects { wake: was != live, ..Effects::default() }
    }

    fn reset_others(&mut self, entries: &[Entry]) {
        self.others.clear();
        self.unreadable.clear();
        self.hold.clear_approvals();
        for entry in entries {
            self.take_other_put(entry);
        }
    }

    /// Follows keys that are no content; `true` when approvals changed.
    fn take_others(&mut self, events: &[KeyEvent]) -> bool {
        let mut approvals_changed = false;
        for event in events {
            match event {
                KeyEvent::Put(entry) => approvals_changed |= self.take_other_put(entry),
                KeyEvent::Delete { key, .. } => {
                    self.others.remove(key);
                    self.unreadable.remove(key);
                    if let Some(id) = approval::id(key) {
                        self.hold.withdraw(id);
                        approvals_changed = true;
                    }
                }
            }
        }
        approvals_changed
    }

    fn take_other_put(&mut self, entry: &Entry) -> bool {
        if is_content(&entry.key) {
            return false;
        }
        self.others.insert(entry.key.clone(), (entry.create_revision, entry.mod_revision));
        let Some(id) = approval::id(&entry.key) else { return false };
        match approval::decode(id, &entry.value) {
            Ok(approval) => {
                self.unreadable.remove(&entry.key);
                self.hold.approve(approval);
            }
            Err(error) => {
                // What cannot be read covers nothing; it is shown, since an operator waits for its effect.
                self.unreadable.insert(entry.key.clone(), error.to_string());
                self.hold.withdraw(id);
            }
        }
        true
    }
}

const fn changed(judged: &Judged) -> bool {
    matches!(judged, Judged::Began(_) | Judged::Dissolved | Judged::Approved(_))
}

#[cfg(test)]
mod tests;
