use super::*;
use bytes::Bytes;
use http::Response;
use http_body_util::{BodyExt, Empty, Full, StreamBody};

const CLIENT: Client = Client {
    peer: SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7)), 5555),
    port: 9080,
    tls: false,
};

fn parts(build: impl FnOnce(request::Builder) -> request::Builder) -> request::Parts {
    build(Request::builder().uri("/")).body(()).unwrap().into_parts().0
}

fn forwarded(build: impl FnOnce(request::Builder) -> request::Builder) -> request::Parts {
    let parts = parts(build);
    let host = RequestHost::of(&Request::from_parts(parts.clone(), ())).unwrap();
    to_upstream(&parts, CLIENT, host.as_ref(), &Empty::<Bytes>::new())
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Vec<&'a str> {
    headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect()
}

#[test]
fn hop_by_hop_headers_and_those_that_connection_names_end_here() {
    let head = forwarded(|request| {
        request
            .header("host", "a.test")
            .header("connection", "close, X-Foo")
            .header("connection", "keep-alive")
            .header("x-foo", "1")
            .header("x-bar", "2")
            .header("te", "trailers, gzip")
            .header("keep-alive", "timeout=5")
            .header("proxy-connection", "keep-alive")
            .header("upgrade", "h2c")
            .header("transfer-encoding", "chunked")
    });
    for name in ["connection", "x-foo", "keep-alive", "proxy-connection", "upgrade", "transfer-encoding"] {
        assert!(!head.headers.contains_key(name), "{name}");
    }
    assert_eq!(text(&head.headers, "te"), ["trailers"]);
    assert_eq!(text(&head.headers, "x-bar"), ["2"]);
}

#[test]
fn te_without_trailers_ends_here() {
    let head = forwarded(|request| request.header("host", "a").header("te", "gzip"));
    assert!(!head.headers.contains_key("te"));
}

#[test]
fn what_the_gateway_states_cannot_be_named_away() {
    let head = forwarded(|request| {
        request
            .header("host", "A.test:81")
            .header("connection", "x-real-ip, x-forwarded-for, x-forwarded-host, content-length")
            .header("content-length", "0")
            .header("x-real-ip", "1.1.1.1")
            .header("x-forwarded-proto", "https")
            .header("x-forwarded-port", "443")
            .header("forwarded", "for=1.1.1.1")
    });
    assert_eq!(text(&head.headers, "x-real-ip"), ["192.0.2.7"]);
    assert_eq!(text(&head.headers, "x-forwarded-for"), ["192.0.2.7"]);
    assert_eq!(text(&head.headers, "x-forwarded-host"), ["a.test"]);
    assert_eq!(text(&head.headers, "x-forwarded-proto"), ["http"]);
    assert_eq!(text(&head.headers, "x-forwarded-port"), ["9080"]);
    assert_eq!(text(&head.headers, "content-length"), ["0"]);
    assert!(!head.headers.contains_key("forwarded"));
}

#[test]
fn x_forwarded_for_is_appended_to() {
    let head = forwarded(|request| {
        request.header("host", "a").header("x-forwarded-for", "1.1.1.1").header("x-forwarded-for", "2.2.2.2")
    });
    assert_eq!(text(&head.headers, "x-forwarded-for"), ["1.1.1.1, 2.2.2.2, 192.0.2.7"]);
}

#[test]
fn the_path_goes_on_as_received() {
    let head =
        forwarded(|request| request.uri("http://a.test/a%2Fb/../c//d?x=%20&y").header("host", "a.test"));
    assert_eq!(head.uri.to_string(), "/a%2Fb/../c//d?x=%20&y");
}

#[test]
fn cookies_of_http2_become_one_line() {
    let head = forwarded(|request| {
        request.uri("http://a.test/").version(Version::HTTP_2).header("cookie", "a=1").header("cookie", "b=2")
    });
    assert_eq!(text(&head.headers, "cookie"), ["a=1; b=2"]);
}

#[test]
fn a_body_of_unknown_length_goes_in_chunks_even_with_get() {
    let parts = parts(|request| request.method("GET"));
    let unknown =
        StreamBody::new(futures_util::stream::pending::<Result<http_body::Frame<Bytes>, std::io::Error>>());
    let head = to_upstream(&parts, CLIENT, None, &unknown);
    assert_eq!(text(&head.headers, "transfer-encoding"), ["chunked"]);
    let known = Full::new(Bytes::from_static(b"abc")).boxed();
    let head = to_upstream(&parts, CLIENT, None, &known);
    assert!(!head.headers.contains_key("transfer-encoding"));
}

#[test]
fn the_host_of_a_try_is_the_only_one_and_comes_first() {
    let head = forwarded(|request| request.header("x-a", "1").header("host", "a.test"));
    let head = for_node(&head, HeaderValue::from_static("node:81"));
    assert_eq!(text(&head.headers, "host"), ["node:81"]);
    assert_eq!(head.headers.keys().next().unwrap(), "host");
}

#[test]
fn answers_lose_hop_by_hop_headers_and_name_the_gateway() {
    let (mut parts, ()) = Response::builder()
        .status(502)
        .header("connection", "x-inner")
        .header("x-inner", "1")
        .header("transfer-encoding", "chunked")
        .header("content-length", "3")
        .header("server", "inner/1.0")
        .header("set-cookie", "a")
        .header("set-cookie", "b")
        .body(())
        .unwrap()
        .into_parts();
    to_client(&mut parts);
    for name in ["connection", "x-inner", "transfer-encoding", "content-length"] {
        assert!(!parts.headers.contains_key(name), "{name}");
    }
    assert_eq!(text(&parts.headers, "server"), ["headwater"]);
    assert_eq!(text(&parts.headers, "x-apisix-upstream-status"), ["502"]);
    assert_eq!(text(&parts.headers, "set-cookie"), ["a", "b"]);
}

#[test]
fn upgrades_to_websocket_and_odd_methods_and_expectations_are_refused() {
    let refused = |build: fn(request::Builder) -> request::Builder| {
        admit(&Request::from_parts(parts(build), ())).err().map(|failure| failure.status())
    };
    assert_eq!(refused(|request| request.header("upgrade", "WebSocket")), Some(501));
    assert_eq!(refused(|request| request.header("upgrade", "h2c")), None);
    assert_eq!(refused(|request| request.method("CONNECT")), Some(405));
    assert_eq!(refused(|request| request.method("TRACE")), Some(405));
    assert_eq!(refused(|request| request.header("expect", "100-Continue")), None);
    assert_eq!(refused(|request| request.header("expect", "200-ok")), Some(417));
}
