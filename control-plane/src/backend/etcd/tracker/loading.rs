//! A full read in the making: pages at one revision, and what the watch delivers meanwhile.

use std::time::Duration;

use bytes::Bytes;
use headwater_model::Revision;

use super::input::Page;
use super::merge::Merged;
use crate::backend::{Batch, Continuity, Entry};

/// A load between its first page and its last.
#[derive(Clone, Debug)]
pub(super) struct Loading {
    /// How it connects to what was held.
    pub(super) continuity: Continuity,
    /// Pinned by the first page.
    pub(super) revision: Revision,
    /// All pages so far.
    pub(super) entries: Vec<Entry>,
    /// Whether more pages follow.
    pub(super) more: bool,
    /// When the page asked for must have come; `None` while none is asked for.
    pub(super) page_until: Option<Duration>,
    /// W28: delivered by the watch meanwhile, above R, to be applied after the load.
    pub(super) meanwhile: Merged,
}

// === impl Loading ===

impl Loading {
    pub(super) fn new(continuity: Continuity) -> Self {
        Self {
            continuity,
            revision: Revision::ZERO,
            entries: Vec::new(),
            more: true,
            page_until: None,
            meanwhile: Merged::default(),
        }
    }

    /// Takes a page; the first one pins the revision. Later headers carry the head and are not looked at.
    pub(super) fn take(&mut self, page: Page) {
        if self.revision == Revision::ZERO {
            self.revision = page.header.revision;
        }
        self.more = page.more && !page.entries.is_empty();
        self.entries.extend(page.entries);
        self.page_until = None;
    }

    /// Where the next page begins.
    pub(super) fn last_key(&self) -> Option<Bytes> {
        self.entries.last().map(|entry| entry.key.clone())
    }

    pub(super) fn hold_back(&mut self, batch: Batch) {
        self.meanwhile.take(batch);
    }
}
