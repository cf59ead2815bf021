//! A request's body on its way to the upstream.
//!
//! The body is *lent* to one try at a time. Until a try has taken its first byte, it can be taken back and lent to the next;
//! afterwards the request can be sent no more. It also knows who is being waited for, client or upstream, and since when.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The body of one request, kept by the request while tries borrow it.
#[derive(Debug)]
pub struct Upload {
    shared: Arc<Shared>,
}

/// The body as one try sees it.
#[derive(Debug)]
pub struct Lent {
    shared: Arc<Shared>,
    turn: u64,
    hint: SizeHint,
    empty: bool,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    moved: Notify,
    /// Bytes the body may have.
    limit: Option<u64>,
}

#[derive(Debug)]
struct State {
    body: Option<Incoming>,
    /// The try that may read; an earlier one reads an error.
    turn: u64,
    taken: u64,
    touched: bool,
    phase: Phase,
    since: Instant,
    fault: Option<UploadFault>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The upstream is to take bytes: the head, or the part handed over last.
    Upstream,
    /// The client is to send bytes.
    Client,
    /// All was handed over.
    Done,
}

/// Why a body cannot be sent to its end.
#[derive(Debug, Clone, thiserror::Error)]
pub enum UploadFault {
    /// More bytes than allowed.
    #[error("the request body is larger than {0} bytes")]
    TooLarge(u64),
    /// The client's connection ended.
    #[error("the client went away within the request body")]
    Gone,
    /// The body is not framed as announced.
    #[error("{0}")]
    Broken(Arc<str>),
    /// The try that reads is over.
    #[error("the request was given up")]
    TakenBack,
}

/// How long each side may keep the other waiting.
#[derive(Debug, Clone, Copy)]
pub struct Waits {
    /// For the client's next part of the body.
    pub client: Duration,
    /// For the upstream to take what was handed over.
    pub send: Duration,
    /// For the upstream's next part of the answer.
    pub read: Duration,
}

/// Who kept the other waiting for too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stalled {
    /// The client, with its body.
    Client,
    /// The upstream, taking nothing.
    Send,
    /// The upstream, answering nothing.
    Read,
}

impl Upload {
    /// A body of which at most `limit` bytes may come.
    pub fn new(body: Incoming, limit: Option<u64>) -> Self {
        let phase = if body.is_end_stream() { Phase::Done } else { Phase::Upstream };
        Self {
            shared: Arc::new(Shared {
                state: Mutex::new(State {
                    body: Some(body),
                    turn: 0,
                    taken: 0,
                    touched: false,
                    phase,
                    since: Instant::now(),
                    fault: None,
                }),
                moved: Notify::new(),
                limit,
            }),
        }
    }

    /// Lends the body to a new try; `None` once an earlier try has taken some of it.
    pub fn lend(&self) -> Option<Lent> {
        let mut state = self.shared.lock();
        if state.touched || state.fault.is_some() {
            return None;
        }
        state.turn += 1;
        state.since = Instant::now();
        let body = state.body.as_ref()?;
        Some(Lent {
            shared: Arc::clone(&self.shared),
            turn: state.turn,
            hint: body.size_hint(),
            empty: body.is_end_stream(),
        })
    }

    /// Whether some of the body was handed to a try.
    pub fn is_touched(&self) -> bool {
        self.shared.lock().touched
    }

    /// Whether all of it was handed over.
    pub fn is_done(&self) -> bool {
        self.shared.lock().phase == Phase::Done
    }

    /// What the client did wrong, if it did.
    pub fn fault(&self) -> Option<UploadFault> {
        self.shared.lock().fault.clone()
    }

    /// Bytes handed over.
    pub fn taken(&self) -> u64 {
        self.shared.lock().taken
    }

    /// When the body last moved.
    pub fn moved_at(&self) -> Instant {
        self.shared.lock().since
    }

    /// Waits until somebody has kept the other waiting for too long.
    pub async fn stalled(&self, waits: &Waits) -> Stalled {
        loop {
            let (since, phase) = {
                let state = self.shared.lock();
                (state.since, state.phase)
            };
            let (wait, who) = match phase {
                Phase::Client => (waits.client, Stalled::Client),
                Phase::Upstream => (waits.send, Stalled::Send),
                Phase::Done => (waits.read, Stalled::Read),
            };
            tokio::select! {
                () = tokio::time::sleep_until(since + wait) => {
                    let state = self.shared.lock();
                    if state.since == since && state.phase == phase {
                        return who;
                    }
                }
                // Every change of who is waited for is told; progress within a phase is seen when the timer fires.
                () = self.shared.moved.notified() => {}
            }
        }
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        // A connection that still holds its part learns that nobody waits for it any more.
        let mut state = self.shared.lock();
        state.turn += 1;
        state.body = None;
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn enter(&mut self, phase: Phase, moved: &Notify) {
        self.since = Instant::now();
        if self.phase != phase {
            self.phase = phase;
            moved.notify_one();
        }
    }

    fn count(&mut self, frame: &Frame<Bytes>, limit: Option<u64>) -> Result<(), UploadFault> {
        self.touched = true;
        self.taken += frame.data_ref().map_or(0, |data| data.len() as u64);
        match limit {
            Some(limit) if self.taken > limit => Err(UploadFault::TooLarge(limit)),
            _ => Ok(()),
        }
    }
}

impl Body for Lent {
    type Data = Bytes;
    type Error = UploadFault;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UploadFault>>> {
        let shared = &self.shared;
        let mut state = shared.lock();
        if state.turn != self.turn {
            return Poll::Ready(Some(Err(UploadFault::TakenBack)));
        }
        let Some(body) = state.body.as_mut() else {
            return Poll::Ready(None);
        };
        match Pin::new(body).poll_frame(context) {
            Poll::Pending => {
                if state.phase != Phase::Client {
                    state.enter(Phase::Client, &shared.moved);
                }
                Poll::Pending
            }
            Poll::Ready(Some(Ok(frame))) => {
                let counted = state.count(&frame, shared.limit);
                let ended = state.body.as_ref().is_none_or(Body::is_end_stream);
                let next = if ended { Phase::Done } else { Phase::Upstream };
                state.enter(next, &shared.moved);
                Poll::Ready(Some(match counted {
                    Ok(()) => Ok(frame),
                    Err(fault) => {
                        state.fault = Some(fault.clone());
                        Err(fault)
                    }
                }))
            }
            Poll::Ready(Some(Err(error))) => {
                let fault = UploadFault::from_client(&error);
                state.fault = Some(fault.clone());
                Poll::Ready(Some(Err(fault)))
            }
            Poll::Ready(None) => {
                state.touched = true;
                state.enter(Phase::Done, &shared.moved);
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        if self.empty {
            return true;
        }
        let state = self.shared.lock();
        state.turn == self.turn && state.body.as_ref().is_some_and(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.hint
    }
}

impl UploadFault {
    fn from_client(error: &hyper::Error) -> Self {
        use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
        while let Some(error) = cause {
            if let Some(io) = error.downcast_ref::<std::io::Error>()
                && matches!(io.kind(), UnexpectedEof | ConnectionReset | ConnectionAborted | BrokenPipe)
            {
                return Self::Gone;
            }
            cause = error.source();
        }
        if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
            return Self::Gone;
        }
        Self::Broken(super::text_with_causes(error))
    }
}
