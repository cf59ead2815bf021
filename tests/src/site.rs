//! What nearly every test with real processes begins with: an etcd, its keys, an upstream server and a folder.

use std::path::Path;

use tempfile::TempDir;

use crate::etcd::{Etcd, Options};
use crate::keys::{Keys, Write, route, upstream};
use crate::origin::Origin;
use crate::planes::{LIMIT, Node, Replica};
use crate::tcp_proxy::TcpProxy;

/// An etcd that holds the upstream `1`, which is the origin.
pub struct Site {
    /// The cluster.
    pub etcd: Etcd,
    /// What it holds.
    pub keys: Keys,
    /// Who answers requests, with `origin`.
    pub origin: Origin,
    folder: TempDir,
}

// === impl Site ===

impl Site {
    /// One member.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn start() -> Self {
        Self::start_with(Options::default()).await
    }

    /// As the options say.
    ///
    /// # Panics
    /// As [`Site::start`].
    pub async fn start_with(options: Options) -> Self {
        let etcd = Etcd::start_with(options).await;
        let keys = Keys::new(etcd.client().await);
        let origin = Origin::start("origin").await;
        keys.put("upstreams/1", &upstream(&origin.node())).await;
        Self { etcd, keys, origin, folder: tempfile::tempdir().expect("a temporary folder") }
    }

    /// Where its planes keep their files.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A replica on all members.
    #[must_use]
    pub fn replica(&self, id: &str, more: &[&str]) -> Replica {
        self.replica_at(id, &self.etcd.endpoints(), more)
    }

    /// A replica on these endpoints.
    #[must_use]
    pub fn replica_at(&self, id: &str, endpoints: &[String], more: &[&str]) -> Replica {
        Replica::start(self.folder(), id, &endpoints.join("', '"), more)
    }

    /// A node of a replica.
    #[must_use]
    pub fn node(&self, id: &str, replica: &Replica) -> Node {
        Node::start(self.folder(), id, &replica.southbound, &[])
    }

    /// A proxy in front of each member, for those who follow, and their endpoints.
    pub async fn proxies(&self) -> (Vec<TcpProxy>, Vec<String>) {
        let mut proxies = Vec::new();
        for member in self.etcd.members() {
            proxies.push(TcpProxy::start(&*member.address).await);
        }
        let endpoints = proxies.iter().map(|proxy| format!("http://{}", proxy.address)).collect();
        (proxies, endpoints)
    }

    /// Puts routes `/<id>` to the origin, in one transaction of at most 128; answers the revision.
    ///
    /// # Panics
    /// When etcd refuses.
    pub async fn routes(&self, ids: std::ops::Range<u32>) -> u64 {
        let add = |write: Write, id| write.put(&format!("routes/{id}"), &route(&format!("/{id}"), "1"));
        self.keys.commit(ids.fold(Write::default(), add)).await
    }

    /// Waits until each node holds what etcd holds.
    ///
    /// # Panics
    /// When one does not.
    pub async fn equals(&self, nodes: &[&Node]) {
        for node in nodes {
            node.equals(&self.keys, LIMIT).await;
        }
    }
}
