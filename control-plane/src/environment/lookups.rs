//! Searches for older values in etcd: one for all nodes that ask for the same, one after the other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use headwater_model::Resource;
use headwater_proto::config::{FallbackAnswer, FallbackRequest};
use tokio::sync::{mpsc, oneshot};

use super::older::lookup::{Look, Lookup};
use crate::backend::Reader;

/// How many searches may wait, and how many sessions for each. The nodes of what is beyond ask again on their next
/// stream.
const QUEUE: usize = 65_536;

/// How far apart the tries of a read are that etcd does not answer. Nodes wait: they have nothing else to serve.
const BETWEEN_TRIES: Duration = Duration::from_secs(5);

/// What was found, and for which question.
pub(super) struct LookedUp {
    pub(super) request: FallbackRequest,
    pub(super) found: Option<Arc<Resource>>,
}

/// The searches under way, and who waits for them.
pub(super) struct Lookups {
    queue: mpsc::Sender<FallbackRequest>,
    waiting: BTreeMap<FallbackRequest, Vec<oneshot::Sender<FallbackAnswer>>>,
}

// === impl Lookups ===

impl Lookups {
    /// The searches of an environment, and what [`run`] takes.
    pub(super) fn new() -> (Self, mpsc::Receiver<FallbackRequest>) {
        let (queue, requests) = mpsc::channel(QUEUE);
        (Self { queue, waiting: BTreeMap::new() }, requests)
    }

    /// Searches, if nobody has asked for the same. A dropped sender is no answer.
    pub(super) fn want(&mut self, request: FallbackRequest, answer: oneshot::Sender<FallbackAnswer>) {
        match self.waiting.get_mut(&request) {
            Some(waiting) if waiting.len() < QUEUE => waiting.push(answer),
            Some(_) => {}
            None => {
                if self.queue.try_send(request.clone()).is_ok() {
                    self.waiting.insert(request, vec![answer]);
                }
            }
        }
    }

    /// A search is over: answers those that wait.
    pub(super) fn over(&mut self, looked_up: &LookedUp) {
        let LookedUp { request, found } = looked_up;
        for answer in self.waiting.remove(request).unwrap_or_default() {
            let _ = answer.send(super::older::answer_to(request, found.clone()));
        }
    }
}

/// Carries the searches out, until nobody asks any more.
pub(super) async fn run(
    reader: Arc<dyn Reader>,
    mut requests: mpsc::Receiver<FallbackRequest>,
    done: impl AsyncFn(LookedUp),
) {
    while let Some(request) = requests.recv().await {
        let found = search(Lookup::begin(request.clone()), reader.as_ref()).await;
        done(LookedUp { request, found }).await;
    }
}

async fn search(mut look: Look, reader: &dyn Reader) -> Option<Arc<Resource>> {
    loop {
        let lookup = match look {
            Look::Done(found) => return found,
            Look::Read(lookup) => lookup,
            Look::Unanswered(lookup) => {
                tokio::time::sleep(BETWEEN_TRIES).await;
                lookup
            }
        };
        let (key, revision) = lookup.asks();
        let found = reader.get_at(key.as_str().as_bytes(), revision).await;
        look = lookup.answered(found);
    }
}
