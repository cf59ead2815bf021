//! Listens to a source like an environment would, and keeps what was told, so that a test can compare it with etcd.
//!
//! It is written apart from the store: a plain map and a list.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use etcd_client::{Client, GetOptions};
use headwater_control_plane::backend::etcd::{EtcdCluster, EtcdConfig, EtcdSource, Metrics};
use headwater_control_plane::backend::{
    Continuity, KeyEvent, ResumePoint, Source, SourceCommand, SourceEvent, SourceState,
};
use headwater_process::{Policy, Supervisor};
use tokio::sync::mpsc;

use crate::eventually::eventually;

/// How long anything may take that is not about time itself.
const LIMIT: Duration = Duration::from_secs(40);

/// Value, create revision, mod revision.
pub type Held = (Vec<u8>, u64, u64);

/// A source and its listener. Dropped, both end.
#[derive(Debug)]
pub struct Follower {
    told: Arc<Mutex<Told>>,
    commands: mpsc::Sender<SourceCommand>,
    supervisor: Supervisor,
    prefix: String,
}

/// What was told so far.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// Every key, relative to the prefix.
    pub keys: BTreeMap<Vec<u8>, Held>,
    /// The safe revision.
    pub safe: u64,
    /// How each full read connected to what was held.
    pub loads: Vec<Continuity>,
    /// How often the watch went on from a file.
    pub resumed: u32,
    /// All states, in order.
    pub states: Vec<SourceState>,
    /// Breaches of the source's promises.
    pub breaches: Vec<String>,
    /// Everything that was told, in order.
    pub record: Vec<Arc<SourceEvent>>,
}

// === impl Follower ===

impl Follower {
    /// Follows `<prefix>/` at these endpoints, from nothing, with short limits of silence.
    #[must_use]
    pub fn start(endpoints: Vec<String>, prefix: &str) -> Self {
        Self::resume(&cluster(endpoints), prefix, None)
    }

    /// Follows `<prefix>/` on a cluster that others may share, from a file if there is one.
    #[must_use]
    pub fn resume(cluster: &Arc<EtcdCluster>, prefix: &str, from: Option<ResumePoint>) -> Self {
        let supervisor = Supervisor::new("follower");
        // Small, so that merging of what waits is met too.
        let (events, mut listening) = mpsc::channel(4);
        let (commands, receiver) = mpsc::channel(4);
        let mut start = Told::default();
        if let Some(point) = &from {
            start.safe = point.revision.0;
        }
        let told = Arc::new(Mutex::new(start));
        let writer = Arc::clone(&told);
        supervisor.spawn("listen", Policy::best_effort().dropped_on_cancel(), async move {
            while let Some(event) = listening.recv().await {
                lock(&writer).take(event);
            }
        });
        let source = Box::new(EtcdSource::new(Arc::clone(cluster), prefix));
        let run = source.run(from, events, receiver, supervisor.token());
        supervisor.spawn("source", Policy::best_effort(), run);
        Self { told, commands, supervisor, prefix: prefix.to_owned() }
    }

    /// A copy of what was told so far.
    #[must_use]
    pub fn told(&self) -> Told {
        lock(&self.told).clone()
    }

    /// What was told since the last call, in order; the record forgets it.
    #[must_use]
    pub fn take_record(&self) -> Vec<Arc<SourceEvent>> {
        std::mem::take(&mut lock(&self.told).record)
    }

    /// Asks for everything to be read again.
    ///
    /// # Panics
    /// When the source has ended.
    pub async fn reload(&self) {
        let reason = "the test asks for it".to_owned();
        self.commands
            .send(SourceCommand::Reload { reason, generation: headwater_model::Generation(0) })
            .await
            .expect("the source runs");
    }

    /// Where commands for the source go.
    #[must_use]
    pub fn commands(&self) -> mpsc::Sender<SourceCommand> {
        self.commands.clone()
    }

    /// Waits until what was told is etcd's state at the safe revision, which has reached etcd's head of now.
    ///
    /// # Panics
    /// When that takes too long, or a promise was broken on the way.
    pub async fn equals(&self, etcd: &Client) {
        self.equals_within(etcd, LIMIT).await;
    }

    /// As [`Follower::equals`], within `limit`.
    ///
    /// # Panics
    /// As [`Follower::equals`].
    pub async fn equals_within(&self, etcd: &Client, limit: Duration) {
        eventually("the follower equals etcd", limit, || async {
            let (expected, head) = read(etcd, &self.prefix).await;
            let told = self.told();
            assert!(told.breaches.is_empty(), "{:?}", told.breaches);
            if told.keys == expected && told.safe >= head.min(newest(&expected)) {
                return Ok(());
            }
            let differ = expected.iter().filter(|(key, held)| told.keys.get(*key) != Some(held)).count();
            let last = told.states.last().cloned();
            Err(format!(
                "{} of {}, {differ} differ, safe {} of {head}, {last:?}",
                told.keys.len(),
                expected.len(),
                told.safe
            ))
        })
        .await;
    }

    /// Waits until `probe` holds for what was told.
    ///
    /// # Panics
    /// When it does not in time.
    pub async fn until(&self, what: &str, probe: impl Fn(&Told) -> bool) {
        eventually(what, LIMIT, || async {
            let told = self.told();
            if probe(&told) { Ok(()) } else { Err((told.safe, told.loads, told.states.last().cloned())) }
        })
        .await;
    }

    /// What a last known good file would hold of it.
    #[must_use]
    pub fn point(&self, cluster_id: u64) -> ResumePoint {
        use headwater_control_plane::backend::KeyRevisions;
        use headwater_model::Revision;
        let told = self.told();
        let keys = told.keys.into_iter().map(|(key, (_, create, modified))| KeyRevisions {
            key: key.into(),
            create_revision: Revision(create),
            mod_revision: Revision(modified),
            value: None,
        });
        ResumePoint { cluster_id, revision: Revision(told.safe), keys: keys.collect() }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.supervisor.cancel();
    }
}

// === impl Told ===

impl Told {
    fn take(&mut self, event: SourceEvent) {
        self.record.push(Arc::new(event.clone()));
        match event {
            SourceEvent::Loaded(load) => {
                let entries = load.entries.into_iter().map(|entry| {
                    let held = (entry.value.to_vec(), entry.create_revision.0, entry.mod_revision.0);
                    (entry.key.to_vec(), held)
                });
                self.keys = entries.collect();
                if !matches!(load.continuity, Continuity::Rewound { .. }) {
                    self.rise(load.revision.0, "a load");
                }
                self.safe = load.revision.0;
                self.loads.push(load.continuity);
            }
            SourceEvent::Resumed { .. } => self.resumed += 1,
            SourceEvent::Batch(batch) => {
                for event in batch.events {
                    let revision = event.revision().0;
                    if revision <= self.safe {
                        self.breaches.push(format!("an event of {revision} after {}", self.safe));
                    }
                    self.apply(event);
                }
                self.rise(batch.revision.0, "a batch");
            }
            SourceEvent::Progress(revision) => self.rise(revision.0, "progress"),
            SourceEvent::State(state) => self.states.push(state),
        }
    }

    fn apply(&mut self, event: KeyEvent) {
        match event {
            KeyEvent::Put(entry) => {
                let held = (entry.value.to_vec(), entry.create_revision.0, entry.mod_revision.0);
                self.keys.insert(entry.key.to_vec(), held);
            }
            KeyEvent::Delete { key, .. } => {
                self.keys.remove(key.as_ref());
            }
        }
    }

    fn rise(&mut self, to: u64, by: &str) {
        if to < self.safe {
            self.breaches.push(format!("{by} lowered the safe revision from {} to {to}", self.safe));
        }
        self.safe = to;
    }
}

/// Settings with short limits of silence: progress every second, dead after five.
#[must_use]
pub fn config(endpoints: Vec<String>) -> EtcdConfig {
    EtcdConfig {
        endpoints,
        progress_interval: Duration::from_secs(1),
        liveness_timeout: Duration::from_secs(5),
        ..EtcdConfig::default()
    }
}

/// A replica's way to etcd, with [`config`].
#[must_use]
pub fn cluster(endpoints: Vec<String>) -> Arc<EtcdCluster> {
    EtcdCluster::new(config(endpoints), Metrics::default())
}

/// Everything below `<prefix>/` in one read of the test's own, and the head.
///
/// # Panics
/// When etcd does not answer.
pub async fn read(etcd: &Client, prefix: &str) -> (BTreeMap<Vec<u8>, Held>, u64) {
    let start = format!("{prefix}/");
    let mut kv = etcd.kv_client().max_decoding_message_size(1 << 30);
    let options = GetOptions::new().with_prefix();
    let answer = kv.get(start.as_bytes(), Some(options)).await.expect("etcd answers a read");
    let number = |signed: i64| u64::try_from(signed).expect("etcd's revisions are not negative");
    let keys = answer.kvs().iter().map(|kv| {
        let held = (kv.value().to_vec(), number(kv.create_revision()), number(kv.mod_revision()));
        (kv.key()[start.len()..].to_vec(), held)
    });
    let head = answer.header().map_or(0, |header| number(header.revision()));
    (keys.collect(), head)
}

fn newest(keys: &BTreeMap<Vec<u8>, Held>) -> u64 {
    keys.values().map(|(_, _, modified)| *modified).max().unwrap_or(0)
}

fn lock(told: &Mutex<Told>) -> MutexGuard<'_, Told> {
    told.lock().unwrap_or_else(PoisonError::into_inner)
}
