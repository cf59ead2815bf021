//! What must be true when all faults are long over.

use headwater_model::Version;

use super::claims;
use crate::simulation::world::World;

// === impl World ===

impl World {
    /// Every node holds etcd's newest content, at its newest revision, and has it on its disk.
    pub(in crate::simulation) fn check_nodes(&mut self, what: &str) {
        let truth = &self.etcd.truth;
        let (epoch, head) = (truth.epoch(), truth.head(truth.epoch()));
        let mut wrong = Vec::new();
        let mut stranded = 0;
        for (node, state) in self.fleet.nodes.iter().enumerate().filter(|(_, state)| !state.twin) {
            let Some(process) = &state.process else {
                wrong.push(format!("node {node}: {what}, but it does not run"));
                continue;
            };
            let held = process.protocol.held();
            if held.is_some_and(|held| self.is_stranded(held)) {
                stranded += 1;
                continue;
            }
            let content = process.protocol.content();
            let facts = truth.at(epoch, head);
            let difference = facts.and_then(|facts| claims::difference(content, facts));
            let status = process.protocol.status(self.schedule.now());
            if let Some(difference) = difference {
                wrong.push(format!("node {node}: {what}, but {difference}; {status:?}"));
            } else if held.is_none_or(|held| held.revision.0 != head) {
                wrong.push(format!(
                    "node {node}: {what}, but etcd is at {head}, it holds {held:?}; {status:?}"
                ));
            } else if status.durable.as_ref() != held {
                wrong.push(format!("node {node}: {what}, but it has not all on its disk; {status:?}"));
            }
        }
        self.coverage.reached_times("stranded", stranded);
        for wrong in wrong {
            self.violation(wrong);
        }
    }

    /// Whether a node is a generation ahead of every replica with another content: until claims of generations are
    /// checked, it keeps what it has.
    fn is_stranded(&self, held: &Version) -> bool {
        self.fleet
            .planes
            .iter()
            .all(|plane| held.lineage.generation > plane.core.store().snapshot().lineage().generation)
    }
}
