//! The headers that go on: from the client to the upstream, and back. Pure.
//!
//! Hop-by-hop headers end here in both directions; what the gateway states about the client is set after they are gone, so that
//! no client can make the gateway drop it. No peer is trusted: what a client says about earlier hops is appended to
//! (`X-Forwarded-For`) or replaced.

use std::net::SocketAddr;

use http::header::{self, Entry, HeaderMap, HeaderName, HeaderValue};
use http::uri::PathAndQuery;
use http::{Method, Request, Uri, Version, request, response};
use http_body::Body;

use super::error::Failure;
use super::host::RequestHost;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");
const UPSTREAM_STATUS: HeaderName = HeaderName::from_static("x-apisix-upstream-status");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");

/// What every answer says served it.
const SERVER: HeaderValue = HeaderValue::from_static("headwater");
const TRAILERS: HeaderValue = HeaderValue::from_static("trailers");
const CHUNKED: HeaderValue = HeaderValue::from_static("chunked");

/// Headers that concern one connection, besides those that `Connection` names.
const HOP_BY_HOP: [HeaderName; 7] = [
    header::CONNECTION,
    KEEP_ALIVE,
    PROXY_CONNECTION,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HTTP2_SETTINGS,
];

/// What the gateway saw of the client.
#[derive(Debug, Clone, Copy)]
pub struct Client {
    /// Its address.
    pub peer: SocketAddr,
    /// The port it connected to.
    pub port: u16,
    /// Whether it came over TLS.
    pub tls: bool,
}

/// Refuses what is not forwarded at all.
///
/// WebSocket is answered with 501: the client asked for something this gateway does not do, and an answer without the switch
/// would only puzzle it. Other upgrades (`h2c`) are offers that may be left unanswered, as HTTP says; the header ends here.
///
/// # Errors
/// The refusal.
pub fn admit<B>(request: &Request<B>) -> Result<(), Failure> {
    if request.method() == Method::CONNECT {
        return Err(Failure::MethodRefused("CONNECT"));
    }
    if request.method() == Method::TRACE {
        return Err(Failure::MethodRefused("TRACE"));
    }
    let headers = request.headers();
    if has_token(headers, &header::UPGRADE, "websocket") {
        return Err(Failure::UpgradeRefused);
    }
    match headers.get(header::EXPECT) {
        Some(expect) if !expect.as_bytes().eq_ignore_ascii_case(b"100-continue") => Err(Failure::Expectation),
        _ => Ok(()),
    }
}

/// Turns the client's head into the one for the upstream. The `Host` is set for each try, by [`for_node`].
///
/// `body` tells the framing: a body of unknown length goes in chunks whatever the method.
pub fn to_upstream(
    parts: &request::Parts,
    client: Client,
    host: Option<&RequestHost>,
    body: &impl Body,
) -> request::Parts {
    let (mut head, ()) = Request::new(()).into_parts();
    head.method = parts.method.clone();
    head.uri = origin_form(&parts.uri);
    head.headers = parts.headers.clone();
    let headers = &mut head.headers;
    let wants_trailers = has_token(headers, &header::TE, "trailers");
    drop_hop_by_hop(headers);
    // The gateway itself answers `100-continue`, when the upstream begins to take the body.
    headers.remove(header::EXPECT);
    headers.remove(header::FORWARDED);
    if wants_trailers {
        headers.insert(header::TE, TRAILERS);
    }
    if parts.version == Version::HTTP_2 {
        join_cookies(headers);
    }
    if !body.is_end_stream() && body.size_hint().exact().is_none() {
        headers.remove(header::CONTENT_LENGTH);
        headers.insert(header::TRANSFER_ENCODING, CHUNKED);
    }
    state_client(headers, client, host);
    head
}

/// The head for one try.
pub fn for_node(head: &request::Parts, host: HeaderValue) -> request::Parts {
    let (mut copy, ()) = Request::new(()).into_parts();
    copy.method = head.method.clone();
    copy.uri = head.uri.clone();
    copy.headers.reserve(head.headers.len() + 1);
    copy.headers.insert(header::HOST, host);
    for (name, value) in &head.headers {
        if *name != header::HOST {
            copy.headers.append(name, value.clone());
        }
    }
    copy
}

/// Turns the upstream's head into the one for the client.
pub fn to_client(parts: &mut response::Parts) {
    if parts.headers.contains_key(header::TRANSFER_ENCODING) {
        parts.headers.remove(header::CONTENT_LENGTH);
    }
    drop_hop_by_hop(&mut parts.headers);
    parts.headers.insert(header::SERVER, SERVER);
    if parts.status.is_server_error() {
        let status = HeaderValue::from(parts.status.as_u16());
        parts.headers.insert(UPSTREAM_STATUS, status);
    }
    parts.version = Version::HTTP_11;
}

/// The head of an answer that the gateway gives itself.
pub fn own_answer(headers: &mut HeaderMap) {
    headers.insert(header::SERVER, SERVER);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
}

/// The path and query exactly as received, without scheme and authority.
fn origin_form(uri: &Uri) -> Uri {
    let path = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    Uri::from(path)
}

fn drop_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = tokens(headers, &header::CONNECTION)
        .filter_map(|token| HeaderName::from_bytes(token.as_bytes()).ok())
        // A length is part of the message, not of the hop: without it the next reader would frame the message differently.
        .filter(|name| *name != header::CONTENT_LENGTH && *name != header::HOST)
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// HTTP/2 splits cookies into lines of their own; HTTP/1.1 knows one.
fn join_cookies(headers: &mut HeaderMap) {
    let Entry::Occupied(cookies) = headers.entry(header::COOKIE) else {
        return;
    };
    let lines: Vec<&[u8]> = cookies.iter().map(HeaderValue::as_bytes).collect();
    if lines.len() < 2 {
        return;
    }
    if let Ok(joined) = HeaderValue::from_bytes(&lines.join(&b"; "[..])) {
        headers.insert(header::COOKIE, joined);
    }
}

fn state_client(headers: &mut HeaderMap, client: Client, host: Option<&RequestHost>) {
    let address = client.peer.ip().to_canonical().to_string();
    let mut chain: Vec<&[u8]> = headers.get_all(X_FORWARDED_FOR).iter().map(HeaderValue::as_bytes).collect();
    chain.push(address.as_bytes());
    let chain = HeaderValue::from_bytes(&chain.join(&b", "[..]));
    let scheme = if client.tls { "https" } else { "http" };
    headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(scheme));
    headers.insert(X_FORWARDED_PORT, HeaderValue::from(client.port));
    if let Ok(chain) = chain {
        headers.insert(X_FORWARDED_FOR, chain);
    }
    if let Ok(address) = HeaderValue::from_str(&address) {
        headers.insert(X_REAL_IP, address);
    }
    match host.and_then(|host| HeaderValue::from_str(&host.name).ok()) {
        Some(name) => headers.insert(X_FORWARDED_HOST, name),
        None => headers.remove(X_FORWARDED_HOST),
    };
}

fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|token| !token.is_empty())
}

fn has_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    tokens(headers, name).any(|found| {
        let found = found.split(';').next().unwrap_or(found).trim();
        found.eq_ignore_ascii_case(token)
    })
}

#[cfg(test)]
mod tests;
