//! Routes in a table and in its index.
//!
//! A route is filed under its own hosts, else under those of its service, else as one without hosts. A service that
//! is not there does not hide its routes: they match as routes without hosts, and the request is answered with what
//! is wrong.

use std::ops::Bound;
use std::sync::Arc;

use headwater_model::Key;
use headwater_model::resources::Route;

use super::services::CompiledService;
use super::upstreams::{KeptReferences, Target};
use super::{Change, Kept, Registry, Table};

/// A route with the live side of its inline upstream.
#[derive(Debug)]
pub(super) struct CompiledRoute<U> {
    pub(super) route: Arc<Route>,
    pub(super) inline: Option<Target<U>>,
    pub(super) kept: Option<Arc<KeptReferences<U>>>,
    /// The hosts of its service, where it is filed under those; never empty.
    lent: Option<Arc<[String]>>,
}

// === impl CompiledRoute ===

impl<U> CompiledRoute<U> {
    /// The hosts it is filed under.
    fn hosts(&self) -> &[String] {
        self.lent.as_deref().unwrap_or(&self.route.hosts)
    }
}

/// The service whose hosts a route takes, if it has none of its own.
fn lender(route: &Route) -> Option<&Key> {
    route.service_id.as_ref().filter(|_| route.hosts.is_empty())
}

// === impl Table ===

impl<U: Clone> Table<U> {
    /// A route's service: the one that is served, else the one that a retained route was served with.
    pub(super) fn service_of<'a>(
        &'a self,
        id: &Key,
        kept: Option<&'a KeptReferences<U>>,
    ) -> Option<&'a Arc<CompiledService<U>>> {
        self.services.get(id).or_else(|| kept?.service(id))
    }
}

// === impl Change ===

impl<U: Clone> Change<U> {
    pub(super) fn put_route<R: Registry<Upstream = U>>(
        &mut self,
        key: &Key,
        route: &Arc<Route>,
        kept: Option<&Arc<Kept>>,
        registry: &R,
    ) {
        if self
            .table
            .routes
            .get(key)
            .is_some_and(|known| known.route == *route && KeptReferences::is_of(known.kept.as_ref(), kept))
        {
            return;
        }
        self.remove_route(key);
        self.stats.routes += 1;
        let kept = kept.map(|kept| Arc::new(KeptReferences::new(kept, registry)));
        let compiled = CompiledRoute {
            route: route.clone(),
            inline: route.upstream.as_ref().map(|definition| Target::new(key, definition, registry)),
            lent: self.lent(route, kept.as_deref()),
            kept,
        };
        if let Some(service) = lender(route) {
            self.table.hostless.insert((service.clone(), key.clone()));
        }
        self.file(key, compiled);
    }

    pub(super) fn remove_route(&mut self, key: &Key) {
        let Some(known) = self.table.routes.remove(key) else { return };
        self.table.router.remove(key, &known.route, known.hosts());
        if let Some(service) = lender(&known.route) {
            self.table.hostless.remove(&(service.clone(), key.clone()));
        }
    }

    /// Files the routes that take their hosts from a service under the hosts it has now.
    pub(super) fn move_routes(&mut self, service: &Key) {
        let first = (service.clone(), Key::new(""));
        let users = self.table.hostless.range((Bound::Included(first), Bound::Unbounded));
        let users: Vec<_> =
            users.take_while(|(lender, _)| lender == service).map(|(_, route)| route.clone()).collect();
        for key in users {
            let Some(known) = self.table.routes.get(&key).cloned() else { continue };
            let moved = CompiledRoute {
                route: known.route.clone(),
                inline: known.inline.clone(),
                kept: known.kept.clone(),
                lent: self.lent(&known.route, known.kept.as_deref()),
            };
            if moved.hosts() != known.hosts() {
                self.stats.moved += 1;
                self.table.router.remove(&key, &known.route, known.hosts());
                self.file(&key, moved);
            }
        }
    }

    fn lent(&self, route: &Route, kept: Option<&KeptReferences<U>>) -> Option<Arc<[String]>> {
        let service = self.table.service_of(lender(route)?, kept)?;
        Some(service.service.hosts.clone()).filter(|hosts| !hosts.is_empty())
    }

    fn file(&mut self, key: &Key, compiled: CompiledRoute<U>) {
        if compiled.route.enabled {
            self.table.router.insert(key, &compiled.route, compiled.hosts());
        }
        self.table.routes.insert(key.clone(), Arc::new(compiled));
    }
}
