//! One run: what happens, in which order, and what is checked when.

use std::time::Duration;

use headwater_control_plane::backend::Stage;
use headwater_control_plane::backend::etcd::tracker::{self, Failure, Input};

use super::coverage::Coverage;
use super::etcd::{Etcd, Origin, PASS};
use super::faults::{self, Fault, Planned};
use super::members::Limits;
use super::random::Random;
use super::replica::{MEMBERS, Replica};
use super::schedule::Schedule;
use super::shell::{Call, Via};
use super::south::{Fleet, South};
use super::workload::Workload;

/// Writes and faults happen until then.
pub(super) const ACTIVE: Duration = Duration::from_secs(240);

/// Faults are over by then, and everything must have converged.
const CONVERGED: Duration = Duration::from_secs(900);

/// A quiet time in which nothing may be reconnected.
const QUIET: Duration = Duration::from_secs(120);

/// Ticks in one moment that are too many.
const SPINS: u32 = 1_000;

/// What happens next.
#[derive(Debug)]
pub enum What {
    /// Somebody writes.
    Work,
    /// etcd's loop over watchers that are behind.
    Pass,
    /// etcd's ticker of unasked progress.
    ProgressTick,
    /// A fault begins.
    Begins(Planned),
    /// etcd can be reached again.
    Up,
    /// The readers are as quick as before.
    Quick {
        /// Which.
        replica: usize,
    },
    /// A call reaches etcd.
    Arrives {
        /// From whom.
        origin: Origin,
        /// Which.
        call: Call,
    },
    /// Something comes back.
    Answers {
        /// To whom.
        origin: Origin,
        /// Over what.
        via: Via,
        /// What.
        input: Box<Input>,
    },
    /// A tracker wants to be told the time.
    Wakes {
        /// Whose.
        replica: usize,
        /// In which life.
        incarnation: u64,
    },
    /// A writer that stood still goes on.
    Writes {
        /// Whose.
        replica: usize,
    },
    /// A process that stood still goes on.
    GoesOn {
        /// Which.
        replica: usize,
    },
    /// Something on the second hop.
    South(South),
}

/// The world.
#[derive(Debug)]
pub struct World {
    pub(super) schedule: Schedule<What>,
    pub(super) random: Random,
    pub(super) etcd: Etcd,
    pub(super) replicas: Vec<Replica>,
    pub(super) fleet: Fleet,
    pub(super) coverage: Coverage,
    /// The release that etcd says it is.
    pub(super) version: &'static str,
    /// Answers of unary calls are lost now and then until then.
    pub(super) lost_answers: Duration,
    pub(super) limits: Limits,
    workload: Workload,
    tick: Duration,
    steps: u64,
    violation: Option<String>,
    traced: bool,
}

/// How a run went.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Events handled, without etcd's own loops.
    pub steps: u64,
    /// What was wrong, at the first thing that was.
    pub violation: Option<String>,
    /// What the run has been through.
    pub coverage: Coverage,
}

// === impl World ===

impl World {
    /// The world of a seed. `traced` prints what happens to standard error.
    #[must_use]
    pub fn new(seed: u64, traced: bool) -> Self {
        let mut random = Random::new(seed);
        // Values of the size at which a transfer is sent in several parts.
        let bulky = random.one_in(8);
        let etcd = Etcd::new(&mut random, bulky);
        let replicas: Vec<_> =
            (0..random.between(1, 2)).map(|_| Replica::new(&mut random, etcd.truth.epoch(), bulky)).collect();
        let fleet = Fleet::new(&mut random, replicas.len());
        let tick = random.duration(Duration::from_secs(2), Duration::from_secs(60));
        let version = *random.pick(&["3.6.16", "3.6.16", "3.5.22", "3.4.33"]);
        Self {
            schedule: Schedule::new(),
            random,
            etcd,
            replicas,
            fleet,
            coverage: Coverage::default(),
            version,
            lost_answers: Duration::ZERO,
            limits: Limits::default(),
            workload: Workload::new(bulky),
            tick,
            steps: 0,
            violation: None,
            traced,
        }
    }

    /// Runs it to its end.
    #[must_use]
    pub fn run(mut self) -> Outcome {
        for planned in faults::plan(&mut self.random, Duration::from_secs(5), ACTIVE) {
            self.schedule.at(planned.at, What::Begins(planned));
        }
        for what in [What::Work, What::Pass, What::ProgressTick] {
            self.schedule.after(Duration::ZERO, what);
        }
        for replica in 0..self.replicas.len() {
            self.give(replica, Input::Tick);
        }
        self.start_south();
        self.run_until(CONVERGED);
        self.check_converged("faults are long over");
        let attempts: Vec<_> = self.replicas.iter().map(|replica| replica.attempt).collect();
        self.run_until(CONVERGED + QUIET);
        let unrest =
            self.replicas.iter().zip(attempts).position(|(replica, before)| replica.attempt != before);
        if let Some(replica) = unrest {
            self.violation(format!("replica {replica}: reconnected though nothing at all was wrong"));
        }
        for _ in 0..3 {
            self.write();
        }
        // The watch needs no time, and a node that was current is told by the next heartbeat at the latest.
        self.run_until(CONVERGED + QUIET + Duration::from_secs(20));
        self.check_converged("three writes on a quiet day were not delivered");
        for replica in &mut self.replicas {
            let counters = replica.counters();
            self.coverage.reached_times("watch/old-events", counters.old_events);
            self.coverage.reached_times("watch/silence", counters.silences);
            self.coverage.reached_times("members/diverged", counters.member_divergences);
        }
        Outcome { steps: self.steps, violation: self.violation, coverage: self.coverage }
    }

    fn run_until(&mut self, end: Duration) {
        while self.violation.is_none()
            && let Some(what) = self.schedule.next(end)
        {
            self.happens(what);
            self.pump();
        }
    }

    fn happens(&mut self, what: What) {
        self.steps += u64::from(!matches!(what, What::Pass | What::ProgressTick));
        match what {
            What::Work => self.work(),
            What::Pass => {
                if self.etcd.up && self.schedule.now() >= self.etcd.no_catch_up {
                    self.etcd.mvcc.catch_up();
                }
                self.schedule.after(PASS, What::Pass);
            }
            What::ProgressTick => {
                for stream in self.etcd.streams.keys().copied().collect::<Vec<_>>() {
                    self.etcd.mvcc.progress_tick(stream);
                }
                self.schedule.after(self.tick, What::ProgressTick);
            }
            What::Begins(planned) => self.begins(planned),
            What::Up => self.etcd.up = true,
            What::Quick { replica } => self.replicas[replica].window = 64,
            What::Arrives { origin, call } => self.arrives(origin, call),
            What::Answers { origin, via, input } => self.answers(origin, via, *input),
            What::Wakes { replica, incarnation } => self.wakes(replica, incarnation),
            What::Writes { replica } => self.hand_over(replica),
            What::GoesOn { replica } => self.goes_on(replica),
            What::South(south) => self.south(south),
        }
    }

    fn work(&mut self) {
        if self.etcd.up {
            self.write();
            if self.random.one_in(15) {
                self.etcd.snapshot();
            }
        }
        if self.schedule.now() < ACTIVE {
            let next = self.random.duration(Duration::from_millis(1), Duration::from_millis(1_500));
            self.schedule.after(next, What::Work);
        }
    }

    fn write(&mut self) {
        let txn = self.workload.next(&mut self.random);
        self.trace(|| format!("{txn:?}"));
        let before = self.etcd.mvcc.revision();
        self.etcd.commit(&txn);
        self.wrote(before);
    }

    fn wakes(&mut self, replica: usize, incarnation: u64) {
        let now = self.schedule.now();
        let state = &mut self.replicas[replica];
        if state.incarnation != incarnation || now < state.paused_until || now < state.wake {
            return;
        }
        let since = state.wake;
        state.wake = Duration::MAX;
        self.give(replica, Input::Tick);
        let state = &mut self.replicas[replica];
        state.spins = if state.wake <= since { state.spins + 1 } else { 0 };
        if state.spins > SPINS {
            self.violation(format!("replica {replica}: wants to be woken again and again at {now:?}"));
        }
    }

    /// What arrived while the process stood still is there all at once; so is the time.
    fn goes_on(&mut self, replica: usize) {
        let state = &mut self.replicas[replica];
        if self.schedule.now() < state.paused_until {
            return;
        }
        let inbox = std::mem::take(&mut state.inbox);
        state.wake = Duration::MAX;
        if self.random.one_in(2) {
            self.give(replica, Input::Tick);
        }
        for input in inbox {
            self.give(replica, input);
        }
        self.give(replica, Input::Tick);
    }

    fn begins(&mut self, planned: Planned) {
        let Planned { fault, lasts, .. } = planned;
        let replica = self.random.below(self.replicas.len() as u64) as usize;
        let until = self.schedule.now() + lasts;
        self.trace(|| format!("{fault:?} for {lasts:?}"));
        self.coverage.reached(fault.case());
        match fault {
            Fault::Cut => self.cut(replica),
            Fault::Swallow => self.replicas[replica].connection.swallow_until = until,
            Fault::Stall => {
                let connection = &mut self.replicas[replica].connection;
                connection.up.stall(until);
                connection.down.stall(until);
            }
            Fault::LostAnswers => self.lost_answers = until,
            Fault::Compaction => {
                let back = self.random.below(6);
                self.etcd.compact(back);
            }
            Fault::NoCatchUp => self.etcd.no_catch_up = until,
            Fault::NoProgress => self.etcd.no_progress = until,
            Fault::LazySender => {
                self.etcd.lazy_sender = until;
                self.cut(replica);
            }
            Fault::SlowReader => {
                let state = &mut self.replicas[replica];
                state.window = 1;
                state.connection.down.stall(until);
                self.schedule.at(until, What::Quick { replica });
            }
            Fault::SlowWriter => {
                self.replicas[replica].writer_until = until;
                self.schedule.at(until, What::Writes { replica });
            }
            // One that stands still already goes on when it would have: frames wait for that moment, and a later or
            // earlier one would let others overtake them.
            Fault::Pause if self.schedule.now() < self.replicas[replica].paused_until => {}
            Fault::Pause => {
                self.replicas[replica].paused_until = until;
                self.schedule.at(until, What::GoesOn { replica });
            }
            Fault::Crash => self.crash(replica),
            Fault::Burst => {
                for _ in 0..self.random.between(10, 120) {
                    self.write();
                }
            }
            Fault::Denied => self.limits.denied = until,
            Fault::SmallMessages => self.limits.small = until,
            Fault::AstrayMember => self.limits.astray = (until, self.random.below(MEMBERS)),
            Fault::Restart | Fault::Outage | Fault::Restore | Fault::OtherCluster | Fault::BumpedRestore => {
                self.goes_down(fault, lasts);
            }
        }
    }

    /// etcd's process ends; every connection to it breaks.
    fn goes_down(&mut self, fault: Fault, lasts: Duration) {
        let bump = self.random.between(10, 1_000);
        match fault {
            Fault::Restore => drop(self.etcd.restore(&mut self.random, false, None)),
            Fault::OtherCluster => drop(self.etcd.restore(&mut self.random, true, None)),
            Fault::BumpedRestore => drop(self.etcd.restore(&mut self.random, false, Some(bump))),
            _ => self.etcd.restart(),
        }
        self.etcd.streams.clear();
        for replica in 0..self.replicas.len() {
            self.cut(replica);
        }
        // Also a restore that is over in no time: what comes back at once looks most like what was there.
        let away = if fault == Fault::Outage || self.random.one_in(2) { lasts } else { Duration::ZERO };
        self.etcd.up = false;
        self.schedule.after(away, What::Up);
        if self.random.one_in(2) {
            // Whoever restores an old state is likely to write it up to date at once.
            for _ in 0..self.random.between(1, 60) {
                self.write();
            }
        }
    }

    /// The connection breaks; the replica is told.
    fn cut(&mut self, replica: usize) {
        let origin = self.origin(replica);
        self.etcd.close(|other| other.replica == replica && other.connection == origin.connection);
        self.replicas[replica].connection.open = false;
        let failure = Failure::new(tracker::Fault::Transport, "the connection broke");
        let attempt = origin.attempt;
        let told =
            [Input::WatchEnded { attempt, failure: failure.clone() }, Input::CallFailed { attempt, failure }];
        for input in told {
            self.schedule.after(
                Duration::from_micros(100),
                What::Answers { origin, via: Via::Other, input: Box::new(input) },
            );
        }
    }

    fn check_converged(&mut self, what: &str) {
        for replica in 0..self.replicas.len() {
            let state = &self.replicas[replica];
            let stage = state.tracker.state().map(|state| state.stage);
            if stage != Some(Stage::Live) {
                self.violation(format!("replica {replica}: {what}, but it is {stage:?}"));
            } else if let Err(wrong) = state.mirror.check_head(&self.etcd.truth) {
                self.violation(format!("replica {replica}: {what}, but {wrong}"));
            }
        }
        self.check_nodes(what);
    }

    pub(super) fn violation(&mut self, what: String) {
        let now = self.schedule.now().as_secs_f64();
        self.trace(|| format!("VIOLATION: {what}"));
        self.violation.get_or_insert_with(|| format!("at {now:.6} s: {what}"));
    }

    pub(super) fn trace(&self, what: impl FnOnce() -> String) {
        if self.traced {
            eprintln!("{:>12.6} {}", self.schedule.now().as_secs_f64(), what());
        }
    }
}
