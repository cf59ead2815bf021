//! A client's connection as the HTTP library reads and writes it.
//!
//! Between socket and library it does two things the library does not: it follows the framing of requests (see
//! [`framing`](super::framing)) and it ends a connection whose client takes nothing of what is written to it.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::framing::{Framing, Refused};

/// The first request of a connection that must not be served, once it is known.
pub type Verdict = Arc<OnceLock<Refused>>;

/// A connection that is watched.
#[derive(Debug)]
pub struct Watched<S> {
    inner: S,
    framing: Framing,
    verdict: Verdict,
    write_timeout: Duration,
    stall: Option<Pin<Box<Sleep>>>,
}

impl<S> Watched<S> {
    /// Watches `inner`; what is to be refused is told through `verdict` before the library sees the request.
    pub fn new(inner: S, verdict: Verdict, max_line: usize, write_timeout: Duration) -> Self {
        Self { inner, framing: Framing::new(max_line), verdict, write_timeout, stall: None }
    }

    /// Passes a write's outcome on, unless writes have made no progress for too long.
    fn judge<T>(&mut self, written: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stall = None;
            return written;
        }
        let timeout = self.write_timeout;
        let stall =
            self.stall.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + timeout)));
        if stall.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the client takes nothing of the answer",
            )));
        }
        Poll::Pending
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(context, buffer);
        if let Poll::Ready(Ok(())) = &read
            && let Some(refused) = self.framing.observe(&buffer.filled()[before..])
        {
            // The framing tells one refusal at most, so the cell is empty.
            let _ = self.verdict.set(refused);
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.judge(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(context, slices);
        self.judge(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(context);
        self.judge(flushed, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.inner).poll_shutdown(context);
        self.judge(shut, context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_is_ended() {
        let (ours, _theirs) = tokio::io::duplex(16);
        let timeout = Duration::from_secs(60);
        let mut watched = Watched::new(ours, Verdict::default(), 100, timeout);
        let began = Instant::now();
        let error = watched.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(began.elapsed(), timeout);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_client_is_not() {
        let (ours, mut theirs) = tokio::io::duplex(16);
        let mut watched = Watched::new(ours, Verdict::default(), 100, Duration::from_secs(60));
        let reader = async {
            let mut part = [0; 8];
            for _ in 0..8 {
                tokio::time::sleep(Duration::from_secs(50)).await;
                theirs.read_exact(&mut part).await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(watched.write_all(&[0; 64]), reader);
        written.unwrap();
    }

    #[tokio::test]
    async fn the_verdict_is_there_before_the_bytes() {
        let (ours, mut theirs) = tokio::io::duplex(1024);
        let verdict = Verdict::default();
        let mut watched = Watched::new(ours, Arc::clone(&verdict), 100, Duration::from_secs(60));
        theirs.write_all(b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n").await.unwrap();
        let mut buffer = [0; 1024];
        let count = watched.read(&mut buffer).await.unwrap();
        assert!(count > 0);
        assert_eq!(verdict.get().unwrap().request, 0);
    }
}
