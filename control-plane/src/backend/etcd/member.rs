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

use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, timeout};
use tracing::{debug, info, warn};

use super::client::{Connection, Said};
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
    /// How many watch connections were given up. What was open beside one of them mostly shares its fate, and nothing
    /// tells so when nothing is closed: a load would wait on it for the whole of its own limit.
    given_up: AtomicU64,
    /// Whether etcd is out of space, as far as is known.
    full: watch::Sender<bool>,
}

#[derive(Default)]
struct Watched {
    turn: usize,
    link: Option<Arc<Link>>,
}

#[derive(Default)]
struct Side {
    turn: usize,
    open: Option<Beside>,
}

/// The second connection while it is open.
struct Beside {
    connection: Connection,
    used: Instant,
    /// How many watch connections had been given up when it was opened.
    epoch: u64,
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
            given_up: AtomicU64::new(0),
            full: watch::Sender::new(false),
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
                    // The next one is in turn unless this one opens: also when the caller gives it up meanwhile.
                    watched.turn += 1;
                    let link = Arc::new(Link::new(Connection::open(endpoint, &self.config).await?));
                    watched.turn -= 1;
                    watched.link = Some(Arc::clone(&link));
                    // The pages of a load had better not begin with a member that is away.
                    if let Ok(mut side) = self.side.try_lock()
                        && side.open.is_none()
                    {
                        side.turn = watched.turn;
                    }
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
        let mut said = connection.status().await?;
        if self.config.user.is_some() && matches!(said.member.version, MemberVersion::Denied(_)) {
            connection.authenticate(&self.config).await?;
            said = connection.status().await?;
        }
        let Said { member, full } = said;
        if let Some(full) = full {
            self.note_full(full);
        }
        Ok(member)
    }

    /// Notes whether etcd is out of space: a Status or the end of a write said so.
    pub(super) fn note_full(&self, full: bool) {
        let changed = self.full.send_if_modified(|known| std::mem::replace(known, full) != full);
        if changed && full {
            warn!("etcd is out of space and read-only: make room, then disarm its NOSPACE alarm");
        } else if changed {
            info!("etcd has space again");
        }
        self.metrics.read_only(full);
    }

    /// Wakes when etcd runs out of space, or has some again.
    pub(super) fn space(&self) -> watch::Receiver<bool> {
        self.full.subscribe()
    }

    /// Asks the watched member how it is, where there is one. Nothing follows from a missing answer: the watch judges
    /// for itself whether the member lives.
    pub(super) async fn look(&self) {
        let asked = async {
            let link = self.watch.lock().await.link.clone();
            match link {
                Some(link) => self.status(&link.connection).await.map(drop),
                None => Ok(()),
            }
        };
        let _ = timeout(self.config.request_timeout, asked).await;
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
            // It opened, and its Status did not come in time.
            (Some(_), None) => true,
            // One that could not be opened has lost its turn already.
            (None, _) => false,
        };
        if is_current {
            info!(?blame, "giving up the watch connection to etcd, the next member is in turn");
            watched.link = None;
            watched.turn += 1;
            self.given_up.fetch_add(1, Ordering::Relaxed);
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
        let epoch = self.given_up.load(Ordering::Relaxed);
        side.open.take_if(|open| open.epoch != epoch);
        if let Some(open) = &mut side.open {
            open.used = Instant::now();
            return Ok(open.connection.clone());
        }
        let endpoint = self.endpoint(side.turn)?;
        // The next one is in turn unless this one opens: also when the caller gives it up meanwhile.
        side.turn += 1;
        let limit = self.config.connect_timeout;
        let silent = || Failure::new(Fault::Timeout, format!("{endpoint} did not answer within {limit:?}"));
        let opened = timeout(limit, self.open_side(endpoint)).await;
        let connection = opened.unwrap_or_else(|_| Err(silent()))?;
        side.turn -= 1;
        side.open = Some(Beside { connection: connection.clone(), used: Instant::now(), epoch });
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
        // One that could not be opened has lost its turn already.
        if side.open.take().is_some() {
            side.turn += 1;
        }
    }

    /// Closes the second connection when it was not used for a while.
    pub(super) async fn close_idle(&self) {
        let mut side = self.side.lock().await;
        if side.open.as_ref().is_some_and(|open| open.used.elapsed() >= IDLE) {
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
