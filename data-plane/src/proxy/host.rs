//! The host a request is for: nginx's `$host`, and the header as the client sent it. Pure.

use http::uri::Authority;
use http::{HeaderValue, Request, Version, header};

use super::error::Failure;

/// The host of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHost {
    /// As the client sent it, with a port if it named one.
    pub sent: HeaderValue,
    /// Lower-case, without port and without a trailing dot: what routes are matched by.
    pub name: String,
}

impl RequestHost {
    /// Reads the host of `request`; `None` only for HTTP/1.0, which may go without.
    ///
    /// The target's authority (HTTP/2, or an absolute target) goes before the header, as HTTP demands.
    ///
    /// # Errors
    /// 400: missing, repeated, contradictory, or no host name.
    pub fn of<B>(request: &Request<B>) -> Result<Option<Self>, Failure> {
        let mut headers = request.headers().get_all(header::HOST).iter();
        let header = headers.next();
        if headers.next().is_some() {
            return Err(Failure::BadRequest("more than one Host header"));
        }
        match (request.uri().authority(), header) {
            (Some(authority), header) => Self::from_authority(authority, header, request.version()).map(Some),
            (None, Some(header)) => Self::parse(header.clone()).map(Some),
            (None, None) if request.version() == Version::HTTP_10 => Ok(None),
            (None, None) => Err(Failure::BadRequest("no Host header")),
        }
    }

    fn from_authority(
        authority: &Authority,
        header: Option<&HeaderValue>,
        version: Version,
    ) -> Result<Self, Failure> {
        if authority.as_str().contains('@') {
            return Err(Failure::BadRequest("user information in the target"));
        }
        let contradicts =
            header.is_some_and(|host| !host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes()));
        if version == Version::HTTP_2 && contradicts {
            return Err(Failure::BadRequest(":authority and Host differ"));
        }
        let sent =
            HeaderValue::from_str(authority.as_str()).map_err(|_| Failure::BadRequest("no valid host"))?;
        Self::parse(sent)
    }

    fn parse(sent: HeaderValue) -> Result<Self, Failure> {
        const INVALID: Failure = Failure::BadRequest("no valid host");
        let text = sent.to_str().map_err(|_| INVALID)?;
        let (name, port) = split_port(text).ok_or(INVALID)?;
        let port_is_number = port.is_none_or(|port| port.bytes().all(|byte| byte.is_ascii_digit()));
        let name = name.strip_suffix('.').unwrap_or(name);
        let bad = |byte: u8| byte <= b' ' || byte == 0x7f || b"/\\,?#@\"<>".contains(&byte);
        if name.is_empty() || name.contains("..") || !port_is_number || name.bytes().any(bad) {
            return Err(INVALID);
        }
        let name = name.to_ascii_lowercase();
        Ok(Self { sent, name })
    }
}

/// Splits `host[:port]`, where the host may be a bracketed IPv6 address.
pub fn split_port(text: &str) -> Option<(&str, Option<&str>)> {
    if text.starts_with('[') {
        let end = text.find(']')?;
        let (name, rest) = text.split_at(end + 1);
        return match rest.strip_prefix(':') {
            Some(port) => Some((name, Some(port))),
            None if rest.is_empty() => Some((name, None)),
            None => None,
        };
    }
    match text.split_once(':') {
        Some((_, port)) if port.contains(':') => None,
        Some((name, port)) => Some((name, Some(port))),
        None => Some((text, None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(headers: &[&str], target: &str, version: Version) -> Result<Option<RequestHost>, Failure> {
        let mut request = Request::builder().uri(target).version(version);
        for value in headers {
            request = request.header("host", *value);
        }
        RequestHost::of(&request.body(()).unwrap())
    }

    fn name(value: &str) -> Option<String> {
        let host = host(&[value], "/", Version::HTTP_11).ok()??;
        assert_eq!(host.sent, value);
        Some(host.name)
    }

    #[test]
    fn the_name_is_lower_case_without_port_or_trailing_dot() {
        assert_eq!(name("Foo.Example:8080").as_deref(), Some("foo.example"));
        assert_eq!(name("foo.example.").as_deref(), Some("foo.example"));
        assert_eq!(name("[::1]:80").as_deref(), Some("[::1]"));
        assert_eq!(name("10.0.0.1").as_deref(), Some("10.0.0.1"));
        assert_eq!(name("under_score").as_deref(), Some("under_score"));
    }

    #[test]
    fn what_is_no_host_is_refused() {
        for value in ["", "a b", "a/b", "a..b", "a:b", "a:1:2", "[::1", "[::1]x", ".", "a,b", "u@h"] {
            assert_eq!(name(value), None, "{value:?}");
        }
    }

    #[test]
    fn exactly_one_host_header() {
        assert!(host(&[], "/", Version::HTTP_11).is_err());
        assert!(host(&["a", "a"], "/", Version::HTTP_11).is_err());
        assert_eq!(host(&[], "/", Version::HTTP_10).unwrap(), None);
    }

    #[test]
    fn the_target_goes_before_the_header() {
        let found = host(&["b.test"], "http://a.test:81/x", Version::HTTP_11).unwrap().unwrap();
        assert_eq!((found.name.as_str(), found.sent.to_str().unwrap()), ("a.test", "a.test:81"));
        assert!(host(&["b.test"], "http://a.test/x", Version::HTTP_2).is_err());
        assert!(host(&["A.test"], "http://a.test/x", Version::HTTP_2).is_ok());
    }
}
