//! Writes and reads below `/apisix` with the test's own client of etcd, which shares nothing with the code under test.

use std::collections::BTreeMap;

use etcd_client::{Client, Compare, CompareOp, GetOptions, Txn, TxnOp};
use serde_json::{Value, json};

/// The prefix that all of it is about, with its slash.
const PREFIX: &str = "/apisix/";

/// The keys of one environment in etcd.
#[derive(Clone)]
pub struct Keys(Client);

/// One transaction in the making.
#[derive(Debug, Default, Clone)]
pub struct Write(Vec<TxnOp>);

// === impl Keys ===

impl Keys {
    /// Over a client.
    #[must_use]
    pub const fn new(client: Client) -> Self {
        Self(client)
    }

    /// Puts bytes as they are; answers the revision.
    ///
    /// # Panics
    /// When etcd refuses.
    pub async fn put_raw(&self, key: &str, value: impl Into<Vec<u8>>) -> u64 {
        let answer = self.0.kv_client().put(format!("{PREFIX}{key}"), value, None).await;
        revision(answer.expect("etcd takes the put").header())
    }

    /// Puts a value; answers the revision.
    ///
    /// # Panics
    /// When etcd refuses.
    pub async fn put(&self, key: &str, value: &Value) -> u64 {
        self.put_raw(key, value.to_string()).await
    }

    /// Puts a key of other tenants, in full; answers the revision.
    ///
    /// # Panics
    /// When etcd refuses, or the key is below the prefix.
    pub async fn put_outside(&self, key: &str, value: impl Into<Vec<u8>>) -> u64 {
        assert!(!key.starts_with(PREFIX), "{key} is ours");
        let answer = self.0.kv_client().put(key, value, None).await;
        revision(answer.expect("etcd takes the put").header())
    }

    /// Deletes a key; answers the revision.
    ///
    /// # Panics
    /// When etcd refuses, or there was nothing to delete.
    pub async fn delete(&self, key: &str) -> u64 {
        let answer = self.0.kv_client().delete(format!("{PREFIX}{key}"), None).await;
        let answer = answer.expect("etcd takes the deletion");
        assert_eq!(answer.deleted(), 1, "{key} is not in etcd");
        revision(answer.header())
    }

    /// Commits a transaction; answers the revision.
    ///
    /// # Panics
    /// When etcd refuses.
    pub async fn commit(&self, write: Write) -> u64 {
        let always = Compare::version("never", CompareOp::Equal, 0);
        let txn = Txn::new().when([always]).and_then(write.0);
        let answer = self.0.kv_client().txn(txn).await.expect("etcd takes the transaction");
        assert!(answer.succeeded(), "the comparison always holds");
        revision(answer.header())
    }

    /// Compacts away everything before the newest revision.
    ///
    /// # Panics
    /// When etcd refuses.
    pub async fn compact(&self) -> u64 {
        let newest = self.put_raw("data_plane/compacted", "x").await;
        self.compact_to(newest).await;
        newest
    }

    /// The same without a write of our own; answers the newest revision.
    ///
    /// # Panics
    /// When etcd refuses.
    pub async fn compact_only(&self) -> u64 {
        let newest = self.head().await;
        self.compact_to(newest).await;
        newest
    }

    /// The newest revision of all of etcd.
    ///
    /// # Panics
    /// When etcd does not answer.
    pub async fn head(&self) -> u64 {
        let options = GetOptions::new().with_count_only();
        let answer = self.0.kv_client().get(PREFIX, Some(options)).await;
        revision(answer.expect("etcd answers").header())
    }

    async fn compact_to(&self, newest: u64) {
        let number = i64::try_from(newest).expect("a revision fits");
        self.0.kv_client().compact(number, None).await.expect("etcd compacts");
    }

    /// Every key of two segments with its mod revision, as of a revision, or now.
    ///
    /// # Panics
    /// When etcd does not answer.
    pub async fn content(&self, revision: Option<u64>) -> BTreeMap<String, u64> {
        let number = revision.map_or(0, |it| i64::try_from(it).expect("a revision fits"));
        let options = GetOptions::new().with_prefix().with_keys_only().with_revision(number);
        let mut kv = self.0.kv_client().max_decoding_message_size(1 << 30);
        let answer = kv.get(PREFIX, Some(options)).await.expect("etcd answers");
        let keys = answer.kvs().iter().filter_map(|kv| {
            let key = kv.key_str().ok()?.strip_prefix(PREFIX)?;
            let mod_revision = u64::try_from(kv.mod_revision()).ok()?;
            let content = key.contains('/') && !key.starts_with("data_plane/") && !key.ends_with('/');
            content.then(|| (key.to_owned(), mod_revision))
        });
        keys.collect()
    }
}

// === impl Write ===

impl Write {
    /// Puts a value.
    #[must_use]
    pub fn put(mut self, key: &str, value: &Value) -> Self {
        self.0.push(TxnOp::put(format!("{PREFIX}{key}"), value.to_string(), None));
        self
    }

    /// Deletes a key.
    #[must_use]
    pub fn delete(mut self, key: &str) -> Self {
        self.0.push(TxnOp::delete(format!("{PREFIX}{key}"), None));
        self
    }
}

/// A route of one URI to an upstream by its id.
#[must_use]
pub fn route(uri: &str, upstream: &str) -> Value {
    json!({ "uri": uri, "upstream_id": upstream })
}

/// An upstream of one node.
#[must_use]
pub fn upstream(address: &str) -> Value {
    json!({ "type": "roundrobin", "nodes": { address: 1 } })
}

fn revision(header: Option<&etcd_client::ResponseHeader>) -> u64 {
    let revision = header.expect("an answer has a header").revision();
    u64::try_from(revision).expect("revisions are positive")
}
