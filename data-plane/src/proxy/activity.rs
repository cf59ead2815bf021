//! Whether a client's connection is in use, and since when it is not.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// The requests under way on one connection.
#[derive(Debug)]
pub struct Activity {
    state: Mutex<State>,
    ended: Notify,
}

#[derive(Debug)]
struct State {
    under_way: usize,
    since: Instant,
}

/// A request under way, until dropped.
#[derive(Debug)]
pub struct InUse(Arc<Activity>);

impl Activity {
    /// A connection without a request so far.
    pub fn new() -> Arc<Self> {
        let state = State { under_way: 0, since: Instant::now() };
        Arc::new(Self { state: Mutex::new(state), ended: Notify::new() })
    }

    /// A request begins.
    pub fn begin(self: &Arc<Self>) -> InUse {
        self.lock().under_way += 1;
        InUse(Arc::clone(self))
    }

    /// Waits until the connection has been without a request for `timeout`.
    pub async fn idle(&self, timeout: Duration) {
        loop {
            let idle_since = {
                let state = self.lock();
                (state.under_way == 0).then_some(state.since)
            };
            match idle_since {
                Some(since) if since.elapsed() >= timeout => return,
                Some(since) => tokio::time::sleep_until(since + timeout).await,
                None => self.ended.notified().await,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.under_way -= 1;
        state.since = Instant::now();
        drop(state);
        self.0.ended.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_connection_in_use_is_never_idle() {
        let activity = Activity::new();
        let in_use = activity.begin();
        let began = Instant::now();
        let user = async {
            tokio::time::sleep(TIMEOUT * 10).await;
            drop(in_use);
        };
        tokio::join!(user, activity.idle(TIMEOUT));
        assert_eq!(began.elapsed(), TIMEOUT * 11);
    }

    #[tokio::test(start_paused = true)]
    async fn each_request_starts_the_wait_anew() {
        let activity = Activity::new();
        let began = Instant::now();
        let user = async {
            for _ in 0..3 {
                tokio::time::sleep(TIMEOUT / 2).await;
                drop(activity.begin());
            }
        };
        tokio::join!(user, activity.idle(TIMEOUT));
        assert_eq!(began.elapsed(), TIMEOUT * 5 / 2);
    }
}
