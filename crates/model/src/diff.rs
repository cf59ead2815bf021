//! Differences between contents, with the law `apply(a, diff(a, b)) == b`.

use std::collections::BTreeSet;
use std::sync::Arc;

use imbl::ordmap::DiffItem;

use crate::content::Content;
use crate::key::Key;
use crate::resource::Resource;

/// One change of a content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The resource is now this one.
    Put(Arc<Resource>),
    /// The key is gone.
    Delete(Key),
}

/// What leads from one content to another. Deletions are applied before puts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Keys that are gone, in key order.
    pub deletes: Vec<Key>,
    /// Resources that are new or replaced, in key order.
    pub puts: Vec<Arc<Resource>>,
}

/// The changes that lead from `from` to `to`. Shared structure is skipped, so the cost follows the difference when
/// one content was made from the other.
#[must_use]
pub fn diff(from: &Content, to: &Content) -> Changes {
    let mut changes = Changes::default();
    for item in from.resources().diff(to.resources()) {
        match item {
            DiffItem::Add(_, resource) => changes.puts.push(resource.clone()),
            DiffItem::Update { new: (_, resource), .. } => changes.puts.push(resource.clone()),
            DiffItem::Remove(key, _) => changes.deletes.push(key.clone()),
        }
    }
    changes
}

/// The same for contents that differ at most at these keys: its cost follows their number alone.
#[must_use]
pub fn diff_at<'a>(from: &Content, to: &Content, keys: impl IntoIterator<Item = &'a Key>) -> Changes {
    let keys: BTreeSet<&Key> = keys.into_iter().collect();
    let mut changes = Changes::default();
    for key in keys {
        match (from.get(key.as_str()), to.get(key.as_str())) {
            (Some(_), None) => changes.deletes.push(key.clone()),
            (old, Some(new)) if old != Some(new) => changes.puts.push(new.clone()),
            _ => {}
        }
    }
    changes
}

// === impl Change ===

impl Change {
    /// The key it is about.
    #[must_use]
    pub fn key(&self) -> &Key {
        match self {
            Self::Put(resource) => resource.key(),
            Self::Delete(key) => key,
        }
    }
}

// === impl Changes ===

impl Changes {
    /// Whether nothing changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.deletes.is_empty() && self.puts.is_empty()
    }

    /// The number of changed keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.deletes.len() + self.puts.len()
    }
}

impl FromIterator<Change> for Changes {
    fn from_iter<T: IntoIterator<Item = Change>>(iter: T) -> Self {
        let mut changes = Self::default();
        for change in iter {
            match change {
                Change::Put(resource) => changes.puts.push(resource),
                Change::Delete(key) => changes.deletes.push(key),
            }
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::digest::Digest;
    use crate::version::Revision;

    fn contents() -> impl Strategy<Value = Content> {
        prop::collection::vec((0..12u8, 1..4u64, 0..4u8), 0..24).prop_map(|entries| {
            entries
                .into_iter()
                .map(|(id, revision, value)| {
                    let key = Key::new(format!("{}/{id}", if id % 3 == 0 { "ssls" } else { "routes" }));
                    Resource::new(key, Bytes::from(vec![value]), Revision(1), Revision(revision))
                })
                .collect()
        })
    }

    proptest! {
        #[test]
        fn apply_of_diff_is_the_target(from in contents(), to in contents()) {
            let changes = diff(&from, &to);
            let mut content = from.clone();
            content.apply(&changes);
            prop_assert_eq!(&content, &to);
            prop_assert_eq!(content.routes(), to.routes());
            prop_assert_eq!(content.certificates(), to.certificates());
            prop_assert_eq!(content.value_bytes(), to.value_bytes());
            prop_assert_eq!(changes.is_empty(), from == to);
            let keys = from.iter().chain(to.iter()).map(|resource| resource.key());
            prop_assert_eq!(diff_at(&from, &to, keys), changes);
        }

        #[test]
        fn digest_is_the_sum_whatever_the_way(from in contents(), to in contents()) {
            let mut content = from.clone();
            content.apply(&diff(&from, &to));
            let sum = to.iter().fold(Digest::EMPTY, |sum, resource| sum.plus(resource.hash()));
            prop_assert_eq!(content.digest(), sum);
            content.apply(&diff(&to, &from));
            prop_assert_eq!(content.digest(), from.digest());
        }

        #[test]
        fn unchanged_resources_keep_their_allocation(from in contents(), to in contents()) {
            let mut content = from.clone();
            content.apply(&diff(&from, &to));
            for resource in content.iter() {
                if let Some(old) = from.get(resource.key().as_str()).filter(|old| old == &resource) {
                    prop_assert!(Arc::ptr_eq(old, resource));
                }
            }
        }
    }
}
