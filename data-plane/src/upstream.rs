//! Upstreams at run time: what of them lives longer than a version of the configuration.
//!
//! A compiled table points at [`Upstream`]s; the state of a balancer, looked-up addresses and kept connections outlive the table
//! that first named them: the same definition for the same holder is the same `Upstream`, kept connections belong to addresses,
//! addresses to names. Nothing here knows routes or requests' heads.

pub mod balancer;
pub mod connect;
pub mod node;
pub mod pool;
pub mod resolver;
pub mod upload;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dashmap::DashMap;
use headwater_model::Key;
use headwater_model::resources::{self, PassHost, Scheme, Timeout};
use headwater_process::{Policy, Supervisor};
use http::HeaderValue;

use crate::compile::Registry;
use crate::proxy::config::ResolverConfig;
use crate::proxy::host::split_port;
use balancer::{Balancer, Tried};
use connect::{ConnectError, Connector};
use node::Node;
use pool::{Connection, Pool, Target};
use resolver::{Lookup, Names};

/// One upstream of one holder (an upstream of its own, or a route or service that defines one inline).
#[derive(Debug)]
pub struct Upstream {
    definition: Arc<resources::Upstream>,
    /// `upstream_host` as a header, where it replaces the client's.
    rewrite: Option<HeaderValue>,
    nodes: Vec<Node>,
    balancer: Mutex<Balancer>,
}

impl Upstream {
    fn new(definition: &Arc<resources::Upstream>, names: &Names) -> Self {
        let standard_port = definition.scheme.default_port();
        // A node that cannot stand in a `Host` header counts as absent; validation refuses such hosts before.
        let (nodes, weights): (Vec<Node>, Vec<u32>) = definition
            .nodes
            .iter()
            .filter_map(|node| Some((Node::new(&node.host, node.port, standard_port, names)?, node.weight)))
            .unzip();
        let rewrite = match &definition.pass_host {
            PassHost::Rewrite(host) => HeaderValue::from_str(host).ok(),
            PassHost::Pass | PassHost::Node => None,
        };
        let balancer = Mutex::new(Balancer::new(weights, rand::random::<u32>() as usize));
        Self { definition: Arc::clone(definition), rewrite, nodes, balancer }
    }

    /// Its time limits, unless the route has its own.
    pub fn timeout(&self) -> Timeout {
        self.definition.timeout.unwrap_or_default()
    }

    /// The `Host` that `node` is asked for, where the client asked for `client`.
    pub fn host_for(&self, client: Option<&HeaderValue>, node: &Node) -> HeaderValue {
        let host = match self.definition.pass_host {
            PassHost::Pass => client,
            PassHost::Rewrite(_) => self.rewrite.as_ref(),
            PassHost::Node => None,
        };
        host.unwrap_or_else(|| node.authority()).clone()
    }

    /// The name for the TLS handshake with a node that is asked for `host`: `host` without its port. `None` is plain HTTP.
    pub fn tls_name(&self, host: &HeaderValue) -> Option<Arc<str>> {
        if self.definition.scheme == Scheme::Http {
            return None;
        }
        let host = host.to_str().unwrap_or_default();
        let name = split_port(host).map_or(host, |(name, _)| name);
        let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        Some(name.into())
    }

    /// The node with this index, as [`pick`](Self::pick) told it.
    pub fn node(&self, index: usize) -> &Node {
        &self.nodes[index]
    }

    /// Whether it has no nodes.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// How many times a request may be tried again: as configured, else once for each further node.
    pub fn retries(&self) -> u32 {
        let further = u32::try_from(self.nodes.len().saturating_sub(1)).unwrap_or(u32::MAX);
        self.definition.retries.unwrap_or(further)
    }

    /// The next node for a request that has tried `tried`, with its index.
    pub fn pick(&self, tried: &Tried) -> Option<(usize, &Node)> {
        let mut balancer = self.balancer.lock().unwrap_or_else(PoisonError::into_inner);
        let index = balancer.pick(tried)?;
        Some((index, &self.nodes[index]))
    }
}

/// Every upstream in use, and what they share.
pub struct Upstreams {
    in_use: DashMap<Key, Vec<Arc<Upstream>>>,
    names: Arc<Names>,
    pool: Pool,
    connector: Connector,
    supervisor: Supervisor,
}

/// How often what nobody uses any more is let go.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);

impl Upstreams {
    /// No upstreams yet. Needs no run time before [`run`](Self::run).
    ///
    /// # Errors
    /// Where the TLS library refuses its own defaults.
    pub fn new(
        supervisor: Supervisor,
        lookup: Arc<dyn Lookup>,
        config: ResolverConfig,
    ) -> Result<Arc<Self>, rustls::Error> {
        Ok(Arc::new(Self {
            in_use: DashMap::new(),
            names: Arc::new(Names::new(lookup, config)),
            pool: Pool::default(),
            connector: Connector::new(supervisor.clone())?,
            supervisor,
        }))
    }

    /// Looks names up and lets go of what nobody uses, for ever.
    pub async fn run(self: Arc<Self>) {
        self.supervisor.spawn(
            "resolve node names",
            Policy::essential().dropped_on_cancel(),
            Arc::clone(&self.names).run(self.supervisor.clone()),
        );
        let mut interval = tokio::time::interval(SWEEP_INTERVAL);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = interval.tick() => {}
                // Kept connections to an address that a name has left are closed at once.
                () = self.names.changed() => {}
            }
            self.sweep();
        }
    }

    /// Lets go of upstreams that no table holds, of names without users, and of connections that lead nowhere in use.
    pub fn sweep(&self) {
        let mut addresses: BTreeSet<SocketAddr> = BTreeSet::new();
        self.in_use.retain(|_, held| {
            // Only the registry gives further holders, and it is shut out of this entry meanwhile.
            held.retain(|upstream| Arc::strong_count(upstream) > 1);
            let nodes = held.iter().flat_map(|upstream| &upstream.nodes);
            addresses.extend(nodes.flat_map(Node::known_addresses));
            !held.is_empty()
        });
        self.names.sweep();
        self.pool.sweep(|address| addresses.contains(address));
    }

    /// A kept connection to `target`, or a new one, opened within `limit`. `fresh` asks for a new one.
    ///
    /// # Errors
    /// [`ConnectError`]: nothing of a request was written.
    pub async fn connection(
        &self,
        target: &Target,
        fresh: bool,
        limit: Duration,
    ) -> Result<Connection, ConnectError> {
        if !fresh && let Some(kept) = self.pool.take(target) {
            return Ok(kept);
        }
        self.connector.open(target, limit).await
    }

    /// Takes a connection back whose exchange is over.
    pub fn give_back(&self, target: Target, connection: Connection) {
        self.pool.give_back(target, connection);
    }

    /// Idle connections kept.
    pub fn idle_connections(&self) -> usize {
        self.pool.len()
    }

    /// Upstreams in use.
    pub fn len(&self) -> usize {
        self.in_use.iter().map(|held| held.len()).sum()
    }

    /// Whether no upstream is in use.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Registry for Upstreams {
    type Upstream = Arc<Upstream>;

    fn upstream(&self, holder: &Key, definition: &Arc<resources::Upstream>) -> Arc<Upstream> {
        // A holder has several at a time only while a retained value stands beside a newer one.
        let mut held = self.in_use.entry(holder.clone()).or_default();
        if let Some(known) = held.iter().find(|known| known.definition == *definition) {
            return Arc::clone(known);
        }
        let new = Arc::new(Upstream::new(definition, &self.names));
        held.push(Arc::clone(&new));
        new
    }
}

impl std::fmt::Debug for Upstreams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upstreams").field("in_use", &self.len()).finish_non_exhaustive()
    }
}

/// An error with all its causes, as one sentence.
pub(crate) fn text_with_causes(error: &(dyn std::error::Error + 'static)) -> Arc<str> {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        // Libraries often repeat their cause in their own text.
        if !text.contains(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = error.source();
    }
    text.into()
}

#[cfg(test)]
mod tests;
