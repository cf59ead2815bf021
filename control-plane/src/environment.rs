//! One environment: its source, store, hold and what it shows to sessions and operators.
//!
//! One task is the only writer: it takes the source's events and a few requests, steps the pure [`core`], and
//! replaces the [`Publication`] whole. Sessions are woken only when what is served differs; everything else they
//! read when they look. One environment's failure never touches another.

mod ahead;
pub mod core;
pub mod disk;
pub mod keeper;
pub mod older;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use headwater_model::{Generation, Version};
use headwater_process::{Policy, Supervisor};
use headwater_proto::config::{FallbackAnswer, FallbackRequest};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::core::{Core, Effects, Keep};
use crate::backend::etcd::Recorder;
use crate::backend::{Commit, Reader, Source, SourceCommand, SourceEvent};
use crate::distribution::publication::Publication;
use crate::hold::Judged;
use keeper::Keeper;
use older::Older;

/// How many events of the source may wait for the writer.
const EVENTS: usize = 64;

/// How many requests of sessions and operators may wait for the writer.
const REQUESTS: usize = 1024;

/// The clock of one replica: `now` of every core, and Unix time for what is shown.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

/// What an environment is made of.
pub struct Parts {
    /// Its name.
    pub name: Arc<str>,
    /// The key prefix, without a trailing slash.
    pub prefix: Arc<str>,
    /// Holds its only watch.
    pub source: Box<dyn Source>,
    /// Reads beside the watch.
    pub reader: Arc<dyn Reader>,
    /// Carries out writes.
    pub commit: Arc<dyn Commit>,
    /// What the source's watch answered, where there is one to record.
    pub recorder: Option<Arc<Recorder>>,
    /// The state it starts from: empty, or of its last known good.
    pub core: Core,
    /// Keeps the last known good; nothing when the backend is the file itself.
    pub keeper: Option<Keeper>,
}

/// A running environment. Cloning gives the same one.
#[derive(Clone)]
pub struct Environment {
    shared: Arc<Shared>,
}

struct Shared {
    name: Arc<str>,
    prefix: Arc<str>,
    current: ArcSwap<Publication>,
    wake: watch::Sender<u64>,
    requests: mpsc::Sender<Request>,
    commands: mpsc::Sender<SourceCommand>,
    reader: Arc<dyn Reader>,
    commit: Arc<dyn Commit>,
    recorder: Option<Arc<Recorder>>,
    clock: Clock,
}

enum Request {
    NodeAhead(Version),
    AheadChecked { held: Version, behind: bool },
    Adopt(Generation),
    Divergence { node: Version, replica: Version },
    Fallback(FallbackRequest, oneshot::Sender<FallbackAnswer>),
    RejectHold(oneshot::Sender<bool>),
}

struct Writer {
    shared: Arc<Shared>,
    core: Core,
    older: Older,
    keeper: Option<Keeper>,
    commands: mpsc::Sender<SourceCommand>,
    supervisor: Supervisor,
    checking_ahead: bool,
}

// === impl Clock ===

impl Clock {
    /// Starts a replica's clock.
    #[must_use]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Time since the start.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.0.elapsed()
    }

    /// The instant of a time since the start.
    #[must_use]
    pub fn at(&self, time: Duration) -> Instant {
        self.0.checked_add(time).unwrap_or(self.0 + Duration::from_secs(86_400 * 365))
    }

    /// Unix seconds.
    #[must_use]
    pub fn unix(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
    }
}

// === impl Environment ===

impl Environment {
    /// Starts an environment's source and writer.
    #[must_use]
    pub fn start(parts: Parts, clock: Clock, supervisor: &Supervisor) -> Self {
        let Parts { name, prefix, source, reader, commit, recorder, mut core, keeper } = parts;
        let (events_in, events) = mpsc::channel(EVENTS);
        let (commands, commands_out) = mpsc::channel(4);
        let (requests_in, requests) = mpsc::channel(REQUESTS);
        let shared = Arc::new(Shared {
            name: name.clone(),
            prefix,
            current: ArcSwap::from_pointee(core.publication()),
            wake: watch::Sender::new(0),
            requests: requests_in,
            commands: commands.clone(),
            reader,
            commit,
            recorder,
            clock,
        });
        let scope = supervisor.child(format!("environment {name}"));
        let (resume, stop) = (core.resume_point(), scope.token());
        scope.spawn("source", Policy::essential(), source.run(resume, events_in, commands_out, stop));
        let writer = Writer {
            shared: shared.clone(),
            core,
            older: Older::default(),
            keeper,
            commands,
            supervisor: scope.clone(),
            checking_ahead: false,
        };
        scope.spawn("writer", Policy::essential(), writer.run(events, requests, scope.token()));
        Self { shared }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.shared.name
    }

    /// Its key prefix, without a trailing slash.
    #[must_use]
    pub fn prefix(&self) -> &Arc<str> {
        &self.shared.prefix
    }

    /// What is shown now.
    #[must_use]
    pub fn publication(&self) -> Arc<Publication> {
        self.shared.current.load_full()
    }

    /// Wakes when what is served, or its standing, differs.
    #[must_use]
    pub fn wakes(&self) -> watch::Receiver<u64> {
        self.shared.wake.subscribe()
    }

    /// Reads beside the watch.
    #[must_use]
    pub fn reader(&self) -> &Arc<dyn Reader> {
        &self.shared.reader
    }

    /// Carries out writes.
    #[must_use]
    pub fn commit(&self) -> &Arc<dyn Commit> {
        &self.shared.commit
    }

    /// What its source's watch answered, where there is one to record.
    #[must_use]
    pub fn recorder(&self) -> Option<&Arc<Recorder>> {
        self.shared.recorder.as_ref()
    }

    /// Requests to its source: an audit that finds a difference asks for a reload.
    #[must_use]
    pub fn commands(&self) -> mpsc::Sender<SourceCommand> {
        self.shared.commands.clone()
    }

    /// The replica's clock.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.shared.clock
    }

    /// An operator rejects the held jump; `false` when none is held (or the process is ending).
    pub async fn reject_hold(&self) -> bool {
        let (answer, answered) = oneshot::channel();
        self.ask(Request::RejectHold(answer)).await;
        answered.await.unwrap_or(false)
    }

    /// A node holds a version above this replica's.
    pub async fn node_ahead(&self, held: Version) {
        self.ask(Request::NodeAhead(held)).await;
    }

    /// A node's version carries a higher generation and the very digest that is served.
    pub async fn adopt(&self, generation: Generation) {
        self.ask(Request::Adopt(generation)).await;
    }

    /// Two digests were seen for one lineage and revision.
    pub async fn divergence(&self, node: Version, replica: Version) {
        self.ask(Request::Divergence { node, replica }).await;
    }

    /// Looks up an older value of a rejected key.
    pub async fn fallback(&self, request: FallbackRequest) -> Option<FallbackAnswer> {
        let (answer, answered) = oneshot::channel();
        self.ask(Request::Fallback(request, answer)).await;
        answered.await.ok()
    }

    async fn ask(&self, request: Request) {
        // The writer outlives every session; when it is gone, so is whoever would want an answer.
        let _ = self.shared.requests.send(request).await;
    }
}

// === impl Writer ===

impl Writer {
    async fn run(
        mut self,
        mut events: mpsc::Receiver<SourceEvent>,
        mut requests: mpsc::Receiver<Request>,
        stop: CancellationToken,
    ) {
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                Some(event) = events.recv() => self.on_event(event),
                Some(request) = requests.recv() => self.on_request(request),
                else => break,
            }
        }
        if let Some(keeper) = self.keeper.take() {
            keeper.close().await;
        }
    }

    fn on_event(&mut self, event: SourceEvent) {
        self.older.follow(&event, self.core.store().snapshot().content());
        let (now, unix) = (self.shared.clock.now(), self.shared.clock.unix());
        let effects = self.core.on_event(event, now, unix);
        self.report(&effects);
        self.publish(effects);
    }

    fn publish(&mut self, effects: Effects) {
        self.shared.current.store(Arc::new(self.core.publication()));
        if effects.wake {
            self.shared.wake.send_modify(|count| *count += 1);
        }
        if effects.keep != Keep::Nothing
            && let Some(keeper) = &mut self.keeper
        {
            keeper.keep(effects.keep, &self.core);
        }
    }

    fn on_request(&mut self, request: Request) {
        match request {
            Request::NodeAhead(held) => self.check_ahead(held),
            Request::AheadChecked { held, behind } => {
                self.checking_ahead = false;
                if !behind {
                    return;
                }
                let effects = self.core.raise_generation(&held);
                if effects.wake {
                    let replica = self.core.store().snapshot().version();
                    tracing::warn!(
                        environment = %self.shared.name, node = ?held, ?replica,
                        "the history went back below what a node holds: the generation rises"
                    );
                }
                self.publish(effects);
            }
            Request::Adopt(generation) => {
                let effects = self.core.take_generation(generation);
                self.publish(effects);
            }
            Request::Divergence { node, replica } => {
                tracing::error!(
                    environment = %self.shared.name, ?node, ?replica,
                    "a node and this replica disagree about a content's digest: reading everything again"
                );
                let reason = format!("a node holds {node:?} where this replica serves {replica:?}");
                // A reload that is asked for already is enough.
                let _ = self.commands.try_send(SourceCommand::Reload { reason });
            }
            Request::Fallback(request, answer) => {
                let _ = answer.send(self.older.answer(request));
            }
            Request::RejectHold(answer) => {
                let rejected = self.core.reject_hold();
                let _ = answer.send(rejected);
                if rejected {
                    let keep = Effects { keep: Keep::Everything, ..Effects::default() };
                    self.publish(keep);
                }
            }
        }
    }

    fn check_ahead(&mut self, held: Version) {
        if std::mem::replace(&mut self.checking_ahead, true) {
            return;
        }
        let (reader, requests) = (self.shared.reader.clone(), self.shared.requests.clone());
        self.supervisor.spawn("head check", Policy::best_effort(), async move {
            let behind = ahead::head_lies_below(reader.as_ref(), held.revision).await;
            let _ = requests.send(Request::AheadChecked { held, behind }).await;
        });
    }

    fn report(&self, effects: &Effects) {
        let environment = &self.shared.name;
        if let (Some(continuity), Some(outcome)) = (&effects.reloaded, &effects.outcome) {
            tracing::info!(%environment, ?continuity, put = outcome.put, deleted = outcome.deleted,
                kept = outcome.kept, "everything was read");
        }
        match &effects.judged {
            Some(Judged::Began(removal)) => tracing::error!(
                %environment,
                "a jump {removal} and is held: `headwater hold show` tells, `headwater hold approve` lets it pass"
            ),
            Some(Judged::Dissolved) => {
                tracing::warn!(%environment, "the held jump removes less now: not held");
            }
            Some(Judged::Approved(id)) => {
                tracing::warn!(%environment, approval = %id, "the held jump is approved");
            }
            _ => {}
        }
    }
}
