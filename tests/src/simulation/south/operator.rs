//! Operators: they look at what is held, and approve it or not.

use headwater_control_plane::approval;
use headwater_control_plane::backend::embedded::mvcc::Txn;
use headwater_control_plane::environment::core::{Effects, Keep};
use headwater_control_plane::fleet::RowState;
use headwater_model::Version;
use headwater_proto::config::{Approval, RefusedWhy};
use std::time::Duration;

use super::South;
use crate::simulation::etcd;
use crate::simulation::world::{ACTIVE, What, World};

/// How long an approval covers, in seconds: longer than any run.
const VALID: u64 = 100_000;

// === impl World ===

impl World {
    /// An operator looks at everything that is held.
    pub(super) fn operates(&mut self) {
        let next = self.random.duration(Duration::from_secs(2), Duration::from_secs(20));
        self.schedule.after(next, What::South(South::Operates));
        let settled = self.schedule.now() >= ACTIVE;
        for (replica, from, to) in self.held_jumps() {
            match if settled { 0 } else { self.random.below(6) } {
                0 | 1 => self.approves(&from, &to),
                2 => self.rejects(replica),
                // Sees it another time.
                _ => {}
            }
        }
    }

    /// What replicas hold, and what nodes told them that they hold.
    fn held_jumps(&self) -> Vec<(usize, Version, Version)> {
        let mut jumps = Vec::new();
        for (replica, plane) in self.fleet.planes.iter().enumerate() {
            let shown = &plane.publication;
            if shown.hold.is_some() {
                jumps.push((replica, shown.serving.version().clone(), shown.world.version().clone()));
            }
            let live = plane.registry.rows().filter(|row| row.state == RowState::Live);
            let refused = live.filter_map(|row| row.refused.as_ref());
            for refused in refused.filter(|refused| refused.why == RefusedWhy::Held) {
                if let Some(held) = &refused.held {
                    jumps.push((replica, held.clone(), refused.target.clone()));
                }
            }
        }
        jumps
    }

    /// Writes an approval, as the admin does.
    fn approves(&mut self, from: &Version, to: &Version) {
        if !self.etcd.up {
            return;
        }
        let id = format!("approval {}", self.fleet.approvals.len());
        let approved = Approval {
            id: id.as_str().into(),
            from: from.lineage.clone(),
            base_at_most: from.revision,
            to: to.lineage.clone(),
            expires_unix: self.unix() + VALID,
        };
        self.trace(|| format!("an operator approves {from:?} to {to:?}"));
        self.coverage.reached("hold/an-operator-approves");
        let key = [etcd::PREFIX.as_bytes(), &approval::key(&id)].concat();
        let txn = Txn::put(key, approval::encode(&approved));
        self.fleet.approvals.push(approved);
        self.etcd.commit(&txn);
    }

    fn rejects(&mut self, replica: usize) {
        if self.fleet.planes[replica].core.reject_hold() {
            self.coverage.reached("hold/an-operator-rejects");
            let keep = Effects { keep: Keep::Everything, ..Effects::default() };
            self.published(replica, None, keep);
        }
    }
}
