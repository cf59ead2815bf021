//! Older values of changed keys: where a fallback for a rejected value comes from.
//!
//! Pure. A value that a put replaces is kept while its key lives, a few per key and bounded in bytes over all; the
//! oldest go first. A restart forgets them: what was replaced before it is [looked up](lookup) in etcd, once for all
//! nodes, and what was found is remembered, "nothing" too.

pub mod lookup;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use headwater_model::{Content, Generation, Key, Resource, Revision, resources};
use headwater_proto::config::{FallbackAnswer, FallbackRequest};

use crate::backend::{Continuity, KeyEvent, SourceEvent};

/// How many older values of one key are kept.
const PER_KEY: usize = 8;

/// How many bytes of older values are kept over all keys.
const MAX_BYTES: usize = 64 << 20;

/// The older values of an environment.
#[derive(Debug, Default)]
pub struct Older {
    values: BTreeMap<Key, VecDeque<Arc<Resource>>>,
    order: VecDeque<(Revision, Key)>,
    bytes: usize,
    looked_up: BTreeMap<Key, (FallbackRequest, Option<Arc<Resource>>)>,
}

/// How many answers of etcd are remembered; the nodes that ask for another have it looked up again.
const MAX_LOOKED_UP: usize = 4_096;

// === impl Older ===

impl Older {
    /// Follows the source: to be called with each event and the content from before it.
    pub fn follow(&mut self, event: &SourceEvent, before: &Content) {
        match event {
            SourceEvent::Batch(batch) => {
                for event in &batch.events {
                    let Ok(key) = std::str::from_utf8(event.key()) else { continue };
                    match event {
                        KeyEvent::Put(entry) => {
                            if let Some(old) = before.get(key)
                                && old.create_revision() == entry.create_revision
                                && old.value() != &entry.value
                            {
                                self.replaced(old.clone());
                            }
                        }
                        KeyEvent::Delete { .. } => self.deleted(key),
                    }
                }
            }
            SourceEvent::Loaded(load)
                if matches!(load.continuity, Continuity::Rewound { .. })
                    || load.generation > Generation(0) =>
            {
                self.clear();
            }
            _ => {}
        }
    }

    /// The answer to a request: the newest older value that a node may be able to use, or that there is none. Nothing
    /// when etcd has to be asked.
    #[must_use]
    pub fn answer(&self, request: &FallbackRequest) -> Option<FallbackAnswer> {
        let FallbackRequest { key, create_revision, below } = request;
        if let Some(found) = self.find(key, *create_revision, *below, usable) {
            return Some(answer_to(request, Some(found)));
        }
        let (asked, found) = self.looked_up.get(key)?;
        (asked == request).then(|| answer_to(request, found.clone()))
    }

    /// Remembers what was found in etcd.
    pub fn remember(&mut self, request: FallbackRequest, found: Option<Arc<Resource>>) {
        if self.looked_up.len() >= MAX_LOOKED_UP && !self.looked_up.contains_key(&request.key) {
            self.looked_up.pop_first();
        }
        self.looked_up.insert(request.key.clone(), (request, found));
    }

    /// A value was replaced by another of the same life of its key.
    fn replaced(&mut self, old: Arc<Resource>) {
        let key = old.key().clone();
        self.bytes += old.value().len();
        self.order.push_back((old.mod_revision(), key.clone()));
        let values = self.values.entry(key).or_default();
        values.push_back(old);
        if values.len() > PER_KEY {
            self.bytes -= values.pop_front().map_or(0, |gone| gone.value().len());
        }
        while self.bytes > MAX_BYTES || self.order.len() > MAX_BYTES / 64 {
            let Some((revision, key)) = self.order.pop_front() else { return };
            self.drop_one(&key, revision);
        }
    }

    /// A key is gone, and its older values with it.
    fn deleted(&mut self, key: &str) {
        self.looked_up.remove(key);
        if let Some(values) = self.values.remove(key) {
            self.bytes -= values.iter().map(|old| old.value().len()).sum::<usize>();
        }
    }

    /// Forgets everything: the history went back.
    fn clear(&mut self) {
        *self = Self::default();
    }

    /// The newest older value below a revision, of the same life of the key, that passes `usable`.
    fn find(
        &self,
        key: &Key,
        create_revision: Revision,
        below: Revision,
        usable: impl Fn(&Resource) -> bool,
    ) -> Option<Arc<Resource>> {
        self.values
            .get(key)?
            .iter()
            .rev()
            .filter(|old| old.create_revision() == create_revision && old.mod_revision() < below)
            .find(|old| usable(old))
            .cloned()
    }

    fn drop_one(&mut self, key: &Key, revision: Revision) {
        let Some(values) = self.values.get_mut(key) else { return };
        if values.front().is_some_and(|old| old.mod_revision() == revision) {
            self.bytes -= values.pop_front().map_or(0, |gone| gone.value().len());
        }
        if values.is_empty() {
            self.values.remove(key);
        }
    }
}

/// The answer that this was found, or nothing.
pub(super) fn answer_to(request: &FallbackRequest, found: Option<Arc<Resource>>) -> FallbackAnswer {
    let FallbackRequest { key, create_revision, below } = request.clone();
    FallbackAnswer { key, create_revision, rejected: below, found }
}

/// Whether a value is worth offering as a fallback. The node alone decides; this only skips what no node can use.
fn usable(resource: &Resource) -> bool {
    resources::parse(resource.key(), resource.value(), &resources::Context::default()).is_ok()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn resource(create: u64, modified: u64, value: &'static str) -> Arc<Resource> {
        let value = Bytes::from_static(value.as_bytes());
        Arc::new(Resource::new(Key::new("routes/1"), value, Revision(create), Revision(modified)))
    }

    fn found(older: &Older, create: u64, below: u64) -> Option<u64> {
        older
            .find(&Key::new("routes/1"), Revision(create), Revision(below), |old| {
                old.value().as_ref() != b"bad"
            })
            .map(|old| old.mod_revision().0)
    }

    #[test]
    fn the_newest_usable_value_of_the_same_life_is_found() {
        let mut older = Older::default();
        older.replaced(resource(1, 1, "good"));
        older.replaced(resource(1, 2, "good"));
        older.replaced(resource(1, 3, "bad"));
        assert_eq!(found(&older, 1, 4), Some(2));
        assert_eq!(found(&older, 1, 2), Some(1));
        assert_eq!(found(&older, 1, 1), None);
        assert_eq!(found(&older, 2, 4), None);
        older.deleted("routes/1");
        assert_eq!(found(&older, 1, 4), None);
        assert_eq!(older.bytes, 0);
    }

    #[test]
    fn what_etcd_answered_is_remembered_for_that_question_while_the_key_lives() {
        let mut older = Older::default();
        let asked = |below| FallbackRequest {
            key: Key::new("routes/1"),
            create_revision: Revision(1),
            below: Revision(below),
        };
        assert_eq!(older.answer(&asked(9)), None);
        older.remember(asked(9), None);
        assert_eq!(older.answer(&asked(9)), Some(answer_to(&asked(9), None)));
        assert_eq!(older.answer(&asked(8)), None);
        older.deleted("routes/1");
        assert_eq!(older.answer(&asked(9)), None);
    }

    #[test]
    fn a_key_keeps_a_few() {
        let mut older = Older::default();
        for revision in 1..=20 {
            older.replaced(resource(1, revision, "good"));
        }
        assert_eq!(older.values.values().map(VecDeque::len).sum::<usize>(), PER_KEY);
        assert_eq!(older.bytes, PER_KEY * 4);
        assert_eq!(found(&older, 1, 13), None);
        assert_eq!(found(&older, 1, 14), Some(13));
    }
}
