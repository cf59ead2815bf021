//! One replica: the real tracker, and the listener that its events are for.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use headwater_control_plane::backend::ResumePoint;
use headwater_control_plane::backend::etcd::tracker::{Attempt, Blame, Counters, Input, Settings, Tracker};

use super::link::Link;
use super::mirror::Mirror;
use super::random::Random;
use super::truth::Epoch;
use super::waiting::Waiting;

/// How many members a cluster has that is not of one.
pub const MEMBERS: u64 = 3;

/// A replica.
#[derive(Debug)]
pub struct Replica {
    /// The core under test.
    pub tracker: Tracker,
    /// What its tracker's events add up to.
    pub source: Mirror,
    /// What its writer was given of them.
    pub mirror: Mirror,
    /// Which life this is.
    pub incarnation: u64,
    /// The attempt that is going on.
    pub attempt: Attempt,
    /// The history in which each attempt's stream was opened.
    pub epochs: BTreeMap<Attempt, Epoch>,
    /// Its watch connection.
    pub connection: Connection,
    /// Its other connection, for loads.
    pub side: (Link, Link),
    /// Whose fault the last end was.
    pub blame: Option<Blame>,
    /// The process stands still until then.
    pub paused_until: Duration,
    /// What arrived meanwhile.
    pub inbox: VecDeque<Input>,
    /// What its source has for its writer.
    pub waiting: Waiting,
    /// Its writer takes nothing until then.
    pub writer_until: Duration,
    /// How many responses of a stream may be on their way.
    pub window: usize,
    /// When it is to be woken, as planned.
    pub wake: Duration,
    /// Ticks in one moment.
    pub spins: u32,
    /// How it was configured.
    pub settings: Settings,
    finished: Counters,
}

/// The one long-lived connection to etcd.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Counts the connections of one replica.
    pub id: u64,
    /// Whether it is established, as far as the replica knows.
    pub open: bool,
    /// To etcd.
    pub up: Link,
    /// From etcd.
    pub down: Link,
    /// Watch responses on it are lost until then.
    pub swallow_until: Duration,
}

// === impl Replica ===

impl Replica {
    /// A replica without a file.
    pub fn new(random: &mut Random, epoch: Epoch, bulky: bool) -> Self {
        let settings = settings(random, bulky);
        Self {
            tracker: Tracker::new(settings.clone(), None, random.next()),
            source: Mirror::empty(epoch),
            mirror: Mirror::empty(epoch).lagging(true),
            incarnation: 0,
            attempt: Attempt::default(),
            epochs: BTreeMap::new(),
            connection: Connection::new(0, random),
            side: (latency(random), latency(random)),
            blame: None,
            paused_until: Duration::ZERO,
            inbox: VecDeque::new(),
            waiting: Waiting::default(),
            writer_until: Duration::ZERO,
            window: 64,
            wake: Duration::MAX,
            spins: 0,
            settings,
            finished: Counters::default(),
        }
    }

    /// Ends without a word and starts from what its file held, if it held anything.
    pub fn crash(&mut self, random: &mut Random, mirror: Mirror, resume: Option<ResumePoint>) {
        self.finish();
        self.source = mirror.clone().lagging(false);
        self.mirror = mirror.lagging(true);
        self.tracker = Tracker::new(self.settings.clone(), resume, random.next());
        self.incarnation += 1;
        self.attempt = Attempt::default();
        self.epochs.clear();
        self.connection = Connection::new(self.connection.id + 1, random);
        self.blame = None;
        self.paused_until = Duration::ZERO;
        self.inbox.clear();
        self.waiting = Waiting::default();
        self.writer_until = Duration::ZERO;
        self.wake = Duration::MAX;
    }

    /// What all its lives have counted.
    pub fn counters(&mut self) -> Counters {
        self.finish();
        self.tracker = Tracker::new(self.settings.clone(), None, 0);
        self.finished
    }

    fn finish(&mut self) {
        let Counters {
            old_events,
            ignored_progress,
            trusted_progress,
            violations,
            silences,
            loads,
            member_divergences,
        } = self.tracker.counters();
        self.finished.old_events += old_events;
        self.finished.ignored_progress += ignored_progress;
        self.finished.trusted_progress += trusted_progress;
        self.finished.violations += violations;
        self.finished.silences += silences;
        self.finished.loads += loads;
        self.finished.member_divergences += member_divergences;
    }
}

// === impl Connection ===

impl Connection {
    /// The next connection, not established yet.
    pub fn new(id: u64, random: &mut Random) -> Self {
        Self { id, open: false, up: latency(random), down: latency(random), swallow_until: Duration::ZERO }
    }
}

fn latency(random: &mut Random) -> Link {
    let low = Duration::from_micros(random.between(50, 2_000));
    Link::new(low, low + Duration::from_micros(random.between(10, 60_000)))
}

/// Small where a short run must meet a bound.
fn settings(random: &mut Random, bulky: bool) -> Settings {
    Settings {
        members: u32::try_from(*random.pick(&[1, MEMBERS])).unwrap_or(1),
        resume_span: *random.pick(&[20, 100, 100_000]),
        page_keys: *random.pick(&[1, 3, 5_000]),
        catch_up_timeout: Duration::from_secs(20),
        assembly_bytes: if bulky { 64 << 20 } else { 4 << 10 },
        ..Settings::default()
    }
}
