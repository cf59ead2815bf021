//! What must hold on a node at every moment.

use std::collections::BTreeSet;

use headwater_data_plane::sync::applier::View;
use headwater_data_plane::sync::protocol::Staged;
use headwater_model::guard::Removal;
use headwater_model::{Key, Version};
use headwater_proto::config::Ack;

use super::claims;
use crate::simulation::workload;
use crate::simulation::world::World;

// === impl World ===

impl World {
    /// What a node holds is etcd's content at its version, and its version does not go back but by a jump.
    pub(super) fn check_held(&mut self, node: usize) {
        let Some(process) = &mut self.fleet.nodes[node].process else { return };
        let Some(held) = process.protocol.held().filter(|held| process.seen.as_ref() != Some(held)) else {
            return;
        };
        let before = process.seen.replace(held.clone());
        process.trail.push((held.clone(), process.protocol.content().clone()));
        // In one step it may publish a version and take the next one of the same content.
        let led_here = |version: &Version| {
            let same = version.lineage == held.lineage && version.digest == held.digest;
            same && version.revision <= held.revision
        };
        let reason =
            process.publishing.as_ref().filter(|(version, _)| led_here(version)).map(|(_, why)| *why);
        let jumped = reason.is_some_and(|reason| reason.is_jump());
        let wrong = match &before {
            Some(before) if held.lineage.generation < before.lineage.generation => {
                Some(format!("its generation falls from {before:?} to {held:?}"))
            }
            Some(before) if !jumped && held.cmp_position(before).is_lt() => {
                Some(format!("it goes back from {before:?} to {held:?}, which is no jump"))
            }
            Some(before) if reason.is_some() && !jumped && held.lineage != before.lineage => {
                Some(format!("a step leads from {before:?} to {held:?}"))
            }
            _ => claims::check(&self.etcd.truth, held, process.protocol.content()).err(),
        };
        if let Some(wrong) = wrong {
            self.violation(format!("node {node}: {wrong}"));
        }
    }

    /// What a node serves is what it holds, and in place of a value that it cannot use an older one of the same life
    /// of the key, or nothing.
    pub(super) fn check_view(&mut self, node: usize) {
        let Some(process) = &self.fleet.nodes[node].process else { return };
        let view = process.views.load_full();
        let cases = [
            ("reject/any", !view.rejects.is_empty()),
            ("reject/retained", !view.retained.is_empty()),
            ("reject/nothing-served", view.rejects.iter().any(|reject| reject.served.is_none())),
        ];
        for (case, reached) in cases {
            self.coverage.reached_if(case, reached);
        }
        if let Some(wrong) = wrong_in(&view) {
            self.violation(format!("node {node}: {wrong}"));
        }
    }

    /// A jump that removes more than the guard lets pass has the word of an operator.
    pub(super) fn check_guard(&mut self, node: usize, staged: &Staged) {
        let Some(process) = &self.fleet.nodes[node].process else { return };
        let Some(held) = process.protocol.held().filter(|_| staged.reason.is_jump()) else { return };
        let removal = Removal::between(process.protocol.content(), &staged.content);
        if !removal.is_held() {
            return;
        }
        if self.is_approved(held, &staged.version) {
            self.coverage.reached("hold/approved-at-node");
        } else {
            let (held, to, reason) = (held.clone(), staged.version.clone(), staged.reason);
            self.violation(format!("node {node}: a jump ({reason:?}) from {held:?} to {to:?} {removal}"));
        }
    }

    /// Whether an operator let a jump pass.
    pub(super) fn is_approved(&self, from: &Version, to: &Version) -> bool {
        let unix = self.unix();
        // Not by the code under test.
        self.fleet.approvals.iter().any(|approval| {
            let bases = approval.from == from.lineage && from.revision <= approval.base_at_most;
            bases && approval.to == to.lineage && unix < approval.expires_unix
        })
    }

    /// What a node acknowledges is true.
    pub(super) fn check_ack(&mut self, node: usize, ack: &Ack) {
        let state = &mut self.fleet.nodes[node];
        let Some(process) = &mut state.process else { return };
        let served = process.views.load();
        let mut wrong = None;
        if let Some(applied) = &ack.applied
            && served.content.digest() != applied.digest
        {
            wrong = Some(format!("{applied:?} is called applied while {:?} is served", served.version));
        }
        // In one step it may say that it holds a version and take the next one of the same content.
        if let Some(applied) =
            ack.applied.as_ref().filter(|applied| applied.digest == served.content.digest())
            && process.trail.last().is_none_or(|(version, _)| version != applied)
        {
            process.trail.push((applied.clone(), served.content.clone()));
        }
        if let Some(durable) = &ack.durable
            && let Err(broken) = state.disk.promise(durable)
        {
            wrong = Some(broken);
        }
        if let Some(wrong) = wrong {
            self.violation(format!("node {node}: {wrong}"));
        }
    }
}

/// The first thing that is served and must not be, or is not and must.
fn wrong_in(view: &View) -> Option<String> {
    let rejected: BTreeSet<&Key> = view.rejects.iter().map(|reject| &reject.key).collect();
    for held in view.content.iter() {
        let (key, bad) = (held.key(), workload::is_bad(held.key(), held.value()));
        if bad != rejected.contains(key) {
            return Some(format!("{key}, whose value is bad: {bad}, is rejected: {}", !bad));
        }
        match view.served.get(key) {
            None if bad => {}
            None => return Some(format!("{key} is not served")),
            Some(served) if !bad && served.resource.value() != held.value() => {
                let at = served.resource.mod_revision();
                return Some(format!("{key} is served as of {at}, held is {}", held.mod_revision()));
            }
            Some(served) if bad && served.resource.create_revision() != held.create_revision() => {
                return Some(format!("{key} is served from another life of the key"));
            }
            Some(served) if bad && workload::is_bad(key, served.resource.value()) => {
                return Some(format!("{key} is served with a bad value"));
            }
            Some(_) => {}
        }
    }
    let dead = |key: &&Key| view.content.get(key.as_str()).is_none();
    if let Some(key) = rejected.iter().copied().find(dead).or_else(|| view.served.keys().find(dead)) {
        return Some(format!("{key} is served or rejected, and is not there"));
    }
    None
}
