//! One request, from its head to the head of its answer.
//!
//! Phases, each of which may end it: admit, host, path, match, upstream, exchange. What ends it is a [`Failure`], and the answer
//! follows from that alone.

use std::sync::Arc;

use headwater_model::resources::Timeout;
use http::{HeaderValue, Method, Request, Response, StatusCode, header, request};
use hyper::body::Incoming;

use super::activity::InUse;
use super::body::{Answer, Download};
use super::config::Limits;
use super::error::Failure;
use super::exchange::Exchange;
use super::forward::{self, Client};
use super::framing::Ambiguity;
use super::host::RequestHost;
use super::metrics::Scheme;
use super::record::{Record, Telling};
use super::{Configuration, Serving, path};
use crate::compile::{Match, Matched, RequestFacts};
use crate::upstream::upload::{Upload, Waits};
use crate::upstream::{Upstream, Upstreams};

/// What serves requests, shared by all connections.
pub(super) struct Server {
    pub(super) configuration: Configuration,
    pub(super) upstreams: Arc<Upstreams>,
    pub(super) told: Arc<Telling>,
    pub(super) limits: Limits,
}

impl Server {
    /// Serves one request. `in_use` lives as long as the answer.
    pub(super) async fn serve(
        &self,
        request: Request<Incoming>,
        client: Client,
        ambiguity: Option<Ambiguity>,
        in_use: InUse,
    ) -> Response<Answer> {
        let scheme = if client.tls { Scheme::Https } else { Scheme::Http };
        let method = request.method().clone();
        let mut record = Record::new(&request, client.peer, scheme, Arc::clone(&self.told), in_use);
        let served = match ambiguity {
            Some(why) => Err(why.into()),
            None => self.forward(request, client, &mut record).await,
        };
        match served {
            Ok((head, download)) => {
                let headless = is_headless(&method, head.status);
                record.answers(head.status.as_u16(), headless);
                Response::from_parts(head, Answer::passed(download, record))
            }
            Err(failure) => own_answer(&failure, &method, record),
        }
    }

    async fn forward(
        &self,
        request: Request<Incoming>,
        client: Client,
        record: &mut Record,
    ) -> Result<(http::response::Parts, Download), Failure> {
        forward::admit(&request)?;
        let host = RequestHost::of(&request)?;
        if let Some(host) = &host {
            record.for_host(&host.name);
        }
        let matched = self.find(&request, client, host.as_ref(), record)?;
        let upstream = matched.upstream.as_ref().map_err(|missing| Failure::Unavailable {
            status: missing.status,
            reason: missing.reason.clone(),
        })?;
        let timeout = matched.timeout.unwrap_or_else(|| upstream.timeout());
        let (parts, body) = request.into_parts();
        self.check_length(&parts)?;
        let head = forward::to_upstream(&parts, client, host.as_ref(), &body);
        let upload = Upload::new(body, self.limits.body_bytes);
        let exchange = Exchange {
            upstreams: &self.upstreams,
            upstream,
            head: &head,
            host: host.as_ref(),
            upload: &upload,
            timeouts: timeout,
            waits: self.waits(&timeout),
        };
        let exchanged = exchange.run(record).await;
        record.received(upload.taken());
        let (response, lease) = exchanged?;
        let (mut head, body) = response.into_parts();
        forward::to_client(&mut head);
        Ok((head, Download::new(body, lease, upload, timeout.read)))
    }

    /// The route for a request, in the configuration of this moment.
    fn find(
        &self,
        request: &Request<Incoming>,
        client: Client,
        host: Option<&RequestHost>,
        record: &mut Record,
    ) -> Result<Arc<Matched<Arc<Upstream>>>, Failure> {
        let serving = self.configuration.load();
        let Some(serving) = serving.as_deref() else {
            return Err(Failure::NoConfiguration);
        };
        record.served_by(serving.version.clone());
        let matched = lookup(serving, request, client, host)?;
        record.matched(matched.route_id().into(), matched.service_id().map(Into::into));
        Ok(matched)
    }

    /// A body that says it is too large is refused before it is read.
    fn check_length(&self, parts: &request::Parts) -> Result<(), Failure> {
        let length = parts.headers.get(header::CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        match (self.limits.body_bytes, length) {
            (Some(limit), Some(length)) if length > limit => Err(Failure::BodyTooLarge(limit)),
            _ => Ok(()),
        }
    }

    fn waits(&self, timeout: &Timeout) -> Waits {
        Waits { client: self.limits.body_timeout, send: timeout.send, read: timeout.read }
    }
}

fn lookup(
    serving: &Serving,
    request: &Request<Incoming>,
    client: Client,
    host: Option<&RequestHost>,
) -> Result<Arc<Matched<Arc<Upstream>>>, Failure> {
    if let Some(refusal) = serving.table.refusal() {
        return Err(Failure::Governed(Arc::clone(&refusal.reason)));
    }
    let path = path::normalise(request.uri().path())?;
    let facts = RequestFacts {
        host: host.map(|host| host.name.as_str()),
        path: &path,
        method: request.method(),
        remote: client.peer.ip().to_canonical(),
    };
    match serving.table.match_request(&facts) {
        Match::Route(matched) => Ok(matched),
        Match::NotFound => Err(Failure::RouteNotFound),
    }
}

fn own_answer(failure: &Failure, method: &Method, mut record: Record) -> Response<Answer> {
    // 499 is a word of the log: nobody is there to read this answer.
    let status = StatusCode::from_u16(failure.status()).unwrap_or(StatusCode::BAD_REQUEST);
    record.fails(failure, is_headless(method, status));
    let mut response = Response::new(Answer::own(failure.body(), record));
    *response.status_mut() = status;
    forward::own_answer(response.headers_mut());
    if failure.closes_connection() {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Whether an answer has no body by its nature.
fn is_headless(method: &Method, status: StatusCode) -> bool {
    method == Method::HEAD || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}
