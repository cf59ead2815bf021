//! What a replica has published since its history began, as an observer notes it down.
//!
//! A node that holds one of these versions must never find that a transfer leads elsewhere than it says.

use headwater_control_plane::backend::{Continuity, SourceEvent};
use headwater_model::{Digest, Lineage, Version};
use imbl::OrdMap;

/// The versions of one line.
#[derive(Clone, Debug, Default)]
pub struct Line {
    lineage: Option<Lineage>,
    digests: OrdMap<u64, Digest>,
    /// Below the first and up to the second nothing was read: a reload lies between.
    gaps: Vec<(u64, u64)>,
}

// === impl Line ===

impl Line {
    /// The store stands at a version, after an event of the source or for another reason.
    pub fn publish(&mut self, event: Option<&SourceEvent>, version: &Version) {
        let continuity = match event {
            Some(SourceEvent::Loaded(load)) => Some(&load.continuity),
            _ => None,
        };
        let begins = matches!(continuity, Some(Continuity::First | Continuity::Rewound { .. }));
        if begins || self.lineage.as_ref() != Some(&version.lineage) {
            *self = Self { lineage: Some(version.lineage.clone()), ..Self::default() };
        } else if matches!(continuity, Some(Continuity::Proven | Continuity::Unproven))
            && let Some((last, _)) = self.digests.get_max()
        {
            self.gaps.push((*last, version.revision.0));
        }
        self.digests.insert(version.revision.0, version.digest);
    }

    /// Whether a version is of this line: what the replica held itself at that revision.
    #[must_use]
    pub fn holds(&self, version: &Version) -> bool {
        let revision = version.revision.0;
        let at = self.digests.range(..=revision).next_back();
        self.lineage.as_ref() == Some(&version.lineage)
            && self.digests.get_max().is_some_and(|(last, _)| revision <= *last)
            && at.is_some_and(|(_, digest)| *digest == version.digest)
            && !self.lies_in_a_gap(version)
    }

    /// Whether a version is of this line's history and lies where the replica has read nothing.
    #[must_use]
    pub fn lies_in_a_gap(&self, version: &Version) -> bool {
        let revision = version.revision.0;
        self.lineage.as_ref() == Some(&version.lineage)
            && self.gaps.iter().any(|(from, to)| *from < revision && revision < *to)
    }
}
