//! Hosts of routes: which of a table's host patterns a request's host is looked up in, and in which order. Pure.
//!
//! The exact name comes first, then wildcards by the longest suffix, at last the routes without hosts. A star stands
//! for any text, dots included, and for no text: `*.foo.com` takes `a.b.foo.com` but not `foo.com`, `*foo.com` takes
//! both, and `*` takes any host and still goes before routes without one.

use std::fmt;
use std::sync::Arc;

/// A host pattern as the index orders it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostPattern {
    /// Exactly this name.
    Exact(Arc<str>),
    /// Any name with a suffix; the suffix is kept **reversed**, so that a longest suffix is a longest prefix.
    Suffix(Arc<str>),
    /// The route names no host.
    None,
}

/// The borrowed form that requests are looked up with; it orders as [`HostPattern`] does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum HostRef<'a> {
    Exact(&'a str),
    Suffix(&'a str),
    None,
}

// === impl HostPattern ===

impl HostPattern {
    /// From a route's text, already in lower case.
    #[must_use]
    pub fn new(text: &str) -> Self {
        match text.strip_prefix('*') {
            Some(suffix) => Self::Suffix(reversed(suffix).into()),
            None => Self::Exact(text.into()),
        }
    }

    pub(super) fn as_ref(&self) -> HostRef<'_> {
        match self {
            Self::Exact(name) => HostRef::Exact(name),
            Self::Suffix(suffix) => HostRef::Suffix(suffix),
            Self::None => HostRef::None,
        }
    }
}

/// The pattern as a route writes it, and nothing for a route without hosts.
impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => f.write_str(name),
            Self::Suffix(suffix) => write!(f, "*{}", reversed(suffix)),
            Self::None => Ok(()),
        }
    }
}

pub(crate) fn reversed(text: &str) -> String {
    text.chars().rev().collect()
}
