//! What is remembered of a request while it is served, told to the access log and the metrics at its end.
//!
//! A record tells when it is dropped, whatever happened before: a request whose client went away is told as well.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::{Request, Version, header};
use prometheus_client::metrics::gauge::Gauge;
use tokio::time::Instant;

use super::access_log::{AccessLog, Attempt, Line};
use super::activity::InUse;
use super::error::{Failure, Origin};
use super::metrics::{ErrorLabels, ProxyMetrics, RequestLabels, Scheme, status_class};
use crate::upstream::text_with_causes;

/// Where records tell what they remember.
#[derive(Debug, Clone)]
pub struct Telling {
    /// The access log.
    pub log: AccessLog,
    /// The counters.
    pub metrics: ProxyMetrics,
}

/// One request, from its head to the end of its answer.
#[derive(Debug)]
pub struct Record {
    line: Option<Box<Line>>,
    began: Instant,
    origin: Origin,
    /// The answer has no body by its nature: to HEAD, 204, 304.
    headless: bool,
    told: Arc<Telling>,
    _active: Active,
    _in_use: InUse,
}

/// Counts a request as under way.
#[derive(Debug)]
struct Active(Gauge);

impl Drop for Active {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Record {
    /// Begins with a request's head.
    pub(super) fn new<B>(
        request: &Request<B>,
        client: SocketAddr,
        scheme: Scheme,
        told: Arc<Telling>,
        in_use: InUse,
    ) -> Self {
        let text = |name: &str| {
            let value = request.headers().get(name)?;
            Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        let line = Line {
            time: SystemTime::now(),
            client,
            scheme: scheme.label(),
            protocol: protocol(request.version()),
            method: request.method().to_string(),
            host: String::new(),
            uri: request
                .uri()
                .path_and_query()
                .map_or_else(|| request.uri().to_string(), ToString::to_string),
            status: 0,
            bytes_in: 0,
            bytes_out: 0,
            latency_ms: 0.0,
            complete: false,
            error: None,
            reason: None,
            upstream: Vec::new(),
            route: None,
            service: None,
            request_id: text("x-request-id"),
            user_agent: text(header::USER_AGENT.as_str()),
            version: None,
        };
        told.metrics.active_requests.inc();
        let active = Active(told.metrics.active_requests.clone());
        Self {
            line: Some(Box::new(line)),
            began: Instant::now(),
            origin: Origin::Gateway,
            headless: false,
            told,
            _active: active,
            _in_use: in_use,
        }
    }

    fn line(&mut self) -> &mut Line {
        self.line.as_mut().expect("the line is taken only by drop")
    }

    /// The configuration version that serves it.
    pub fn served_by(&mut self, version: Option<Arc<str>>) {
        self.line().version = version;
    }

    /// The host it is for.
    pub fn for_host(&mut self, host: &str) {
        host.clone_into(&mut self.line().host);
    }

    /// The route and service it matched.
    pub fn matched(&mut self, route: Arc<str>, service: Option<Arc<str>>) {
        let line = self.line();
        line.route = Some(route);
        line.service = service;
    }

    /// A try at a node ended.
    pub fn tried(&mut self, address: String, began: Instant, outcome: Result<u16, &Failure>) {
        let error = outcome.err().map(Failure::label);
        if let Some(kind) = error {
            self.told.metrics.upstream_errors.get_or_create(&ErrorLabels { kind }).inc();
        }
        let status = outcome.ok();
        let latency_ms = millis(began.elapsed());
        self.line().upstream.push(Attempt { address, status, error, latency_ms });
    }

    /// The upstream's head is passed on.
    pub fn answers(&mut self, status: u16, headless: bool) {
        self.origin = Origin::Upstream;
        self.headless = headless;
        self.line().status = status;
    }

    /// The gateway answers itself.
    pub fn fails(&mut self, failure: &Failure, headless: bool) {
        self.origin = failure.origin();
        self.headless = headless;
        let line = self.line();
        line.status = failure.status();
        line.error = Some(failure.label());
        line.reason = Some(text_with_causes(failure).to_string());
    }

    /// Bytes of the request's body passed on.
    pub fn received(&mut self, bytes: u64) {
        self.line().bytes_in = bytes;
    }

    /// Bytes of the answer's body passed on.
    pub fn sent(&mut self, bytes: usize) {
        self.line().bytes_out += bytes as u64;
    }

    /// The answer ended too early, through no fault of the client.
    pub fn broke_off(&mut self, failure: &Failure) {
        self.origin = failure.origin();
        let line = self.line();
        line.error = Some(failure.label());
        line.reason = Some(text_with_causes(failure).to_string());
        let kind = failure.label();
        self.told.metrics.upstream_errors.get_or_create(&ErrorLabels { kind }).inc();
    }

    /// The answer was passed on to its end.
    pub fn complete(&mut self) {
        self.line().complete = true;
    }

    /// Whether the answer has no body by its nature.
    pub fn is_headless(&self) -> bool {
        self.headless
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let gone = Failure::ClientGone;
        if self.line().status == 0 {
            self.fails(&gone, false);
        } else if !self.line().complete && self.line().error.is_none() {
            self.origin = gone.origin();
            self.line().error = Some(gone.label());
        }
        let elapsed = self.began.elapsed();
        let origin = self.origin.label();
        let Some(mut line) = self.line.take() else {
            return;
        };
        line.latency_ms = millis(elapsed);
        let metrics = &self.told.metrics;
        metrics.seconds.observe(elapsed.as_secs_f64());
        let labels =
            RequestLabels { status: status_class(line.status), origin, reason: line.error.unwrap_or("ok") };
        metrics.requests.get_or_create(&labels).inc();
        if self.told.log.is_on() {
            self.told.log.write(line);
        }
    }
}

/// Rounded to microseconds.
fn millis(elapsed: Duration) -> f64 {
    elapsed.as_micros() as f64 / 1000.0
}

fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_11 => "HTTP/1.1",
        Version::HTTP_2 => "HTTP/2.0",
        _ => "HTTP",
    }
}
