//! An etcd that does wrong what real members did wrong: gRPC servers over the pure MVCC model, and a script of
//! [deviations](Deviation).
//!
//! Without a script it answers what a correct etcd answers: the model decides, this is only its wire. It serves what
//! this project's client calls: KV (Range, Txn), Watch, Maintenance (Status) and Auth (Authenticate).
//!
//! The messages and the dispatch are written by hand: the client crate's `build-server` feature leaves out the
//! messages of AuthStatus, so that its Auth service cannot be implemented, and it would have the whole workspace
//! built twice, with it for the tests and without it for the binaries.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use headwater_control_plane::backend::embedded::mvcc::{
    Identity, Limits, Mvcc, MvccError, Op, Restore, Snapshot, Txn, TxnResponse,
};
use headwater_control_plane::backend::etcd::EtcdConfig;
use headwater_model::Revision;
use headwater_process::{Policy, Supervisor};
use tokio::net::TcpListener;

use crate::eventually::eventually;
use crate::follower::{Follower, Told};

mod deviation;
pub mod guarantees;
mod server;
pub mod timeline;
mod unary;
mod watch;
mod wire;

pub use self::deviation::Deviation;
use self::deviation::Script;
use self::timeline::Timeline;
pub use self::wire::WatchCreate;

/// The prefix that all of it is about.
pub const PREFIX: &str = "/apisix";

/// How long anything may take that is not about time itself.
const LIMIT: Duration = Duration::from_secs(30);

/// What the fake is before anybody deviates from it: a member of a cluster, of a release that may be believed.
const IDENTITY: Identity = Identity { cluster_id: 0xc0, member_id: 0xa0, raft_term: 2 };

/// A running member. Dropped, it is gone with all its connections.
#[derive(Debug)]
pub struct FakeEtcd {
    /// Where it listens.
    pub address: SocketAddr,
    state: Shared,
    supervisor: Supervisor,
}

/// What clients asked so far.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Connections accepted.
    pub connections: u32,
    /// Watchers asked for, in order.
    pub creates: Vec<WatchCreate>,
    /// Progress requests.
    pub progress: u32,
    /// Watch streams opened without asking for a leader.
    pub leader_not_required: u32,
    /// Pages read: ranges that answered keys with values.
    pub pages: u32,
    /// Tokens given out.
    pub authenticated: u32,
}

type Shared = Arc<Mutex<State>>;

/// Everything a member is.
#[derive(Debug)]
struct State {
    mvcc: Mvcc,
    timeline: Timeline,
    script: Script,
    seen: Seen,
    version: &'static str,
    /// The user and password asked for, and the tokens given out.
    auth: Option<(String, String)>,
    tokens: BTreeSet<String>,
    /// Tokens from before a change of users or roles.
    old_tokens: BTreeSet<String>,
    /// Rises with each end of all streams.
    cuts: u32,
}

// === impl FakeEtcd ===

impl FakeEtcd {
    /// A correct etcd on a free port of the loopback.
    ///
    /// # Panics
    /// When no port is free.
    pub async fn start() -> Self {
        Self::with(IDENTITY, Limits::ETCD).await
    }

    /// Another member of the same cluster. It has a store of its own: what is written must be written to both.
    ///
    /// # Panics
    /// When no port is free.
    pub async fn start_second() -> Self {
        Self::with(Identity { member_id: 0xa1, ..IDENTITY }, Limits::ETCD).await
    }

    /// A correct etcd with these bounds.
    ///
    /// # Panics
    /// When no port is free.
    pub async fn with_limits(limits: Limits) -> Self {
        Self::with(IDENTITY, limits).await
    }

    async fn with(identity: Identity, limits: Limits) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port on the loopback");
        let address = listener.local_addr().expect("a bound socket has an address");
        let state = Arc::new(Mutex::new(State {
            mvcc: Mvcc::new(identity, limits),
            timeline: Timeline::new(PREFIX),
            script: Script::default(),
            seen: Seen::default(),
            version: "3.6.16",
            auth: None,
            tokens: BTreeSet::new(),
            old_tokens: BTreeSet::new(),
            cuts: 0,
        }));
        let supervisor = Supervisor::new("fake etcd");
        let serving = server::serve(listener, Arc::clone(&state), supervisor.clone());
        supervisor.spawn("accept", Policy::best_effort().dropped_on_cancel(), serving);
        Self { address, state, supervisor }
    }

    /// Its client URL.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// From now on it deviates so.
    pub fn deviate(&self, deviation: Deviation) {
        self.lock().script.add(deviation, None);
    }

    /// It deviates so the next `times` times.
    pub fn deviate_times(&self, times: u32, deviation: Deviation) {
        self.lock().script.add(deviation, Some(times));
    }

    /// From now on it is correct.
    pub fn behave(&self) {
        self.lock().script.clear();
    }

    /// How often it deviated so.
    #[must_use]
    pub fn played(&self, deviation: &Deviation) -> usize {
        self.lock().script.played(deviation)
    }

    /// Says that it is of this release.
    pub fn release(&self, version: &'static str) {
        self.lock().version = version;
    }

    /// What clients asked so far.
    #[must_use]
    pub fn seen(&self) -> Seen {
        self.lock().seen.clone()
    }

    /// What really happened.
    #[must_use]
    pub fn timeline(&self) -> Timeline {
        self.lock().timeline.clone()
    }

    /// The newest revision.
    #[must_use]
    pub fn head(&self) -> u64 {
        self.lock().mvcc.revision().0
    }

    /// Writes a key below the prefix; answers the revision.
    ///
    /// # Panics
    /// Above the limits of a request.
    pub fn put(&self, key: &str, value: impl Into<Bytes>) -> u64 {
        self.commit([put(key, value)])
    }

    /// Deletes a key below the prefix; answers the revision.
    ///
    /// # Panics
    /// Above the limits of a request.
    pub fn delete(&self, key: &str) -> u64 {
        let before = self.head();
        let Txn { success, .. } = Txn::delete(format!("{PREFIX}/{key}"));
        let revision = self.commit(success);
        assert!(revision > before, "{key} is not there");
        revision
    }

    /// One transaction; answers its revision.
    ///
    /// # Panics
    /// Above the limits of a request.
    pub fn commit(&self, operations: impl IntoIterator<Item = Op>) -> u64 {
        let answer = self.lock().commit(&Txn::all(operations)).expect("within the limits");
        answer.header.revision.0
    }

    /// Writes `count` keys `routes/<number>`, in transactions of a hundred.
    pub fn fill(&self, count: usize) {
        for chunk in (0..count).collect::<Vec<_>>().chunks(100) {
            self.commit(chunk.iter().map(|id| put(&format!("routes/{id:05}"), format!("{{\"n\":{id}}}"))));
        }
    }

    /// Writes a key that is not below the prefix; answers the revision.
    pub fn put_elsewhere(&self) -> u64 {
        self.lock().write_elsewhere().0
    }

    /// Drops what only reads below the head can see.
    ///
    /// # Panics
    /// When that was done before.
    pub fn compact(&self) {
        assert!(self.try_compact(), "compacted before");
    }

    /// The same; false when that was done before.
    pub fn try_compact(&self) -> bool {
        let mut state = self.lock();
        let head = state.mvcc.revision();
        state.mvcc.compact(head).is_ok()
    }

    /// Ends all watch streams as a member does that stops; new ones are welcome.
    pub fn end_streams(&self) {
        self.lock().cuts += 1;
    }

    /// The store as it is.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.lock().mvcc.snapshot()
    }

    /// Goes back to a snapshot, in its own cluster or as another one. All streams end.
    pub fn restore(&self, snapshot: &Snapshot, identity: Option<Identity>) {
        let mut state = self.lock();
        state.mvcc.restore(snapshot, Restore { identity, bump: None });
        state.timeline.restored(snapshot.revision().0);
    }

    /// From now on every call but Status and Authenticate needs a token.
    pub fn require_auth(&self, user: &str, password: &str) {
        self.lock().auth = Some((user.to_owned(), password.to_owned()));
    }

    /// All tokens given out so far have expired.
    pub fn expire_tokens(&self) {
        self.lock().tokens.clear();
    }

    /// A user or role was changed: tokens given out so far belong to an older auth store.
    pub fn change_roles(&self) {
        let mut state = self.lock();
        let tokens = std::mem::take(&mut state.tokens);
        state.old_tokens.extend(tokens);
    }

    /// Waits until the follower holds what the fake holds, then checks everything it was told.
    ///
    /// # Panics
    /// When that takes too long, or a guarantee was broken on the way.
    pub async fn equals(&self, follower: &Follower) -> Told {
        self.holds(follower).await;
        self.checked(follower)
    }

    async fn holds(&self, follower: &Follower) {
        eventually("the follower equals the fake", LIMIT, || async {
            let (told, content) = (follower.told(), self.timeline().content());
            let newest = content.values().map(|(_, _, modified)| *modified).max().unwrap_or(0);
            if told.keys == content && told.safe >= newest {
                return Ok(());
            }
            let (keys, safe, last) = (told.keys.len(), told.safe, told.states.last().cloned());
            Err(format!("{keys} keys of {}, safe {safe} of {}, {last:?}", content.len(), self.head()))
        })
        .await;
    }

    /// Checks everything that the follower was told so far.
    ///
    /// # Panics
    /// When a guarantee was broken.
    pub fn checked(&self, follower: &Follower) -> Told {
        // The record first: what it tells has happened by then.
        let told = follower.told();
        let broken = guarantees::breaches(&told.record, &self.timeline());
        assert!(broken.is_empty() && told.breaches.is_empty(), "{broken:?} {:?}", told.breaches);
        self.asked_well();
        told
    }

    /// Waits until the follower holds what the fake holds although a guarantee was broken on the way: the fake
    /// lied where it may be believed. Answers what was broken.
    ///
    /// # Panics
    /// When that takes too long, or nothing was broken: the script is then no part of the test.
    pub async fn heals(&self, follower: &Follower) -> Vec<String> {
        self.holds(follower).await;
        self.asked_well();
        let broken = guarantees::breaches(&follower.told().record, &self.timeline());
        assert!(!broken.is_empty(), "nothing was broken");
        broken
    }

    /// W3, W5, W18, W21, W30, W12: every watch that was asked for.
    fn asked_well(&self) {
        let seen = self.seen();
        assert_eq!(seen.leader_not_required, 0, "W18");
        for create in seen.creates {
            assert!(create.start_revision > 0, "W5: {create:?}");
            assert!(create.progress_notify && create.fragment, "W12, W21: {create:?}");
            assert!(!create.prev_kv && create.filters.is_empty(), "W30: {create:?}");
            assert!(create.watch_id > 0 && create.key.ends_with(b"/"), "W29: {create:?}");
        }
    }

    /// Waits until it has deviated so.
    ///
    /// # Panics
    /// When it does not in time: the script is then no part of the test.
    pub async fn has_played(&self, deviation: &Deviation) {
        eventually("the deviation is played", LIMIT, || async {
            if self.played(deviation) > 0 { Ok(()) } else { Err(deviation) }
        })
        .await;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl Drop for FakeEtcd {
    fn drop(&mut self) {
        self.supervisor.cancel();
    }
}

// === impl State ===

impl State {
    fn commit(&mut self, txn: &Txn) -> Result<TxnResponse, MvccError> {
        let before = self.mvcc.revision();
        let answer = self.mvcc.txn(txn)?;
        for (revision, events) in self.mvcc.events_from(before.next()) {
            self.timeline.committed(revision.0, events);
        }
        Ok(answer)
    }

    fn write_elsewhere(&mut self) -> Revision {
        let write = Txn::put("/elsewhere", "x");
        self.commit(&write).expect("a small write").header.revision
    }

    /// etcd's refusal of a token, if it refuses it.
    fn refuses(&self, token: Option<&str>) -> Option<tonic::Status> {
        self.auth.as_ref()?;
        match token {
            None => Some(tonic::Status::invalid_argument("etcdserver: user name is empty")),
            Some(token) if self.old_tokens.contains(token) => {
                Some(tonic::Status::invalid_argument("etcdserver: revision of auth store is old"))
            }
            Some(token) if !self.tokens.contains(token) => {
                Some(tonic::Status::unauthenticated("etcdserver: invalid auth token"))
            }
            Some(_) => None,
        }
    }
}

/// A write of a key below the prefix.
#[must_use]
pub fn put(key: &str, value: impl Into<Bytes>) -> Op {
    Op::Put { key: format!("{PREFIX}/{key}").into(), value: value.into() }
}

/// The identity of another cluster.
#[must_use]
pub const fn other_cluster() -> Identity {
    Identity { cluster_id: 0xc1, member_id: 0xb0, raft_term: 2 }
}

/// Settings with limits short enough for a test: progress ten times a second, dead after a second.
#[must_use]
pub fn config(members: &[&FakeEtcd]) -> EtcdConfig {
    config_of(members.iter().map(|member| member.endpoint()).collect())
}

/// The same for these endpoints.
#[must_use]
pub fn config_of(endpoints: Vec<String>) -> EtcdConfig {
    let second = Duration::from_secs(1);
    EtcdConfig {
        endpoints,
        progress_interval: second / 10,
        liveness_timeout: second,
        catch_up_timeout: second * 4,
        reopen_interval: second * 2,
        connect_timeout: second * 2,
        request_timeout: second * 2,
        page_timeout: second * 5,
        audit_interval: second,
        ..EtcdConfig::default()
    }
}

fn lock(state: &Shared) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
