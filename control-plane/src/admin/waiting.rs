//! Waiting: asks the registry and the store again whenever one of them changed, until the answer is final or the
//! time is up. Never answers yes on a guess; see [`wait`](crate::fleet::wait).

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::Admin;
use super::environment::Environment;
use super::refusal::Refusal;
use crate::fleet::wait::{Answer, Clock, Wait, evaluate};

/// How long a wait lasts when the caller does not say.
pub const DEFAULT_LIMIT: Duration = Duration::from_secs(60);
/// The longest wait.
pub const MAX_LIMIT: Duration = Duration::from_secs(3600);
/// Changes that come faster are judged together.
const NOT_FASTER: Duration = Duration::from_millis(20);
/// Judged again at least so often: time alone changes answers too.
const AT_LEAST: Duration = Duration::from_millis(500);

/// An answer, and whether it is the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// Whether the wait is over.
    pub last: bool,
    /// The answer.
    pub answer: Answer,
}

// === impl Admin ===

impl Admin {
    /// Whether this replica can answer waits at all.
    ///
    /// # Errors
    /// When it is configured with peers, whose nodes it does not know.
    pub fn check_wait(&self) -> Result<(), Refusal> {
        let peers = &self.replica().peers;
        if peers.is_empty() { Ok(()) } else { Err(Refusal::Peers(peers.clone())) }
    }

    /// Waits for `limit`, telling each different answer; the last one is told as such. Ends early when nobody
    /// listens any more.
    pub async fn wait(
        &self,
        environment: Arc<Environment>,
        question: Wait,
        limit: Duration,
        told: mpsc::Sender<Told>,
    ) {
        let deadline = Instant::now() + limit.min(MAX_LIMIT);
        let mut nodes = self.fleet().changes();
        let mut store = environment.view().wakes();
        let mut before = None;
        loop {
            nodes.borrow_and_update();
            store.borrow_and_update();
            let answer = self.judge(&environment, &question);
            let last = answer.outcome.is_final() || Instant::now() >= deadline;
            if last || before.as_ref() != Some(&answer) {
                if told.send(Told { last, answer: answer.clone() }).await.is_err() || last {
                    return;
                }
                before = Some(answer);
            }
            tokio::time::sleep_until(deadline.min(Instant::now() + NOT_FASTER)).await;
            tokio::select! {
                // An ended writer closes its side: the deadline still ends the wait.
                Ok(()) = nodes.changed() => {}
                Ok(()) = store.changed() => {}
                () = tokio::time::sleep_until(deadline.min(Instant::now() + AT_LEAST)) => {}
                () = told.closed() => return,
            }
        }
    }

    fn judge(&self, environment: &Environment, question: &Wait) -> Answer {
        let clock = Clock {
            now: self.fleet().now(),
            // The fleet's clock starts with the replica.
            started_at: Duration::ZERO,
            heartbeat: self.replica().heartbeat,
        };
        let mut answer = evaluate(question, &self.fleet().registry(), &environment.view().state(), clock);
        for node in &mut answer.nodes {
            if let crate::fleet::wait::Standing::NotHeardFrom { lost_for, .. } = &mut node.standing {
                // Whole seconds: an answer is told again only when it says something new.
                *lost_for = Duration::from_secs(lost_for.as_secs());
            }
        }
        answer
    }
}
