//! Upstreams in a table: their live side by key, and the usable forms that retained values keep.

use std::collections::BTreeMap;
use std::sync::Arc;

use headwater_model::Key;
use headwater_model::resources::{Typed, Upstream};

use super::services::CompiledService;
use super::{Change, Kept, Registry};

/// An upstream that requests can be sent to, unless it has no nodes.
#[derive(Clone, Debug)]
pub(super) struct Target<U> {
    pub(super) definition: Arc<Upstream>,
    pub(super) live: U,
}

/// The compiled form of [`Kept`].
#[derive(Debug)]
pub(super) struct KeptReferences<U> {
    source: Arc<Kept>,
    services: BTreeMap<Key, Arc<CompiledService<U>>>,
    upstreams: BTreeMap<Key, Target<U>>,
}

// === impl Target ===

impl<U: Clone> Target<U> {
    pub(super) fn new<R: Registry<Upstream = U>>(
        holder: &Key,
        definition: &Arc<Upstream>,
        registry: &R,
    ) -> Self {
        Self { definition: definition.clone(), live: registry.upstream(holder, definition) }
    }
}

// === impl KeptReferences ===

impl<U: Clone> KeptReferences<U> {
    pub(super) fn new<R: Registry<Upstream = U>>(kept: &Arc<Kept>, registry: &R) -> Self {
        let mut compiled =
            Self { source: kept.clone(), services: BTreeMap::new(), upstreams: BTreeMap::new() };
        for (key, served) in &kept.references {
            match &served.typed {
                Typed::Service(service) => {
                    let service = CompiledService::new(key, service, served.kept.as_ref(), registry);
                    compiled.services.insert(key.clone(), Arc::new(service));
                }
                Typed::Upstream(definition) => {
                    compiled.upstreams.insert(key.clone(), Target::new(key, definition, registry));
                }
                Typed::Route(_) | Typed::Ssl(_) | Typed::Inert | Typed::Governing(_) => {}
            }
        }
        compiled
    }

    pub(super) fn service(&self, key: &Key) -> Option<&Arc<CompiledService<U>>> {
        self.services.get(key)
    }

    pub(super) fn upstream(&self, key: &Key) -> Option<&Target<U>> {
        self.upstreams.get(key)
    }

    /// Whether it was compiled from this very object, or neither is there.
    pub(super) fn is_of(this: Option<&Arc<Self>>, kept: Option<&Arc<Kept>>) -> bool {
        match (this, kept) {
            (Some(this), Some(kept)) => Arc::ptr_eq(&this.source, kept),
            (None, None) => true,
            _ => false,
        }
    }
}

// === impl Change ===

impl<U: Clone> Change<U> {
    /// A definition equal to the one before keeps what was compiled from it, with its live side.
    pub(super) fn put_upstream<R: Registry<Upstream = U>>(
        &mut self,
        key: &Key,
        definition: &Arc<Upstream>,
        registry: &R,
    ) {
        if self.table.upstreams.get(key).is_some_and(|known| known.definition == *definition) {
            return;
        }
        self.stats.upstreams += 1;
        self.table.upstreams.insert(key.clone(), Target::new(key, definition, registry));
    }
}
