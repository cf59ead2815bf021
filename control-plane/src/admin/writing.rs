//! Writes: one transaction each, after validation, with its outcome always known or said to be unknown.
//!
//! A try reads what is there now, plans (pure, in [`plan`]), and commits under conditions: each resource's mod
//! revision if one was given, each named key exists, and, for a deletion, no key of a referring kind was written
//! since the check. A condition that fails because others wrote meanwhile is tried again; one that the caller gave
//! is the caller's answer. A lost reply is looked up.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use headwater_model::{Digest, Generation, Key, Lineage, Revision, Version};
use tracing::{info, warn};

use super::environment::Environment;
use super::refusal::Refusal;
use super::unix_now;
use super::validation::{Fault, dangling};
use super::view::EnvironmentState;
use crate::backend::{CommitError, Committed, Entry, Operation};

pub mod plan;

use plan::Plan;

/// How often a write is tried when others write at the same time.
const TRIES: u32 = 5;
/// How long a new try waits for the change that spoiled the one before.
const RETRY_AFTER: Duration = Duration::from_millis(300);
/// Up to so many keys are read one by one; above, whole directories are.
const READ_SINGLY: usize = 16;

/// A write of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The key.
    pub key: Key,
    /// The new value as the operator wrote it; nothing to delete the key.
    pub value: Option<Bytes>,
    /// The mod revision the key must have; zero: it must not exist.
    pub if_mod_revision: Option<Revision>,
}

/// What a write did.
#[derive(Clone, Debug, Default)]
pub struct Written {
    /// Each transaction, in order.
    pub committed: Vec<CommittedAt>,
    /// Keys that held the same value already.
    pub unchanged: Vec<Key>,
    /// Why a later transaction failed after earlier ones were committed.
    pub failed: Option<Refusal>,
    /// The sentence of a standing hold: what was written reaches no node before it ends.
    pub held: Option<String>,
    /// What else there is to say.
    pub notes: Vec<String>,
}

/// One transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedAt {
    /// Lineage and revision; the digest is not known to a writer and stays empty.
    pub version: Version,
    /// What was done to each key.
    pub keys: Vec<(Key, Done)>,
}

/// What was done to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// It did not exist before.
    Created,
    /// It existed before.
    Replaced,
    /// It is gone.
    Deleted,
}

/// How one try ended.
enum Try {
    Done(Written),
    Spoiled,
}

// === impl Environment ===

impl Environment {
    /// Carries writes out: in one transaction, or with `batches` in as few as the limits allow.
    ///
    /// # Errors
    /// Why nothing was written. A failure after a first batch is inside of what is answered.
    pub async fn write(&self, writes: Vec<Write>, batches: bool) -> Result<Written, Refusal> {
        let groups = plan::groups(writes, batches)?;
        if groups.len() > 1 {
            self.check_whole(&groups).await?;
        }
        let mut all = Written::default();
        for group in &groups {
            match self.write_group(group).await {
                Ok(written) => {
                    all.committed.extend(written.committed);
                    all.unchanged.extend(written.unchanged);
                    all.notes.extend(written.notes);
                    all.held = written.held;
                }
                Err(refusal) if all.committed.is_empty() => return Err(refusal),
                Err(refusal) => {
                    all.failed = Some(refusal);
                    break;
                }
            }
        }
        Ok(all)
    }

    /// Everything that would be refused in these writes; writes nothing.
    ///
    /// # Errors
    /// When it cannot be judged: nothing is loaded, or the source cannot be read.
    pub async fn check(&self, writes: &[Write]) -> Result<(Vec<Fault>, EnvironmentState), Refusal> {
        let state = self.state().await?;
        let present = if state.degraded().is_some() {
            present_in(&state, writes)
        } else {
            self.present(writes).await?
        };
        let plan = match Plan::new(writes, &present, &state, &self.context, unix_now()) {
            Ok(plan) => plan,
            Err(Refusal::Invalid(faults)) => return Ok((faults, state)),
            Err(Refusal::InUse { key, by, count }) => {
                let sentence = Refusal::InUse { key: key.clone(), by, count }.to_string();
                return Ok((vec![Fault::new(&key, "", sentence)], state));
            }
            Err(other) => return Err(other),
        };
        let missing = |(named, _): &(&Key, &Key)| state.world.content().get(named.as_str()).is_none();
        let faults = plan.outside.iter().filter(missing).map(|(named, by)| dangling(by, named)).collect();
        Ok((faults, state))
    }

    /// So that a fault in the last batch is told before the first one is written.
    async fn check_whole(&self, groups: &[Vec<Write>]) -> Result<(), Refusal> {
        self.writable_state().await?;
        let (faults, _) = self.check(&groups.concat()).await?;
        if faults.is_empty() { Ok(()) } else { Err(Refusal::Invalid(faults)) }
    }

    async fn write_group(&self, writes: &[Write]) -> Result<Written, Refusal> {
        for attempt in 0..TRIES {
            match self.try_once(writes, attempt > 0).await? {
                Try::Done(written) => return Ok(written),
                Try::Spoiled => self.next_change(RETRY_AFTER).await,
            }
        }
        Err(Refusal::Contended { tries: TRIES })
    }

    async fn try_once(&self, writes: &[Write], again: bool) -> Result<Try, Refusal> {
        let state = self.writable_state().await?;
        let present = self.present(writes).await?;
        let plan = Plan::new(writes, &present, &state, &self.context, unix_now())?;
        self.look_up_references(&plan, &state, again).await?;
        let mut written =
            Written { held: state.held(), unchanged: plan.unchanged.clone(), ..Written::default() };
        if plan.transaction.operations.is_empty() {
            return Ok(Try::Done(written));
        }
        plan.check_limits()?;
        let committed = match self.commit.commit(plan.transaction.clone()).await {
            Ok(committed) => committed,
            Err(CommitError::Conflict) => return Ok(Try::Spoiled),
            Err(CommitError::Unknown(why)) => {
                let committed = self.look_up(&plan, &present, &state, &why).await?;
                written
                    .notes
                    .push(format!("the reply was lost ({why}); the write was looked up and is there"));
                committed
            }
            Err(error) => return Err(error.into()),
        };
        let generation = generation_of(state.world.version(), committed.revision);
        self.has_written(generation, committed.revision);
        written.committed.push(committed_at(&plan, &committed, &state, generation));
        info!(
            environment = %self.name(), revision = %committed.revision,
            operations = plan.transaction.operations.len(), "committed a write of an operator"
        );
        Ok(Try::Done(written))
    }

    /// What is stored now under the keys of the writes.
    async fn present(&self, writes: &[Write]) -> Result<BTreeMap<Key, Entry>, Refusal> {
        let mut present = BTreeMap::new();
        if writes.len() <= READ_SINGLY {
            for write in writes {
                let (entry, _) = self.reader.get(write.key.as_str().as_bytes()).await?;
                present.extend(entry.map(|entry| (write.key.clone(), entry)));
            }
            return Ok(present);
        }
        for directory in plan::directories(writes) {
            let (entries, _) = self.reader.list(directory.as_bytes()).await?;
            for entry in entries {
                if let Some(key) = std::str::from_utf8(&entry.key).ok().map(Key::new) {
                    present.insert(key, entry);
                }
            }
        }
        present.retain(|key, _| writes.iter().any(|write| write.key == *key));
        Ok(present)
    }

    /// References that this replica's state does not show may be a moment old, or lead nowhere. After a spoiled try
    /// its state is trusted for none of them.
    async fn look_up_references(
        &self,
        plan: &Plan,
        state: &EnvironmentState,
        all: bool,
    ) -> Result<(), Refusal> {
        let mut faults = Vec::new();
        for (named, by) in &plan.outside {
            if !all && state.world.content().get(named.as_str()).is_some() {
                continue;
            }
            if self.reader.get(named.as_str().as_bytes()).await?.0.is_none() {
                faults.push(dangling(by, named));
            }
        }
        if faults.is_empty() { Ok(()) } else { Err(Refusal::Invalid(faults)) }
    }

    /// Finds out whether a transaction whose reply was lost was carried out. Its puts carry the answer: all are
    /// there, with one mod revision that is not the one of before. Deletions leave no such trace.
    async fn look_up(
        &self,
        plan: &Plan,
        before: &BTreeMap<Key, Entry>,
        state: &EnvironmentState,
        why: &str,
    ) -> Result<Committed, Refusal> {
        warn!(environment = %self.name(), %why, "the reply to a write was lost, looking it up");
        let unknown = |what: String| Refusal::OutcomeUnknown(format!("{why}; {what}"));
        let mut revision: Option<Revision> = None;
        for operation in &plan.transaction.operations {
            let (Operation::Put { key, .. } | Operation::Delete { key }) = operation;
            let shown = String::from_utf8_lossy(key);
            let (entry, head) = self
                .reader
                .get(key)
                .await
                .map_err(|error| unknown(format!("it could not be looked up ({error}): read {shown}")))?;
            match (operation, entry) {
                (Operation::Put { value, .. }, Some(entry))
                    if entry.value == *value
                        && before.get(&*shown).is_none_or(|old| old.mod_revision < entry.mod_revision)
                        && revision.is_none_or(|revision| revision == entry.mod_revision) =>
                {
                    revision = Some(entry.mod_revision);
                }
                (Operation::Delete { .. }, None) => {}
                _ => {
                    return Err(unknown(format!(
                        "at revision {} {shown} does not show it; it may still arrive: read it before you repeat it",
                        head.revision
                    )));
                }
            }
        }
        let revision = revision
            .ok_or_else(|| unknown("what was to be deleted is gone, by this request or by another".into()))?;
        let existed = plan.keys.iter().map(|(key, _)| before.contains_key(key)).collect();
        Ok(Committed { cluster_id: state.world.lineage().cluster_id, revision, existed })
    }
}

fn present_in(state: &EnvironmentState, writes: &[Write]) -> BTreeMap<Key, Entry> {
    writes
        .iter()
        .filter_map(|write| state.world.content().get(write.key.as_str()))
        .map(|resource| {
            let entry = Entry {
                key: resource.key().as_str().to_owned().into(),
                value: resource.value().clone(),
                create_revision: resource.create_revision(),
                mod_revision: resource.mod_revision(),
            };
            (resource.key().clone(), entry)
        })
        .collect()
}

/// The generation of a write, given where the store stood before it.
///
/// A commit at or below what the store had delivered already proves that the history went back and this replica has
/// not noticed yet: the write is of the generation that begins when it does. Called of the present one, a wait for it
/// would be answered by values of the old history.
#[must_use]
pub fn generation_of(before: &Version, committed: Revision) -> Generation {
    let generation = before.lineage.generation;
    if committed <= before.revision { generation.next() } else { generation }
}

fn committed_at(
    plan: &Plan,
    committed: &Committed,
    state: &EnvironmentState,
    generation: Generation,
) -> CommittedAt {
    let lineage = Lineage {
        cluster_id: committed.cluster_id,
        prefix: state.world.lineage().prefix.clone(),
        generation,
    };
    let done = plan.keys.iter().enumerate().map(|(position, (key, deletes))| {
        let existed = committed.existed.get(position).copied().unwrap_or_default();
        let done = match (deletes, existed) {
            (true, _) => Done::Deleted,
            (false, true) => Done::Replaced,
            (false, false) => Done::Created,
        };
        (key.clone(), done)
    });
    CommittedAt {
        version: Version { lineage, revision: committed.revision, digest: Digest::EMPTY },
        keys: done.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_below_what_was_delivered_is_of_the_next_generation() {
        let lineage = Lineage { cluster_id: 7, prefix: "/apisix".into(), generation: Generation(2) };
        let before = Version { lineage, revision: Revision(168), digest: Digest::EMPTY };
        assert_eq!(generation_of(&before, Revision(169)), Generation(2));
        // etcd went back, and its watch has not told yet.
        assert_eq!(generation_of(&before, Revision(168)), Generation(3));
        assert_eq!(generation_of(&before, Revision(125)), Generation(3));
    }
}
