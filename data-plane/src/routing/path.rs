//! URIs of routes: the literal text that a pattern is filed under, and the order of those filed under the same. Pure.
//!
//! Of two literals the exact one goes before any prefix, and a longer prefix before a shorter one, whatever the
//! routes' priorities: priority orders only what shares a literal.

use std::cmp::Reverse;
use std::sync::Arc;

use headwater_model::Key;
use headwater_model::resources::{Route, UriPattern};

/// A pattern's literal text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Literal {
    /// All of the path.
    Exact(Arc<str>),
    /// The path's beginning.
    Prefix(Arc<str>),
}

/// The borrowed form of [`Literal`], in the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LiteralRef<'a> {
    Exact(&'a str),
    Prefix(&'a str),
}

/// The order among patterns with the same host and literal: priority, then the longer pattern, then the key, which
/// stands for APISIX's order of insertion (the same after a full load, and no accident of history).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    priority: Reverse<i64>,
    length: Reverse<usize>,
    pub(super) key: Key,
    /// The pattern's place among the route's uris.
    pub(super) uri: usize,
}

// === impl Literal ===

impl Literal {
    pub(super) fn of(pattern: &UriPattern) -> Self {
        let literal = pattern.literal().into();
        if pattern.is_prefix() { Self::Prefix(literal) } else { Self::Exact(literal) }
    }

    pub(super) fn as_ref(&self) -> LiteralRef<'_> {
        match self {
            Self::Exact(literal) => LiteralRef::Exact(literal),
            Self::Prefix(literal) => LiteralRef::Prefix(literal),
        }
    }
}

// === impl Rank ===

impl Rank {
    pub(super) fn of(key: &Key, route: &Route, uri: usize) -> Self {
        let length = route.uris[uri].as_str().len();
        Self { priority: Reverse(route.priority), length: Reverse(length), key: key.clone(), uri }
    }
}
