//! Staging a transfer: bounded, checked against its promise and the guard, and only then published.

use std::collections::BTreeSet;

use headwater_model::guard::Removal;
use headwater_model::{Change, Changes, Content, Key, Version, diff, mutant};
use headwater_proto::config::{Begin, NodeMessage, Refused, RefusedWhy, TransferPart, TransferReason};

use super::{Action, Moment, Protocol, Staged};

/// What a change costs in memory beside its key and value, in bytes; so that a flood of empty ones is bounded too.
const CHANGE_OVERHEAD: u64 = 128;

/// How much staging may exceed the limit on values, for keys and overhead.
const STAGING_FACTOR: u64 = 4;

/// A transfer that has begun and not ended.
#[derive(Debug)]
pub(super) enum Staging {
    /// Its parts are kept.
    Taking(Box<Taking>),
    /// Its parts are let go: it was refused, or its base is not held.
    Skipping,
}

/// The parts so far.
#[derive(Debug)]
pub(super) struct Taking {
    begin: Begin,
    changes: Vec<Change>,
    value_bytes: u64,
    bytes: u64,
    puts_began: bool,
}

/// Why a transfer is not taken.
struct Refusal {
    why: RefusedWhy,
    removed: usize,
    detail: String,
}

// === impl Staging ===

impl Staging {
    /// The bytes received so far.
    pub(super) const fn bytes(&self) -> u64 {
        match self {
            Self::Taking(taking) => taking.bytes,
            Self::Skipping => 0,
        }
    }
}

// === impl Taking ===

impl Taking {
    /// Adds changes. `Ok(false)` when a limit is passed.
    fn add(&mut self, changes: Vec<Change>, limit: u64) -> Result<bool, &'static str> {
        for change in changes {
            let (key, value) = match &change {
                Change::Delete(_) if self.puts_began => return Err("a deletion after a put"),
                Change::Delete(key) => (key, 0),
                Change::Put(resource) => {
                    self.puts_began = true;
                    (resource.key(), resource.value().len())
                }
            };
            self.value_bytes += value as u64;
            self.bytes += (key.as_str().len() + value) as u64 + CHANGE_OVERHEAD;
            self.changes.push(change);
        }
        if self.changes.len() as u64 > self.begin.changes {
            return Err("more changes than its begin announced");
        }
        Ok(self.value_bytes <= limit && self.bytes <= limit.saturating_mul(STAGING_FACTOR))
    }

    /// The content that results, and what leads to it. Resources that are held already keep their allocation.
    fn target(self, held: &Content) -> (Content, Changes) {
        let mut target = held.clone();
        if self.begin.base.is_none() {
            let listed: BTreeSet<&Key> = self.changes.iter().map(Change::key).collect();
            for resource in held.iter().filter(|resource| !listed.contains(resource.key())) {
                target.delete(resource.key().as_str());
            }
        }
        for change in &self.changes {
            match change {
                Change::Delete(key) => {
                    target.delete(key.as_str());
                }
                Change::Put(resource) => {
                    let same = target.get(resource.key().as_str()).is_some_and(|old| old == resource);
                    if !same {
                        target.put(resource.clone());
                    }
                }
            }
        }
        let changes = match self.begin.base {
            // A change must not cost more where more is held.
            Some(_) => diff::diff_at(held, &target, self.changes.iter().map(Change::key)),
            None => diff::diff(held, &target),
        };
        (target, changes)
    }
}

// === impl Refusal ===

impl Refusal {
    fn mismatch(detail: impl Into<String>) -> Self {
        Self { why: RefusedWhy::Mismatch, removed: 0, detail: detail.into() }
    }

    fn over_limit(limit: u64) -> Self {
        let detail = format!("its values are above this node's sync.max_content_bytes of {limit}");
        Self { why: RefusedWhy::OverLimit, removed: 0, detail }
    }
}

// === impl Protocol ===

impl Protocol {
    /// Takes a part in stream order; nothing is being published.
    pub(super) fn part(&mut self, part: TransferPart, at: Moment) {
        let TransferPart { begin, changes, last } = part;
        let staging = match (self.staging.take(), begin) {
            (None, Some(begin)) if self.is_on_an_unexplained_base(&begin) => {
                // Its answer would be waited for, for ever: the next hello says what is held.
                return self.violation("a transfer on a base that is not held, and nothing was refused", at);
            }
            (None, Some(begin)) => self.begin(begin, at),
            (Some(staging), None) => staging,
            (Some(_), Some(_)) => return self.violation("a transfer inside a transfer", at),
            (None, None) => return self.violation("a part of no transfer", at),
        };
        let Staging::Taking(mut taking) = staging else {
            self.staging = (!last).then_some(Staging::Skipping);
            return;
        };
        match taking.add(changes, self.settings.max_content_bytes) {
            Err(what) => self.violation(what, at),
            Ok(false) => {
                let refusal = Refusal::over_limit(self.settings.max_content_bytes);
                self.refuse(&taking.begin.target, refusal, at);
                self.staging = (!last).then_some(Staging::Skipping);
            }
            Ok(true) if last => self.complete(*taking, at),
            Ok(true) => self.staging = Some(Staging::Taking(taking)),
        }
    }

    fn begin(&mut self, begin: Begin, at: Moment) -> Staging {
        if self.is_on_another_base(&begin) {
            self.record.dropped();
            return Staging::Skipping;
        }
        if let Err(refusal) = self.admit(&begin) {
            self.refuse(&begin.target, refusal, at);
            return Staging::Skipping;
        }
        let changes = Vec::new();
        Staging::Taking(Box::new(Taking { begin, changes, value_bytes: 0, bytes: 0, puts_began: false }))
    }

    fn is_on_another_base(&self, begin: &Begin) -> bool {
        begin.base.is_some_and(|base| self.applied.as_ref().is_none_or(|held| held.digest != base))
    }

    /// What was in flight when this node refused something may be on another base, and the refusal has told the
    /// replica where this node is. Otherwise the two have come apart.
    fn is_on_an_unexplained_base(&self, begin: &Begin) -> bool {
        self.is_on_another_base(begin) && !self.peer.was_refused
    }

    /// The rules that a transfer's beginning alone can break.
    fn admit(&self, begin: &Begin) -> Result<(), Refusal> {
        let by_difference = matches!(begin.reason, TransferReason::Step | TransferReason::Reloaded);
        if by_difference != begin.base.is_some() {
            let label = begin.reason.label();
            let must =
                if by_difference { "names no base" } else { "names a base, which is not yet supported" };
            return Err(Refusal::mismatch(format!("a transfer of the reason {label} {must}")));
        }
        if let Some(held) = &self.applied {
            let (from, to) = (held.lineage.generation, begin.target.lineage.generation);
            if to < from && !mutant::planted("node-lowers-generation") {
                return Err(Refusal::mismatch(format!("its generation {to} is below this node's {from}")));
            }
            if begin.reason == TransferReason::Step && begin.target.lineage != held.lineage {
                return Err(Refusal::mismatch("a step leads to another lineage"));
            }
            if begin.reason == TransferReason::Step && begin.target.revision < held.revision {
                return Err(Refusal::mismatch("a step leads to a lower revision"));
            }
        }
        if begin.bytes > self.settings.max_content_bytes {
            return Err(Refusal::over_limit(self.settings.max_content_bytes));
        }
        Ok(())
    }

    /// All parts are there: checks the promise and the guard, and publishes.
    fn complete(&mut self, taking: Taking, at: Moment) {
        let begin = taking.begin.clone();
        if taking.changes.len() as u64 != begin.changes {
            let detail = format!("{} of {} announced changes came", taking.changes.len(), begin.changes);
            return self.refuse(&begin.target, Refusal::mismatch(detail), at);
        }
        let (content, changes) = taking.target(&self.content);
        if let Err(refusal) = self.check(&begin, &content, at) {
            return self.refuse(&begin.target, refusal, at);
        }
        if self.applied.is_some() && content.digest() == self.content.digest() {
            // What is held already: the version is taken, and nothing is compiled or swapped.
            self.record.transferred(begin.reason, at.unix);
            self.link.healthy();
            return self.adopt(begin.target, at);
        }
        self.publish(Staged { version: begin.target, content, changes, reason: begin.reason });
    }

    fn check(&self, begin: &Begin, content: &Content, at: Moment) -> Result<(), Refusal> {
        if content.digest() != begin.target.digest {
            let detail = format!(
                "the content has the digest {}, promised was {}",
                content.digest(),
                begin.target.digest
            );
            return Err(Refusal::mismatch(detail));
        }
        if content.value_bytes() > self.settings.max_content_bytes {
            return Err(Refusal::over_limit(self.settings.max_content_bytes));
        }
        let Some(held) = self.applied.as_ref().filter(|_| self.is_guarded(begin.reason)) else {
            return Ok(());
        };
        let removal = Removal::between(&self.content, content);
        let approved =
            begin.approval.as_ref().is_some_and(|approval| approval.covers(held, &begin.target, at.unix));
        if removal.is_held() && !approved {
            let detail = format!("the jump ({}) {removal}: approve or reject it", begin.reason.label());
            return Err(Refusal { why: RefusedWhy::Held, removed: removal.removed, detail });
        }
        Ok(())
    }

    fn is_guarded(&self, reason: TransferReason) -> bool {
        reason.is_jump()
            && !mutant::planted("guard-at-replica-only")
            && !(reason == TransferReason::Reloaded && mutant::planted("guard-off-for-reloaded"))
    }

    fn publish(&mut self, staged: Staged) {
        self.publishing = Some(staged.clone());
        self.out.push(Action::Publish(staged));
    }

    fn refuse(&mut self, target: &Version, refusal: Refusal, at: Moment) {
        let refused = Refused {
            target: target.clone(),
            why: refusal.why,
            held: self.applied.clone(),
            held_resources: self.content.len() as u64,
            removed_resources: refusal.removed as u64,
            detail: refusal.detail.into(),
        };
        self.record.refused(&refused, at.unix);
        self.peer.was_refused = true;
        self.send(NodeMessage::Refused(refused), at);
    }

    /// Says that progress claims what this node knows to be otherwise.
    pub(super) fn refuse_claim(&mut self, claimed: &Version, at: Moment) {
        let detail = format!(
            "at this revision the digest here is {}, claimed is {}",
            self.content.digest(),
            claimed.digest
        );
        self.refuse(claimed, Refusal::mismatch(detail), at);
    }
}
