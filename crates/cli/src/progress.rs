//! Progress of anything longer than a second, on standard error: a spinner on a terminal, plain lines elsewhere.

use std::future::Future;
use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget};
use tokio::time::Instant;

/// What is shorter shows nothing.
const AFTER: Duration = Duration::from_secs(1);

/// Shown from a second on, until dropped.
pub(crate) struct Progress {
    bar: ProgressBar,
    is_terminal: bool,
    started: Instant,
    last: String,
}

/// Runs something, saying `what` once it takes longer than a second.
pub(crate) async fn during<T>(what: &str, work: impl Future<Output = T>) -> T {
    let mut progress = Progress::new();
    tokio::pin!(work);
    tokio::select! {
        done = &mut work => return done,
        () = tokio::time::sleep(AFTER) => progress.say(what),
    }
    work.await
}

// === impl Progress ===

impl Progress {
    /// Says nothing yet.
    pub(crate) fn new() -> Self {
        let bar = ProgressBar::new_spinner();
        bar.set_draw_target(ProgressDrawTarget::hidden());
        Self {
            bar,
            is_terminal: std::io::stderr().is_terminal(),
            started: Instant::now(),
            last: String::new(),
        }
    }

    /// Says how it stands, if it has lasted long enough and this is new.
    pub(crate) fn say(&mut self, text: &str) {
        if self.started.elapsed() < AFTER || self.last == text {
            return;
        }
        if self.is_terminal {
            if self.last.is_empty() {
                self.bar.set_draw_target(ProgressDrawTarget::stderr());
                self.bar.enable_steady_tick(Duration::from_millis(100));
            }
            self.bar.set_message(text.to_owned());
        } else {
            eprintln!("{text}");
        }
        self.last = text.to_owned();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
