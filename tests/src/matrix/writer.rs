//! The steady small writer, and writes that must arrive: each at whichever member takes it.
//!
//! It goes to members directly, never by the way that is under a fault.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Result, bail};
use etcd_client::{Client, ConnectOptions, Txn, TxnOp};
use headwater_process::{Policy, Supervisor};
use serde_json::json;
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::{Instant, sleep, timeout};

use crate::etcd::Etcd;
use crate::keys::upstream;

/// How long one member may take for one write.
const TRY: Duration = Duration::from_secs(1);
/// Between two writes of the steady writer.
const PAUSE: Duration = Duration::from_millis(100);
/// Keys of the steady writer.
const KEYS: usize = 12;

/// Writes until it is dropped.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<Shared>,
    /// Held while a write is under way.
    turn: Arc<Mutex<()>>,
    marks: usize,
    supervisor: Supervisor,
}

struct Shared {
    clients: Vec<Client>,
    /// Which member took the last write.
    member: AtomicUsize,
}

/// A write that etcd took.
#[derive(Debug, Clone)]
pub struct Mark {
    /// The key it put, below the prefix.
    pub key: String,
    /// The revision of it.
    pub revision: u64,
    /// When etcd had taken it.
    pub at: Instant,
}

// === impl Writer ===

impl Writer {
    /// Starts to write to a healthy etcd.
    ///
    /// # Errors
    /// When there is no connection.
    pub async fn start(etcd: &Etcd) -> Result<Self> {
        let mut clients = Vec::new();
        for endpoint in etcd.endpoints() {
            let options = ConnectOptions::new().with_connect_timeout(TRY).with_timeout(TRY);
            clients.push(Client::connect([endpoint], Some(options)).await?);
        }
        let shared = Arc::new(Shared { clients, member: AtomicUsize::new(0) });
        let turn = Arc::new(Mutex::new(()));
        let supervisor = Supervisor::new("writer");
        let writing = write_on(Arc::clone(&shared), Arc::clone(&turn));
        supervisor.spawn("write", Policy::best_effort().dropped_on_cancel(), writing);
        Ok(Self { shared, turn, marks: 0, supervisor })
    }

    /// Nothing is written until the answer is dropped.
    pub async fn quiet(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.turn).lock_owned().await
    }

    /// Puts a key that no write before has put, and waits for a member that takes it.
    ///
    /// # Errors
    /// When none does within `limit`.
    pub async fn mark(&mut self, limit: Duration) -> Result<Mark> {
        self.marks += 1;
        let key = format!("upstreams/mark{}", self.marks);
        let value = json!({ "type": "roundrobin", "nodes": { "127.0.0.1:1": 1 }, "desc": key });
        let before = format!("/apisix/upstreams/mark{}", self.marks - 1);
        let operations =
            vec![TxnOp::put(format!("/apisix/{key}"), value.to_string(), None), TxnOp::delete(before, None)];
        let deadline = Instant::now() + limit;
        loop {
            match self.shared.commit(operations.clone()).await {
                Ok(revision) => return Ok(Mark { key, revision, at: Instant::now() }),
                Err(error) if Instant::now() >= deadline => {
                    bail!("no member takes a write within {limit:?}: {error:#}")
                }
                Err(_) => sleep(Duration::from_millis(20)).await,
            }
        }
    }

    /// One try of a transaction at one member; answers the revision. After a failure the next try of anybody goes to
    /// the next member.
    ///
    /// # Errors
    /// When that member does not take it within a second.
    pub async fn attempt(&self, operations: Vec<TxnOp>) -> Result<u64> {
        self.shared.commit(operations).await
    }

    /// A client of one member.
    #[must_use]
    pub fn client(&self, member: usize) -> &Client {
        &self.shared.clients[member]
    }

    /// A client of the member that took the last write.
    #[must_use]
    pub fn answering(&self) -> &Client {
        &self.shared.clients[self.shared.member.load(Ordering::Relaxed)]
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.supervisor.cancel();
    }
}

// === impl Shared ===

impl Shared {
    async fn commit(&self, operations: Vec<TxnOp>) -> Result<u64> {
        let member = self.member.load(Ordering::Relaxed);
        let mut kv = self.clients[member].kv_client();
        let answer = match timeout(TRY, kv.txn(Txn::new().and_then(operations))).await {
            Ok(Ok(answer)) => answer,
            failed => {
                self.member.store((member + 1) % self.clients.len(), Ordering::Relaxed);
                return match failed {
                    Ok(Err(error)) => Err(error.into()),
                    _ => bail!("member {member} does not answer within {TRY:?}"),
                };
            }
        };
        let revision = answer.header().map_or(0, etcd_client::ResponseHeader::revision);
        Ok(u64::try_from(revision)?)
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("member", &self.member).finish_non_exhaustive()
    }
}

/// Puts keys that come and go, one put and one deletion in a transaction. What etcd refuses is lost, as it would be for
/// anybody.
async fn write_on(shared: Arc<Shared>, turn: Arc<Mutex<()>>) {
    for round in 0_usize.. {
        let mut value = upstream("127.0.0.1:1");
        value["desc"] = format!("{round} {}", "x".repeat(round * 37 % 250)).into();
        let put = TxnOp::put(format!("/apisix/upstreams/w{}", round % KEYS), value.to_string(), None);
        let delete = TxnOp::delete(format!("/apisix/upstreams/w{}", (round + 5) % KEYS), None);
        {
            let _turn = turn.lock().await;
            let _ = shared.commit(vec![put, delete]).await;
        }
        sleep(PAUSE).await;
    }
}
