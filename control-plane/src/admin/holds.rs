//! Held jumps: what the mass-deletion guard stopped, here or at nodes, and the operator's word on it.
//!
//! An approval is written to the source, so that every replica sees it; a rejection silences this replica's hold.

use std::collections::BTreeMap;
use std::sync::Arc;

use headwater_model::{Digest, Lineage, Revision, Version};
use headwater_proto::config::{Approval, RefusedWhy};

use super::environment::Environment;
use super::refusal::Refusal;
use super::view::jump_id;
use super::{Admin, unix_now};
use crate::approval;
use crate::backend::{Compare, Operation, Transaction};
use crate::fleet::Registry;

/// A held jump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Names this very jump.
    pub id: String,
    /// Held by this replica; otherwise only by nodes.
    pub at_replica: bool,
    /// The nodes that hold it.
    pub nodes: Vec<Arc<str>>,
    /// What is served meanwhile.
    pub from: Version,
    /// Where it leads.
    pub to: Version,
    /// Since when (Unix seconds); zero when only nodes hold it.
    pub since_unix: u64,
    /// What it would remove.
    pub detail: String,
    /// Whether an operator rejected it.
    pub rejected: bool,
}

// === impl Admin ===

impl Admin {
    /// What is held in an environment: the replica's own hold first, then jumps that only nodes hold, one for each
    /// pair of histories, from the newest version a node holds.
    #[must_use]
    pub fn holds(&self, environment: &Environment) -> Vec<Hold> {
        let state = environment.view().state();
        let mut holds: Vec<Hold> = state
            .hold
            .iter()
            .map(|held| Hold {
                id: held.id(),
                at_replica: true,
                nodes: Vec::new(),
                from: held.from.clone(),
                to: held.to.clone(),
                since_unix: held.since_unix,
                detail: held.removal.to_string(),
                rejected: held.rejected,
            })
            .collect();
        for held in at_nodes(environment.name(), &self.fleet().registry(), self.fleet().now()) {
            let same = |hold: &&mut Hold| {
                hold.from.lineage == held.from.lineage
                    && hold.to.lineage == held.to.lineage
                    && hold.from.revision >= held.from.revision
            };
            match holds.iter_mut().find(same) {
                Some(hold) => hold.nodes.extend(held.nodes),
                None => holds.push(held),
            }
        }
        holds
    }

    /// Lets a held jump pass, everywhere: writes an approval to the source.
    ///
    /// # Errors
    /// When nothing is held, another jump is, or the approval cannot be written.
    pub async fn approve(
        &self,
        environment: &Environment,
        id: &str,
        valid_seconds: u64,
    ) -> Result<(Approval, Version), Refusal> {
        let state = environment.writable_state().await?;
        let hold = self.named(environment, id)?;
        let by_default = self.replica().approval_retention.as_secs();
        let valid = if valid_seconds == 0 { by_default } else { valid_seconds };
        let approved = Approval {
            id: uuid::Uuid::new_v4().to_string().into(),
            from: hold.from.lineage.clone(),
            base_at_most: hold.from.revision,
            to: hold.to.lineage.clone(),
            expires_unix: unix_now().saturating_add(valid),
        };
        let key = approval::key(&approved.id);
        let transaction = Transaction {
            compares: vec![Compare::ModRevision { key: key.clone(), is: Revision::ZERO }],
            operations: vec![Operation::Put { key, value: approval::encode(&approved) }],
        };
        let committed = environment.commit.commit(transaction).await?;
        tracing::info!(
            environment = %environment.name(), approval = %approved.id, from = %hold.from, to = %hold.to,
            "an operator approved a held jump"
        );
        let lineage = Lineage { cluster_id: committed.cluster_id, ..state.world.lineage().clone() };
        Ok((approved, Version { lineage, revision: committed.revision, digest: Digest::EMPTY }))
    }

    /// Keeps this replica's jump held and silences it until the history changes again.
    ///
    /// # Errors
    /// When this replica holds nothing, or another jump.
    pub async fn reject(&self, environment: &Environment, id: &str) -> Result<(), Refusal> {
        let hold = self.named(environment, id)?;
        if hold.at_replica && environment.view().reject_hold().await {
            tracing::info!(environment = %environment.name(), hold = %hold.id, "an operator rejected a held jump");
            return Ok(());
        }
        Err(Refusal::NoSuchHold(format!(
            "the jump {} is held by nodes, not by this replica: they keep it held until it is approved",
            hold.id
        )))
    }

    fn named(&self, environment: &Environment, id: &str) -> Result<Hold, Refusal> {
        let holds = self.holds(environment);
        if holds.is_empty() {
            let sentence = format!("nothing is held in the environment {}", environment.name());
            return Err(Refusal::NoSuchHold(sentence));
        }
        let ids: Vec<&str> = holds.iter().map(|hold| hold.id.as_str()).collect();
        let ids = ids.join(", ");
        holds.into_iter().find(|hold| hold.id == id).ok_or_else(|| {
            Refusal::NoSuchHold(format!(
                "no jump {id:?} is held; held now: {ids}. Look at it with `hold show` before you decide"
            ))
        })
    }
}

fn at_nodes(environment: &str, registry: &Registry, now: std::time::Duration) -> Vec<Hold> {
    let mut jumps: BTreeMap<(u64, u64, u64, u64), Hold> = BTreeMap::new();
    for row in registry.expected(Some(environment), now) {
        let Some(refused) = row.refused.as_ref().filter(|refused| refused.why == RefusedWhy::Held) else {
            continue;
        };
        let Some(from) = &refused.held else { continue };
        let to = &refused.target;
        let histories = (
            from.lineage.cluster_id,
            from.lineage.generation.0,
            to.lineage.cluster_id,
            to.lineage.generation.0,
        );
        let hold = jumps.entry(histories).or_insert_with(|| Hold {
            id: String::new(),
            at_replica: false,
            nodes: Vec::new(),
            from: from.clone(),
            to: to.clone(),
            since_unix: 0,
            detail: refused.detail.to_string(),
            rejected: false,
        });
        hold.nodes.push(row.id.node_id.clone());
        if from.revision > hold.from.revision {
            hold.from = from.clone();
            hold.detail = refused.detail.to_string();
        }
        hold.id = jump_id(&hold.from, &hold.to);
    }
    jumps.into_values().collect()
}
