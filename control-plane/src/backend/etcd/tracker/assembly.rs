//! Puts the parts of one change together and checks the order of what a stream delivers.

use headwater_model::Revision;
use headwater_model::mutant::planted;

use super::input::WatchResponse;
use crate::backend::KeyEvent;

/// The parts of a response that is not complete yet.
#[derive(Clone, Debug)]
pub(super) struct Assembly {
    parts: Vec<KeyEvent>,
    bytes: usize,
    header_revision: Option<Revision>,
    limit: usize,
}

/// What a part made of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Assembled {
    /// More parts follow.
    Pending,
    /// Whole revisions, in order.
    Complete(Vec<KeyEvent>),
    /// Above the bound.
    TooLarge,
    /// The stream does not keep to the protocol.
    Violation(String),
}

// === impl Assembly ===

impl Assembly {
    pub(super) fn new(limit: usize) -> Self {
        Self { parts: Vec::new(), bytes: 0, header_revision: None, limit }
    }

    /// Whether parts wait for their last one.
    pub(super) fn is_pending(&self) -> bool {
        self.header_revision.is_some()
    }

    /// W12: nothing leaves before the part that says it is the last, as parts may split one transaction.
    pub(super) fn take(&mut self, response: WatchResponse) -> Assembled {
        if self.header_revision.is_some_and(|revision| revision != response.header.revision) {
            return Assembled::Violation("parts of one change carry different headers".to_owned());
        }
        self.bytes += response.bytes;
        // W13: a bound in bytes.
        if self.bytes > self.limit {
            return Assembled::TooLarge;
        }
        self.parts.extend(response.events);
        if response.fragment && !planted("parts-delivered-one-by-one") {
            self.header_revision = Some(response.header.revision);
            return Assembled::Pending;
        }
        self.header_revision = None;
        self.bytes = 0;
        let events = std::mem::take(&mut self.parts);
        // W11: a revision that falls within a response is a violation.
        if let Some(pair) = events.windows(2).find(|pair| pair[1].revision() < pair[0].revision()) {
            return Assembled::Violation(format!(
                "revision {} was delivered after revision {}",
                pair[1].revision(),
                pair[0].revision()
            ));
        }
        Assembled::Complete(events)
    }
}
