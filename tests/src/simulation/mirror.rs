//! What a listener that trusts its source holds: the plainest possible consumer of source events.
//!
//! At every event it must hold exactly what etcd had at the revision it was told is safe.

use std::collections::BTreeMap;

use bytes::Bytes;
use headwater_control_plane::backend::{
    Batch, Continuity, Entry, KeyEvent, KeyRevisions, Load, ResumePoint, SourceEvent,
};
use headwater_model::Revision;
use headwater_model::shape::is_content;

use super::coverage::Coverage;
use super::truth::{Epoch, Fact, Facts, Truth, difference};

/// The state that the events add up to.
#[derive(Clone, Debug)]
pub struct Mirror {
    facts: Facts,
    /// The safe revision; nothing before the first load.
    safe: Option<u64>,
    cluster_id: u64,
    /// The history that was last held against the truth.
    epoch: Epoch,
    /// Whether it is given events merged and late.
    lags: bool,
    /// How far it has come in each history. What it forgets with its file, it has not seen.
    seen: BTreeMap<Epoch, u64>,
}

// === impl Mirror ===

impl Mirror {
    /// Holds nothing.
    #[must_use]
    pub fn empty(epoch: Epoch) -> Self {
        Self { facts: Facts::new(), safe: None, cluster_id: 0, epoch, lags: false, seen: BTreeMap::new() }
    }

    /// The same, of a listener that is given events as they come, or merged and late.
    #[must_use]
    pub fn lagging(self, lags: bool) -> Self {
        Self { lags, ..self }
    }

    /// The safe revision.
    #[must_use]
    pub const fn safe(&self) -> Option<u64> {
        self.safe
    }

    /// What it holds.
    #[must_use]
    pub const fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The history that it was last held against.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// What a restart goes on from, if anything was ever held.
    #[must_use]
    pub fn resume_point(&self) -> Option<ResumePoint> {
        let keys = self.facts.iter().map(|(key, fact)| KeyRevisions {
            key: key.clone(),
            create_revision: Revision(fact.create_revision),
            mod_revision: Revision(fact.mod_revision),
            value: is_content(key).then(|| fact.value.clone()),
        });
        let revision = Revision(self.safe?);
        Some(ResumePoint { cluster_id: self.cluster_id, revision, keys: keys.collect() })
    }

    /// Takes an event of a stream of `epoch`, and says what is wrong with it.
    pub fn take(
        &mut self,
        event: &SourceEvent,
        epoch: Epoch,
        truth: &Truth,
        coverage: &mut Coverage,
    ) -> Result<(), String> {
        match event {
            SourceEvent::State(_) => return Ok(()),
            SourceEvent::Loaded(load) => self.load(load, epoch, truth, coverage)?,
            SourceEvent::Resumed { cluster_id } => {
                coverage.reached("resumed");
                self.cluster_id = *cluster_id;
            }
            SourceEvent::Batch(batch) => self.apply(batch)?,
            SourceEvent::Progress(revision) => self.advance(*revision)?,
        }
        self.epoch = epoch;
        if let Some(safe) = self.safe {
            let seen = self.seen.entry(epoch).or_default();
            *seen = safe.max(*seen);
        }
        self.check(truth)
    }

    /// Whether it ever stood where this commit is part of the history.
    #[must_use]
    pub fn has_seen(&self, committed: (Epoch, u64), truth: &Truth) -> bool {
        self.seen.iter().any(|(epoch, seen)| *seen >= committed.1 && truth.contains(*epoch, committed))
    }

    /// Whether it holds the newest state of the history that goes on now.
    pub fn check_head(&self, truth: &Truth) -> Result<(), String> {
        let head = truth.head(truth.epoch());
        match self.safe {
            Some(safe) if safe == head && self.epoch == truth.epoch() => self.check(truth),
            safe => Err(format!("etcd's head is {head}, the safe revision is {safe:?}")),
        }
    }

    fn check(&self, truth: &Truth) -> Result<(), String> {
        let Some(safe) = self.safe else { return Err("an event came before the first load".to_owned()) };
        let Some(facts) = truth.at(self.epoch, safe) else {
            return Err(format!("revision {safe} was certified, etcd never got that far in this history"));
        };
        match difference(&self.facts, facts) {
            None => Ok(()),
            Some(difference) => Err(format!("at safe revision {safe}: {difference}")),
        }
    }

    fn load(
        &mut self,
        load: &Load,
        epoch: Epoch,
        truth: &Truth,
        coverage: &mut Coverage,
    ) -> Result<(), String> {
        let revision = load.revision.0;
        // How it connects to what was held, as the truth has it.
        let same = |epoch: Epoch, safe: u64| {
            truth.cluster_id(epoch) == self.cluster_id && truth.at(epoch, safe) == Some(&self.facts)
        };
        match (&load.continuity, self.safe) {
            (Continuity::First, None) => coverage.reached("continuity/first"),
            (Continuity::Proven, Some(safe)) => {
                coverage.reached("continuity/proven");
                if !same(epoch, safe) {
                    return Err(format!("a reload is called proven, but the history differs at {safe}"));
                }
                if revision < safe {
                    return Err(format!("a proven reload goes back from {safe} to {revision}"));
                }
            }
            (Continuity::Unproven, Some(safe)) => {
                coverage.reached("continuity/unproven");
                if revision < safe {
                    return Err(format!("an unproven reload goes back from {safe} to {revision}"));
                }
            }
            (Continuity::Rewound { evidence }, Some(safe)) => {
                coverage.reached("continuity/rewound");
                // It may have been proven in a history that has been replaced since, and over what a writer that lags
                // behind its source was never given.
                if !self.lags && truth.since(self.epoch).all(|epoch| same(epoch, safe)) {
                    return Err(format!("the history was never replaced, but is called rewound: {evidence}"));
                }
            }
            (continuity, safe) => {
                return Err(format!("{continuity:?} does not go with safe revision {safe:?}"));
            }
        }
        self.facts = load.entries.iter().map(fact).collect();
        self.safe = Some(revision);
        self.cluster_id = load.cluster_id;
        Ok(())
    }

    fn apply(&mut self, batch: &Batch) -> Result<(), String> {
        self.advance(batch.revision)?;
        for event in &batch.events {
            match event {
                KeyEvent::Put(entry) => {
                    let (key, fact) = fact(entry);
                    self.facts.insert(key, fact);
                }
                KeyEvent::Delete { key, .. } => drop(self.facts.remove(key)),
            }
        }
        Ok(())
    }

    fn advance(&mut self, revision: Revision) -> Result<(), String> {
        match self.safe {
            None => Err("an event came before the first load".to_owned()),
            Some(safe) if revision.0 < safe => {
                Err(format!("the safe revision fell from {safe} to {revision}"))
            }
            Some(_) => {
                self.safe = Some(revision.0);
                Ok(())
            }
        }
    }
}

fn fact(entry: &Entry) -> (Bytes, Fact) {
    let fact = Fact {
        value: entry.value.clone(),
        create_revision: entry.create_revision.0,
        mod_revision: entry.mod_revision.0,
    };
    (entry.key.clone(), fact)
}
