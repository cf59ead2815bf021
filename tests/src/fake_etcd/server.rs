//! The listener, and which path is which call.

use std::convert::Infallible;
use std::future::ready;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use etcd_client::proto::PbWatchResponse;
use futures_util::{StreamExt, stream};
use headwater_process::{Policy, Supervisor};
use http_body_util::{BodyStream, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::sleep;
use tonic::body::Body;
use tonic::server::Grpc;
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;
use tower::service_fn as call;

use super::watch::{self, Client};
use super::wire::WatchRequest;
use super::{Shared, lock, unary};

/// A length that no decode limit of anybody lets pass.
const ABOVE_ALL_LIMITS: u32 = 1 << 30;

type Answer = http::Response<Body>;

pub(super) async fn serve(listener: TcpListener, state: Shared, supervisor: Supervisor) {
    while let Ok((stream, _)) = listener.accept().await {
        lock(&state).seen.connections += 1;
        let serving = connection(stream, Arc::clone(&state));
        supervisor.spawn("connection", Policy::best_effort().dropped_on_cancel(), serving);
    }
}

async fn connection(stream: TcpStream, state: Shared) {
    let service = service_fn(move |request| {
        let state = Arc::clone(&state);
        async move { Ok::<_, Infallible>(dispatch(state, request).await) }
    });
    // The client's end of a connection is no fault of anybody.
    let _ = http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
}

async fn dispatch(state: Shared, request: http::Request<Incoming>) -> Answer {
    match request.uri().path() {
        "/etcdserverpb.KV/Range" => range(state, request).await,
        "/etcdserverpb.KV/Txn" => unary_call(request, move |request| unary::txn(&state, request)).await,
        "/etcdserverpb.Watch/Watch" => watch(state, request).await,
        "/etcdserverpb.Maintenance/Status" => {
            unary_call(request, move |request| unary::status(&state, request)).await
        }
        "/etcdserverpb.Auth/Authenticate" => {
            unary_call(request, move |request| unary::authenticate(&state, request)).await
        }
        path => Status::unimplemented(format!("the fake does not serve {path}")).into_http(),
    }
}

async fn unary_call<Q, A, F>(request: http::Request<Incoming>, answer: F) -> Answer
where
    Q: prost::Message + Default + Send + 'static,
    A: prost::Message + Send + 'static,
    F: Fn(Request<Q>) -> Result<A, Status> + Clone,
{
    let service = call(move |request: Request<Q>| {
        let answer = answer.clone();
        async move { answer(request).map(Response::new) }
    });
    Grpc::new(ProstCodec::<A, Q>::default()).unary(service, request).await
}

/// A page above the limit is answered by the length of a message that is never sent.
async fn range(state: Shared, request: http::Request<Incoming>) -> Answer {
    let how = Arc::new(OnceLock::new());
    let found = Arc::clone(&how);
    let read = move |request| {
        let read = unary::range(&state, request)?;
        found.get_or_init(|| (read.above_all_limits, read.delay));
        Ok(read.answer)
    };
    let answer = unary_call(request, read).await;
    let (large, delay) = how.get().copied().unwrap_or_default();
    sleep(delay).await;
    if !large {
        return answer;
    }
    answer.map(|_| {
        Body::new(StreamBody::new(stream::once(ready(Ok::<_, Status>(too_large()))).chain(stream::pending())))
    })
}

async fn watch(state: Shared, request: http::Request<Incoming>) -> Answer {
    let (declare, declared) = oneshot::channel();
    let mut declare = Some(declare);
    let service = call(move |request: Request<Streaming<WatchRequest>>| {
        let client = Client::of(request.metadata());
        watch::open(Arc::clone(&state), client, request.into_inner(), declare.take())
    });
    let answer =
        Grpc::new(ProstCodec::<PbWatchResponse, WatchRequest>::default()).streaming(service, request).await;
    answer.map(|body| with_declared(body, declared))
}

/// A body into which the length of a message can be put that no limit lets pass.
fn with_declared(body: Body, declared: oneshot::Receiver<()>) -> Body {
    let large = stream::once(declared).filter_map(|said| ready(said.ok().map(|()| Ok(too_large()))));
    Body::new(StreamBody::new(stream::select(BodyStream::new(body), large)))
}

/// Not compressed, and so long.
fn too_large() -> Frame<Bytes> {
    let [a, b, c, d] = ABOVE_ALL_LIMITS.to_be_bytes();
    Frame::data(Bytes::copy_from_slice(&[0, a, b, c, d]))
}
