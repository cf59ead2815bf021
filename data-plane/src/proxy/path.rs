//! The path a route is matched by: nginx's `$uri`. Pure.
//!
//! Percent-decoded, dot segments resolved, repeated slashes merged, without the query. Only matching uses it: the upstream
//! receives the request line as it came. Invariant: the answer begins with `/` and holds no `.` or `..` segment and no `//`.

use std::borrow::Cow;

/// Why a path cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPath {
    /// The target does not begin with a slash.
    #[error("the request target is not a path")]
    NotAbsolute,
    /// A `%` is not followed by two hexadecimal digits.
    #[error("the path holds a percent sign without two hexadecimal digits")]
    Escape,
    /// A zero byte, raw or escaped.
    #[error("the path holds a zero byte")]
    Zero,
    /// A `..` above the root.
    #[error("the path leaves the root")]
    AboveRoot,
}

/// The normalised form of `path` (no query).
///
/// Bytes that are not UTF-8 after decoding become U+FFFD: route patterns are UTF-8, so no literal can equal them.
///
/// # Errors
/// [`InvalidPath`]: the request is to be answered with 400, as nginx does.
pub fn normalise(path: &str) -> Result<Cow<'_, str>, InvalidPath> {
    if !path.starts_with('/') {
        return Err(InvalidPath::NotAbsolute);
    }
    if is_plain(path) {
        return Ok(Cow::Borrowed(path));
    }
    let decoded = decode(path.as_bytes())?;
    let resolved = resolve(&decoded)?;
    Ok(Cow::Owned(String::from_utf8_lossy(&resolved).into_owned()))
}

/// Whether normalising would change nothing: the common case, which then costs one pass and no memory.
fn is_plain(path: &str) -> bool {
    let bytes = path.as_bytes();
    let mut previous = b'a';
    for &byte in bytes {
        let special = byte == b'%' || byte == 0;
        let empty_or_dotted = previous == b'/' && (byte == b'/' || byte == b'.');
        if special || empty_or_dotted {
            return false;
        }
        previous = byte;
    }
    true
}

fn decode(path: &[u8]) -> Result<Vec<u8>, InvalidPath> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path.iter();
    while let Some(&byte) = rest.next() {
        let byte = if byte == b'%' {
            let high = rest.next().and_then(hex);
            let low = rest.next().and_then(hex);
            let (Some(high), Some(low)) = (high, low) else {
                return Err(InvalidPath::Escape);
            };
            high << 4 | low
        } else {
            byte
        };
        if byte == 0 {
            return Err(InvalidPath::Zero);
        }
        decoded.push(byte);
    }
    Ok(decoded)
}

fn hex(digit: &u8) -> Option<u8> {
    char::from(*digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

fn resolve(path: &[u8]) -> Result<Vec<u8>, InvalidPath> {
    let mut segments: Vec<&[u8]> = Vec::new();
    let mut ends_in_slash = true;
    for segment in path.split(|byte| *byte == b'/').skip(1) {
        match segment {
            b"" | b"." => ends_in_slash = true,
            b".." => {
                segments.pop().ok_or(InvalidPath::AboveRoot)?;
                ends_in_slash = true;
            }
            segment => {
                segments.push(segment);
                ends_in_slash = false;
            }
        }
    }
    let mut resolved = Vec::with_capacity(path.len());
    for segment in &segments {
        resolved.push(b'/');
        resolved.extend_from_slice(segment);
    }
    if ends_in_slash {
        resolved.push(b'/');
    }
    Ok(resolved)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn follows_nginx() {
        for (given, expected) in [
            ("/", "/"),
            ("/a/b", "/a/b"),
            ("/a/b/", "/a/b/"),
            ("//a///b", "/a/b"),
            ("/a/./b", "/a/b"),
            ("/a/.", "/a/"),
            ("/a/..", "/"),
            ("/a/../b", "/b"),
            ("/a/b/../../c/", "/c/"),
            ("/a%2Fb", "/a/b"),
            ("/a%2f..%2fb", "/b"),
            ("/%61%20b", "/a b"),
            ("/a/.hidden", "/a/.hidden"),
            ("/a/...", "/a/..."),
            ("/a%3Fb", "/a?b"),
            ("/%E4%BD%A0", "/你"),
            ("/%FF", "/\u{FFFD}"),
        ] {
            assert_eq!(normalise(given).as_deref(), Ok(expected), "{given}");
        }
    }

    #[test]
    fn refuses_what_nginx_refuses() {
        for (given, expected) in [
            ("*", InvalidPath::NotAbsolute),
            ("a", InvalidPath::NotAbsolute),
            ("/%", InvalidPath::Escape),
            ("/%2", InvalidPath::Escape),
            ("/%zz", InvalidPath::Escape),
            ("/a%00", InvalidPath::Zero),
            ("/..", InvalidPath::AboveRoot),
            ("/a/../../b", InvalidPath::AboveRoot),
            ("/%2e%2e/b", InvalidPath::AboveRoot),
        ] {
            assert_eq!(normalise(given), Err(expected), "{given}");
        }
    }

    #[test]
    fn a_plain_path_is_borrowed() {
        assert!(matches!(normalise("/a/b.c"), Ok(Cow::Borrowed("/a/b.c"))));
    }

    proptest! {
        #[test]
        fn the_answer_is_normal(path in "/[a-c./%20-9]{0,24}") {
            if let Ok(normal) = normalise(&path) {
                prop_assert!(normal.starts_with('/'));
                prop_assert!(!normal.contains("//"));
                prop_assert!(normal.split('/').all(|segment| segment != "." && segment != ".."));
            }
        }
    }
}
