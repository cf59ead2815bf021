//! Drives a tracker over real connections: carries out its actions and brings the answers back.
//!
//! Everything runs in the one task that calls [`Source::run`]: calls under way are futures of it, and giving an
//! attempt up drops them with its stream. The stream is polled first, so that what is buffered is judged before
//! time is; the environment's slowness goes into the outbox, never into the stream.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::client::Watch;
use super::load::read_page;
use super::member::{EtcdCluster, Link};
use super::others::ask_others;
use super::proof::prove;
use super::range::{KeyRange, Query};
use super::recorder::{Recorder, What};
use super::tracker::{Action, Attempt, Blame, Failure, Input, Member, Outbox, Tracker, WatchResponse};
use crate::backend::{ResumePoint, Source, SourceCommand, SourceEvent, SourceState, Stage};

/// How often the second connection is looked at for idleness, and the member is asked how it is.
const SWEEP: Duration = Duration::from_secs(30);

/// C24: reads and the watch go on, so nothing else would show it.
const FULL: &str = "etcd is out of space and read-only: make room (compact, defragment, or raise the quota), then disarm its NOSPACE alarm";

/// The watch of one environment.
#[derive(Debug)]
pub struct EtcdSource {
    cluster: Arc<EtcdCluster>,
    prefix: String,
    recorder: Arc<Recorder>,
}

/// A source at work.
struct Run {
    cluster: Arc<EtcdCluster>,
    prefix: String,
    range: KeyRange,
    tracker: Tracker,
    recorder: Arc<Recorder>,
    started: Instant,
    events: mpsc::Sender<SourceEvent>,
    outbox: Outbox,
    link: Option<Arc<Link>>,
    watch: Option<(Attempt, Watch)>,
    calls: FuturesUnordered<BoxFuture<'static, Done>>,
    /// Whose fault the last end was, until the next attempt connects.
    blame: Option<Blame>,
}

/// A call that came back.
enum Done {
    Connected { attempt: Attempt, link: Arc<Link>, member: Member },
    Opened { attempt: Attempt, watch: Watch },
    Answer(Input),
    Swept,
}

// === impl EtcdSource ===

impl EtcdSource {
    /// The watch over `<prefix>/`.
    #[must_use]
    pub fn new(cluster: Arc<EtcdCluster>, prefix: &str) -> Self {
        let recorder = Arc::new(Recorder::new(cluster.config().recorder_responses));
        Self { cluster, prefix: prefix.trim_end_matches('/').to_owned(), recorder }
    }

    /// What its watch answers, for those who look into it later.
    #[must_use]
    pub const fn recorder(&self) -> &Arc<Recorder> {
        &self.recorder
    }
}

#[async_trait]
impl Source for EtcdSource {
    async fn run(
        self: Box<Self>,
        resume: Option<ResumePoint>,
        events: mpsc::Sender<SourceEvent>,
        commands: mpsc::Receiver<SourceCommand>,
        stop: CancellationToken,
    ) {
        let run = Run {
            range: KeyRange::of_prefix(&self.prefix),
            tracker: Tracker::new(self.cluster.config().tracker(), resume, rand::random()),
            recorder: self.recorder,
            started: Instant::now(),
            cluster: self.cluster,
            prefix: self.prefix,
            events,
            outbox: Outbox::default(),
            link: None,
            watch: None,
            calls: FuturesUnordered::new(),
            blame: None,
        };
        run.drive(commands, stop).await;
    }
}

// === impl Run ===

impl Run {
    async fn drive(mut self, mut commands: mpsc::Receiver<SourceCommand>, stop: CancellationToken) {
        let events = self.events.clone();
        let mut commanded = true;
        let mut space = self.cluster.space();
        let mut sweep = tokio::time::interval(SWEEP);
        self.give(Input::Tick);
        loop {
            let wake = self.started.checked_add(self.tracker.next_wake());
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                (attempt, frame) = next_frame(&mut self.watch) => self.on_frame(attempt, frame),
                Some(done) = self.calls.next(), if !self.calls.is_empty() => self.on_done(done),
                command = commands.recv(), if commanded => match command {
                    Some(SourceCommand::Reload { reason, generation }) => {
                        self.give(Input::Reload { reason, generation });
                    }
                    None => commanded = false,
                },
                permit = events.reserve(), if !self.outbox.is_empty() => match permit {
                    Ok(permit) => {
                        if let Some(event) = self.outbox.pop() {
                            permit.send(event);
                        }
                    }
                    // Nobody listens any more.
                    Err(_) => break,
                },
                () = sleep_until(wake.unwrap_or(self.started)), if wake.is_some() => self.give(Input::Tick),
                Ok(()) = space.changed() => self.tell_again(),
                _ = sweep.tick() => self.sweep(),
            }
        }
        let member = self.tracker.state().map(|state| state.member.clone()).unwrap_or_default();
        let stopped = SourceState { stage: Stage::Stopped, member, server_version: None, note: None };
        // A full channel at the end: whoever would read it is ending too.
        let _ = self.events.try_send(SourceEvent::State(stopped));
    }

    fn give(&mut self, input: Input) {
        for action in self.tracker.handle(self.started.elapsed(), input) {
            self.carry_out(action);
        }
        // At once while there is room: a busy stream must not hold the environment up.
        while !self.outbox.is_empty() {
            let Ok(permit) = self.events.try_reserve() else { return };
            match self.outbox.pop() {
                Some(event) => permit.send(event),
                None => return,
            }
        }
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Connect { attempt } => self.connect(attempt),
            Action::CheckHeader { attempt } => self.call(attempt, |link, range| async move {
                let query = Query { limit: 1, count_only: true, ..Query::default() };
                let answer = link.connection.range(&range, &query).await?;
                Ok(Input::HeaderChecked { attempt, header: answer.header })
            }),
            Action::Prove { attempt, question } => self.call(attempt, |link, range| async move {
                let proof = prove(&link.connection, &range, &question).await?;
                Ok(Input::ProofAnswered { attempt, proof })
            }),
            Action::AskOthers { attempt, question, within } => {
                let cluster = Arc::clone(&self.cluster);
                self.call(attempt, move |link, range| async move {
                    let answers =
                        ask_others(cluster.config(), &link.connection, &range, &question, within).await;
                    Ok(Input::OthersAnswered { attempt, answers })
                });
            }
            Action::ReadPage { attempt, revision, after, limit } => {
                let cluster = Arc::clone(&self.cluster);
                self.call(attempt, move |_, range| async move {
                    let page = read_page(&cluster, &range, revision, after, limit).await?;
                    Ok(Input::PageRead { attempt, page })
                });
            }
            Action::OpenWatch { attempt, start, watch_id } => self.open_watch(attempt, start, watch_id),
            Action::RequestProgress { attempt } => self.request_progress(attempt),
            Action::Drop { .. } => self.drop_attempt(),
            Action::Blame(blame) => {
                self.cluster.metrics().ended(&self.prefix, blame);
                self.blame = Some(blame);
            }
            Action::Emit(event) => self.tell(event),
        }
    }

    /// The consequences of the last attempt's end are drawn first: they decide which connection it is.
    fn connect(&mut self, attempt: Attempt) {
        let cluster = Arc::clone(&self.cluster);
        let blame = self.blame.take();
        let link = self.link.take();
        self.calls.push(Box::pin(async move {
            if let Some(blame) = blame {
                cluster.blame(link.as_ref(), blame).await;
            }
            match cluster.watch_link().await {
                Ok((link, member)) => Done::Connected { attempt, link, member },
                Err(failure) => Done::Answer(Input::CallFailed { attempt, failure }),
            }
        }));
    }

    fn call<F, C>(&mut self, attempt: Attempt, call: C)
    where
        C: FnOnce(Arc<Link>, KeyRange) -> F,
        F: Future<Output = Result<Input, Failure>> + Send + 'static,
    {
        let Some(link) = self.link.clone() else { return };
        let answer = call(link, self.range.clone());
        self.calls.push(Box::pin(async move {
            Done::Answer(answer.await.unwrap_or_else(|failure| Input::CallFailed { attempt, failure }))
        }));
    }

    fn open_watch(&mut self, attempt: Attempt, start: headwater_model::Revision, watch_id: i64) {
        let (Some(link), range) = (self.link.clone(), self.range.clone()) else { return };
        self.record(attempt, What::Opening { start, watch_id });
        self.calls.push(Box::pin(async move {
            match link.connection.watch(&range, start, watch_id).await {
                Ok(watch) => Done::Opened { attempt, watch },
                Err(failure) => Done::Answer(Input::WatchEnded { attempt, failure }),
            }
        }));
    }

    fn request_progress(&mut self, attempt: Attempt) {
        let Some((of, watch)) = &mut self.watch else { return };
        if *of != attempt {
            return;
        }
        // The queue has room for a hundred; when it is full the stream is dead, and silence will say so.
        if let Some(Err(failure)) = watch.request_progress().now_or_never() {
            let ended = Input::WatchEnded { attempt, failure };
            self.calls.push(Box::pin(std::future::ready(Done::Answer(ended))));
        }
    }

    fn on_done(&mut self, done: Done) {
        match done {
            Done::Connected { attempt, link, member } => {
                self.link = Some(link);
                self.give(Input::Connected { attempt, member });
            }
            Done::Opened { attempt, watch } => self.watch = Some((attempt, watch)),
            Done::Answer(Input::WatchEnded { attempt, failure }) => self.on_end(attempt, failure),
            Done::Answer(input) => {
                if let Input::HeaderChecked { header, .. } = &input {
                    self.cluster.follows(header.cluster_id);
                }
                let before = self.tracker.counters().member_divergences;
                self.give(input);
                if self.tracker.counters().member_divergences > before {
                    self.cluster.metrics().members_diverged(&self.prefix);
                }
            }
            Done::Swept => {}
        }
    }

    fn on_frame(&mut self, attempt: Attempt, frame: Result<WatchResponse, Failure>) {
        match frame {
            Ok(response) => {
                self.cluster.metrics().saw_frame(&self.prefix, &response);
                if let Some(link) = self.link.as_ref().filter(|_| !response.created && !response.cancelled) {
                    self.cluster.saw_frame(link);
                }
                let number = self.record(attempt, What::from(&response));
                self.give(Input::WatchResponse { attempt, response });
                self.recorder.judged(number, self.tracker.safe_revision());
            }
            Err(failure) => {
                self.watch = None;
                self.on_end(attempt, failure);
            }
        }
    }

    fn on_end(&mut self, attempt: Attempt, failure: Failure) {
        self.record(attempt, What::from(&failure));
        self.give(Input::WatchEnded { attempt, failure });
    }

    /// Lets the stream and all calls of an attempt go.
    fn drop_attempt(&mut self) {
        if let Some((attempt, _)) = self.watch.take() {
            let note = self.tracker.state().and_then(|state| state.note.as_deref());
            let why = format!("given up by this replica: {}", note.unwrap_or("another attempt is due"));
            self.record(attempt, What::Ended { why });
        }
        self.calls.clear();
    }

    /// W32.
    fn record(&self, attempt: Attempt, what: What) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let unix_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        self.recorder.add(unix_ms, attempt, what, self.tracker.safe_revision())
    }

    fn tell(&mut self, mut event: SourceEvent) {
        self.cluster.metrics().told(&self.prefix, &event);
        match &mut event {
            SourceEvent::State(state) => {
                if state.member.is_empty() {
                    state.member = self.cluster.config().endpoints.join(", ");
                }
                if *self.cluster.space().borrow() {
                    let note = state.note.take().map(|note| format!("{note}; "));
                    state.note = Some(format!("{}{FULL}", note.unwrap_or_default()));
                }
                self.log(state);
            }
            SourceEvent::Loaded(load) => info!(
                environment = self.prefix,
                revision = load.revision.0,
                keys = load.entries.len(),
                continuity = ?load.continuity,
                "etcd was read in full"
            ),
            SourceEvent::Resumed { .. } => {
                info!(environment = self.prefix, "the watch goes on from the file");
            }
            SourceEvent::Batch(_) | SourceEvent::Progress(_) => {}
        }
        self.outbox.push(event);
    }

    /// The state as it is: what the cluster says of itself has changed.
    fn tell_again(&mut self) {
        if let Some(state) = self.tracker.state().cloned() {
            self.tell(SourceEvent::State(state));
        }
    }

    fn log(&self, state: &SourceState) {
        let environment = self.prefix.as_str();
        let SourceState { stage, member, server_version, note } = state;
        let note = note.as_deref().unwrap_or_default();
        let version = server_version.as_deref().unwrap_or_default();
        if matches!(stage, Stage::BackingOff | Stage::Refused) {
            warn!(environment, ?stage, member, version, note, "the source is not followed");
        } else {
            info!(environment, ?stage, member, version, note, "the source");
        }
    }

    fn sweep(&mut self) {
        let cluster = Arc::clone(&self.cluster);
        self.calls.push(Box::pin(async move {
            cluster.close_idle().await;
            cluster.look().await;
            Done::Swept
        }));
    }
}

/// The next frame of the open stream; pending for ever without one.
async fn next_frame(watch: &mut Option<(Attempt, Watch)>) -> (Attempt, Result<WatchResponse, Failure>) {
    match watch {
        Some((attempt, watch)) => (*attempt, watch.next().await),
        None => std::future::pending().await,
    }
}
