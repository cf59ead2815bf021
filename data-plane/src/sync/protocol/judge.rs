//! Judging progress: what a version that the replica calls delivered means for what is held.

use headwater_model::{Changes, Revision, Version, mutant};
use headwater_proto::config::{Progress, Standing};

use super::{Moment, Protocol};

// === impl Protocol ===

impl Protocol {
    /// Judges progress in stream order: the transfer before it was published, held or refused.
    pub(super) fn judge(&mut self, progress: &Progress, at: Moment) {
        self.record.source_proof(at.now, progress.source_proof_age);
        self.stands(progress.standing, progress.delivered.as_ref(), progress.head, at);
        let (Some(held), Some(delivered)) = (self.compared_with(), &progress.delivered) else {
            if self.is_useless(progress.standing) {
                self.move_on(
                    "the replica has no proof of life of its source, and this node holds nothing",
                    at,
                );
            }
            return;
        };
        let lowers = delivered.lineage.generation < held.lineage.generation;
        let further = delivered.lineage != held.lineage || delivered.revision > held.revision;
        let (equal, same_place) = (
            delivered.digest == held.digest,
            delivered.lineage == held.lineage && delivered.revision == held.revision,
        );
        self.link.healthy();
        if equal && further && (!lowers || mutant::planted("node-lowers-generation")) {
            self.adopt(delivered.clone(), at);
        } else if !equal && same_place && !self.record.has_refused(delivered) {
            self.refuse_claim(delivered, at);
        }
    }

    /// What progress is compared with: what is held.
    fn compared_with(&self) -> Option<&Version> {
        match &self.publishing {
            Some(staged) if mutant::planted("progress-judged-before-apply") => Some(&staged.version),
            _ => self.applied.as_ref(),
        }
    }

    /// Takes a version of equal content without payload.
    pub(super) fn adopt(&mut self, version: Version, at: Moment) {
        self.take_version(version, self.content.clone(), Changes::default(), at);
    }

    /// Whether a replica that stands so has nothing for this node, because it holds nothing itself yet.
    pub(super) const fn is_useless(&self, standing: Standing) -> bool {
        matches!(standing, Standing::Degraded { .. })
            && self.applied.is_none()
            && self.publishing.is_none()
            && !self.peer.accepts_degraded
    }

    /// Notes how far the replica can be relied on, and whether it is behind this node.
    pub(super) fn stands(
        &mut self,
        standing: Standing,
        version: Option<&Version>,
        head: Revision,
        at: Moment,
    ) {
        self.peer.standing = Some(standing);
        self.record.stands(standing);
        let behind = self.applied.as_ref().zip(version).is_some_and(|(held, version)| {
            version.lineage.generation < held.lineage.generation
                || (version.lineage == held.lineage && head < held.revision)
        });
        if behind {
            self.record.ahead(at.unix);
        } else {
            self.record.not_ahead();
        }
        if behind || matches!(standing, Standing::Degraded { .. }) {
            self.peer.unfit_since.get_or_insert(at.now);
        } else {
            self.peer.unfit_since = None;
            self.link.fit();
        }
    }
}
