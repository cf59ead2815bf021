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
    gaps: Vec<Gap>,
    /// Revisions that came at once with later ones: what was held at each of them nobody saw.
    merged: Vec<std::ops::Range<u64>>,
}

/// A reload.
#[derive(Clone, Copy, Debug)]
struct Gap {
    from: u64,
    to: u64,
    proven: bool,
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
            let proven = continuity == Some(&Continuity::Proven);
            self.gaps.push(Gap { from: *last, to: version.revision.0, proven });
        }
        if let Some(SourceEvent::Batch(batch)) = event {
            self.merged.push(batch.first.0..version.revision.0);
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
            && !self.merged.iter().any(|together| together.contains(&revision))
    }

    /// Whether a version is of this line's history and lies where the replica has read nothing.
    #[must_use]
    pub fn lies_in_a_gap(&self, version: &Version) -> bool {
        let revision = version.revision.0;
        self.lineage.as_ref() == Some(&version.lineage)
            && self.gaps.iter().any(|gap| gap.from < revision && revision < gap.to)
    }

    /// Whether a reload that could not be proven lies between two versions, the first of which is of this history.
    #[must_use]
    pub fn is_broken_between(&self, held: &Version, target: &Version) -> bool {
        let mut between =
            self.gaps.iter().filter(|gap| held.revision.0 < gap.to && gap.to <= target.revision.0);
        self.lineage.as_ref() == Some(&held.lineage) && between.any(|gap| !gap.proven)
    }
}
