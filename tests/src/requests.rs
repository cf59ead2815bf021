//! Clients that ask a node for something all the time, and count what they do not get.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hdrhistogram::Histogram;
use headwater_process::{Policy, Supervisor};
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

/// How long one answer may take before it counts as none.
const LIMIT: Duration = Duration::from_secs(5);
/// Failures that are kept in words.
const KEPT: usize = 5;

/// Clients at work. Dropped, they stop.
#[derive(Debug)]
pub struct Requests {
    tally: Arc<Mutex<Tally>>,
    supervisor: Supervisor,
}

/// What they met.
#[derive(Debug, Clone)]
pub struct Tally {
    /// Answers as they should be.
    pub good: u64,
    /// All others, and none.
    pub failed: u64,
    /// The first few of these, in words.
    pub failures: Vec<String>,
    /// How long good answers took, in microseconds.
    pub latency: Histogram<u64>,
}

// === impl Requests ===

impl Requests {
    /// One client for each path at `host:port`; each asks again `pace` after its last answer and expects 200 and
    /// `body`.
    #[must_use]
    pub fn start(address: &str, paths: &[&str], body: &'static str, pace: Duration) -> Self {
        let (tally, supervisor) = (Arc::new(Mutex::new(Tally::new())), Supervisor::new("requests"));
        for path in paths {
            let (target, tally) = (format!("http://{address}{path}"), Arc::clone(&tally));
            let stop = supervisor.token();
            let asking = async move {
                let client = Client::builder(TokioExecutor::new()).build_http();
                while !stop.is_cancelled() {
                    let (began, answer) = (Instant::now(), ask(&client, &target).await);
                    lock(&tally).take(&target, answer, body, began.elapsed());
                    tokio::time::sleep(pace).await;
                }
            };
            supervisor.spawn("client", Policy::best_effort().dropped_on_cancel(), asking);
        }
        Self { tally, supervisor }
    }

    /// What was met since the last call, or the start.
    #[must_use]
    pub fn take(&self) -> Tally {
        std::mem::replace(&mut *lock(&self.tally), Tally::new())
    }

    /// The same, where nothing may have failed.
    ///
    /// # Panics
    /// When something has, or nothing was asked.
    #[must_use]
    pub fn all_good(&self) -> Tally {
        let tally = self.take();
        assert_eq!(tally.failed, 0, "beside {} good answers: {:?}", tally.good, tally.failures);
        assert!(tally.good > 0, "nothing was asked");
        tally
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        self.supervisor.cancel();
    }
}

// === impl Tally ===

impl Tally {
    fn new() -> Self {
        let latency = Histogram::new(3).expect("three digits are allowed");
        Self { good: 0, failed: 0, failures: Vec::new(), latency }
    }

    /// The time within which this share of good answers came.
    #[must_use]
    pub fn within(&self, share: f64) -> Duration {
        Duration::from_micros(self.latency.value_at_quantile(share))
    }

    fn take(&mut self, target: &str, answer: Result<(u16, Bytes), String>, body: &str, took: Duration) {
        if matches!(&answer, Ok((200, bytes)) if bytes == body) {
            self.good += 1;
            self.latency.saturating_record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
            return;
        }
        self.failed += 1;
        if self.failures.len() < KEPT {
            self.failures.push(format!("{target}: {answer:?}"));
        }
    }
}

async fn ask(client: &Client<HttpConnector, Empty<Bytes>>, target: &str) -> Result<(u16, Bytes), String> {
    let target = target.parse().map_err(|error| format!("{error}"))?;
    let asking = async {
        let answer = client.get(target).await.map_err(|error| format!("{error:?}"))?;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.map_err(|error| format!("{error:?}"))?;
        Ok((status, body.to_bytes()))
    };
    tokio::time::timeout(LIMIT, asking).await.unwrap_or_else(|_| Err(format!("no answer in {LIMIT:?}")))
}

fn lock(tally: &Mutex<Tally>) -> MutexGuard<'_, Tally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eventually::eventually;
    use crate::origin::Origin;

    #[tokio::test]
    async fn good_answers_and_others_are_told_apart() {
        let origin = Origin::start("good").await;
        let node = origin.node();
        let (right, wrong) = (
            Requests::start(&node, &["/a", "/b"], "good", Duration::from_millis(1)),
            Requests::start(&node, &["/"], "bad", Duration::from_millis(1)),
        );
        eventually("some answers", LIMIT, || async {
            let tally = right.take();
            if tally.good > 3 && tally.failed == 0 { Ok(()) } else { Err(tally) }
        })
        .await;
        drop(origin);
        eventually("failures", LIMIT, || async {
            let tally = wrong.take();
            if tally.failed > 0 && tally.good == 0 { Ok(()) } else { Err(tally.failures) }
        })
        .await;
    }
}
