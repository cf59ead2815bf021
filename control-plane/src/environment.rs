//! One environment: its source, store, hold and what it shows to sessions and operators.
//!
//! One task is the only writer: it takes the source's events and a few requests, steps the pure [`core`], and
//! replaces the [`Publication`] whole. Sessions are woken only when what is served differs; everything else they
//! read when they look. One environment's failure never touches another.

pub mod core;
pub mod disk;
pub mod inquiry;
pub mod keeper;
mod lookups;
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
use inquiry::Inquiry;
use keeper::Keeper;
use lookups::{LookedUp, Lookups};
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
    Judged { claimed: Version, taken: Option<(Generation, String)> },
    Adopt(Generation),
    Divergence { node: Version, replica: Version },
    Fallback(FallbackRequest, oneshot::Sender<FallbackAnswer>),
    LookedUp(LookedUp),
    RejectHold(oneshot::Sender<bool>),
}

struct Writer {
    shared: Arc<Shared>,
    core: Core,
    older: Older,
    lookups: Lookups,
    keeper: Option<Keeper>,
    commands: mpsc::Sender<SourceCommand>,
    supervisor: Supervisor,
    inquiring: bool,
    /// The generation that the source was asked to read everything again for.
    raising: Generation,
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
        let (lookups, searches) = Lookups::new();
        let (reader, done) = (shared.reader.clone(), shared.clone());
        let done = async move |looked_up| done.ask(Request::LookedUp(looked_up)).await;
        scope.spawn("lookups", Policy::essential().dropped_on_cancel(), lookups::run(reader, searches, done));
        let writer = Writer {
            shared: shared.clone(),
            core,
            older: Older::default(),
            lookups,
            keeper,
            commands,
            supervisor: scope.clone(),
            inquiring: false,
            raising: Generation(0),
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
        self.shared.ask(Request::RejectHold(answer)).await;
        answered.await.unwrap_or(false)
    }

    /// A node holds a version above this replica's.
    pub async fn node_ahead(&self, held: Version) {
        self.shared.ask(Request::NodeAhead(held)).await;
    }

    /// A node's version carries a higher generation and the very digest that is served.
    pub async fn adopt(&self, generation: Generation) {
        self.shared.ask(Request::Adopt(generation)).await;
    }

    /// Two digests were seen for one lineage and revision.
    pub async fn divergence(&self, node: Version, replica: Version) {
        self.shared.ask(Request::Divergence { node, replica }).await;
    }

    /// Looks up an older value of a rejected key.
    pub async fn fallback(&self, request: FallbackRequest) -> Option<FallbackAnswer> {
        let (answer, answered) = oneshot::channel();
        self.shared.ask(Request::Fallback(request, answer)).await;
        answered.await.ok()
    }
}

// === impl Shared ===

impl Shared {
    async fn ask(&self, request: Request) {
        // The writer outlives every session; when it is gone, so is whoever would want an answer.
        let _ = self.requests.send(request).await;
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
            Request::NodeAhead(claimed) => self.inquire(claimed),
            Request::Judged { claimed, taken } => {
                self.inquiring = false;
                if let Some((generation, why)) = taken {
                    self.raise(generation, format!("a node holds {claimed:?}: {why}"));
                }
            }
            Request::Adopt(generation) => {
                self.raise(generation, format!("a node holds what is served as generation {generation}"));
            }
            Request::Divergence { node, replica } => {
                tracing::error!(
                    environment = %self.shared.name, ?node, ?replica,
                    "a node and this replica disagree about a content's digest: reading everything again"
                );
                let reason = format!("a node holds {node:?} where this replica serves {replica:?}");
                // A reload that is asked for already is enough.
                let reload = SourceCommand::Reload { reason, generation: Generation(0) };
                let _ = self.commands.try_send(reload);
            }
            Request::Fallback(request, answer) => match self.older.answer(&request) {
                Some(known) => drop(answer.send(known)),
                None => self.lookups.want(request, answer),
            },
            Request::LookedUp(looked_up) => {
                self.lookups.over(&looked_up);
                self.older.remember(looked_up.request, looked_up.found);
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

    /// One version at a time: what follows from it answers for most others.
    fn inquire(&mut self, claimed: Version) {
        if self.inquiring || !self.may_raise(claimed.lineage.generation) {
            return;
        }
        let Some(inquiry) = Inquiry::into(&claimed, self.core.store().snapshot().version()) else { return };
        self.inquiring = true;
        let (reader, requests) = (self.shared.reader.clone(), self.shared.requests.clone());
        self.supervisor.spawn("inquiry", Policy::best_effort().dropped_on_cancel(), async move {
            let taken = inquiry::conduct::conduct(inquiry, reader.as_ref()).await;
            let _ = requests.send(Request::Judged { claimed, taken }).await;
        });
    }

    /// While a jump is held, what is served is of another history than the store's newest, and a raise that is under
    /// way answers first.
    fn may_raise(&self, to: Generation) -> bool {
        let generation = self.core.store().snapshot().lineage().generation;
        self.core.hold().standing().is_none() && (self.raising <= generation || self.raising < to)
    }

    /// A higher generation comes with a full read that begins now: what the source has on its way may be of the
    /// history that is gone.
    fn raise(&mut self, generation: Generation, why: String) {
        if generation <= self.core.store().snapshot().lineage().generation || !self.may_raise(generation) {
            return;
        }
        tracing::warn!(environment = %self.shared.name, %generation, %why, "the generation rises");
        let reload = SourceCommand::Reload { reason: why, generation };
        if self.commands.try_send(reload).is_ok() {
            self.raising = generation;
        }
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
