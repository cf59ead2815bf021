//! The verdict over each value: served, or rejected with the last served value kept in its place.
//!
//! Pure. It takes raw changes and gives effective ones. It must never know streams, files or what compiling costs.
//!
//! Invariants: a rejected value takes nothing away that was served, as long as the key lives (same create revision);
//! a deleted key serves nothing, whatever is answered about it later; every rejected key has exactly one reject with
//! the time since when it is rejected without a pause.

mod judge;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headwater_model::resources::Typed;
use headwater_model::{Changes, Content, Key, Kind, Resource, Revision, mutant};
use headwater_proto::config::{FallbackAnswer, FallbackRequest, Reject, Rejects};

use imbl::OrdMap;

use crate::compile::{EffectiveChanges, Kept, Served};
pub use judge::{Judge, Values};

/// The values of one environment as this node judges them.
#[derive(Debug)]
pub struct Verdict<J> {
    judge: J,
    served: OrdMap<Key, Served>,
    rejected: BTreeMap<Key, Rejected>,
    routes: usize,
}

/// What changes mean.
#[derive(Debug, Default)]
pub struct Outcome {
    /// For the table.
    pub effective: EffectiveChanges,
    /// For the replica.
    pub rejects: Rejects,
    /// Rejected with nothing to serve: an older value is asked for.
    pub requests: Vec<FallbackRequest>,
}

/// A value that is served in place of a rejected one, as it is kept over a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retained {
    /// What is served.
    pub served: Arc<Resource>,
    /// The mod revision of the rejected value.
    pub rejected: Revision,
    /// Since when the key is rejected (Unix seconds).
    pub since_unix: u64,
    /// What `served` referenced when it was retained, in key order.
    pub references: Vec<Arc<Resource>>,
}

#[derive(Clone, Debug)]
struct Rejected {
    resource: Arc<Resource>,
    reason: Arc<str>,
    since_unix: u64,
    /// Its value is usable, but governs requests in a way that cannot be honoured.
    governing: bool,
}

/// A put as it was judged.
struct Judged {
    resource: Arc<Resource>,
    result: Result<Typed, String>,
    /// What the value before it was served with; only for a rejected one.
    kept: Option<Arc<Kept>>,
}

// === impl Verdict ===

impl<J: Judge> Verdict<J> {
    /// Judges nothing yet.
    #[must_use]
    pub fn new(judge: J) -> Self {
        Self { judge, served: OrdMap::new(), rejected: BTreeMap::new(), routes: 0 }
    }

    /// Judges a whole content, with the retained values that the disk held beside it. The outcome is all there is to
    /// serve and the full set of rejects. To be called once, before any change.
    pub fn restore(&mut self, content: &Content, retained: &[Retained], unix: u64) -> Outcome {
        let mut out = Outcome::default();
        for row in retained {
            let alive = content
                .get(row.served.key().as_str())
                .filter(|now| now.create_revision() == row.served.create_revision());
            if let (Some(now), Ok(typed)) = (alive, self.judge.judge(&row.served)) {
                let kept = Arc::new(self.judged_again(&row.references));
                let served = Served { resource: row.served.clone(), typed, kept: Some(kept) };
                self.insert(served);
                // Stands until the present value is judged, and gives it the time since when.
                self.note(now, "not judged yet", row.since_unix, false);
            }
        }
        let changes = Changes { deletes: Vec::new(), puts: content.iter().cloned().collect() };
        self.take(&changes, unix, &mut out);
        // Rejected values whose retained one was restored are unchanged to `take`, and new to the table.
        let restored = self.rejected.keys().filter_map(|key| self.served.get(key)).cloned();
        let known: BTreeSet<Key> = out.effective.puts.iter().map(|put| put.resource.key().clone()).collect();
        out.effective.puts.extend(restored.filter(|served| !known.contains(served.resource.key())));
        out.rejects = Rejects { full: true, rejected: self.rejects(), cleared: Vec::new() };
        out
    }

    /// Judges changes. Their keys are distinct.
    pub fn apply(&mut self, changes: &Changes, unix: u64) -> Outcome {
        let mut out = Outcome::default();
        self.take(changes, unix, &mut out);
        out
    }

    /// Takes an older value in place of a rejected one: only while exactly that one is still rejected with nothing to
    /// serve, and only if it can be used.
    pub fn fallback(&mut self, answer: &FallbackAnswer) -> Outcome {
        let mut out = Outcome::default();
        let Some(found) = answer.found.as_ref().filter(|found| *found.key() == answer.key) else {
            return out;
        };
        let wanted = self.wants(answer, found) || mutant::planted("late-fallback-used");
        let Some(typed) = wanted.then(|| self.judge.judge(found).ok()).flatten() else { return out };
        if matches!(typed, Typed::Governing(_)) {
            return out;
        }
        let kept = Some(Arc::new(self.references(found, &typed)));
        let served = Served { resource: found.clone(), typed, kept };
        self.insert(served.clone());
        out.effective.puts.push(served);
        out.rejects.rejected.extend(self.reject(&answer.key));
        out
    }

    /// All rejects, in key order.
    #[must_use]
    pub fn rejects(&self) -> Vec<Reject> {
        self.rejected.keys().filter_map(|key| self.reject(key)).collect()
    }

    /// The values that are served in place of rejected ones, in key order: what must outlive a restart.
    #[must_use]
    pub fn retained(&self) -> Vec<Retained> {
        let rows = self.rejected.iter().filter_map(|(key, rejected)| {
            let served = self.served.get(key)?;
            let kept = served.kept.as_ref()?;
            Some(Retained {
                served: served.resource.clone(),
                rejected: rejected.resource.mod_revision(),
                since_unix: rejected.since_unix,
                references: kept.references.values().map(|served| served.resource.clone()).collect(),
            })
        });
        rows.collect()
    }

    /// What is served under a key.
    #[must_use]
    pub fn served(&self, key: &str) -> Option<&Served> {
        self.served.get(key)
    }

    /// Everything that is served. A clone is cheap and stays as it is.
    #[must_use]
    pub fn all_served(&self) -> &OrdMap<Key, Served> {
        &self.served
    }

    fn take(&mut self, changes: &Changes, unix: u64, out: &mut Outcome) {
        // Everything is judged against what was served before these changes: a value retained here goes on with the
        // references it had, though the same transaction may delete them.
        let puts: Vec<Judged> = changes.puts.iter().map(|resource| self.judged(resource)).collect();
        let routes = self.routes;
        for key in &changes.deletes {
            self.delete(key, out);
        }
        let mut governing = Vec::new();
        for Judged { resource, result, kept } in puts {
            match result {
                Ok(typed @ Typed::Governing(_)) => governing.push((resource, typed)),
                Ok(typed) => self.serve(resource, typed, out),
                Err(reason) => self.turn_down(resource, &reason, kept, unix, out),
            }
        }
        for (resource, typed) in governing {
            self.govern(resource, typed, unix, out);
        }
        if routes != self.routes {
            self.recount(out);
        }
    }

    fn judged(&self, resource: &Arc<Resource>) -> Judged {
        let before = self.served.get(resource.key());
        let result = match before {
            // The same bytes were judged before.
            Some(before) if before.resource.value() == resource.value() => Ok(before.typed.clone()),
            _ => self.judge.judge(resource),
        };
        let kept = before.filter(|_| result.is_err()).map(|before| match &before.kept {
            Some(kept) => kept.clone(),
            None => Arc::new(self.references(&before.resource, &before.typed)),
        });
        Judged { resource: resource.clone(), result, kept }
    }

    fn delete(&mut self, key: &Key, out: &mut Outcome) {
        self.remove(key);
        if self.rejected.remove(key).is_some() {
            out.rejects.cleared.push(key.clone());
        }
        out.effective.deletes.push(key.clone());
    }

    /// Serves a usable value. One with the bytes of what is compiled moves the revision and compiles nothing.
    fn serve(&mut self, resource: Arc<Resource>, typed: Typed, out: &mut Outcome) {
        let key = resource.key().clone();
        let compiled = self
            .served
            .get(&key)
            .is_some_and(|before| before.kept.is_none() && before.resource.value() == resource.value());
        let served = Served { resource, typed, kept: None };
        self.insert(served.clone());
        if !compiled {
            out.effective.puts.push(served);
        }
        if self.rejected.remove(&key).is_some() {
            out.rejects.cleared.push(key);
        }
    }

    /// Rejects a value. What the same life of the key served last goes on; without any, an older value is asked for.
    fn turn_down(
        &mut self,
        resource: Arc<Resource>,
        reason: &str,
        kept: Option<Arc<Kept>>,
        unix: u64,
        out: &mut Outcome,
    ) {
        let key = resource.key().clone();
        let since_unix = self.rejected.get(&key).map_or(unix, |before| before.since_unix);
        self.note(&resource, reason, since_unix, false);
        let same_life =
            |served: &&mut Served| served.resource.create_revision() == resource.create_revision();
        match self.served.get_mut(&key).filter(same_life) {
            Some(served) if served.kept.is_some() => {}
            Some(served) => {
                served.kept = kept;
                out.effective.puts.push(served.clone());
            }
            None => {
                self.remove(&key);
                out.effective.refused.push((key.clone(), reason.to_owned()));
                out.requests.push(FallbackRequest {
                    key: key.clone(),
                    create_revision: resource.create_revision(),
                    below: resource.mod_revision(),
                });
            }
        }
        out.rejects.rejected.extend(self.reject(&key));
    }

    /// A value that governs every request and cannot be honoured: they are refused, as one reject with a count.
    fn govern(&mut self, resource: Arc<Resource>, typed: Typed, unix: u64, out: &mut Outcome) {
        let Typed::Governing(governs) = &typed else { return };
        let key = resource.key().clone();
        let since_unix = self.rejected.get(&key).map_or(unix, |before| before.since_unix);
        self.note(&resource, &governs.reason, since_unix, true);
        let served = Served { resource, typed, kept: None };
        self.insert(served.clone());
        out.effective.puts.push(served);
        out.rejects.rejected.extend(self.reject(&key));
    }

    /// The number of routes changed: rejects that count them are told again.
    fn recount(&self, out: &mut Outcome) {
        let told: BTreeSet<Key> = out.rejects.rejected.iter().map(|reject| reject.key.clone()).collect();
        let counting =
            self.rejected.iter().filter(|(key, rejected)| rejected.governing && !told.contains(*key));
        out.rejects.rejected.extend(counting.filter_map(|(key, _)| self.reject(key)));
    }

    fn note(&mut self, resource: &Arc<Resource>, reason: &str, since_unix: u64, governing: bool) {
        let rejected = Rejected { resource: resource.clone(), reason: reason.into(), since_unix, governing };
        self.rejected.insert(resource.key().clone(), rejected);
    }

    fn reject(&self, key: &Key) -> Option<Reject> {
        let rejected = self.rejected.get(key)?;
        let served = self.served.get(key).filter(|_| !rejected.governing);
        Some(Reject {
            key: key.clone(),
            mod_revision: rejected.resource.mod_revision(),
            reason: rejected.reason.clone(),
            served: served.map(|served| served.resource.mod_revision()),
            since_unix: rejected.since_unix,
            governs: if rejected.governing { self.routes as u64 } else { 0 },
        })
    }

    fn wants(&self, answer: &FallbackAnswer, found: &Resource) -> bool {
        let still_rejected = self.rejected.get(&answer.key).is_some_and(|rejected| {
            rejected.resource.mod_revision() == answer.rejected
                && rejected.resource.create_revision() == answer.create_revision
        });
        still_rejected
            && !self.served.contains_key(&answer.key)
            && found.create_revision() == answer.create_revision
            && found.mod_revision() < answer.rejected
    }

    /// The served forms of what a value references, and of what those reference.
    fn references(&self, resource: &Resource, typed: &Typed) -> Kept {
        let mut kept = Kept::default();
        let mut open = self.judge.references(resource, typed);
        while let Some(key) = open.pop() {
            if let Some(served) = self.served.get(&key).filter(|_| !kept.references.contains_key(&key)) {
                open.extend(self.judge.references(&served.resource, &served.typed));
                if let Some(deeper) = &served.kept {
                    // What a retained reference was kept with is needed as long as it is.
                    for (key, served) in &deeper.references {
                        kept.references.entry(key.clone()).or_insert_with(|| served.clone());
                    }
                }
                kept.references.insert(key, served.clone());
            }
        }
        kept
    }

    fn judged_again(&self, references: &[Arc<Resource>]) -> Kept {
        let served = references.iter().filter_map(|resource| {
            let typed = self.judge.judge(resource).ok()?;
            Some((resource.key().clone(), Served { resource: resource.clone(), typed, kept: None }))
        });
        Kept { references: served.collect() }
    }

    fn insert(&mut self, served: Served) {
        let key = served.resource.key().clone();
        let is_route = key.kind() == Kind::Routes;
        if self.served.insert(key, served).is_none() && is_route {
            self.routes += 1;
        }
    }

    fn remove(&mut self, key: &Key) {
        if self.served.remove(key).is_some() && key.kind() == Kind::Routes {
            self.routes -= 1;
        }
    }
}
