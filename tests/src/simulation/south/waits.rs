//! Operators who ask whether a change is applied everywhere, and whether the answer is true.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use headwater_control_plane::admin::writing::generation_of;
use headwater_control_plane::admin::{EnvironmentState, HeldJump};
use headwater_control_plane::backend::embedded::mvcc::EventKind;
use headwater_control_plane::fleet::wait::{
    Clock, Expectation, NodeAnswer, Outcome, Standing, Wait, evaluate,
};
use headwater_data_plane::sync::last_known_good::Group;
use headwater_model::shape::{Shape, classify};
use headwater_model::{Content, Key, Revision, Version};
use headwater_proto::config::Reject;

use super::process::{Process, instance};
use super::{ENVIRONMENT, South, claims};
use crate::simulation::etcd::PREFIX;
use crate::simulation::truth::Epoch;
use crate::simulation::world::{What, World};

/// How long an operator waits.
const PATIENCE: Duration = Duration::from_secs(90);

/// A question that is open.
#[derive(Clone, Debug)]
pub struct Asked {
    replica: usize,
    question: Wait,
    /// Where it was committed really.
    committed: (Epoch, u64),
    until: Duration,
}

/// What a process that has ended had come to.
#[derive(Debug)]
pub struct Ended {
    trail: Vec<(Version, Content)>,
    rejects: Arc<[Reject]>,
}

// === impl Ended ===

impl Ended {
    /// Of a process.
    pub fn of(process: &Process) -> Self {
        Self { trail: process.trail.clone(), rejects: process.views.load().rejects.clone() }
    }
}

// === impl World ===

impl World {
    /// Somebody wrote. Now and then it is an operator of ours, who wants to know where it is applied.
    pub(in crate::simulation) fn wrote(&mut self, before: Revision) {
        let revision = self.etcd.mvcc.revision();
        if revision == before || !self.random.one_in(4) {
            return;
        }
        let replica = self.random.below(self.replicas.len() as u64) as usize;
        let shown = &self.fleet.planes[replica].publication;
        if !shown.is_live() || !self.etcd.up {
            // Writes are refused.
            return;
        }
        let epoch = self.etcd.truth.epoch();
        if self.replicas[replica].mirror.epoch() != epoch && shown.world.version().revision < revision {
            // The write is quicker than the news of a restore, and nothing tells it from one of the old history.
            return self.coverage.reached("wait/quicker-than-a-restore");
        }
        let generation = generation_of(shown.world.version(), revision);
        let events = self.etcd.mvcc.events_from(revision).flat_map(|(_, events)| events);
        let keys = events.filter_map(|event| {
            let Shape::Content(key) = classify(event.kv.key.strip_prefix(PREFIX.as_bytes())?) else {
                return None;
            };
            let put = event.kind == EventKind::Put;
            Some((key, if put { Expectation::Put } else { Expectation::Delete }))
        });
        let question = Wait {
            environment: ENVIRONMENT.into(),
            cluster_id: Some(self.etcd.mvcc.identity().cluster_id),
            generation,
            revision,
            keys: keys.collect(),
            durable: self.random.one_in(3),
        };
        if question.keys.is_empty() {
            return;
        }
        let committed = (self.etcd.truth.epoch(), revision.0);
        let asked = Asked { replica, question, committed, until: self.schedule.now() + PATIENCE };
        self.asks_again(asked);
    }

    fn asks_again(&mut self, asked: Asked) {
        let after = self.random.duration(Duration::from_millis(20), Duration::from_secs(6));
        self.schedule.after(after, What::South(South::Asks(Box::new(asked))));
    }

    pub(super) fn asks(&mut self, asked: Asked) {
        let now = self.schedule.now();
        let plane = &self.fleet.planes[asked.replica];
        let own = plane.now(now);
        let clock = Clock { now: own, started_at: Duration::ZERO, heartbeat: plane.config.heartbeat };
        let answer = evaluate(&asked.question, &plane.registry, &self.facts(asked.replica), clock);
        self.coverage.reached(outcome_case(answer.outcome));
        for node in &answer.nodes {
            self.coverage.reached(standing_case(&node.standing));
            self.coverage.reached_if("fleet/two-of-one-id", node.duplicate);
        }
        let seen = self.replicas[asked.replica].mirror.has_seen(asked.committed, &self.etcd.truth);
        // Lost by a restore before this replica came to it, and written over since: nothing tells it from a write of
        // the history that goes on.
        self.coverage.reached_if("wait/lost-before-it-was-seen", answer.outcome == Outcome::Applied && !seen);
        if answer.outcome == Outcome::Applied && seen {
            for node in &answer.nodes {
                if let Err(wrong) = self.check_applied(&asked, node) {
                    let question = &asked.question;
                    self.violation(format!(
                        "replica {}: {question:?} is answered yes: {wrong}",
                        asked.replica
                    ));
                }
            }
        }
        if answer.outcome.is_final() {
            return;
        }
        if now >= asked.until {
            return self.coverage.reached("wait/expired");
        }
        self.asks_again(asked);
    }

    fn facts(&self, replica: usize) -> EnvironmentState {
        let shown = &self.fleet.planes[replica].publication;
        let hold = shown.hold.as_ref().map(|hold| HeldJump {
            from: shown.serving.version().clone(),
            to: shown.world.version().clone(),
            since_unix: hold.since_unix,
            removal: hold.removal,
            rejected: hold.rejected,
        });
        EnvironmentState {
            complete: shown.complete,
            world: (*shown.world).clone(),
            served: shown.serving.version().clone(),
            source: shown.source.clone(),
            proof_age: None,
            hold,
            approvals: shown.approvals.to_vec(),
            ignored: shown.ignored.clone(),
        }
    }

    /// The change is part of what the process held when it said so, it does not reject it, and the disk has it if that
    /// was asked.
    fn check_applied(&self, asked: &Asked, node: &NodeAnswer) -> Result<(), String> {
        let name = &node.row.instance;
        let running = self
            .fleet
            .nodes
            .iter()
            .find(|node| node.process.as_ref().is_some_and(|process| instance(process.number) == *name));
        let process = running.and_then(|node| node.process.as_ref());
        let now;
        let had = match process {
            Some(process) => {
                now = Ended::of(process);
                &now
            }
            None => self.fleet.ended.get(name).ok_or_else(|| format!("{name} never was"))?,
        };
        let never = || format!("{name} never held {:?}", node.applied);
        let said = node.applied.as_ref().ok_or_else(never)?;
        let (_, content) = had.trail.iter().rev().find(|(version, _)| version == said).ok_or_else(never)?;
        self.contains(asked, said, content).map_err(|wrong| format!("{name} {wrong}"))?;
        let refused = |reject: &&Reject| {
            reject.mod_revision == asked.question.revision
                && asked.question.keys.iter().any(|(key, _)| *key == reject.key)
        };
        if let Some(reject) = had.rejects.iter().find(refused) {
            return Err(format!("{name} rejects {} of that revision", reject.key));
        }
        let file = running.filter(|_| asked.question.durable).map(|node| node.disk.found());
        match file {
            None => Ok(()),
            Some(None) => Err(format!("the file of {name} is empty")),
            // It has jumped since.
            Some(Some(group)) if group.version.lineage != said.lineage => Ok(()),
            Some(Some(Group { version, content, .. })) => {
                self.contains(asked, version, content).map_err(|wrong| format!("the file of {name} {wrong}"))
            }
        }
    }

    /// Whether a content lies on a history that shows of each key what was committed, or something later.
    fn contains(&self, asked: &Asked, version: &Version, content: &Content) -> Result<(), String> {
        let truth = &self.etcd.truth;
        let mut histories = claims::histories(truth, version, content);
        let after = version.revision >= asked.question.revision;
        let shows = |epoch: Epoch| {
            truth.contains(epoch, asked.committed)
                || asked.question.keys.iter().all(|(key, done)| {
                    let gone = *done == Expectation::Delete && content.get(key.as_str()).is_none();
                    gone || self.is_later(epoch, key, asked, version)
                })
        };
        if after && histories.any(shows) {
            return Ok(());
        }
        Err(format!("holds {version:?}, which does not contain what was committed at {:?}", asked.committed))
    }

    /// Whether a key was written or deleted after the revision asked for: in a history up to a version, or, if it is
    /// gone there, in the history that the question is about.
    fn is_later(&self, epoch: Epoch, key: &Key, asked: &Asked, version: &Version) -> bool {
        let key = Bytes::copy_from_slice(key.as_str().as_bytes());
        let (from, truth) = (asked.question.revision.0, &self.etcd.truth);
        let is_there =
            |epoch, revision| truth.at(epoch, revision).is_some_and(|facts| facts.contains_key(&key));
        let was_there = |epoch, to| (from..to).any(|revision| is_there(epoch, revision));
        match truth.at(epoch, version.revision.0).and_then(|facts| facts.get(&key)) {
            Some(fact) => fact.mod_revision > from,
            None if was_there(epoch, version.revision.0) => true,
            None => {
                let (own, head) = (asked.committed.0, truth.head(asked.committed.0));
                was_there(own, head) && (from..=head).any(|revision| !is_there(own, revision))
            }
        }
    }
}

const fn outcome_case(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Applied => "wait/applied",
        Outcome::Pending => "wait/pending",
        Outcome::NoNodes => "wait/no-nodes",
        Outcome::CannotSayYet => "wait/cannot-say-yet",
        Outcome::CannotSay => "wait/cannot-say",
        Outcome::HistoryReplaced => "wait/history-replaced",
        Outcome::Refused => "wait/refused",
        Outcome::Held => "wait/held",
    }
}

const fn standing_case(standing: &Standing) -> &'static str {
    match standing {
        Standing::Applied => "wait/node-applied",
        Standing::Refused { .. } => "wait/node-refused",
        Standing::Behind => "wait/node-behind",
        Standing::NotDurable => "wait/node-not-durable",
        Standing::RejectsUnknown => "wait/node-rejects-unknown",
        Standing::NotHeardFrom { .. } => "wait/node-lost",
        Standing::Held { .. } => "wait/node-held",
    }
}
