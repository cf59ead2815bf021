//! The gRPC edge of the southbound service: requests in, streams of shared frames out.
//!
//! It stands in for tonic's generated server for one reason: that one copies each message into a buffer of its
//! stream, which grows to the largest message and stays, tens of kilobytes a node. A fleet is fed the very same
//! bytes, so here they go to the transport as they are. It must never know what a frame says.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::task::{Context, Poll, ready as ready_or_return};

use bytes::Bytes;
use headwater_proto::frame::{Frame, FrameDecoder, Framed};
use headwater_proto::limits::MAX_MESSAGE_BYTES;
use headwater_tls::Peer;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, Request, Response};
use http_body::Body as HttpBody;
use tokio::sync::mpsc;
use tonic::body::Body;
use tonic::metadata::GRPC_CONTENT_TYPE;
use tonic::server::NamedService;
use tonic::{Code, Status, Streaming};

use super::service::Service;

/// The only method.
const SYNC: &str = "/headwater.config.v1.Config/Sync";

/// What a node asked with.
pub(super) struct Asked {
    /// Who it is, as far as the connection shows.
    pub(super) peer: Option<Peer>,
    /// Its join token.
    pub(super) token: Option<String>,
    /// Its frames.
    pub(super) incoming: Streaming<Frame>,
}

/// The southbound service for a tonic server.
#[derive(Clone)]
pub struct Endpoint(pub(super) Service);

/// The frames of one stream, until its session drops the sender.
struct Frames {
    frames: mpsc::Receiver<Framed>,
    ended: bool,
}

// === impl Endpoint ===

impl NamedService for Endpoint {
    const NAME: &'static str = "headwater.config.v1.Config";
}

impl tower::Service<Request<Body>> for Endpoint {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        if request.uri().path() != SYNC {
            return ready(Ok(Status::unimplemented("the service has one method, Sync").into_http()));
        }
        let (parts, body) = request.into_parts();
        let token = parts.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let asked = Asked {
            peer: parts.extensions.get::<Peer>().cloned(),
            token: token.and_then(|value| value.strip_prefix("Bearer ")).map(ToOwned::to_owned),
            incoming: Streaming::new_request(FrameDecoder, body, None, Some(MAX_MESSAGE_BYTES)),
        };
        let frames = Frames { frames: self.0.open(asked), ended: false };
        let mut response = Response::new(Body::new(frames));
        response.headers_mut().insert(CONTENT_TYPE, GRPC_CONTENT_TYPE);
        ready(Ok(response))
    }
}

// === impl Frames ===

impl HttpBody for Frames {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Status>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let frame = match ready_or_return!(self.frames.poll_recv(context)) {
            Some(framed) => http_body::Frame::data(framed.into_bytes()),
            None => {
                self.ended = true;
                let mut trailers = HeaderMap::new();
                trailers.insert(Status::GRPC_STATUS, (Code::Ok as u16).into());
                http_body::Frame::trailers(trailers)
            }
        };
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn frames_go_out_as_they_are_and_the_end_is_a_status() {
        let (sender, frames) = mpsc::channel(2);
        let mut body = Frames { frames, ended: false };
        let framed = Framed::from(Frame(Bytes::from_static(b"hello")));
        sender.send(framed.clone()).await.unwrap();
        drop(sender);
        let sent = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(sent.as_ptr(), framed.into_bytes().as_ptr());
        assert_eq!(&sent[..], b"\0\0\0\0\x05hello");
        let trailers = body.frame().await.unwrap().unwrap().into_trailers().unwrap();
        assert_eq!(trailers[Status::GRPC_STATUS], "0");
        assert!(body.frame().await.is_none() && body.is_end_stream());
    }
}
