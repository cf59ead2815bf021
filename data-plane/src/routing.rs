//! The routing index: from a request's facts to the route that takes it. Pure and immutable.
//!
//! APISIX's default matching (`radixtree_host_uri`): the request's host selects, from the most specific pattern to the
//! routes without hosts (`host.rs`); below each, the path selects by literal text, exact before the longest prefix;
//! among those with one literal, priority, pattern length and key order (`path.rs`); and the first whose conditions
//! hold (`predicate.rs`) takes the request. Where none holds, the search goes on to the next literal, and then to the
//! next host.
//!
//! All of it is one persistent ordered map. A route costs one entry for each pair of its hosts and uris, and adding or
//! removing it touches those alone, whatever the size of the table. A clone shares all structure.
//!
//! It must never know where routes come from, nor what is done with the request.

use std::cmp::Ordering;
use std::net::IpAddr;
use std::ops::Bound;
use std::sync::Arc;

use equivalent::{Comparable, Equivalent};
use headwater_model::Key;
use headwater_model::resources::{Route, UriPattern};
use http::Method;
use imbl::OrdMap;

mod host;
mod path;
mod predicate;
mod prefix;

pub use host::HostPattern;
use host::HostRef;
pub(crate) use host::reversed;
use path::{Literal, LiteralRef, Rank};
pub(crate) use prefix::longest_first;

/// What matching looks at.
#[derive(Clone, Copy, Debug)]
pub struct RequestFacts<'a> {
    /// The host asked for, without a port; compared in lower case. `None` when the client named none.
    pub host: Option<&'a str>,
    /// The path: percent-decoded, dot segments resolved, `//` merged, no query.
    pub path: &'a str,
    /// The method.
    pub method: &'a Method,
    /// The peer's address.
    pub remote: IpAddr,
}

/// The routes of a table by host and uri.
#[derive(Clone, Debug, Default)]
pub struct Router {
    slots: OrdMap<Slot, Arc<Route>>,
}

/// The route that takes a request.
#[derive(Clone, Copy, Debug)]
pub struct Hit<'a> {
    /// The route's key.
    pub key: &'a Key,
    /// The route.
    pub route: &'a Arc<Route>,
    /// The host pattern under which it was found.
    pub host: &'a HostPattern,
    /// The place of the uri that matched among the route's.
    pub uri: usize,
}

/// One pair of a route's hosts and uris.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Slot {
    host: HostPattern,
    literal: Literal,
    rank: Rank,
}

/// A place between slots, right before or right after all those of a host, or of a host and a literal.
#[derive(Clone, Copy, Debug)]
struct Edge<'a> {
    host: HostRef<'a>,
    literal: Option<LiteralRef<'a>>,
    side: Ordering,
}

// === impl Router ===

impl Router {
    /// Adds a route under each of `hosts`, or as one without hosts when there are none. The caller has removed what
    /// stood under its key before, and leaves out routes that are not enabled.
    pub fn insert(&mut self, key: &Key, route: &Arc<Route>, hosts: &[String]) {
        for slot in slots(key, route, hosts) {
            self.slots.insert(slot, route.clone());
        }
    }

    /// Removes what [`insert`](Self::insert) added with the same arguments.
    pub fn remove(&mut self, key: &Key, route: &Route, hosts: &[String]) {
        for slot in slots(key, route, hosts) {
            self.slots.remove(&slot);
        }
    }

    /// The route that takes the request.
    #[must_use]
    pub fn find(&self, facts: &RequestFacts<'_>) -> Option<Hit<'_>> {
        let host = facts.host.unwrap_or_default().to_ascii_lowercase();
        let backwards = reversed(&host);
        self.below(HostRef::Exact(&host), facts)
            .or_else(|| {
                self.suffixes(&backwards).find_map(|suffix| self.below(HostRef::Suffix(suffix), facts))
            })
            .or_else(|| self.below(HostRef::None, facts))
    }

    /// The number of entries: pairs of a host and a uri, over all routes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether no request can match.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The wildcards of the table that take a host, longest first.
    fn suffixes<'a>(&'a self, backwards: &str) -> impl Iterator<Item = &'a str> {
        longest_first(backwards, |upto| {
            let edge = Edge { host: HostRef::Suffix(upto), literal: None, side: Ordering::Greater };
            match self.slots.get_prev(&edge)?.0.host.as_ref() {
                HostRef::Suffix(suffix) => Some(suffix),
                HostRef::Exact(_) | HostRef::None => None,
            }
        })
    }

    /// The route that takes the request among those of one host.
    fn below(&self, host: HostRef<'_>, facts: &RequestFacts<'_>) -> Option<Hit<'_>> {
        let mut exact = self.candidates(host, LiteralRef::Exact(facts.path));
        if let Some(hit) = exact.find(|hit| predicate::admits(hit.route, facts)) {
            return Some(hit);
        }
        let mut prefixes = longest_first(facts.path, |upto| {
            let literal = Some(LiteralRef::Prefix(upto));
            let slot = self.slots.get_prev(&Edge { host, literal, side: Ordering::Greater })?.0;
            match slot.literal.as_ref() {
                LiteralRef::Prefix(prefix) if slot.host.as_ref() == host => Some(prefix),
                _ => None,
            }
        });
        prefixes.find_map(|prefix| {
            self.candidates(host, LiteralRef::Prefix(prefix))
                .find(|hit| predicate::admits(hit.route, facts) && hit.pattern().passes_recheck(facts.path))
        })
    }

    /// All routes filed under a host and a literal, in their order.
    fn candidates<'a>(
        &'a self,
        host: HostRef<'_>,
        literal: LiteralRef<'_>,
    ) -> impl Iterator<Item = Hit<'a>> + use<'a> {
        let edge = |side| Edge { host, literal: Some(literal), side };
        let (first, last) = (edge(Ordering::Less), edge(Ordering::Greater));
        self.slots
            .range::<_, Edge<'_>>((Bound::Included(&first), Bound::Included(&last)))
            .map(|(slot, route)| Hit { key: &slot.rank.key, route, host: &slot.host, uri: slot.rank.uri })
    }
}

// === impl Hit ===

impl<'a> Hit<'a> {
    /// The uri that matched.
    #[must_use]
    pub fn pattern(&self) -> &'a UriPattern {
        &self.route.uris[self.uri]
    }
}

// === impl Edge ===

impl Equivalent<Slot> for Edge<'_> {
    fn equivalent(&self, _: &Slot) -> bool {
        false
    }
}

impl Comparable<Slot> for Edge<'_> {
    fn compare(&self, slot: &Slot) -> Ordering {
        let literal = || self.literal.map_or(Ordering::Equal, |literal| literal.cmp(&slot.literal.as_ref()));
        self.host.cmp(&slot.host.as_ref()).then_with(literal).then(self.side)
    }
}

/// A route's entries. A host that is given twice gives the same entries twice, which the map holds once.
fn slots<'a>(key: &'a Key, route: &'a Route, hosts: &'a [String]) -> impl Iterator<Item = Slot> + 'a {
    let patterns: Vec<_> = match hosts {
        [] => vec![HostPattern::None],
        hosts => hosts.iter().map(|host| HostPattern::new(host)).collect(),
    };
    patterns.into_iter().flat_map(move |host| {
        route.uris.iter().enumerate().map(move |(uri, pattern)| Slot {
            host: host.clone(),
            literal: Literal::of(pattern),
            rank: Rank::of(key, route, uri),
        })
    })
}

#[cfg(test)]
mod tests;
