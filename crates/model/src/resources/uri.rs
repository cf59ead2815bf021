//! URI patterns: literal text up to the first star.

use std::fmt;

use regex::bytes::{Regex, RegexBuilder};

use super::fields::Item;
use super::invalid::Invalid;

/// A route's `uri`: an exact path, or a prefix when it holds a star.
///
/// A star that begins a segment makes the whole pattern be checked once more as a regular expression, in which
/// the star stands for anything and all other text is taken **unescaped**, as APISIX does: `/a/*/c` needs its
/// tail, and `/a+b/*` never matches itself. A star inside a segment ends the pattern; what follows it is ignored.
#[derive(Clone)]
pub struct UriPattern {
    text: String,
    literal: usize,
    recheck: Option<Regex>,
}

// === impl UriPattern ===

impl UriPattern {
    /// A pattern from a route's text.
    ///
    /// # Errors
    /// The regular expression's fault, when the pattern has to be checked as one and is none.
    pub fn new(text: impl Into<String>) -> Result<Self, String> {
        let text = text.into();
        let literal = text.find('*').unwrap_or(text.len());
        let recheck = recheck(&text, literal)?;
        Ok(Self { text, literal, recheck })
    }

    pub(super) fn parse(item: Item) -> Result<Self, Invalid> {
        let path = item.path.clone();
        Self::new(item.string(1, 4096)?).map_err(|error| {
            let problem = format!(
                "is read as a regular expression, because a star begins one of its segments, and fails as one \
                 ({error}); remove what is special in expressions, or the star"
            );
            Invalid::new(path, problem)
        })
    }

    /// The pattern as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The text before the first star, or all of it.
    #[must_use]
    pub fn literal(&self) -> &str {
        &self.text[..self.literal]
    }

    /// Whether the literal is a prefix of what matches; otherwise it is all of it.
    #[must_use]
    pub fn is_prefix(&self) -> bool {
        self.literal < self.text.len()
    }

    /// Whether a path that begins with the literal passes the second look that a star at a segment's begin asks for.
    #[must_use]
    pub fn passes_recheck(&self, path: &str) -> bool {
        self.recheck.as_ref().is_none_or(|regex| {
            regex.find(path.as_bytes()).is_some_and(|found| found.start() == 0 && found.end() == path.len())
        })
    }
}

impl PartialEq for UriPattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for UriPattern {}

impl PartialOrd for UriPattern {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for UriPattern {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.text.cmp(&other.text)
    }
}

impl fmt::Debug for UriPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

/// The expression of a pattern in which a star begins a segment. None is needed for an exact pattern, nor for the
/// common `/plain/text/*`, whose expression matches whatever the prefix matches.
fn recheck(text: &str, literal: usize) -> Result<Option<Regex>, String> {
    if !text.split('/').any(|segment| segment.starts_with('*')) {
        return Ok(None);
    }
    let plain =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'-' | b'_' | b'.' | b'~' | b'%');
    if literal + 1 == text.len() && text[..literal].bytes().all(plain) {
        return Ok(None);
    }
    let segments: Vec<_> = text
        .split('/')
        .map(|segment| if segment.starts_with('*') { "(?:(?:.|\\n)*)".to_owned() } else { bytewise(segment) })
        .collect();
    // By bytes and not by characters, as the expressions that these patterns were written for.
    let regex = RegexBuilder::new(&segments.join("/")).unicode(false).build();
    regex.map(Some).map_err(|error| match error {
        regex::Error::Syntax(text) => text.lines().last().unwrap_or_default().trim().to_owned(),
        other => other.to_string(),
    })
}

/// Spells bytes beyond ASCII as escapes, which an expression over bytes wants.
fn bytewise(segment: &str) -> String {
    let mut text = String::with_capacity(segment.len());
    for byte in segment.bytes() {
        match byte {
            0..=0x7f => text.push(char::from(byte)),
            _ => text.push_str(&format!("\\x{byte:02x}")),
        }
    }
    text
}
