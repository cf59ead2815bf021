//! What waits between a replica's source and its writer: the real outbox, and the history that each event belongs to.

use headwater_control_plane::backend::SourceEvent;
use headwater_control_plane::backend::etcd::tracker::Outbox;

use super::truth::Epoch;

/// The outbox of one replica.
#[derive(Debug, Default)]
pub struct Waiting {
    outbox: Outbox,
    /// Of the event that says that a file is gone on from; whatever else waits is of the newest history.
    resumed: Option<Epoch>,
    newest: Option<Epoch>,
}

// === impl Waiting ===

impl Waiting {
    /// An event of a stream of `epoch`.
    pub fn push(&mut self, event: SourceEvent, epoch: Epoch) {
        match event {
            SourceEvent::Resumed { .. } => self.resumed = Some(epoch),
            SourceEvent::State(_) => {}
            SourceEvent::Loaded(_) | SourceEvent::Batch(_) | SourceEvent::Progress(_) => {
                self.newest = Some(epoch);
            }
        }
        self.outbox.push(event);
    }

    /// The next event, with its history where it is of one.
    pub fn pop(&mut self) -> Option<(SourceEvent, Option<Epoch>)> {
        let event = self.outbox.pop()?;
        let epoch = if matches!(event, SourceEvent::Resumed { .. }) { self.resumed } else { self.newest };
        Some((event, epoch))
    }
}
