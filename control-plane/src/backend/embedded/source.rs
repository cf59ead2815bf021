//! The watch of the embedded store: it follows the store in this process, whole revisions at a time.
//!
//! Invariant: an event is sent once, in order, and the safe revision is that of the store which the events were
//! read from. The listener's queue is never waited for with stale events in hand: a slow listener gets what there
//! is when it has room.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use headwater_model::{Generation, Revision};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::EmbeddedStore;
use super::access;
use super::mvcc::{Event, EventKind, Mvcc};
use super::writer::Shared;
use crate::backend::{
    Batch, Continuity, KeyEvent, KeyRevisions, Load, ResumePoint, Source, SourceCommand, SourceEvent,
    SourceState, Stage,
};

/// How many revisions one batch holds at most, as etcd's does while a watch catches up.
const REVISIONS: usize = 1000;

/// Follows an embedded store for one environment.
#[derive(Debug)]
pub struct EmbeddedSource {
    shared: Arc<Shared>,
    file: String,
    note: Option<String>,
    progress_interval: Duration,
}

/// The listener is gone, or the process ends.
struct Over;

// === impl EmbeddedSource ===

impl EmbeddedSource {
    pub(super) fn of(store: &EmbeddedStore) -> Self {
        Self {
            shared: Arc::clone(&store.shared),
            file: store.file.clone(),
            note: (!store.faults.is_empty()).then(|| store.faults.join("; ")),
            progress_interval: store.progress_interval,
        }
    }

    fn state(&self, stage: Stage) -> SourceEvent {
        SourceEvent::State(SourceState {
            stage,
            member: self.file.clone(),
            server_version: None,
            note: self.note.clone(),
        })
    }

    async fn follow(
        &self,
        resume: Option<ResumePoint>,
        events: &mpsc::Sender<SourceEvent>,
        commands: &mut mpsc::Receiver<SourceCommand>,
    ) -> Result<(), Over> {
        let mut head = self.shared.head.subscribe();
        send(events, self.state(Stage::Loading)).await?;
        let store = self.shared.store.load_full();
        let mut safe = load(&store, continuity(&store, resume.as_ref()), Generation(0), events).await?;
        send(events, self.state(Stage::Live)).await?;
        let mut tick = tokio::time::interval(self.progress_interval);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                changed = head.changed() => {
                    changed.map_err(|_| Over)?;
                    safe = self.deliver(safe, events).await?;
                }
                _ = tick.tick() => send(events, SourceEvent::Progress(safe)).await?,
                command = commands.recv() => {
                    let Some(SourceCommand::Reload { reason, generation }) = command else { return Err(Over) };
                    tracing::info!(file = %self.file, %reason, "reading the embedded store again");
                    let store = self.shared.store.load_full();
                    safe = load(&store, Continuity::Proven, generation, events).await?;
                }
            }
        }
    }

    /// Sends what happened after `safe` and gives the new safe revision.
    async fn deliver(
        &self,
        mut safe: Revision,
        events: &mpsc::Sender<SourceEvent>,
    ) -> Result<Revision, Over> {
        loop {
            // Room first, then the newest store: nothing piles up here.
            let room = events.reserve().await.map_err(|_| Over)?;
            let store = self.shared.store.load_full();
            if safe.next() < store.compacted() {
                drop(room);
                // The listener is further behind than the store remembers; it is the same history all the same.
                return load(&store, Continuity::Proven, Generation(0), events).await;
            }
            let Some(batch) = batch_after(&store, safe) else { return Ok(safe) };
            safe = batch.revision;
            room.send(SourceEvent::Batch(batch));
        }
    }
}

// === impl Source for EmbeddedSource ===

#[async_trait]
impl Source for EmbeddedSource {
    async fn run(
        self: Box<Self>,
        resume: Option<ResumePoint>,
        events: mpsc::Sender<SourceEvent>,
        mut commands: mpsc::Receiver<SourceCommand>,
        stop: CancellationToken,
    ) {
        tokio::select! {
            () = stop.cancelled() => {}
            _ = self.follow(resume, &events, &mut commands) => {}
        }
        // The listener may be ending too, and its queue be full: then nobody is left to be told.
        let _ = events.try_send(self.state(Stage::Stopped));
    }
}

async fn send(events: &mpsc::Sender<SourceEvent>, event: SourceEvent) -> Result<(), Over> {
    events.send(event).await.map_err(|_| Over)
}

async fn load(
    store: &Mvcc,
    continuity: Continuity,
    generation: Generation,
    events: &mpsc::Sender<SourceEvent>,
) -> Result<Revision, Over> {
    let revision = store.revision();
    let entries = access::everything(store, revision).expect("a store can be read at its own revision");
    let cluster_id = store.identity().cluster_id;
    let load = Load { cluster_id, revision, entries, continuity, generation };
    send(events, SourceEvent::Loaded(load)).await?;
    Ok(revision)
}

/// How the store connects to what was held: its file is the proof.
fn continuity(store: &Mvcc, resume: Option<&ResumePoint>) -> Continuity {
    let Some(point) = resume else { return Continuity::First };
    let (ours, head) = (store.identity().cluster_id, store.revision());
    if point.cluster_id != ours {
        let evidence =
            format!("the store is cluster {ours:x}, what is held came from cluster {:x}", point.cluster_id);
        return Continuity::Rewound { evidence };
    }
    if point.revision > head {
        let evidence = format!("the store's file ends at revision {head}, {} is held", point.revision);
        return Continuity::Rewound { evidence };
    }
    let Ok(entries) = access::everything(store, point.revision) else { return Continuity::Unproven };
    let kept: BTreeMap<_, _> = entries.iter().map(|entry| (&entry.key, entry)).collect();
    let is_kept = |key: &KeyRevisions| {
        kept.get(&key.key).is_some_and(|entry| {
            (entry.create_revision, entry.mod_revision) == (key.create_revision, key.mod_revision)
                && key.value.as_ref().is_none_or(|value| *value == entry.value)
        })
    };
    if kept.len() == point.keys.len() && point.keys.iter().all(is_kept) {
        return Continuity::Proven;
    }
    let evidence = format!("the store held other keys at revision {} than those held of it", point.revision);
    Continuity::Rewound { evidence }
}

/// The next whole revisions after one.
fn batch_after(store: &Mvcc, safe: Revision) -> Option<Batch> {
    let (mut last, mut all) = (safe, Vec::new());
    for (revision, events) in store.events_from(safe.next()).take(REVISIONS) {
        last = revision;
        all.extend(events.iter().cloned().map(key_event));
    }
    (last > safe).then(|| Batch::new(last, all))
}

fn key_event(event: Event) -> KeyEvent {
    match event.kind {
        EventKind::Put => KeyEvent::Put(access::entry(event.kv)),
        EventKind::Delete => KeyEvent::Delete { key: event.kv.key, revision: event.kv.mod_revision },
    }
}
