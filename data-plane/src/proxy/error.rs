//! What can go wrong with a request: what happened, whose fault it is, and whether another try may help. Pure.
//!
//! The status, the word in the log and the metrics, and the body the client gets all derive from [`Failure`], here and nowhere
//! else. Statuses follow APISIX, except that every body is JSON, also where nginx answers with HTML.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;

use super::framing::Ambiguity;
use super::path::InvalidPath;

/// Where a failure comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Origin {
    /// The client's request or the client's silence.
    Client,
    /// This node: its configuration, or what it does not do.
    Gateway,
    /// The upstream, or the way to it.
    Upstream,
}

impl Origin {
    /// The word for logs and metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Gateway => "gateway",
            Self::Upstream => "upstream",
        }
    }
}

/// Whether the same request may be sent once more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// Never.
    Never,
    /// Any request: nothing of it was written.
    Any,
    /// Only one that may be done twice: it was written, and the upstream may have acted on it.
    Idempotent,
}

/// One failed request.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Failure {
    /// The node has no configuration yet.
    #[error("this node has no configuration yet")]
    NoConfiguration,
    /// Something that governs every request cannot be honoured.
    #[error("this node cannot honour its configuration: {0}")]
    Governed(Arc<str>),
    /// No route matches.
    #[error("404 Route Not Found")]
    RouteNotFound,
    /// The matched route has no upstream that could be used.
    #[error("{reason}")]
    Unavailable {
        /// 502 or 503, as APISIX tells the cases apart.
        status: StatusCode,
        /// What is missing, named.
        reason: Arc<str>,
    },
    /// The request contradicts itself or HTTP.
    #[error("bad request: {0}")]
    BadRequest(&'static str),
    /// The path cannot be normalised.
    #[error("bad request: {0}")]
    BadPath(#[from] InvalidPath),
    /// The message's framing is ambiguous.
    #[error("bad request: {0}")]
    Ambiguous(#[from] Ambiguity),
    /// A method that no gateway serves.
    #[error("the method {0} is not served here")]
    MethodRefused(&'static str),
    /// The client asks for another protocol on this connection.
    #[error("switching protocols is not supported: this gateway forwards no WebSocket")]
    UpgradeRefused,
    /// `Expect` with something other than `100-continue`.
    #[error("the expectation is not understood")]
    Expectation,
    /// The body is larger than `limits.body_bytes`.
    #[error("the request body is larger than {0} bytes")]
    BodyTooLarge(u64),
    /// The client's body broke off or is not framed as announced.
    #[error("the request body is broken: {0}")]
    BodyBroken(Arc<str>),
    /// The client sent nothing of its body for `limits.body_timeout`.
    #[error("the request body did not arrive in time")]
    BodyTimeout,
    /// The client went away before an answer.
    #[error("the client closed the connection")]
    ClientGone,
    /// No name of the upstream's nodes has an address.
    #[error("the upstream's node {0} has no known address")]
    NoAddress(Arc<str>),
    /// A connection was refused or failed.
    #[error("cannot connect to the upstream: {0}")]
    Connect(Arc<str>),
    /// A connection, with its TLS handshake, took too long.
    #[error("connecting to the upstream took longer than {0:?}")]
    ConnectTimeout(Duration),
    /// A pooled connection had ended before the request was written to it.
    #[error("the upstream closed the kept connection")]
    Stale,
    /// The connection ended after the request was written (all or part of it).
    #[error("the upstream closed the connection before it answered: {0}")]
    Reset(Arc<str>),
    /// The upstream took nothing of the request for too long.
    #[error("the upstream took no byte of the request for {0:?}")]
    SendTimeout(Duration),
    /// The upstream sent nothing of its answer for too long.
    #[error("the upstream sent no byte of its answer for {0:?}")]
    ReadTimeout(Duration),
    /// What the upstream answered is not HTTP/1.1, or is a switch of protocols nobody asked for.
    #[error("the upstream's answer is no valid response: {0}")]
    BadResponse(Arc<str>),
    /// Every node was tried.
    #[error("every node of the upstream was tried")]
    Exhausted,
}

/// nginx's status for a client that went away; never sent, only logged.
const CLIENT_GONE: u16 = 499;

struct Facts {
    origin: Origin,
    status: u16,
    label: &'static str,
    retry: Retry,
}

const fn facts(origin: Origin, status: u16, label: &'static str, retry: Retry) -> Facts {
    Facts { origin, status, label, retry }
}

impl Failure {
    fn facts(&self) -> Facts {
        use Origin::{Client, Gateway, Upstream};
        use Retry::{Any, Idempotent, Never};
        match self {
            Self::NoConfiguration => facts(Gateway, 503, "no_configuration", Never),
            Self::Governed(_) => facts(Gateway, 503, "governed", Never),
            Self::RouteNotFound => facts(Gateway, 404, "route_not_found", Never),
            Self::Unavailable { status, .. } => {
                facts(Gateway, status.as_u16(), "upstream_unavailable", Never)
            }
            Self::BadRequest(_) | Self::BadPath(_) => facts(Client, 400, "bad_request", Never),
            Self::Ambiguous(_) => facts(Client, 400, "ambiguous_framing", Never),
            Self::MethodRefused(_) => facts(Client, 405, "method_refused", Never),
            Self::UpgradeRefused => facts(Gateway, 501, "upgrade_refused", Never),
            Self::Expectation => facts(Client, 417, "expectation", Never),
            Self::BodyTooLarge(_) => facts(Client, 413, "body_too_large", Never),
            Self::BodyBroken(_) => facts(Client, 400, "body_broken", Never),
            Self::BodyTimeout => facts(Client, 408, "body_timeout", Never),
            Self::ClientGone => facts(Client, CLIENT_GONE, "client_gone", Never),
            Self::NoAddress(_) => facts(Upstream, 503, "no_address", Any),
            Self::Connect(_) => facts(Upstream, 502, "connect", Any),
            Self::ConnectTimeout(_) => facts(Upstream, 504, "connect_timeout", Any),
            Self::Stale => facts(Upstream, 502, "stale_connection", Any),
            Self::Reset(_) => facts(Upstream, 502, "reset", Idempotent),
            Self::SendTimeout(_) => facts(Upstream, 504, "send_timeout", Idempotent),
            Self::ReadTimeout(_) => facts(Upstream, 504, "read_timeout", Idempotent),
            Self::BadResponse(_) => facts(Upstream, 502, "bad_response", Idempotent),
            Self::Exhausted => facts(Upstream, 502, "exhausted", Never),
        }
    }

    /// Whose fault it is.
    pub fn origin(&self) -> Origin {
        self.facts().origin
    }

    /// The status the client gets; 499 for one that is gone.
    pub fn status(&self) -> u16 {
        self.facts().status
    }

    /// The word for logs and metrics.
    pub fn label(&self) -> &'static str {
        self.facts().label
    }

    /// Whether another try may help.
    pub fn retry(&self) -> Retry {
        self.facts().retry
    }

    /// Whether the connection to the client cannot carry another request.
    pub fn closes_connection(&self) -> bool {
        matches!(
            self,
            Self::Ambiguous(_)
                | Self::BodyTooLarge(_)
                | Self::BodyBroken(_)
                | Self::BodyTimeout
                | Self::Expectation
                | Self::UpgradeRefused
        )
    }

    /// The body for the client: what APISIX writes for its own errors, `{"error_msg": "..."}` and a newline.
    ///
    /// Faults of the way to the upstream are named without their cause: addresses of the inner network are for the log.
    pub fn body(&self) -> String {
        let text = match self {
            Self::NoAddress(_) => "no node of the upstream has a known address".to_owned(),
            Self::Connect(_) => "cannot connect to the upstream".to_owned(),
            Self::Reset(_) => "the upstream closed the connection before it answered".to_owned(),
            Self::BadResponse(_) => "the upstream's answer is no valid response".to_owned(),
            Self::BodyBroken(_) => "the request body is broken".to_owned(),
            other => other.to_string(),
        };
        let mut body = serde_json::json!({ "error_msg": text }).to_string();
        body.push('\n');
        body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_route_answers_as_apisix_does() {
        assert_eq!(Failure::RouteNotFound.status(), 404);
        assert_eq!(Failure::RouteNotFound.body(), "{\"error_msg\":\"404 Route Not Found\"}\n");
    }

    #[test]
    fn timeouts_are_504_and_what_was_written_is_not_repeated_blindly() {
        let second = Duration::from_secs(1);
        for failure in
            [Failure::SendTimeout(second), Failure::ReadTimeout(second), Failure::ConnectTimeout(second)]
        {
            assert_eq!(failure.status(), 504, "{failure:?}");
        }
        assert_eq!(Failure::ReadTimeout(second).retry(), Retry::Idempotent);
        assert_eq!(Failure::ConnectTimeout(second).retry(), Retry::Any);
    }

    #[test]
    fn only_upstream_failures_are_retried() {
        for failure in [
            Failure::BodyTimeout,
            Failure::BodyTooLarge(1),
            Failure::RouteNotFound,
            Failure::ClientGone,
            Failure::Exhausted,
        ] {
            assert_eq!(failure.retry(), Retry::Never, "{failure:?}");
        }
    }

    #[test]
    fn inner_addresses_stay_out_of_the_answer() {
        let failure = Failure::Connect("10.0.0.7:80: refused".into());
        assert!(failure.to_string().contains("10.0.0.7"));
        assert!(!failure.body().contains("10.0.0.7"));
    }
}
