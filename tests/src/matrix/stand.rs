//! What a cell is run on: etcd, a replica and two nodes as real processes, and the writer.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use etcd_client::GetOptions;
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::{Instant, sleep, timeout_at};

use super::binaries::Found;
use super::cell::{Cell, Needs};
use super::writer::{Mark, Writer};
use crate::etcd::{Etcd, Options};
use crate::keys::{Keys, Write, route, upstream};
use crate::planes::{Node, Replica};
use crate::tcp_proxy::TcpProxy;

/// How long etcd may take to take a write after a fault.
pub const TAKEN: Duration = Duration::from_secs(30);
/// Resources that stay.
const BASE: usize = 6;

/// Everything that runs.
#[derive(Debug)]
pub struct Stand {
    /// The cluster.
    pub etcd: Etcd,
    /// The replica's ways to the members, where the fault is one of the way.
    pub proxies: Vec<TcpProxy>,
    /// The replica.
    pub replica: Replica,
    /// Its nodes.
    pub nodes: Vec<Node>,
    /// Whoever writes.
    pub writer: Writer,
    /// How long a plane may take for what is expected of it.
    pub limit: Duration,
    /// Whether etcd's progress notifications count, so that every revision is reached.
    dependable: bool,
    /// Whether the fault ends no history, so that the generation stays.
    one_history: bool,
    _folder: TempDir,
}

/// What etcd holds at one revision.
#[derive(Debug)]
struct Truth {
    revision: u64,
    resources: BTreeMap<String, (u64, Value)>,
}

// === impl Stand ===

impl Stand {
    /// Starts everything and waits until both nodes hold what etcd holds.
    ///
    /// # Errors
    /// When they do not come to it.
    ///
    /// # Panics
    /// When a process does not start.
    pub async fn start(cell: &Cell, found: &Found) -> Result<Self> {
        let dependable = found.version.is_dependable();
        let etcd = start_etcd(cell, found).await;
        let proxies = proxies(&etcd, cell.fault.needs()).await;
        let writer = Writer::start(&etcd).await?;
        let folder = tempfile::tempdir().context("a temporary folder")?;
        let endpoints = endpoints(&etcd, &proxies).join("', '");
        // What an unsafe release loses is found by the audit.
        let allowed: &[&str] =
            if dependable { &[] } else { &["etcd.allow_unsafe_etcd=true", "etcd.audit_interval=3s"] };
        let replica = Replica::start(folder.path(), "r1", &endpoints, allowed);
        let node = |id| Node::start(folder.path(), id, &replica.southbound, &[]);
        let nodes = vec![node("n1"), node("n2")];
        let limit = Duration::from_secs(if dependable { 30 } else { 60 });
        let one_history = !cell.fault.ends_history(cell.members);
        let stand =
            Self { etcd, proxies, replica, nodes, writer, limit, dependable, one_history, _folder: folder };
        stand.equal().await.context("before the fault")?;
        stand.healthy().await.context("before the fault")?;
        Ok(stand)
    }

    /// Which member the replica follows.
    ///
    /// # Errors
    /// When the replica does not say.
    pub async fn followed(&self) -> Result<usize> {
        let status = self.replica.status().await?;
        let member = status["source"]["member"].as_str().context("a source names its member")?;
        let known = endpoints(&self.etcd, &self.proxies);
        known.iter().position(|it| it == member).with_context(|| format!("the replica follows {member}"))
    }

    /// Waits until both nodes have applied a write; how long that was after `since`, or after the write if that was
    /// later.
    ///
    /// # Errors
    /// When they do not within the limit.
    pub async fn applied(&self, mark: &Mark, since: Instant) -> Result<Duration> {
        until(
            &format!("every node applies {} of revision {}", mark.key, mark.revision),
            self.limit,
            || async {
                for node in &self.nodes {
                    let held = node.held().await?;
                    let seen = held.content.get(&mark.key);
                    ensure!(seen == Some(&mark.revision), "a node is at {}, {seen:?}", held.revision);
                }
                Ok(())
            },
        )
        .await?;
        Ok(mark.at.max(since).elapsed())
    }

    /// Stops the writer and waits until both nodes hold exactly what etcd holds: keys, revisions, values; and one digest
    /// with the replica.
    ///
    /// # Errors
    /// When they do not within the limit.
    pub async fn equal(&self) -> Result<()> {
        let _quiet = self.writer.quiet().await;
        until("every node holds what etcd holds", self.limit, || async {
            let truth = self.truth().await?;
            let replica = self.replica.status().await?;
            for (index, node) in self.nodes.iter().enumerate() {
                let held = node.held().await?;
                let seen = held.content.into_iter().zip(held.values.into_values());
                let seen = seen.map(|((key, revision), value)| (key, (revision, value))).collect();
                let difference = truth.difference(&seen);
                ensure!(difference.is_none(), "node {}: {}", index + 1, difference.unwrap_or_default());
                let digest = replica["serving"]["digest"].as_str();
                ensure!(
                    digest == Some(&held.digest),
                    "node {}: digest {}, {digest:?}",
                    index + 1,
                    held.digest
                );
                let reached = !self.dependable || held.revision == truth.revision;
                ensure!(reached, "node {}: revision {}, not {}", index + 1, held.revision, truth.revision);
            }
            Ok(())
        })
        .await
    }

    /// Waits until replica and nodes say that all is well, and checks that nothing was counted that must not be.
    ///
    /// # Errors
    /// When they do not.
    pub async fn healthy(&self) -> Result<()> {
        until("replica and nodes say that all is well", self.limit, || async {
            let status = self.replica.status().await?;
            let live = status["source"]["stage"] == "live" && status["degraded"].is_null();
            ensure!(
                live && status["held"].is_null() && status["rejects"] == Value::Array(vec![]),
                "{status}"
            );
            ensure!(status["nodes"]["live"] == self.nodes.len(), "{status}");
            let same = !self.one_history || status["version"]["generation"] == 0;
            ensure!(same, "a history was taken for another one: {status}");
            for node in &self.nodes {
                let status = node.status().await?;
                let stream = &status["stream"];
                let live = stream["phase"] == "open" && stream["standing"]["state"] == "live";
                let well = status["proof"]["stale_since_unix"].is_null() && status["hold"].is_null();
                ensure!(live && well, "{status}");
            }
            Ok(())
        })
        .await?;
        for counted in
            ["headwater_source_member_divergences_total", "headwater_distribution_divergences_total"]
        {
            let count = self.replica.count(counted).await;
            ensure!(count == 0.0, "{counted} is {count}");
        }
        Ok(())
    }

    /// Waits until the replica and every node say since when they may be behind.
    ///
    /// # Errors
    /// When they do not.
    pub async fn stale(&self) -> Result<()> {
        until("replica and nodes say that they may be behind", self.limit, || async {
            let status = self.replica.status().await?;
            ensure!(!status["degraded"].is_null(), "{status}");
            for node in &self.nodes {
                let status = node.status().await?;
                ensure!(!status["proof"]["stale_since_unix"].is_null(), "{status}");
            }
            Ok(())
        })
        .await
    }

    /// A write while a member is of no use, applied on every node all the same by way of another one; how long that
    /// took.
    ///
    /// # Errors
    /// When it is not, or the member is still followed.
    pub async fn survives(&mut self, lost: usize) -> Result<Duration> {
        let mark = self.writer.mark(TAKEN).await?;
        let took = self.applied(&mark, mark.at).await?;
        ensure!(self.followed().await? != lost, "the replica still follows the member that is of no use");
        Ok(took)
    }

    /// The first write after a fault, applied on every node; how long that took.
    ///
    /// # Errors
    /// When it is not.
    pub async fn after(&mut self, end: Instant) -> Result<Duration> {
        let mark = self.writer.mark(TAKEN).await?;
        self.applied(&mark, end).await
    }

    /// What etcd holds now, by a linearizable read of the member that took the last write.
    async fn truth(&self) -> Result<Truth> {
        let options = GetOptions::new().with_prefix();
        let answer = self.writer.answering().kv_client().get("/apisix/", Some(options)).await?;
        let revision = u64::try_from(answer.header().context("an answer has a header")?.revision())?;
        let mut resources = BTreeMap::new();
        for pair in answer.kvs() {
            let key = pair.key_str()?.trim_start_matches("/apisix/").to_owned();
            if key.contains('/') && !key.starts_with("data_plane/") {
                let value = serde_json::from_slice(pair.value())?;
                resources.insert(key, (u64::try_from(pair.mod_revision())?, value));
            }
        }
        Ok(Truth { revision, resources })
    }
}

// === impl Truth ===

impl Truth {
    /// The first difference to what a node holds.
    fn difference(&self, held: &BTreeMap<String, (u64, Value)>) -> Option<String> {
        let wrong = self.resources.iter().find(|(key, resource)| held.get(*key) != Some(resource));
        if let Some((key, (revision, _))) = wrong {
            return Some(match held.get(key) {
                None => format!("{key} of revision {revision} is not held"),
                Some((other, _)) if other != revision => {
                    format!("{key} is held of revision {other}, not {revision}")
                }
                Some(_) => format!("{key} of revision {revision} is held with another value"),
            });
        }
        let extra = held.keys().find(|key| !self.resources.contains_key(*key));
        extra.map(|key| format!("{key} is held and not in etcd"))
    }
}

/// etcd for a cell, with the resources that stay.
///
/// # Panics
/// When it does not start.
pub async fn start_etcd(cell: &Cell, found: &Found) -> Etcd {
    let needs = cell.fault.needs();
    let quota = needs.quota.map(|bytes| format!("--quota-backend-bytes={bytes}"));
    let options = Options {
        members: cell.members.count(),
        fsync: !found.can_skip_fsync(),
        arguments: quota.into_iter().collect(),
        binaries: Some(found.binaries.clone()),
        peer_links: needs.peer_links,
        ..Options::default()
    };
    let etcd = Etcd::start_with(options).await;
    let base = Write::default().put("upstreams/1", &upstream("127.0.0.1:1"));
    let add = |write: Write, id| write.put(&format!("routes/base{id}"), &route(&format!("/{id}"), "1"));
    Keys::new(etcd.client().await).commit((1..BASE).fold(base, add)).await;
    etcd
}

async fn proxies(etcd: &Etcd, needs: Needs) -> Vec<TcpProxy> {
    let mut proxies = Vec::new();
    if needs.proxies {
        for member in etcd.members() {
            proxies.push(TcpProxy::start(&member.address).await);
        }
    }
    proxies
}

/// Where the replica reaches the members.
fn endpoints(etcd: &Etcd, proxies: &[TcpProxy]) -> Vec<String> {
    if proxies.is_empty() {
        return etcd.endpoints();
    }
    proxies.iter().map(|proxy| format!("http://{}", proxy.address)).collect()
}

/// Looks until `probe` answers `Ok`.
///
/// # Errors
/// When it does not within `limit`: what was waited for, and what was seen last.
pub async fn until<F>(what: &str, limit: Duration, mut probe: impl FnMut() -> F) -> Result<()>
where
    F: Future<Output = Result<()>>,
{
    let deadline = Instant::now() + limit;
    let mut last = None;
    loop {
        match timeout_at(deadline, probe()).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(seen)) => last = Some(seen),
            Err(_) => bail!("not within {limit:?}: {what}; a look hung, before it was seen {last:?}"),
        }
        if Instant::now() >= deadline {
            bail!("not within {limit:?}: {what}; was seen last: {:#}", last.context("no look")?);
        }
        sleep(Duration::from_millis(20)).await;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn held(pairs: &[(&str, u64, &str)]) -> BTreeMap<String, (u64, Value)> {
        pairs.iter().map(|(key, revision, value)| ((*key).to_owned(), (*revision, json!(value)))).collect()
    }

    #[test]
    fn every_kind_of_difference_is_named() {
        let truth = Truth { revision: 9, resources: held(&[("routes/1", 5, "a"), ("routes/2", 6, "b")]) };
        let differs = |pairs: &[(&str, u64, &str)]| truth.difference(&held(pairs)).unwrap_or_default();
        assert_eq!(differs(&[("routes/1", 5, "a"), ("routes/2", 6, "b")]), "");
        assert_eq!(differs(&[("routes/1", 5, "a")]), "routes/2 of revision 6 is not held");
        assert_eq!(
            differs(&[("routes/1", 5, "a"), ("routes/2", 7, "b")]),
            "routes/2 is held of revision 7, not 6"
        );
        assert_eq!(
            differs(&[("routes/1", 5, "c"), ("routes/2", 6, "b")]),
            "routes/1 of revision 5 is held with another value"
        );
        let more = [("routes/1", 5, "a"), ("routes/2", 6, "b"), ("routes/3", 6, "c")];
        assert_eq!(differs(&more), "routes/3 is held and not in etcd");
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_with_what_was_seen_last() {
        let error = until("noon", Duration::from_secs(2), || async { bail!("eleven") }).await.unwrap_err();
        assert_eq!(format!("{error:#}"), "not within 2s: noon; was seen last: eleven");
    }
}
