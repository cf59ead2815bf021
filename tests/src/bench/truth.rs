//! What etcd holds, read from etcd and compared with what nodes hold.
//!
//! It shares nothing with the store: its own rule for what is content, its own maps, its own reading.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use etcd_client::{Client, GetOptions};
use headwater_model::Content;

use super::load::PREFIX;

/// Keys of one page.
const PAGE: i64 = 500;

/// Every resource below the prefix at one revision: its key, the revision of its last write, and its value.
#[derive(Debug)]
pub struct Truth {
    resources: BTreeMap<String, (i64, Vec<u8>)>,
}

// === impl Truth ===

impl Truth {
    /// Reads etcd in pages at the revision of the first one.
    ///
    /// # Errors
    /// When etcd does not answer.
    pub async fn read(endpoint: &str) -> Result<Self> {
        let mut client = Client::connect([endpoint], None).await.context("connect to etcd")?;
        let mut resources = BTreeMap::new();
        let end = format!("{PREFIX}0"); // '0' follows '/'
        let mut from = format!("{PREFIX}/");
        let mut revision = 0;
        loop {
            let options = GetOptions::new().with_range(end.as_str()).with_limit(PAGE).with_revision(revision);
            let page = client.get(from.as_str(), Some(options)).await.context("read etcd")?;
            if revision == 0 {
                revision = page.header().context("an answer without header")?.revision();
            }
            for pair in page.kvs() {
                let key = pair.key_str().context("a key that is no text")?;
                // `a/b` is a resource, `a/` is a placeholder of APISIX.
                if !key.ends_with('/') {
                    let below = key[PREFIX.len() + 1..].to_owned();
                    resources.insert(below, (pair.mod_revision(), pair.value().to_vec()));
                }
            }
            match page.kvs().last() {
                Some(last) if page.more() => from = format!("{}\0", last.key_str()?),
                _ => return Ok(Self { resources }),
            }
        }
    }

    /// How many resources there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.resources.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.resources.is_empty()
    }

    /// The first difference between etcd and what a node holds.
    #[must_use]
    pub fn difference(&self, content: &Content) -> Option<String> {
        let mut held = content.iter();
        for (key, (revision, value)) in &self.resources {
            let Some(resource) = held.next() else { return Some(format!("{key} is not held")) };
            if resource.key().as_str() != key {
                return Some(format!("{} is held where etcd has {key}", resource.key()));
            }
            if i64::try_from(resource.mod_revision().0).ok() != Some(*revision) {
                return Some(format!(
                    "{key} is held of revision {}, not {revision}",
                    resource.mod_revision()
                ));
            }
            if resource.value() != value.as_slice() {
                return Some(format!("{key} has another value at the same revision"));
            }
        }
        held.next().map(|extra| format!("{} is held and not in etcd", extra.key()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use headwater_model::{Key, Resource, Revision};

    use super::*;

    fn resource(key: &str, revision: u64, value: &'static str) -> Arc<Resource> {
        let value = Bytes::from_static(value.as_bytes());
        Arc::new(Resource::new(Key::new(key), value, Revision(1), Revision(revision)))
    }

    #[test]
    fn every_kind_of_difference_is_found() {
        let truth = [("routes/1", 5, "a"), ("routes/2", 6, "b")];
        let resources = truth
            .iter()
            .map(|(key, revision, value)| ((*key).into(), (*revision, (*value).into())))
            .collect();
        let truth = Truth { resources };
        let one = || resource("routes/1", 5, "a");
        let two = || resource("routes/2", 6, "b");
        let differs =
            |held: Vec<Arc<Resource>>| truth.difference(&held.iter().map(|it| (**it).clone()).collect());
        assert_eq!(differs(vec![one(), two()]), None);
        for wrong in [
            vec![one()],
            vec![two()],
            vec![one(), resource("routes/2", 7, "b")],
            vec![one(), resource("routes/2", 6, "c")],
            vec![one(), two(), resource("routes/3", 6, "c")],
        ] {
            assert!(differs(wrong.clone()).is_some(), "{wrong:?}");
        }
    }
}
