//! From usable values to one immutable table that requests are served by.
//!
//! [`Table::apply`] compiles only what changed and shares all the rest with the table before it; its cost follows the
//! change and not the table. The law: a table made from all values at once equals the one made from any sequence of
//! changes that leads to the same values. References between resources are resolved when a request asks, by key, so
//! a changed upstream costs one entry however many routes name it; only a service's changed hosts make its routes
//! without hosts move in the index.
//!
//! The live side of an upstream (connections, balancer state) outlives tables; a [`Registry`] gives it by holder and
//! definition. This module must never know what it is, nor talk to anything: it does no I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headwater_model::resources::{self, Ssl, Typed};
use headwater_model::{Key, Resource};
use imbl::{OrdMap, OrdSet};

mod matched;
mod routes;
mod services;
mod ssls;
mod upstreams;

pub use crate::routing::RequestFacts;
use crate::routing::Router;
pub use matched::{Match, Matched, Unavailable};
use routes::CompiledRoute;
use services::CompiledService;
use ssls::SniIndex;
use upstreams::Target;

/// What turns one table into the next. Deletions are applied first, then refusals, then puts.
#[derive(Clone, Debug, Default)]
pub struct EffectiveChanges {
    /// Keys that are gone.
    pub deletes: Vec<Key>,
    /// Keys whose value is rejected with nothing to serve in its place, and why. What refers to them answers so.
    pub refused: Vec<(Key, String)>,
    /// Values to serve, new or in place of those before.
    pub puts: Vec<Served>,
}

/// A value that is served.
#[derive(Clone, Debug)]
pub struct Served {
    /// The resource the value comes from.
    pub resource: Arc<Resource>,
    /// The value.
    pub typed: Typed,
    /// Present when the value is retained in place of a rejected one.
    pub kept: Option<Arc<Kept>>,
}

/// What a retained value was served with: used for a reference that is served no more.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    /// The usable form of what the value refers to, directly or through its service.
    pub references: BTreeMap<Key, Served>,
}

/// Gives the live side of upstreams.
pub trait Registry {
    /// The live side: a cheap handle.
    type Upstream: Clone;

    /// The live side of an upstream that `holder` defines so. The same holder and definition, by value, give the
    /// same one as before.
    fn upstream(&self, holder: &Key, definition: &Arc<resources::Upstream>) -> Self::Upstream;
}

/// Why every request is refused: a value that governs all of them and cannot be honoured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The governing value's key.
    pub key: Key,
    /// One sentence with the cure.
    pub reason: Arc<str>,
}

/// How many objects a change made the table compile anew; what stayed as it was is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompileStats {
    /// Routes.
    pub routes: usize,
    /// Services.
    pub services: usize,
    /// Upstreams.
    pub upstreams: usize,
    /// Certificate objects.
    pub ssls: usize,
    /// Routes that moved in the index because the hosts of their service changed.
    pub moved: usize,
}

/// Everything that requests are served by, at one version. Immutable; a clone is cheap.
#[derive(Clone, Debug)]
pub struct Table<U> {
    routes: OrdMap<Key, Arc<CompiledRoute<U>>>,
    services: OrdMap<Key, Arc<CompiledService<U>>>,
    upstreams: OrdMap<Key, Target<U>>,
    ssls: OrdMap<Key, Arc<Ssl>>,
    router: Router,
    snis: SniIndex,
    /// Service and route, for each route that takes its hosts from a service.
    hostless: OrdSet<(Key, Key)>,
    refused: OrdMap<Key, Arc<str>>,
    governing: OrdMap<Key, Refusal>,
}

// === impl Table ===

impl<U: Clone> Table<U> {
    /// A table that serves nothing.
    #[must_use]
    pub fn empty() -> Self {
        Self {
            routes: OrdMap::new(),
            services: OrdMap::new(),
            upstreams: OrdMap::new(),
            ssls: OrdMap::new(),
            router: Router::default(),
            snis: SniIndex::default(),
            hostless: OrdSet::new(),
            refused: OrdMap::new(),
            governing: OrdMap::new(),
        }
    }

    /// The table of all these values, and what it cost.
    pub fn full<R: Registry<Upstream = U>>(
        all: impl IntoIterator<Item = Served>,
        refused: impl IntoIterator<Item = (Key, String)>,
        registry: &R,
    ) -> (Self, CompileStats) {
        let changes = EffectiveChanges {
            deletes: Vec::new(),
            refused: refused.into_iter().collect(),
            puts: all.into_iter().collect(),
        };
        Self::empty().apply(&changes, registry)
    }

    /// The table after the changes, and what they cost.
    #[must_use]
    pub fn apply<R: Registry<Upstream = U>>(
        &self,
        changes: &EffectiveChanges,
        registry: &R,
    ) -> (Self, CompileStats) {
        let mut next =
            Change { table: self.clone(), stats: CompileStats::default(), services: BTreeSet::new() };
        for key in &changes.deletes {
            next.remove(key);
        }
        for (key, reason) in &changes.refused {
            next.remove(key);
            next.table.refused.insert(key.clone(), reason.as_str().into());
        }
        // Routes last, so that they find the hosts of services of the same change.
        let (routes, others): (Vec<_>, Vec<_>) =
            changes.puts.iter().partition(|served| matches!(served.typed, Typed::Route(_)));
        for served in others.into_iter().chain(routes) {
            next.put(served, registry);
        }
        next.finish()
    }

    /// The route that takes a request, with everything it resolves to.
    #[must_use]
    pub fn match_request(&self, facts: &RequestFacts<'_>) -> Match<U> {
        match self.router.find(facts) {
            Some(hit) => Match::Route(Arc::new(self.resolve(&hit))),
            None => Match::NotFound,
        }
    }

    /// The certificate object for a server name. `None` ends the handshake.
    #[must_use]
    pub fn certificate(&self, name: &str) -> Option<Arc<Ssl>> {
        self.snis.find(name).cloned()
    }

    /// Why every request is refused, if it is: by the first governing value in key order.
    #[must_use]
    pub fn refusal(&self) -> Option<&Refusal> {
        self.governing.get_min().map(|(_, refusal)| refusal)
    }

    /// The number of routes that are served, whether enabled or not.
    #[must_use]
    pub fn routes(&self) -> usize {
        self.routes.len()
    }

    /// The number of certificate objects that are served, whether enabled or not.
    #[must_use]
    pub fn certificates(&self) -> usize {
        self.ssls.len()
    }
}

impl<U: Clone> Default for Table<U> {
    fn default() -> Self {
        Self::empty()
    }
}

/// A table in the making.
struct Change<U> {
    table: Table<U>,
    stats: CompileStats,
    /// Services that came, went or changed.
    services: BTreeSet<Key>,
}

// === impl Change ===

impl<U: Clone> Change<U> {
    fn put<R: Registry<Upstream = U>>(&mut self, served: &Served, registry: &R) {
        let key = served.resource.key();
        self.table.refused.remove(key);
        match &served.typed {
            Typed::Route(route) => self.put_route(key, route, served.kept.as_ref(), registry),
            Typed::Service(service) => self.put_service(key, service, served.kept.as_ref(), registry),
            Typed::Upstream(definition) => self.put_upstream(key, definition, registry),
            Typed::Ssl(ssl) => self.put_ssl(key, ssl),
            Typed::Inert => self.remove(key),
            Typed::Governing(governs) => {
                let refusal = Refusal { key: key.clone(), reason: governs.reason.as_str().into() };
                self.table.governing.insert(key.clone(), refusal);
            }
        }
    }

    fn remove(&mut self, key: &Key) {
        self.table.refused.remove(key);
        self.table.governing.remove(key);
        self.remove_route(key);
        self.remove_service(key);
        self.table.upstreams.remove(key);
        self.remove_ssl(key);
    }

    fn finish(mut self) -> (Table<U>, CompileStats) {
        for service in std::mem::take(&mut self.services) {
            self.move_routes(&service);
        }
        (self.table, self.stats)
    }
}

// === impl CompileStats ===

impl CompileStats {
    /// All objects together.
    #[must_use]
    pub const fn total(&self) -> usize {
        self.routes + self.services + self.upstreams + self.ssls + self.moved
    }
}

#[cfg(test)]
mod tests;
