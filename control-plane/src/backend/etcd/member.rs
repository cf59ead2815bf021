//! A replica's way to its etcd: which member is in turn, and the two connections that its environments share.
//!
//! The watch connection carries the watch streams of all environments, with their header checks and content proofs.
//! One stream's fault leaves it alone; it is replaced when the fault is its own, or when no stream on it had a
//! frame within the liveness limit. The second connection carries loads, audits and writes, to any member of the
//! same cluster, and is closed when idle.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use tracing::{debug, info};

use super::client::Connection;
use super::config::EtcdConfig;
use super::metrics::Metrics;
use super::range::{Answer, KeyRange, Query};
use super::tracker::{Blame, Failure, Fault, Member, MemberVersion};

/// How long the second connection is kept without use.
const IDLE: Duration = Duration::from_secs(60);

/// What all environments of a replica share.
pub struct EtcdCluster {
    config: EtcdConfig,
    metrics: Metrics,
    started: Instant,
    watch: Mutex<Watched>,
    side: Mutex<Side>,
    /// Of the watched history; zero before the first header check.
    cluster_id: AtomicU64,
}

#[derive(Default)]
struct Watched {
    turn: usize,
    link: Option<Arc<Link>>,
}

#[derive(Default)]
struct Side {
    turn: usize,
    open: Option<(Connection, Instant)>,
}

/// The watch connection, shared by the streams on it.
pub(super) struct Link {
    pub(super) connection: Connection,
    /// Milliseconds after the cluster's start; zero before the first frame.
    last_frame: AtomicU64,
    stale_token: AtomicBool,
}

// === impl EtcdCluster ===

impl EtcdCluster {
    /// Connects to nothing yet. `config` has passed its [check](EtcdConfig::check).
    #[must_use]
    pub fn new(config: EtcdConfig, metrics: Metrics) -> Arc<Self> {
        // Replicas start at different members.
        let turn = rand::random_range(0..config.endpoints.len().max(1));
        Arc::new(Self {
            config,
            metrics,
            started: Instant::now(),
            watch: Mutex::new(Watched { turn, link: None }),
            side: Mutex::new(Side { turn, open: None }),
            cluster_id: AtomicU64::new(0),
        })
    }

    /// The settings.
    #[must_use]
    pub const fn config(&self) -> &EtcdConfig {
        &self.config
    }

    pub(super) const fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The watch connection, opened where there is none, with the member's Status of this moment.
    pub(super) async fn watch_link(&self) -> Result<(Arc<Link>, Member), Failure> {
        let link = {
            let mut watched = self.watch.lock().await;
            match &watched.link {
                Some(link) => Arc::clone(link),
                None => {
                    let endpoint = self.endpoint(watched.turn)?;
                    debug!(endpoint, "opening the watch connection to etcd");
                    let opened = Connection::open(endpoint, &self.config).await;
                    let link = Arc::new(Link::new(opened.inspect_err(|_| watched.turn += 1)?));
                    watched.link = Some(Arc::clone(&link));
                    link
                }
            }
        };
        // W24: authenticated anew before the next create.
        if link.stale_token.swap(false, Ordering::Relaxed) {
            link.connection.authenticate(&self.config).await?;
        }
        match self.status(&link.connection).await {
            Ok(member) => Ok((link, member)),
            Err(failure) => {
                self.blame(Some(&link), Blame::Member).await;
                Err(failure)
            }
        }
    }

    /// What a member says of itself. A refusal may mean that etcd has begun to ask for a user since: told who asks, it
    /// may answer.
    async fn status(&self, connection: &Connection) -> Result<Member, Failure> {
        let member = connection.status().await?;
        if self.config.user.is_none() || matches!(member.version, MemberVersion::Known(_)) {
            return Ok(member);
        }
        connection.authenticate(&self.config).await?;
        connection.status().await
    }

    /// Draws the consequences of an attempt's end for the connection and the member in turn.
    pub(super) async fn blame(&self, link: Option<&Arc<Link>>, blame: Blame) {
        let replace = match (blame, link) {
            (Blame::Stream, _) => false,
            (Blame::Token, Some(link)) => {
                link.stale_token.store(true, Ordering::Relaxed);
                false
            }
            (Blame::Token, None) => false,
            // DESIGN 4.4: not while another stream on it is alive.
            (Blame::Silence, Some(link)) => !self.is_alive(link),
            (Blame::Silence, None) | (Blame::Member, _) => true,
        };
        if !replace {
            return;
        }
        let mut watched = self.watch.lock().await;
        let is_current = match (&watched.link, link) {
            (Some(current), Some(blamed)) => Arc::ptr_eq(current, blamed),
            (None, Some(_)) => false,
            (_, None) => true,
        };
        if is_current {
            info!(?blame, "giving up the watch connection to etcd, the next member is in turn");
            watched.link = None;
            watched.turn += 1;
        }
    }

    /// A stream on the link had a frame.
    pub(super) fn saw_frame(&self, link: &Link) {
        link.last_frame.store(self.now().max(1), Ordering::Relaxed);
    }

    /// The watched history's cluster: reads and writes beside it must be of the same.
    pub(super) fn follows(&self, cluster_id: u64) {
        self.cluster_id.store(cluster_id, Ordering::Relaxed);
    }

    /// Reads on the second connection, at another member when one is away, within `limit` altogether.
    pub(super) async fn read(
        &self,
        range: &KeyRange,
        query: &Query,
        limit: Duration,
    ) -> Result<Answer, Failure> {
        let members = u32::try_from(self.config.endpoints.len()).unwrap_or(1).max(1);
        let end = Instant::now() + limit;
        let mut last = Failure::new(Fault::Other, "etcd.endpoints is empty");
        // One try more than there are members: a token that is no longer accepted costs one.
        for _ in 0..=members {
            let one = async { self.side().await?.range(range, query).await };
            let left = end.saturating_duration_since(Instant::now());
            last = match timeout(left.min(limit / members), one).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(failure)) => failure,
                Err(_) => Failure::new(Fault::Timeout, "no answer in time"),
            };
            if !last.is_of_the_connection() {
                break;
            }
            self.drop_side().await;
        }
        Err(last)
    }

    /// The second connection, to a member of the watched cluster.
    pub(super) async fn side(&self) -> Result<Connection, Failure> {
        let mut side = self.side.lock().await;
        if let Some((connection, used)) = &mut side.open {
            *used = Instant::now();
            return Ok(connection.clone());
        }
        let opened = self.open_side(self.endpoint(side.turn)?).await;
        let connection = opened.inspect_err(|_| side.turn += 1)?;
        side.open = Some((connection.clone(), Instant::now()));
        Ok(connection)
    }

    async fn open_side(&self, endpoint: &str) -> Result<Connection, Failure> {
        debug!(endpoint, "opening the second connection to etcd");
        let connection = Connection::open(endpoint, &self.config).await?;
        let member = self.status(&connection).await?;
        let expected = self.cluster_id.load(Ordering::Relaxed);
        if expected != 0 && member.cluster_id != 0 && member.cluster_id != expected {
            return Err(Failure::new(
                Fault::Other,
                format!(
                    "{endpoint} belongs to cluster {:x}, the watch to {expected:x}: do all endpoints name one cluster?",
                    member.cluster_id
                ),
            ));
        }
        if member.learner || !member.has_leader {
            return Err(Failure::new(Fault::NoLeader, format!("{endpoint} is a learner or knows no leader")));
        }
        Ok(connection)
    }

    /// The next read or write goes to the next member.
    pub(super) async fn drop_side(&self) {
        let mut side = self.side.lock().await;
        side.open = None;
        side.turn += 1;
    }

    /// Closes the second connection when it was not used for a while.
    pub(super) async fn close_idle(&self) {
        let mut side = self.side.lock().await;
        if side.open.as_ref().is_some_and(|(_, used)| used.elapsed() >= IDLE) {
            side.open = None;
        }
    }

    fn is_alive(&self, link: &Link) -> bool {
        let last = link.last_frame.load(Ordering::Relaxed);
        let limit = u64::try_from(self.config.liveness_timeout.as_millis()).unwrap_or(u64::MAX);
        last != 0 && self.now().saturating_sub(last) < limit
    }

    fn endpoint(&self, turn: usize) -> Result<&str, Failure> {
        let members = self.config.endpoints.len().max(1);
        let endpoint = self.config.endpoints.get(turn % members);
        endpoint.map(String::as_str).ok_or_else(|| Failure::new(Fault::Other, "etcd.endpoints is empty"))
    }

    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl fmt::Debug for EtcdCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdCluster").field("endpoints", &self.config.endpoints).finish_non_exhaustive()
    }
}

// === impl Link ===

impl Link {
    fn new(connection: Connection) -> Self {
        Self { connection, last_frame: AtomicU64::new(0), stale_token: AtomicBool::new(false) }
    }
}
