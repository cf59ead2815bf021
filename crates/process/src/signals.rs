//! The signals that end a process: the first SIGTERM or SIGINT asks for a drain, the second ends it at once.

use std::io;

use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

use crate::{Policy, Supervisor};

/// Exit code of a process that a second signal ended: 128 + SIGINT, as shells have it.
pub const INTERRUPTED: i32 = 130;

/// The signals of this process. Must be made inside a tokio runtime; from then on the default action is off.
#[derive(Debug)]
pub struct Signals {
    terminate: Stream,
    interrupt: Stream,
}

/// A signal that asks for an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM, as service managers send.
    Terminate,
    /// SIGINT, as control-C sends.
    Interrupt,
}

// === impl Signals ===

impl Signals {
    /// Listens to SIGTERM and SIGINT.
    ///
    /// # Errors
    /// When the operating system refuses the handler.
    pub fn listen() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// The next signal. Safe to drop and call again.
    pub async fn next(&mut self) -> Signal {
        tokio::select! {
            Some(()) = self.terminate.recv() => Signal::Terminate,
            Some(()) = self.interrupt.recv() => Signal::Interrupt,
            // Both streams end only with the runtime.
            else => std::future::pending().await,
        }
    }

    /// From here on the next signal exits the process with [`INTERRUPTED`]: for after the first one.
    ///
    /// Watched under a supervisor of its own, since those of the planes are being cancelled meanwhile.
    pub fn exit_at_next(mut self) {
        let policy = Policy::best_effort();
        Supervisor::new("signals").spawn("second signal", policy, async move { exit(self.next().await) });
    }
}

fn exit(signal: Signal) {
    tracing::warn!(?signal, "second signal, exiting without a drain");
    std::process::exit(INTERRUPTED);
}

#[cfg(test)]
mod tests {
    use rustix::process::{Signal as Number, getpid, kill_process};

    use super::*;

    #[tokio::test]
    async fn each_signal_is_told_apart() {
        let mut signals = Signals::listen().unwrap();
        kill_process(getpid(), Number::TERM).unwrap();
        assert_eq!(signals.next().await, Signal::Terminate);
        kill_process(getpid(), Number::INT).unwrap();
        assert_eq!(signals.next().await, Signal::Interrupt);
    }
}
