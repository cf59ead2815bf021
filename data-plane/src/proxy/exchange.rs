//! One request and its upstream: pick a node, connect, send, wait for the head; again where that is allowed.
//!
//! Rules (nginx's, which APISIX has): another node is tried after a failed connect whatever the request, and after a failure
//! behind the first written byte only if the method may be repeated and no byte of the body was taken. A status is never a
//! reason to try again. A kept connection that had ended costs no try: the request goes once more to the same node, over a
//! new connection, under the same rules.

use std::sync::Arc;

use headwater_model::resources::Timeout;
use http::{HeaderValue, Request, Response, StatusCode, request};
use hyper::body::Incoming;
use tokio::time::Instant;

use super::error::{Failure, Retry};
use super::forward;
use super::host::RequestHost;
use super::record::Record;
use crate::upstream::balancer::Tried;
use crate::upstream::connect::ConnectError;
use crate::upstream::node::Node;
use crate::upstream::pool::{Connection, Target};
use crate::upstream::upload::{Stalled, Upload, UploadFault, Waits};
use crate::upstream::{Upstream, Upstreams, text_with_causes};

/// A connection in use, to be given back at the end.
#[derive(Debug)]
pub struct Lease {
    connection: Connection,
    target: Target,
    upstreams: Arc<Upstreams>,
}

impl Lease {
    /// Gives the connection back: both directions came to their proper end.
    pub fn give_back(self) {
        self.upstreams.give_back(self.target, self.connection);
    }
}

/// What one exchange needs to know.
pub struct Exchange<'a> {
    /// All upstreams.
    pub upstreams: &'a Arc<Upstreams>,
    /// The one to use.
    pub upstream: &'a Upstream,
    /// The head, as for every node.
    pub head: &'a request::Parts,
    /// The host the client asked for.
    pub host: Option<&'a RequestHost>,
    /// The body.
    pub upload: &'a Upload,
    /// Bounds on the upstream.
    pub timeouts: Timeout,
    /// Bounds on both sides while the body moves.
    pub waits: Waits,
}

/// What is left to try.
#[derive(Debug)]
struct Tries {
    tried: Tried,
    left: u32,
    /// The node to use once more, over a new connection.
    again: Option<usize>,
}

/// A failed try.
struct Failed {
    failure: Failure,
    /// The connection had served a request before.
    reused: bool,
}

impl Exchange<'_> {
    /// The upstream's head, and the connection its body comes over.
    ///
    /// # Errors
    /// The last try's failure.
    pub async fn run(&self, record: &mut Record) -> Result<(Response<Incoming>, Lease), Failure> {
        let mut tries = Tries { tried: Tried::default(), left: self.upstream.retries(), again: None };
        let mut last = Failure::Exhausted;
        loop {
            let fresh = tries.again.is_some();
            let Some((index, node)) = self.upstream.choose(&mut tries) else {
                return Err(last);
            };
            let began = Instant::now();
            match self.attempt(node, fresh).await {
                Ok((response, lease)) => {
                    let address = lease.target.address.to_string();
                    record.tried(address, began, Ok(response.status().as_u16()));
                    return Ok((response, lease));
                }
                Err(Failed { failure, reused }) => {
                    if failure.origin() == super::error::Origin::Upstream {
                        record.tried(node.text().to_owned(), began, Err(&failure));
                    }
                    if !self.may_repeat(&failure) || !tries.next(index, &failure, reused) {
                        return Err(failure);
                    }
                    last = failure;
                }
            }
        }
    }

    /// Whether the request may be sent once more after `failure`, wherever to.
    fn may_repeat(&self, failure: &Failure) -> bool {
        let allowed = match failure.retry() {
            Retry::Never => false,
            Retry::Any => true,
            Retry::Idempotent => self.head.method.is_idempotent(),
        };
        allowed && !self.upload.is_touched()
    }

    async fn attempt(&self, node: &Node, fresh: bool) -> Result<(Response<Incoming>, Lease), Failed> {
        let new = |failure| Failed { failure, reused: false };
        let host = self.upstream.host_for(self.host.map(|host| &host.sent), node);
        let mut lease = self.connect(node, &host, fresh).await.map_err(new)?;
        let reused = lease.connection.is_reused();
        let response =
            self.send(&mut lease.connection, host).await.map_err(|failure| Failed { failure, reused })?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Err(new(Failure::BadResponse("it switches protocols without being asked".into())));
        }
        Ok((response, lease))
    }

    async fn connect(&self, node: &Node, host: &HeaderValue, fresh: bool) -> Result<Lease, Failure> {
        let limit = self.timeouts.connect;
        let deadline = Instant::now() + limit;
        let addresses = node
            .addresses(limit)
            .await
            .map_err(|why| Failure::NoAddress(format!("{}: {why}", node.text()).into()))?;
        let tls = self.upstream.tls_name(host);
        let mut last = Failure::ConnectTimeout(limit);
        for address in addresses {
            let target = Target { address, tls: tls.clone() };
            let left = deadline.saturating_duration_since(Instant::now());
            match self.upstreams.connection(&target, fresh, left).await {
                Ok(connection) => {
                    let upstreams = Arc::clone(self.upstreams);
                    return Ok(Lease { connection, target, upstreams });
                }
                Err(ConnectError::TimedOut { .. }) => return Err(Failure::ConnectTimeout(limit)),
                Err(error @ ConnectError::Failed { .. }) => last = Failure::Connect(text_with_causes(&error)),
            }
        }
        Err(last)
    }

    async fn send(
        &self,
        connection: &mut Connection,
        host: HeaderValue,
    ) -> Result<Response<Incoming>, Failure> {
        let Some(body) = self.upload.lend() else {
            return Err(self.client_fault().unwrap_or(Failure::Stale));
        };
        let request = Request::from_parts(forward::for_node(self.head, host), body);
        let sending = connection.sender().try_send_request(request);
        tokio::select! {
            // An answer that is there goes before a time-out that is due as well.
            biased;
            sent = sending => sent.map_err(|mut refused| {
                if refused.take_message().is_some() {
                    return Failure::Stale;
                }
                self.client_fault().unwrap_or_else(|| classify(refused.error()))
            }),
            stalled = self.upload.stalled(&self.waits) => Err(match stalled {
                Stalled::Client => Failure::BodyTimeout,
                Stalled::Send => Failure::SendTimeout(self.waits.send),
                Stalled::Read => Failure::ReadTimeout(self.waits.read),
            }),
        }
    }

    fn client_fault(&self) -> Option<Failure> {
        Some(match self.upload.fault()? {
            UploadFault::TooLarge(limit) => Failure::BodyTooLarge(limit),
            UploadFault::Gone => Failure::ClientGone,
            UploadFault::Broken(why) => Failure::BodyBroken(why),
            UploadFault::TakenBack => return None,
        })
    }
}

impl Upstream {
    fn choose(&self, tries: &mut Tries) -> Option<(usize, &Node)> {
        match tries.again.take() {
            Some(index) => Some((index, self.node(index))),
            None => self.pick(&tries.tried),
        }
    }
}

impl Tries {
    /// Prepares the next try, if there is one.
    fn next(&mut self, index: usize, failure: &Failure, reused: bool) -> bool {
        let connection_ended = matches!(failure, Failure::Stale | Failure::Reset(_));
        if reused && connection_ended {
            self.again = Some(index);
            return true;
        }
        // A node without an address was never there to be tried; a lone one is not asked twice.
        if matches!(failure, Failure::NoAddress(_)) {
            let new = !self.tried.contains(index);
            self.tried.add(index);
            return new;
        }
        self.tried.add(index);
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        true
    }
}

/// What an error of the HTTP library says about the upstream.
fn classify(error: &hyper::Error) -> Failure {
    let text = text_with_causes(error);
    if error.is_parse() { Failure::BadResponse(text) } else { Failure::Reset(text) }
}

#[cfg(test)]
mod tests;
