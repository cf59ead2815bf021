//! The content of an environment: an immutable, structurally shared map with its digest.

use std::sync::Arc;

use imbl::OrdMap;

use crate::diff::{Change, Changes};
use crate::digest::Digest;
use crate::key::{Key, Kind};
use crate::resource::Resource;

/// All resources of an environment at one version. Cloning is cheap and shares structure.
///
/// The digest and the counts that the mass-deletion guard needs are kept along, never recomputed.
#[derive(Clone, Default)]
pub struct Content {
    resources: OrdMap<Key, Arc<Resource>>,
    digest: Digest,
    routes: usize,
    certificates: usize,
    value_bytes: u64,
}

// === impl Content ===

impl Content {
    /// An empty content.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds or replaces a resource and gives back the one it replaced.
    pub fn put(&mut self, resource: Arc<Resource>) -> Option<Arc<Resource>> {
        self.digest = self.digest.plus(resource.hash());
        self.count(&resource, 1);
        let old = self.resources.insert(resource.key().clone(), resource);
        if let Some(old) = &old {
            self.forget(old);
        }
        old
    }

    /// Removes a resource and gives it back.
    pub fn delete(&mut self, key: &str) -> Option<Arc<Resource>> {
        let old = self.resources.remove(key)?;
        self.forget(&old);
        Some(old)
    }

    /// Applies changes: deletions first, then puts.
    pub fn apply(&mut self, changes: &Changes) {
        for key in &changes.deletes {
            self.delete(key.as_str());
        }
        for resource in &changes.puts {
            self.put(resource.clone());
        }
    }

    /// Applies one change.
    pub fn apply_one(&mut self, change: &Change) -> Option<Arc<Resource>> {
        match change {
            Change::Put(resource) => self.put(resource.clone()),
            Change::Delete(key) => self.delete(key.as_str()),
        }
    }

    /// The resource under a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Arc<Resource>> {
        self.resources.get(key)
    }

    /// All resources in key order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Arc<Resource>> {
        self.resources.values()
    }

    /// The number of resources.
    #[must_use]
    pub fn len(&self) -> usize {
        self.resources.len()
    }

    /// Whether there is no resource.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.resources.is_empty()
    }

    /// The wrapping sum of all resources' hashes.
    #[must_use]
    pub const fn digest(&self) -> Digest {
        self.digest
    }

    /// The number of routes.
    #[must_use]
    pub const fn routes(&self) -> usize {
        self.routes
    }

    /// The number of ssl resources.
    #[must_use]
    pub const fn certificates(&self) -> usize {
        self.certificates
    }

    /// The bytes of all values together.
    #[must_use]
    pub const fn value_bytes(&self) -> u64 {
        self.value_bytes
    }

    /// The map itself, for diffs and for iteration that shares structure.
    #[must_use]
    pub const fn resources(&self) -> &OrdMap<Key, Arc<Resource>> {
        &self.resources
    }

    fn forget(&mut self, old: &Resource) {
        self.digest = self.digest.minus(old.hash());
        self.count(old, -1);
    }

    fn count(&mut self, resource: &Resource, by: isize) {
        match resource.key().kind() {
            Kind::Routes => self.routes = self.routes.saturating_add_signed(by),
            Kind::Ssls => self.certificates = self.certificates.saturating_add_signed(by),
            _ => {}
        }
        let bytes = resource.value().len() as i64 * by as i64;
        self.value_bytes = self.value_bytes.saturating_add_signed(bytes);
    }
}

impl PartialEq for Content {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest && self.resources == other.resources
    }
}

impl Eq for Content {}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.resources.values()).finish()
    }
}

impl FromIterator<Resource> for Content {
    fn from_iter<T: IntoIterator<Item = Resource>>(resources: T) -> Self {
        resources.into_iter().map(Arc::new).collect()
    }
}

impl FromIterator<Arc<Resource>> for Content {
    fn from_iter<T: IntoIterator<Item = Arc<Resource>>>(resources: T) -> Self {
        let mut content = Self::new();
        for resource in resources {
            content.put(resource);
        }
        content
    }
}
