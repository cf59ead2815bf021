//! The body of an answer on its way to the client.
//!
//! However it ends (whole, cut off by the upstream, dropped because the client went away), its exchange is told once, and the
//! upstream connection is given back only if both directions of it came to their proper end.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep};

use super::error::Failure;
use super::exchange::Lease;
use super::record::Record;
use crate::upstream::text_with_causes;
use crate::upstream::upload::Upload;

/// The body of an answer.
#[derive(Debug)]
pub struct Answer {
    content: Content,
    record: Record,
}

#[derive(Debug)]
enum Content {
    /// The gateway's own words; `None` once they are said.
    Own(Option<Bytes>),
    /// The upstream's.
    Passed(Box<Download>),
}

/// An upstream's body with all that has to live as long as it.
#[derive(Debug)]
pub struct Download {
    body: Incoming,
    lease: Option<Lease>,
    upload: Upload,
    read_timeout: Duration,
    read_at: Instant,
    stall: Option<Pin<Box<Sleep>>>,
}

impl Download {
    /// The body of an answer that came over `lease`, to a request whose body is `upload`.
    pub fn new(body: Incoming, lease: Lease, upload: Upload, read_timeout: Duration) -> Self {
        Self { body, lease: Some(lease), upload, read_timeout, read_at: Instant::now(), stall: None }
    }

    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            self.read_at = Instant::now();
            self.stall = None;
            return Poll::Ready(
                frame.map(|frame| frame.map_err(|error| Failure::Reset(text_with_causes(&error)))),
            );
        }
        ready!(self.poll_stall(context));
        Poll::Ready(Some(Err(Failure::ReadTimeout(self.read_timeout))))
    }

    /// Ready once the upstream has sent nothing for too long. While the request's body still moves, it may be silent.
    fn poll_stall(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            let deadline = self.deadline();
            let stall = self.stall.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
            ready!(stall.as_mut().poll(context));
            if self.deadline() <= Instant::now() {
                return Poll::Ready(());
            }
            self.stall = None;
        }
    }

    fn deadline(&self) -> Instant {
        self.read_at.max(self.upload.moved_at()) + self.read_timeout
    }

    fn give_back(&mut self) {
        if self.body.is_end_stream()
            && self.upload.is_done()
            && let Some(lease) = self.lease.take()
        {
            lease.give_back();
        }
    }
}

impl Drop for Download {
    fn drop(&mut self) {
        self.give_back();
    }
}

impl Answer {
    /// The gateway's own answer.
    pub fn own(text: String, record: Record) -> Self {
        Self { content: Content::Own(Some(text.into())), record }
    }

    /// The upstream's answer.
    pub fn passed(download: Download, record: Record) -> Self {
        Self { content: Content::Passed(Box::new(download)), record }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Arc<Failure>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Arc<Failure>>>> {
        let this = &mut *self;
        let frame = match &mut this.content {
            Content::Own(text) => text.take().map(|text| Ok(Frame::data(text))),
            Content::Passed(download) => ready!(download.poll_frame(context)),
        };
        Poll::Ready(match frame {
            Some(Ok(frame)) => {
                this.record.sent(frame.data_ref().map_or(0, Bytes::len));
                Some(Ok(frame))
            }
            Some(Err(failure)) => {
                this.record.broke_off(&failure);
                Some(Err(Arc::new(failure)))
            }
            None => {
                this.record.complete();
                None
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Own(text) => text.is_none(),
            Content::Passed(download) => download.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Own(text) => SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64)),
            Content::Passed(download) => download.body.size_hint(),
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        // Where the end is known beforehand (a length, no body at all) nobody reads up to it.
        if self.is_end_stream() || self.record.is_headless() {
            self.record.complete();
        }
        if let Content::Passed(download) = &self.content {
            self.record.received(download.upload.taken());
        }
    }
}
