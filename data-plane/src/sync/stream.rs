//! The shell around the protocol: drives it with connections, the clock, the applier and the disk.
//!
//! One task owns the protocol; connections, compiling and the disk run beside it and report through bounded queues.
//! It decides nothing.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use headwater_model::{Content, Version};
use headwater_process::{Policy, Supervisor};
use headwater_proto::config::{Bye, FallbackRequest, NodeMessage, Rejects};
use headwater_proto::frame::Frame;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::applier::{Applier, Done, Job, Views};
use super::connection::{Dialler, Event};
use super::keeper::Keeper;
use super::last_known_good::{self, Group};
use super::protocol::{Action, Identity, Moment, Protocol, Settings, Status};
use super::verdict::Judge;
use crate::compile::Registry;

/// How many events of connections may wait.
const EVENTS: usize = 64;

/// How often status is refreshed while nothing happens.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

/// The newest status of the stream, and when it was taken.
pub type Statuses = Arc<ArcSwap<Status>>;

/// What the stream begins with.
pub struct Start<J, R: Registry> {
    /// Who this node is.
    pub identity: Identity,
    /// Bounds and times.
    pub settings: Settings,
    /// How to reach replicas.
    pub dialler: Dialler,
    /// What the disk held; it is served already.
    pub held: Option<(Version, Content)>,
    /// The rejects and wanted fallbacks that came of it.
    pub judged: (Rejects, Vec<FallbackRequest>),
    /// Judges and compiles.
    pub applier: Applier<J, R>,
    /// What the applier publishes for others to see.
    pub views: Views,
    /// Keeps versions; nothing when this node has no disk.
    pub keeper: Option<Keeper>,
    /// Versions that the disk has.
    pub durable: mpsc::Receiver<Version>,
}

/// Both ends of a queue.
type Ends<T> = (mpsc::Sender<T>, mpsc::Receiver<T>);

/// Drives one protocol.
pub struct Stream<J, R: Registry> {
    protocol: Protocol,
    dialler: Dialler,
    applier: Option<Applier<J, R>>,
    jobs: VecDeque<Job>,
    views: Views,
    keeper: Option<Keeper>,
    durable: mpsc::Receiver<Version>,
    supervisor: Supervisor,
    statuses: Statuses,
    began: Instant,
    events: Ends<Event>,
    done: Ends<(Applier<J, R>, Done)>,
    open: Option<(u64, Option<mpsc::Sender<Frame>>, CancellationToken)>,
}

// === impl Stream ===

impl<J, R> Stream<J, R>
where
    J: Judge + Send + 'static,
    R: Registry + Send + Sync + 'static,
    R::Upstream: Send + Sync + 'static,
{
    /// A stream that has not begun, and the cell with its status.
    #[must_use]
    pub fn new(start: Start<J, R>, supervisor: Supervisor) -> (Self, Statuses) {
        let mut protocol = Protocol::new(start.identity, start.settings, start.held);
        let began = Instant::now();
        protocol.judged(start.judged.0, start.judged.1, moment(began));
        let statuses: Statuses = Arc::new(ArcSwap::from_pointee(protocol.status(Duration::ZERO)));
        let stream = Self {
            protocol,
            dialler: start.dialler,
            applier: Some(start.applier),
            jobs: VecDeque::new(),
            views: start.views,
            keeper: start.keeper,
            durable: start.durable,
            supervisor,
            statuses: statuses.clone(),
            began,
            events: mpsc::channel(EVENTS),
            done: mpsc::channel(1),
            open: None,
        };
        (stream, statuses)
    }

    /// Runs until `leaving`, then says goodbye.
    pub async fn run(mut self, leaving: CancellationToken) {
        let actions = self.protocol.start(self.moment());
        self.carry_out(actions);
        loop {
            let wake = self.began + self.protocol.wake().min(self.began.elapsed() + STATUS_INTERVAL);
            let actions = tokio::select! {
                biased;
                () = leaving.cancelled() => break,
                Some((applier, done)) = self.done.1.recv() => self.finished(applier, done),
                Some(version) = self.durable.recv() => self.protocol.durable(version, moment(self.began)),
                Some(event) = self.events.1.recv() => self.happened(event),
                () = tokio::time::sleep_until(wake) => self.protocol.tick(moment(self.began)),
            };
            self.carry_out(actions);
            self.next_job();
            self.statuses.store(Arc::new(self.protocol.status(self.began.elapsed())));
        }
        let actions = self.protocol.leave(Bye::Leaving, self.moment());
        self.carry_out(actions);
        self.statuses.store(Arc::new(self.protocol.status(self.began.elapsed())));
    }

    fn moment(&self) -> Moment {
        moment(self.began)
    }

    fn happened(&mut self, event: Event) -> Vec<Action> {
        let at = self.moment();
        match event {
            Event::Opened(connection, frames) => {
                if let Some((number, sender, _)) = &mut self.open
                    && *number == connection
                {
                    *sender = Some(frames);
                }
                self.protocol.opened(connection, at)
            }
            Event::Received(connection, message) => self.protocol.received(connection, *message, at),
            Event::Closed(connection, why) => {
                warn!(connection, "{why}");
                self.protocol.closed(connection, &why, at)
            }
        }
    }

    fn finished(&mut self, applier: Applier<J, R>, done: Done) -> Vec<Action> {
        self.applier = Some(applier);
        let at = self.moment();
        match done {
            Done::Applied(applied) => {
                info!(version = %applied.version, "serving");
                self.protocol.applied(applied, at)
            }
            Done::Judged(rejects, requests) => {
                self.keep();
                self.protocol.judged(rejects, requests, at)
            }
        }
    }

    fn carry_out(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Connect { connection, address, after } => self.connect(connection, address, after),
                Action::Send(message) => self.send(&message),
                Action::Close { connection, why } => {
                    warn!(connection, "giving the connection up: {why}");
                    self.close();
                }
                Action::Publish(staged) => self.jobs.push_back(Job::Publish(staged)),
                Action::Fallback(answer) => self.jobs.push_back(Job::Fallback(answer)),
                Action::Persist(persist) => {
                    if let Some(keeper) = &self.keeper {
                        let retained = self.retained();
                        keeper.keep(Group { version: persist.version, content: persist.content, retained });
                    }
                }
            }
        }
    }

    fn connect(&mut self, connection: u64, address: usize, after: Duration) {
        self.close();
        let given_up = CancellationToken::new();
        self.open = Some((connection, None, given_up.clone()));
        let run = self.dialler.clone().run(connection, address, after, self.events.0.clone(), given_up);
        self.supervisor.spawn("replica connection", Policy::best_effort(), run);
    }

    fn close(&mut self) {
        if let Some((_, sender, given_up)) = self.open.take() {
            drop(sender);
            given_up.cancel();
        }
    }

    /// A replica that takes nothing of what is sent is no replica.
    fn send(&mut self, message: &NodeMessage) {
        if let NodeMessage::Refused(refused) = message {
            warn!(target = %refused.target, why = refused.why.label(), "not taken: {}", refused.detail);
        }
        let Some((connection, sender, _)) = &mut self.open else { return };
        if sender.as_ref().is_some_and(|sender| sender.try_send(message.encode()).is_err()) {
            // What else these actions send would meet the same.
            *sender = None;
            let connection = *connection;
            let full = Event::Closed(connection, "the replica takes no frames".to_owned());
            // Reported as an event, so that the actions at hand are finished first; silence ends it if this is full too.
            let _ = self.events.0.try_send(full);
        }
    }

    fn next_job(&mut self) {
        let Some(mut applier) = self.applier.take_if(|_| !self.jobs.is_empty()) else { return };
        let Some(job) = self.jobs.pop_front() else { return };
        let done = self.done.0.clone();
        let unix = self.moment().unix;
        // Should compiling ever panic, what is served goes on and status shows the version that is being published:
        // an end of the process would only meet the same version again.
        self.supervisor.spawn("compile", Policy::best_effort(), async move {
            let compiled = tokio::task::spawn_blocking(move || {
                let result = applier.run(job, unix);
                (applier, result)
            });
            let compiled = compiled.await.map_err(|error| error.to_string())?;
            // The receiver ends only with the whole node.
            let _ = done.send(compiled).await;
            Ok::<(), String>(())
        });
    }

    fn keep(&self) {
        let version = self.protocol.held().cloned();
        if let (Some(keeper), Some(version)) = (&self.keeper, version) {
            let content = self.protocol.content().clone();
            keeper.keep(Group { version, content, retained: self.retained() });
        }
    }

    fn retained(&self) -> Vec<last_known_good::Retained> {
        self.views.load().retained.iter().cloned().map(Into::into).collect()
    }
}

fn moment(began: Instant) -> Moment {
    Moment { now: began.elapsed(), unix: unix_now(), random: rand::random() }
}

/// Unix seconds.
#[must_use]
pub fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
