//! Services in a table. Their hosts feed the routes that have none of their own.

use std::sync::Arc;

use headwater_model::Key;
use headwater_model::resources::Service;

use super::upstreams::{KeptReferences, Target};
use super::{Change, Kept, Registry};

/// A service with the live side of its inline upstream.
#[derive(Debug)]
pub(super) struct CompiledService<U> {
    pub(super) service: Arc<Service>,
    pub(super) inline: Option<Target<U>>,
    pub(super) kept: Option<Arc<KeptReferences<U>>>,
}

// === impl CompiledService ===

impl<U: Clone> CompiledService<U> {
    pub(super) fn new<R: Registry<Upstream = U>>(
        key: &Key,
        service: &Arc<Service>,
        kept: Option<&Arc<Kept>>,
        registry: &R,
    ) -> Self {
        Self {
            service: service.clone(),
            inline: service.upstream.as_ref().map(|definition| Target::new(key, definition, registry)),
            kept: kept.map(|kept| Arc::new(KeptReferences::new(kept, registry))),
        }
    }
}

// === impl Change ===

impl<U: Clone> Change<U> {
    pub(super) fn put_service<R: Registry<Upstream = U>>(
        &mut self,
        key: &Key,
        service: &Arc<Service>,
        kept: Option<&Arc<Kept>>,
        registry: &R,
    ) {
        let known = self.table.services.get(key);
        if known.is_some_and(|known| {
            known.service == *service && KeptReferences::is_of(known.kept.as_ref(), kept)
        }) {
            return;
        }
        self.stats.services += 1;
        // Without a change of hosts no route moves in the index, however many use the service.
        if known.is_none_or(|known| known.service.hosts != service.hosts) {
            self.services.insert(key.clone());
        }
        let compiled = CompiledService::new(key, service, kept, registry);
        self.table.services.insert(key.clone(), Arc::new(compiled));
    }

    pub(super) fn remove_service(&mut self, key: &Key) {
        if self.table.services.remove(key).is_some() {
            self.services.insert(key.clone());
        }
    }
}
