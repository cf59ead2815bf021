//! The addresses of node names, looked up off the request path and kept through failures.
//!
//! Each name in use has one task that looks it up at intervals. A failed or empty answer never takes away addresses that were
//! good before: an outage of DNS must not become an outage of upstreams. It must never know routes or requests.

use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use dashmap::DashMap;
use futures_util::future::BoxFuture;
use headwater_process::{Policy, Supervisor};
use tokio::sync::{Notify, Semaphore, watch};
use tracing::{debug, info, warn};

use crate::proxy::config::ResolverConfig;

/// Something that knows the addresses of names.
pub trait Lookup: Send + Sync + 'static {
    /// The addresses of `name` now. The caller puts a deadline on it.
    fn lookup(&self, name: &str) -> BoxFuture<'static, io::Result<Vec<IpAddr>>>;
}

/// The system's resolver (hosts file, DNS, whatever the host is set up for).
#[derive(Debug, Clone)]
pub struct SystemLookup {
    permits: Arc<Semaphore>,
}

/// Lookups at a time. The system's resolver blocks a thread and cannot be called off, so a dead name server must not be
/// able to take all of them.
const LOOKUPS_AT_A_TIME: usize = 32;

impl Default for SystemLookup {
    fn default() -> Self {
        Self { permits: Arc::new(Semaphore::new(LOOKUPS_AT_A_TIME)) }
    }
}

impl Lookup for SystemLookup {
    fn lookup(&self, name: &str) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        let permits = Arc::clone(&self.permits);
        let name = name.to_owned();
        Box::pin(async move {
            let permit = permits.acquire_owned().await.map_err(io::Error::other)?;
            let found = tokio::task::spawn_blocking(move || {
                let _held_until_the_thread_is_free = permit;
                (name.as_str(), 0).to_socket_addrs().map(|found| found.map(|address| address.ip()).collect())
            });
            found.await.map_err(io::Error::other)?
        })
    }
}

/// What is known about a name.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Answer {
    /// No lookup has ended yet.
    Pending,
    /// The last good addresses: IPv4 first, in order, without repeats, never empty.
    Known(Arc<[IpAddr]>),
    /// Every lookup so far has failed; why the last one did.
    Unknown(Arc<str>),
}

/// A node name in use. Dropping the last one ends its lookups.
#[derive(Debug)]
pub struct Name {
    name: Box<str>,
    answer: watch::Sender<Answer>,
}

impl Name {
    /// The last good addresses, or why there have never been any.
    ///
    /// Waits for at most `wait` where the first lookup has not ended: a new upstream's first request.
    ///
    /// # Errors
    /// A sentence naming the cause.
    pub async fn addresses(&self, wait: Duration) -> Result<Arc<[IpAddr]>, Arc<str>> {
        if let Answer::Known(addresses) = &*self.answer.borrow() {
            return Ok(Arc::clone(addresses));
        }
        let mut answers = self.answer.subscribe();
        let first = answers.wait_for(|answer| *answer != Answer::Pending);
        match tokio::time::timeout(wait, first).await {
            Ok(Ok(answer)) => match &*answer {
                Answer::Known(addresses) => Ok(Arc::clone(addresses)),
                Answer::Unknown(why) => Err(Arc::clone(why)),
                Answer::Pending => Err("not looked up yet".into()),
            },
            _ => Err("the first lookup has not ended yet".into()),
        }
    }

    /// The last good addresses, without waiting; empty where there are none.
    pub fn known(&self) -> Arc<[IpAddr]> {
        match &*self.answer.borrow() {
            Answer::Known(addresses) => Arc::clone(addresses),
            _ => Arc::default(),
        }
    }

    /// Takes in the end of a lookup. Answers whether the addresses changed.
    fn learn(&self, found: io::Result<Arc<[IpAddr]>>) -> bool {
        match found {
            Ok(addresses) => self.answer.send_if_modified(|answer| {
                let new = Answer::Known(addresses);
                let changed = *answer != new;
                if changed {
                    info!(name = %self.name, addresses = ?new, "addresses of a node name");
                }
                *answer = new;
                changed
            }),
            Err(error) => {
                warn!(name = %self.name, %error, "a node name could not be looked up");
                self.answer.send_if_modified(|answer| {
                    if matches!(answer, Answer::Known(_)) {
                        return false;
                    }
                    *answer = Answer::Unknown(error.to_string().into());
                    true
                })
            }
        }
    }
}

/// Every node name in use.
pub struct Names {
    lookup: Arc<dyn Lookup>,
    config: ResolverConfig,
    known: DashMap<Box<str>, Weak<Name>>,
    /// Names whose task is not started yet: asking for a name needs no run time.
    new: Mutex<Vec<Weak<Name>>>,
    arrived: Notify,
    changed: Notify,
}

impl Names {
    /// No names yet.
    pub fn new(lookup: Arc<dyn Lookup>, config: ResolverConfig) -> Self {
        Self {
            lookup,
            config,
            known: DashMap::new(),
            new: Mutex::default(),
            arrived: Notify::new(),
            changed: Notify::new(),
        }
    }

    /// The one shared entry for `name`; its lookups begin with the first call.
    pub fn get(&self, name: &str) -> Arc<Name> {
        let mut slot = self.known.entry(name.into()).or_default();
        if let Some(known) = slot.upgrade() {
            return known;
        }
        let new = Arc::new(Name { name: name.into(), answer: watch::Sender::new(Answer::Pending) });
        *slot = Arc::downgrade(&new);
        self.new.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&new));
        self.arrived.notify_one();
        new
    }

    /// Forgets names that nobody uses.
    pub fn sweep(&self) {
        self.known.retain(|_, name| name.strong_count() > 0);
    }

    /// Waits until some name's addresses have changed.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Starts a task for each new name, for ever.
    pub async fn run(self: Arc<Self>, supervisor: Supervisor) {
        loop {
            let new = std::mem::take(&mut *self.new.lock().unwrap_or_else(PoisonError::into_inner));
            for name in new {
                supervisor.spawn(
                    "resolve a node name",
                    Policy::best_effort().dropped_on_cancel(),
                    Arc::clone(&self).refresh(name),
                );
            }
            self.arrived.notified().await;
        }
    }

    async fn refresh(self: Arc<Self>, name: Weak<Name>) {
        // The name is held only while it is needed: with its last user gone the task ends.
        while let Some(text) = name.upgrade().map(|name| name.name.clone()) {
            let found = tokio::time::timeout(self.config.timeout, self.lookup.lookup(&text)).await;
            let found = found.unwrap_or_else(|_| {
                let text = format!("no answer within {:?}", self.config.timeout);
                Err(io::Error::new(io::ErrorKind::TimedOut, text))
            });
            let found = found.and_then(in_order);
            let pause = if found.is_ok() { self.config.refresh } else { self.config.retry };
            let Some(name) = name.upgrade() else { break };
            if name.learn(found) {
                self.changed.notify_one();
            }
            drop(name);
            // Up to a tenth less, so that names asked for together do not stay together.
            tokio::time::sleep(pause.mul_f64(1.0 - rand::random::<f64>() / 10.0)).await;
        }
        debug!("a node name is no longer in use");
    }
}

/// Addresses as they are kept. An empty answer is a failure like any other.
fn in_order(mut found: Vec<IpAddr>) -> io::Result<Arc<[IpAddr]>> {
    found.sort_by_key(|address| (address.is_ipv6(), *address));
    found.dedup();
    if found.is_empty() {
        return Err(io::Error::other("the answer holds no address"));
    }
    Ok(found.into())
}

#[cfg(test)]
mod tests;
