//! etcd's guarantees for watches, downstream: judged for each that follows, from what was seen of it, by what etcd
//! really held. A [`Checker`] knows no process and no clock.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use headwater_model::Digest;
use serde::Serialize;

use super::{Fact, History};

#[cfg(test)]
mod tests;

/// Breaches that are told in full; of the others only the number.
const TOLD_MAX: usize = 20;

/// The names of etcd's own suite, and what each means one hop further down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Guarantee {
    /// Within one life the generation never falls, and within a generation the revision never does.
    Ordered,
    /// One revision has one content, and a change set names a key once.
    Unique,
    /// What is held at a revision is what etcd held at it, whole revisions only.
    Atomic,
    /// Nothing is certified that etcd has not reached, and nothing is told again that was certified.
    Bookmarkable,
    /// A new life goes on from no less than was durable, and a change set brings all that lies in between.
    Resumable,
    /// Nothing is invented, and at the end nothing is missing.
    Reliable,
}

/// A place in a history, as somebody names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    /// How often the history went back.
    pub generation: u64,
    /// etcd's revision.
    pub revision: u64,
    /// The digest it gives for its content; nothing from those who give none.
    pub digest: Option<Digest>,
}

/// One thing that was seen of somebody who follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sighting {
    /// Which life of it: a started process, a source's run. Another name is another life.
    pub life: String,
    /// What it says it holds.
    pub version: Version,
    /// The revision that survives a kill, of the same generation; nothing from those that have no disk.
    pub durable: Option<u64>,
    /// What else was seen.
    pub told: Told,
}

/// What was seen beside the version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// Nothing.
    Nothing,
    /// All keys, with create and mod revision.
    Keys(BTreeMap<String, (u64, u64)>),
    /// Everything it holds now, as it was told to it.
    All(Vec<(String, Fact)>),
    /// What led here from the version before.
    Changes {
        /// New or replaced.
        puts: Vec<(String, Fact)>,
        /// Gone.
        deletes: Vec<String>,
        /// Whether it is a step within one history. A jump may bring more than what was written in between.
        step: bool,
    },
}

/// A guarantee that was not kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breach {
    /// Which.
    pub guarantee: Guarantee,
    /// By whom, and how.
    pub what: String,
}

/// How often each guarantee was looked at.
pub type Checks = BTreeMap<Guarantee, u64>;

/// Judges one that follows.
#[derive(Debug)]
pub struct Checker {
    name: String,
    last: Option<(String, Version)>,
    /// Which of the histories it has come to. None goes back to an earlier one.
    at: usize,
    /// The history, generation and revision of the newest that survives a kill.
    durable: Option<(usize, u64, u64)>,
    /// What it holds by what it was told; empty from those who do not tell.
    held: BTreeMap<String, Fact>,
    sum: Digest,
    tells: bool,
    checks: Checks,
    breaches: Vec<Breach>,
    violations: u64,
}

// === impl Checker ===

impl Checker {
    /// Of one with this name.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            last: None,
            at: 0,
            durable: None,
            held: BTreeMap::new(),
            sum: Digest::EMPTY,
            tells: false,
            checks: Checks::new(),
            breaches: Vec::new(),
            violations: 0,
        }
    }

    /// Judges what was seen next. Each restore of etcd begins another history; the last of them must be known up to
    /// etcd's head at the time of the call.
    pub fn see(&mut self, sighting: &Sighting, histories: &[&History]) {
        let version = &sighting.version;
        let before = self.at;
        self.at = self.history_of(version, histories);
        let Some(history) = histories.get(self.at) else { return };
        self.life(sighting, before);
        self.bookmarkable(version, history);
        match &sighting.told {
            Told::Nothing => {}
            Told::Keys(keys) => self.keys(keys, version, history),
            Told::All(facts) => self.all(facts, version, history),
            Told::Changes { puts, deletes, step } => {
                self.changes(puts, deletes, *step && before == self.at, version, history);
            }
        }
        self.atomic(version, history);
        if let Some(revision) = sighting.durable {
            self.durable = self.durable.max(Some((self.at, version.generation, revision)));
        }
        self.last = Some((sighting.life.clone(), *version));
    }

    /// What it lacks of etcd's newest content, if anything.
    #[must_use]
    pub fn lacks(&self, history: &History) -> Option<String> {
        let Some((_, last)) = &self.last else { return Some("was never seen".to_owned()) };
        let (head, expected) = (history.head(), history.digest_at(history.head()));
        let digest = last.digest.or_else(|| self.tells.then_some(self.sum));
        let at = last.revision;
        (digest != expected)
            .then(|| format!("ends at revision {at} with {digest:?}, etcd at {head} with {expected:?}"))
    }

    /// At the end: everything has been given the time to arrive.
    pub fn end(&mut self, history: &History) {
        let lacks = self.lacks(history);
        self.check(Guarantee::Reliable, lacks.is_none(), || lacks.unwrap_or_default());
    }

    /// Whom it judges.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How often each guarantee was looked at.
    #[must_use]
    pub const fn checks(&self) -> &Checks {
        &self.checks
    }

    /// What was found; the first twenty.
    #[must_use]
    pub fn breaches(&self) -> &[Breach] {
        &self.breaches
    }

    /// How many were found.
    #[must_use]
    pub const fn violations(&self) -> u64 {
        self.violations
    }

    fn check(&mut self, guarantee: Guarantee, kept: bool, what: impl FnOnce() -> String) {
        *self.checks.entry(guarantee).or_default() += 1;
        if kept {
            return;
        }
        self.violations += 1;
        if self.breaches.len() < TOLD_MAX {
            self.breaches.push(Breach { guarantee, what: format!("{} {}", self.name, what()) });
        }
    }

    /// The first from the present one on in which the content at this revision is the one seen; the present one where
    /// there is none, so that it is found wrong there.
    fn history_of(&self, version: &Version, histories: &[&History]) -> usize {
        let Some(digest) = version.digest else { return histories.len().saturating_sub(1) };
        let fits = |history: &&History| history.digest_at(version.revision) == Some(digest);
        histories.iter().skip(self.at).position(fits).map_or(self.at, |further| self.at + further)
    }

    /// Ordered and unique within a life; resumable where a new one begins.
    fn life(&mut self, sighting: &Sighting, history_before: usize) {
        let now = sighting.version;
        match self.last.clone() {
            Some((life, before)) if life == sighting.life => {
                let other = self.at != history_before;
                let revision_rises = other || now.revision >= before.revision;
                let rises = now.generation > before.generation
                    || (now.generation == before.generation && revision_rises);
                self.check(Guarantee::Ordered, rises, || {
                    format!(
                        "goes from generation {} revision {} back to generation {} revision {}",
                        before.generation, before.revision, now.generation, now.revision
                    )
                });
                if !other && (now.generation, now.revision) == (before.generation, before.revision) {
                    self.check(Guarantee::Unique, now.digest == before.digest, || {
                        format!("has two contents at {}: {:?}, {:?}", now.revision, before.digest, now.digest)
                    });
                }
            }
            _ => {
                let durable = self.durable.unwrap_or_default();
                let kept = (self.at, now.generation, now.revision) >= durable;
                self.check(Guarantee::Resumable, kept, || {
                    format!("begins a life at {}, though {durable:?} was durable", now.revision)
                });
            }
        }
    }

    fn bookmarkable(&mut self, version: &Version, history: &History) {
        let head = history.head();
        self.check(Guarantee::Bookmarkable, version.revision <= head, || {
            format!("certifies revision {}, etcd is at {head}", version.revision)
        });
    }

    /// The digest it gives, and that of what it was told, are etcd's.
    fn atomic(&mut self, version: &Version, history: &History) {
        // What was before the log cannot be judged, and what is beyond it has been.
        let Some(expected) = history.digest_at(version.revision) else { return };
        let told = self.tells.then_some(self.sum);
        for digest in [version.digest, told].into_iter().flatten() {
            self.check(Guarantee::Atomic, digest == expected, || {
                let whose = match history.revision_of(digest) {
                    Some(revision) => format!("that of revision {revision}"),
                    None => "that of no revision".to_owned(),
                };
                format!("holds {digest} at {}, {whose}; etcd held {expected}", version.revision)
            });
        }
    }

    /// Key by key, so that a mixture is named.
    fn keys(&mut self, keys: &BTreeMap<String, (u64, u64)>, version: &Version, history: &History) {
        if history.digest_at(version.revision).is_none() {
            return;
        }
        let expected = history.content_at(version.revision);
        let differs = keys.iter().find_map(|(key, (create, modified))| {
            let there = expected.get(key.as_str()).map(|fact| (fact.create_revision, fact.mod_revision));
            (there != Some((*create, *modified))).then(|| format!("{key} of {modified}, etcd's is {there:?}"))
        });
        let missing = expected.keys().find(|key| !keys.contains_key(**key));
        let differs = differs.or_else(|| missing.map(|key| format!("no {key}")));
        let at = version.revision;
        self.check(Guarantee::Atomic, differs.is_none(), || {
            format!("holds at {at} {}", differs.unwrap_or_default())
        });
    }

    fn all(&mut self, facts: &[(String, Fact)], version: &Version, history: &History) {
        self.held.clear();
        (self.sum, self.tells) = (Digest::EMPTY, true);
        for (key, fact) in facts {
            self.put(key, fact, version, history);
        }
        let distinct = self.held.len() == facts.len();
        self.check(Guarantee::Unique, distinct, || format!("was told a key twice at {}", version.revision));
    }

    fn changes(
        &mut self,
        puts: &[(String, Fact)],
        deletes: &[String],
        step: bool,
        version: &Version,
        history: &History,
    ) {
        self.tells = true;
        let base = self.last.as_ref().map_or(0, |(_, before)| before.revision);
        let named: BTreeSet<&str> =
            puts.iter().map(|(key, _)| key).chain(deletes).map(String::as_str).collect();
        let distinct = named.len() == puts.len() + deletes.len();
        self.check(Guarantee::Unique, distinct, || format!("is told a key twice at {}", version.revision));
        if step && base >= history.begun() {
            let again = puts.iter().find(|(_, fact)| fact.mod_revision <= base);
            self.check(Guarantee::Bookmarkable, again.is_none(), || {
                format!("held {base} and is told {again:?} again at {}", version.revision)
            });
            let written = history.written(base, version.revision);
            let due = written.iter().filter(|key| {
                let (was, is) = (history.fact_at(key, base), history.fact_at(key, version.revision));
                was != is && !named.contains(*key)
            });
            let lost: Vec<&&str> = due.collect();
            self.check(Guarantee::Resumable, lost.is_empty(), || {
                format!("goes from {base} to {} without {lost:?}", version.revision)
            });
        }
        for key in deletes {
            if let Some(gone) = self.held.remove(key) {
                self.sum = self.sum.minus(gone.hash);
            }
        }
        for (key, fact) in puts {
            self.put(key, fact, version, history);
        }
    }

    fn put(&mut self, key: &str, fact: &Fact, version: &Version, history: &History) {
        if fact.mod_revision > history.begun() {
            self.check(Guarantee::Reliable, history.ever(key, fact), || {
                format!("is told at {} of {key} {fact:?}, which never was", version.revision)
            });
        }
        self.sum = self.sum.plus(fact.hash);
        if let Some(before) = self.held.insert(key.to_owned(), *fact) {
            self.sum = self.sum.minus(before.hash);
        }
    }
}

// === impl Breach ===

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.guarantee.name(), self.what)
    }
}

// === impl Guarantee ===

impl Guarantee {
    /// etcd's name of it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ordered => "ordered",
            Self::Unique => "unique",
            Self::Atomic => "atomic",
            Self::Bookmarkable => "bookmarkable",
            Self::Resumable => "resumable",
            Self::Reliable => "reliable",
        }
    }
}
