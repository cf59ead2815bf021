//! What etcd, every replica and every node hold, key by key: revisions, values, versions.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use headwater_model::Digest;
use headwater_proto::admin::resources_client::ResourcesClient;
use headwater_proto::admin::{ListRequest, Version};
use serde_json::Value;

use super::world::World;
use crate::history::{EtcdLog, Fact, Stored, read};
use crate::http;
use crate::planes::{Node, Replica};

/// Differences of one that are told.
const TOLD_MAX: usize = 5;
/// Resources of a page, the most that a replica gives.
const PAGE: u32 = 1000;

/// etcd's content, and what everybody must say of it.
struct Truth {
    stored: Stored,
    digest: Digest,
    /// Everybody must have reached this.
    revision: u64,
}

/// The differences between etcd and everybody else now; empty when there are none.
///
/// # Errors
/// When etcd cannot be asked, or the log is not what etcd holds, which is a fault of the test.
pub async fn differences(world: &World, log: &EtcdLog, revision: u64) -> Result<Vec<String>> {
    let (stored, _) = read(&world.etcd.endpoints()).await.context("read etcd")?;
    let facts: BTreeMap<&str, Fact> = stored
        .iter()
        .map(|(key, (create, modified, value))| (key.as_str(), Fact::new(key, *create, *modified, value)))
        .collect();
    log.look(|history| {
        ensure!(history.content_at(history.head()) == facts, "the log of etcd is not what etcd holds");
        Ok(())
    })?;
    let digest = facts.values().fold(Digest::EMPTY, |sum, fact| sum.plus(fact.hash));
    let truth = Truth { stored, digest, revision };
    let mut found = Vec::new();
    for (number, replica) in world.replicas.iter().enumerate() {
        let differences = truth.replica(replica).await;
        found.extend(told(&format!("r{number}"), differences));
    }
    for (number, node) in world.nodes.iter().enumerate() {
        let differences = truth.node(node).await;
        found.extend(told(&format!("n{number}"), differences));
    }
    Ok(found)
}

/// The first differences of one, under its name; that it does not answer is one too.
fn told(name: &str, differences: Result<Vec<String>>) -> Vec<String> {
    let all = differences.unwrap_or_else(|error| vec![format!("does not answer: {error:#}")]);
    let rest = all.len().saturating_sub(TOLD_MAX);
    let mut told: Vec<String> = all.into_iter().take(TOLD_MAX).map(|it| format!("{name} {it}")).collect();
    if rest > 0 {
        told.push(format!("{name} differs in {rest} more"));
    }
    told
}

// === impl Truth ===

impl Truth {
    async fn replica(&self, replica: &Replica) -> Result<Vec<String>> {
        let mut client = ResourcesClient::connect(format!("http://{}", replica.admin)).await?;
        let mut held: Stored = BTreeMap::new();
        let (mut after, mut version) = (String::new(), None);
        loop {
            let request =
                ListRequest { environment: "default".into(), after, limit: PAGE, ..ListRequest::default() };
            let page = client.list(request).await?.into_inner();
            for resource in page.resources {
                let stored = (resource.create_revision, resource.mod_revision, resource.value);
                held.insert(resource.key, stored);
            }
            let seen = page.version.context("a page has a version")?;
            let first = version.get_or_insert_with(|| seen.clone());
            ensure!(*first == seen, "it moved on while it was read");
            ensure!(page.stale.is_empty() && page.held.is_empty(), "{}{}", page.stale, page.held);
            if page.next.is_empty() {
                break;
            }
            after = page.next;
        }
        let Version { generation, revision, digest, .. } = version.context("there is a page")?;
        let mut found = self.version(generation, revision, &digest);
        found.extend(self.keys(&held, |stored, held| stored.2 == held.2, |it| (it.0, it.1)));
        Ok(found)
    }

    async fn node(&self, node: &Node) -> Result<Vec<String>> {
        let (status, body) = http::get(&node.control, "/config_dump").await?;
        ensure!(status == 200, "/config_dump answers {status}");
        let dump: Value = serde_json::from_str(&body).context("a dump is JSON")?;
        // The version of the dump is the one that was published last; a revision that changed nothing is taken without.
        let applied = &dump["status"]["applied"];
        let number = |value: &Value| value.as_u64().context("a number");
        let digest =
            |version: &Value| version["digest"].as_str().map(str::to_owned).context("it holds nothing");
        let (generation, revision) = (number(&applied["generation"])?, number(&applied["revision"])?);
        let mut found = self.version(generation, revision, &digest(applied)?);
        if digest(applied)? != digest(&dump["version"])? {
            found.push(format!("has applied {applied} and serves {}", dump["version"]));
        }
        let mut held = BTreeMap::new();
        for resource in dump["resources"].as_array().context("a dump has resources")? {
            let key = resource["key"].as_str().context("a resource has a key")?.to_owned();
            let (create, modified) =
                (number(&resource["create_revision"])?, number(&resource["mod_revision"])?);
            held.insert(key, (create, modified, resource["value"].clone()));
        }
        found.extend(self.keys(&held, |stored, held| shown(&stored.2) == held.2, |it| (it.0, it.1)));
        Ok(found)
    }

    fn version(&self, generation: u64, revision: u64, digest: &str) -> Vec<String> {
        let mut found = Vec::new();
        if generation != 0 {
            found.push(format!("is in generation {generation}, and etcd was never restored"));
        }
        if revision < self.revision {
            found.push(format!("is at revision {revision} of {}", self.revision));
        }
        if digest != self.digest.to_string() {
            found.push(format!("says digest {digest}, etcd's is {}", self.digest));
        }
        found
    }

    fn keys<T>(
        &self,
        held: &BTreeMap<String, T>,
        same: impl Fn(&(u64, u64, Vec<u8>), &T) -> bool,
        revisions: impl Fn(&T) -> (u64, u64),
    ) -> Vec<String> {
        let mut found = Vec::new();
        for (key, stored) in &self.stored {
            let Some(other) = held.get(key) else {
                found.push(format!("lacks {key} of revision {}", stored.1));
                continue;
            };
            if revisions(other) != (stored.0, stored.1) {
                found.push(format!(
                    "has {key} of (create, mod) {:?}, etcd {:?}",
                    revisions(other),
                    (stored.0, stored.1)
                ));
            } else if !same(stored, other) {
                found.push(format!("has another value of {key} at revision {}", stored.1));
            }
        }
        let extra = held.keys().filter(|key| !self.stored.contains_key(*key));
        found.extend(extra.map(|key| format!("has {key}, which etcd has not")));
        found
    }
}

/// A value as a node's dump shows it. Its bytes are part of the digest.
fn shown(value: &[u8]) -> Value {
    serde_json::from_slice(value).unwrap_or_else(|_| format!("not JSON ({} bytes)", value.len()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_difference_is_named() {
        let one = |create: u64, modified: u64, value: &str| (create, modified, value.as_bytes().to_vec());
        let stored: Stored = [("r/1".to_owned(), one(1, 5, "a")), ("r/2".to_owned(), one(2, 6, "b"))].into();
        let digest = Digest(9);
        let truth = Truth { stored: stored.clone(), digest, revision: 7 };
        let of = |held: &Stored| truth.keys(held, |stored, held| stored.2 == held.2, |it| (it.0, it.1));
        assert_eq!(of(&stored), [""; 0]);
        let with = |key: &str, value| {
            of(&[stored.clone(), [(key.to_owned(), value)].into()].into_iter().flatten().collect())
        };
        assert_eq!(with("r/2", one(2, 5, "b")), ["has r/2 of (create, mod) (2, 5), etcd (2, 6)"]);
        assert_eq!(with("r/2", one(2, 6, "c")), ["has another value of r/2 at revision 6"]);
        assert_eq!(with("r/3", one(2, 6, "c")), ["has r/3, which etcd has not"]);
        assert_eq!(of(&[("r/1".to_owned(), one(1, 5, "a"))].into()), ["lacks r/2 of revision 6"]);
        assert_eq!(truth.version(0, 7, &digest.to_string()), [""; 0]);
        assert_eq!(truth.version(1, 6, &Digest(8).to_string()).len(), 3);
        assert_eq!(told("n0", Ok(vec!["x".to_owned(); 7])).len(), 6);
        assert_eq!(told("n0", Err(anyhow::anyhow!("gone"))), ["n0 does not answer: gone"]);
    }
}
