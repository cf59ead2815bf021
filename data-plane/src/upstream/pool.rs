//! Kept connections to upstream nodes.
//!
//! Written here rather than taken from hyper-util's client: a connection is chosen by address and TLS name (not by URI), serves
//! a bounded number of requests, and a request that found its kept connection closed must come back unwritten, so that the
//! proxy alone decides whether it may be sent again. Connections belong to no upstream: a changed definition keeps them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::client::conn::http1::SendRequest;
use tokio::time::Instant;

use super::upload::Lent;

/// Where a connection leads. Two requests may share one exactly when these are equal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// The node's address.
    pub address: SocketAddr,
    /// The name asked for in the TLS handshake; `None` is plain HTTP.
    pub tls: Option<Arc<str>>,
}

/// Idle connections kept for one target, as APISIX's `keepalive_pool.size`.
const MAX_IDLE: usize = 320;
/// How long an idle connection is kept, as APISIX's `keepalive_pool.idle_timeout`.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Requests one connection serves, as APISIX's `keepalive_pool.requests`.
const MAX_REQUESTS: u32 = 1000;

/// An open connection.
#[derive(Debug)]
pub struct Connection {
    sender: SendRequest<Lent>,
    requests: u32,
}

impl Connection {
    /// A connection that has served nothing yet.
    pub fn new(sender: SendRequest<Lent>) -> Self {
        Self { sender, requests: 0 }
    }

    /// Whether it has served a request before.
    pub fn is_reused(&self) -> bool {
        self.requests > 0
    }

    /// What requests are sent with.
    pub fn sender(&mut self) -> &mut SendRequest<Lent> {
        &mut self.sender
    }
}

#[derive(Debug)]
struct Idle {
    connection: Connection,
    since: Instant,
}

/// The idle connections of all targets.
#[derive(Debug, Default)]
pub struct Pool {
    idle: Mutex<BTreeMap<Target, Vec<Idle>>>,
}

impl Pool {
    /// An idle connection that is open as far as is known; the one used last, so that spare ones grow old.
    pub fn take(&self, target: &Target) -> Option<Connection> {
        let mut idle = self.lock();
        let kept = idle.get_mut(target)?;
        let mut at = kept.len();
        while at > 0 {
            at -= 1;
            if !kept[at].is_usable() {
                kept.remove(at);
            } else if kept[at].connection.sender.is_ready() {
                return Some(kept.remove(at).connection);
            }
            // Else its last exchange is just being finished by its task: left for the next request.
        }
        None
    }

    /// Keeps a connection whose exchange is over, or closes it.
    pub fn give_back(&self, target: Target, mut connection: Connection) {
        connection.requests += 1;
        if connection.requests >= MAX_REQUESTS || connection.sender.is_closed() {
            return;
        }
        let mut idle = self.lock();
        let kept = idle.entry(target).or_default();
        if kept.len() >= MAX_IDLE {
            kept.remove(0);
        }
        kept.push(Idle { connection, since: Instant::now() });
    }

    /// Closes idle connections that are too old, ended, or lead to an address that `in_use` does not know.
    pub fn sweep(&self, in_use: impl Fn(&SocketAddr) -> bool) {
        self.lock().retain(|target, kept| {
            if !in_use(&target.address) {
                return false;
            }
            kept.retain(Idle::is_usable);
            !kept.is_empty()
        });
    }

    /// Idle connections of all targets.
    pub fn len(&self) -> usize {
        self.lock().values().map(Vec::len).sum()
    }

    /// Whether no connection is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Target, Vec<Idle>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Idle {
    fn is_usable(&self) -> bool {
        !self.connection.sender.is_closed() && self.since.elapsed() < IDLE_TIMEOUT
    }
}
