//! One client connection: HTTP/1.1 or HTTP/2 with its limits, from its first byte to its end.

use std::convert::Infallible;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use headwater_process::drain::DrainWatcher;
use headwater_process::{Policy, Supervisor};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};

use super::activity::Activity;
use super::body::Answer;
use super::config::Limits;
use super::forward::Client;
use super::framing::Ambiguity;
use super::serve::Server;
use super::stream::{Verdict, Watched};
use crate::upstream::text_with_causes;

/// How long a connection that was told to close may stay without a request: for one already on its way, for the client to
/// take note.
const LINGER: Duration = Duration::from_secs(1);
/// HTTP/2 clients that may have died are asked for a sign of life this often, and get as long to give it.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// Least buffer of the HTTP/2 side: what may be on its way to a client that reads slowly.
const HTTP2_WINDOW: u32 = 1 << 20;

/// Runs the tasks of an HTTP/2 connection's streams.
#[derive(Debug, Clone)]
struct Tasks(Supervisor);

impl<F> hyper::rt::Executor<F> for Tasks
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, task: F) {
        self.0.spawn("client stream", Policy::best_effort().dropped_on_cancel(), async move {
            task.await;
        });
    }
}

/// Serves one connection to its end.
pub(super) async fn run<S>(
    stream: S,
    client: Client,
    server: Arc<Server>,
    supervisor: Supervisor,
    drain: DrainWatcher,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limits = server.limits.clone();
    let verdict = Verdict::default();
    let activity = Activity::new();
    let stream = Watched::new(stream, Arc::clone(&verdict), limits.header_bytes, limits.write_timeout);
    let session = Arc::new(Session { client, server, verdict, activity, requests: AtomicU64::new(0) });
    let service = {
        let session = Arc::clone(&session);
        service_fn(move |request| session.request(request))
    };
    let builder = builder(&limits, supervisor);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let mut closing = false;
    let (mut drain, mut force) = (drain.clone(), drain);
    loop {
        let patience = if closing { LINGER } else { limits.idle_timeout };
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(peer = %client.peer, error = %text_with_causes(error.as_ref()), "client connection");
                }
                return;
            }
            () = drain.draining(), if !closing => {}
            () = session.activity.idle(patience) => {
                if closing {
                    return;
                }
            }
            () = force.forced() => return,
        }
        // HTTP/1.1 closes after the request under way, HTTP/2 tells the client to go away.
        connection.as_mut().graceful_shutdown();
        closing = true;
    }
}

fn builder(limits: &Limits, supervisor: Supervisor) -> Builder<Tasks> {
    let mut builder = Builder::new(Tasks(supervisor));
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .max_headers(limits.header_count)
        .max_buf_size(limits.header_bytes)
        .keep_alive(true);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.concurrent_streams)
        .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX))
        .initial_stream_window_size(HTTP2_WINDOW)
        .initial_connection_window_size(HTTP2_WINDOW * 2)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_INTERVAL);
    builder
}

struct Session {
    client: Client,
    server: Arc<Server>,
    verdict: Verdict,
    activity: Arc<Activity>,
    requests: AtomicU64,
}

type Answering = Pin<Box<dyn Future<Output = Result<Response<Answer>, Infallible>> + Send>>;

impl Session {
    fn request(self: &Arc<Self>, request: Request<Incoming>) -> Answering {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let in_use = self.activity.begin();
        let session = Arc::clone(self);
        Box::pin(async move {
            let ambiguity = session.refused(number);
            Ok(session.server.serve(request, session.client, ambiguity, in_use).await)
        })
    }

    /// Whether this request is the refused one, or behind it.
    fn refused(&self, number: u64) -> Option<Ambiguity> {
        self.verdict.get().filter(|refused| refused.request <= number).map(|refused| refused.why)
    }
}
