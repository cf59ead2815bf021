//! What a request resolves to: route over service, and the upstream of the two that counts.
//!
//! | situation | answer |
//! | --- | --- |
//! | `upstream_id` names nothing | 502 |
//! | `upstream_id` or `service_id` names a value that is rejected | 503 with the reason |
//! | `service_id` names nothing | 404 |
//! | no upstream anywhere, or one without nodes | 503 |

use std::sync::Arc;

use headwater_model::Key;
use headwater_model::resources::{Route, Service, Timeout};
use http::StatusCode;

use super::Table;
use super::routes::CompiledRoute;
use super::services::CompiledService;
use super::upstreams::{KeptReferences, Target};
use crate::routing::{Hit, HostPattern};

/// The outcome of matching a request.
#[derive(Clone, Debug)]
pub enum Match<U> {
    /// A route takes it.
    Route(Arc<Matched<U>>),
    /// No route does.
    NotFound,
}

/// A request's route and what it resolves to.
#[derive(Clone, Debug)]
pub struct Matched<U> {
    /// The route's key.
    pub key: Key,
    /// The route.
    pub route: Arc<Route>,
    /// The service's key, also when it is not served.
    pub service_key: Option<Key>,
    /// The service.
    pub service: Option<Arc<Service>>,
    /// Where the request goes.
    pub upstream: Result<U, Unavailable>,
    /// The route's timeout, which goes before the upstream's.
    pub timeout: Option<Timeout>,
    /// The host pattern under which the route was found.
    pub host: HostPattern,
    uri: usize,
}

/// Why a matched request goes nowhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable {
    /// The answer's status.
    pub status: StatusCode,
    /// One sentence that names the resource at fault.
    pub reason: Arc<str>,
}

// === impl Matched ===

impl<U> Matched<U> {
    /// The uri pattern that matched, as the route writes it.
    #[must_use]
    pub fn uri(&self) -> &str {
        self.route.uris[self.uri].as_str()
    }

    /// The route's id.
    #[must_use]
    pub fn route_id(&self) -> &str {
        self.key.id()
    }

    /// The id of the route's service.
    #[must_use]
    pub fn service_id(&self) -> Option<&str> {
        self.service_key.as_ref().map(Key::id)
    }
}

// === impl Unavailable ===

impl Unavailable {
    fn new(status: StatusCode, reason: String) -> Self {
        Self { status, reason: reason.into() }
    }
}

/// The upstream that counts on one level of the merge.
enum Choice<'a, U> {
    /// By key, with what retained values keep for it.
    Id(&'a Key, [Option<&'a KeptReferences<U>>; 2]),
    /// Given in place.
    Inline(&'a Target<U>),
}

/// A service, and what a retained route keeps for that service's references when it keeps the service.
type Found<'a, U> = (&'a CompiledService<U>, Option<&'a KeptReferences<U>>);

// === impl Table ===

impl<U: Clone> Table<U> {
    pub(super) fn resolve(&self, hit: &Hit<'_>) -> Matched<U> {
        let compiled = self.routes.get(hit.key).expect("the index names only routes that the table holds");
        let service_key = compiled.route.service_id.clone();
        let service = service_key.as_ref().map(|key| self.service(key, compiled)).transpose();
        Matched {
            key: hit.key.clone(),
            route: hit.route.clone(),
            service: service
                .as_ref()
                .ok()
                .and_then(|service| service.map(|(found, _)| found.service.clone())),
            service_key,
            upstream: service.and_then(|service| self.upstream(compiled, service)),
            timeout: compiled.route.timeout,
            host: hit.host.clone(),
            uri: hit.uri,
        }
    }

    fn service<'a>(&'a self, key: &Key, route: &'a CompiledRoute<U>) -> Result<Found<'a, U>, Unavailable> {
        let kept = route.kept.as_deref();
        match self.service_of(key, kept) {
            Some(found) => Ok((found, kept.filter(|_| !self.services.contains_key(key)))),
            None => Err(self.missing(key, StatusCode::NOT_FOUND)),
        }
    }

    /// Route over service. So an inline upstream of the route clears the service's `upstream_id`; on one level the
    /// id goes before the inline one.
    fn upstream(&self, route: &CompiledRoute<U>, service: Option<Found<'_, U>>) -> Result<U, Unavailable> {
        let own = choose(&route.route.upstream_id, &route.inline, [route.kept.as_deref(), None]);
        let choice = own.or_else(|| {
            let (service, kept) = service?;
            choose(&service.service.upstream_id, &service.inline, [kept, service.kept.as_deref()])
        });
        let target = match choice {
            Some(Choice::Id(id, kept)) => {
                let kept = || kept.into_iter().flatten().find_map(|kept| kept.upstream(id));
                self.upstreams
                    .get(id)
                    .or_else(kept)
                    .ok_or_else(|| self.missing(id, StatusCode::BAD_GATEWAY))?
            }
            Some(Choice::Inline(target)) => target,
            None => {
                return Err(unavailable("has no upstream; give it or its service upstream or upstream_id"));
            }
        };
        if target.definition.nodes.is_empty() {
            return Err(unavailable("has an upstream without nodes; list its servers in `nodes`"));
        }
        Ok(target.live.clone())
    }

    /// A reference that leads nowhere: rejected with a reason, or not there, which answers `status`.
    fn missing(&self, key: &Key, status: StatusCode) -> Unavailable {
        match self.refused.get(key) {
            Some(reason) => {
                let reason = format!("{key} cannot be used: {reason}");
                Unavailable::new(StatusCode::SERVICE_UNAVAILABLE, reason)
            }
            None => Unavailable::new(
                status,
                format!("{key} does not exist; create it or change the reference to it"),
            ),
        }
    }
}

fn choose<'a, U>(
    id: &'a Option<Key>,
    inline: &'a Option<Target<U>>,
    kept: [Option<&'a KeptReferences<U>>; 2],
) -> Option<Choice<'a, U>> {
    let by_id = id.as_ref().map(|id| Choice::Id(id, kept));
    by_id.or_else(|| inline.as_ref().map(Choice::Inline))
}

fn unavailable(what: &str) -> Unavailable {
    Unavailable::new(StatusCode::SERVICE_UNAVAILABLE, format!("the route {what}"))
}
