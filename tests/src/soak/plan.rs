//! What breaks, when and for how long: drawn from the seed alone, so that a seed explains a run.
//!
//! Never so much that the world could not converge: one member of etcd at a time, and nothing that is broken is broken
//! again before it has healed.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::options::Settings;
use crate::simulation::random::Random;
use crate::tcp_proxy::Direction;

/// The shortest fault.
const SHORTEST: Duration = Duration::from_millis(300);
/// The longest delay of a slow connection.
const DELAY_MAX_MS: u64 = 600;
/// Draws until one is found that breaks nothing broken.
const DRAWS_MAX: u32 = 20;

/// A process of the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// A member of etcd.
    Member(usize),
    /// A replica.
    Replica(usize),
    /// A node.
    Node(usize),
}

/// Connections of the world: who opens them, and to whom; without a number to all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hop {
    /// From a replica to members of etcd.
    First(usize, Option<usize>),
    /// From a node to replicas.
    Second(usize, Option<usize>),
}

/// Which way bytes no longer go as they should.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// One.
    One(Direction),
    /// Both.
    Both,
}

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// kill -9; started again when the fault ends.
    Kill(Who),
    /// SIGSTOP; SIGCONT when the fault ends.
    Stop(Who),
    /// SIGTERM, and started again at once.
    Restart(Who),
    /// Nothing passes, nothing is closed.
    Freeze(Hop, Way),
    /// What is open is reset.
    Cut(Hop),
    /// What is open is reset, and each new connection.
    Refuse(Hop),
    /// Every byte comes late.
    Delay(Hop, Way, Duration),
    /// etcd forgets all before its head.
    Compact,
    /// A member rewrites its file, and answers nobody meanwhile.
    Defragment(usize),
}

/// A fault and its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Planned {
    /// Since the last fault began.
    pub after: Duration,
    /// What.
    pub fault: Fault,
    /// Until it heals; nothing for what is over at once.
    pub lasts: Duration,
}

/// Draws one fault after the other.
#[derive(Debug, Clone)]
pub struct Plan {
    random: Random,
    settings: Settings,
    now: Duration,
    /// Until when what is broken is.
    broken: BTreeMap<Part, Duration>,
}

/// What may be broken once at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    /// Any member: with two of three away nobody gets anything.
    Members,
    Process(Who),
    /// All connections that one process opens.
    Hops(Who),
}

// === impl Plan ===

impl Plan {
    /// From the seed of the settings.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        let random = Random::new(settings.seed);
        Self { random, settings: settings.clone(), now: Duration::ZERO, broken: BTreeMap::new() }
    }

    /// The next fault.
    pub fn planned(&mut self) -> Planned {
        let after = self.random.duration(self.settings.gap.0, self.settings.gap.1);
        self.now += after;
        for _ in 0..DRAWS_MAX {
            let fault = self.draw();
            let lasts = self.lasts(&fault);
            let free =
                fault.part().is_none_or(|part| self.broken.get(&part).is_none_or(|end| *end < self.now));
            if free {
                // A process that is started again is given a moment.
                let end = self.now + lasts + SHORTEST;
                self.broken.extend(fault.part().map(|part| (part, end)));
                return Planned { after, fault, lasts };
            }
        }
        Planned { after, fault: Fault::Compact, lasts: Duration::ZERO }
    }

    /// A quiet time is over: nothing is broken.
    pub fn healed(&mut self) {
        self.broken.clear();
    }

    fn lasts(&mut self, fault: &Fault) -> Duration {
        match fault {
            Fault::Restart(_) | Fault::Cut(_) | Fault::Compact | Fault::Defragment(_) => Duration::ZERO,
            _ => self.random.duration(SHORTEST, self.settings.lasts),
        }
    }

    fn draw(&mut self) -> Fault {
        match self.random.below(20) {
            0..=1 => Fault::Kill(Who::Member(self.member())),
            2 => Fault::Stop(Who::Member(self.member())),
            3..=4 => Fault::Kill(self.plane()),
            5..=6 => Fault::Stop(self.plane()),
            7..=8 => Fault::Restart(self.plane()),
            9..=11 => Fault::Freeze(self.hop(), self.way()),
            12 => Fault::Cut(self.hop()),
            13..=14 => Fault::Refuse(self.hop()),
            15..=16 => {
                let (hop, way) = (self.hop(), self.way());
                Fault::Delay(hop, way, Duration::from_millis(self.random.between(20, DELAY_MAX_MS)))
            }
            17..=18 => Fault::Compact,
            _ => Fault::Defragment(self.member()),
        }
    }

    fn member(&mut self) -> usize {
        self.below(self.settings.members)
    }

    fn plane(&mut self) -> Who {
        let (replicas, nodes) = (self.settings.replicas, self.settings.nodes);
        match self.below(replicas + nodes) {
            replica if replica < replicas => Who::Replica(replica),
            node => Who::Node(node - replicas),
        }
    }

    /// One connection, or all of one process, as often.
    fn hop(&mut self) -> Hop {
        let all = self.random.one_in(2);
        if self.random.one_in(2) {
            let (replica, member) = (self.below(self.settings.replicas), self.member());
            Hop::First(replica, (!all).then_some(member))
        } else {
            let (node, replica) = (self.below(self.settings.nodes), self.below(self.settings.replicas));
            Hop::Second(node, (!all).then_some(replica))
        }
    }

    fn way(&mut self) -> Way {
        *self.random.pick(&[Way::One(Direction::Up), Way::One(Direction::Down), Way::Both])
    }

    fn below(&mut self, count: usize) -> usize {
        usize::try_from(self.random.below(count as u64)).unwrap_or_default()
    }
}

// === impl Fault ===

impl Fault {
    /// The word it is counted under.
    #[must_use]
    pub fn kind(&self) -> String {
        let who = |who: &Who| match who {
            Who::Member(_) => "member",
            Who::Replica(_) => "replica",
            Who::Node(_) => "node",
        };
        let hop = |hop: &Hop| match hop {
            Hop::First(..) => "first_hop",
            Hop::Second(..) => "second_hop",
        };
        match self {
            Self::Kill(it) => format!("kill_{}", who(it)),
            Self::Stop(it) => format!("stop_{}", who(it)),
            Self::Restart(it) => format!("restart_{}", who(it)),
            Self::Freeze(it, _) => format!("freeze_{}", hop(it)),
            Self::Cut(it) => format!("cut_{}", hop(it)),
            Self::Refuse(it) => format!("refuse_{}", hop(it)),
            Self::Delay(it, ..) => format!("delay_{}", hop(it)),
            Self::Compact => "compact".to_owned(),
            Self::Defragment(_) => "defragment".to_owned(),
        }
    }

    const fn part(&self) -> Option<Part> {
        match self {
            Self::Kill(Who::Member(_)) | Self::Stop(Who::Member(_)) | Self::Defragment(_) => {
                Some(Part::Members)
            }
            Self::Kill(who) | Self::Stop(who) | Self::Restart(who) => Some(Part::Process(*who)),
            Self::Freeze(hop, _) | Self::Cut(hop) | Self::Refuse(hop) | Self::Delay(hop, ..) => {
                Some(Part::Hops(match hop {
                    Hop::First(replica, _) => Who::Replica(*replica),
                    Hop::Second(node, _) => Who::Node(*node),
                }))
            }
            Self::Compact => None,
        }
    }
}

// === impl Who ===

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Member(number) => write!(f, "m{number}"),
            Self::Replica(number) => write!(f, "r{number}"),
            Self::Node(number) => write!(f, "n{number}"),
        }
    }
}

// === impl Hop ===

impl fmt::Display for Hop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::First(replica, Some(member)) => write!(f, "r{replica}->m{member}"),
            Self::First(replica, None) => write!(f, "r{replica}->etcd"),
            Self::Second(node, Some(replica)) => write!(f, "n{node}->r{replica}"),
            Self::Second(node, None) => write!(f, "n{node}->replicas"),
        }
    }
}

// === impl Planned ===

impl fmt::Display for Planned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.fault {
            Fault::Kill(who) => write!(f, "kill -9 {who}")?,
            Fault::Stop(who) => write!(f, "stop {who}")?,
            Fault::Restart(who) => write!(f, "restart {who}")?,
            Fault::Freeze(hop, way) => write!(f, "freeze {hop} {way}")?,
            Fault::Cut(hop) => write!(f, "cut {hop}")?,
            Fault::Refuse(hop) => write!(f, "refuse {hop}")?,
            Fault::Delay(hop, way, by) => write!(f, "delay {hop} {way} by {by:?}")?,
            Fault::Compact => write!(f, "compact")?,
            Fault::Defragment(member) => write!(f, "defragment m{member}")?,
        }
        if self.lasts.is_zero() { Ok(()) } else { write!(f, " for {:.1} s", self.lasts.as_secs_f64()) }
    }
}

// === impl Way ===

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::One(Direction::Up) => "upwards",
            Self::One(Direction::Down) => "downwards",
            Self::Both => "both ways",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::Parser;

    use super::*;
    use crate::soak::options::Arguments;

    fn plan(seed: u64) -> Plan {
        let settings = Arguments::parse_from(["soak", "--seed", &seed.to_string()]).settings();
        Plan::new(&settings)
    }

    #[test]
    fn a_seed_explains_itself_and_another_one_is_another_story() {
        let drawn = |seed| {
            let mut plan = plan(seed);
            (0..50).map(|_| plan.planned()).collect::<Vec<_>>()
        };
        assert_eq!(drawn(7), drawn(7));
        assert_ne!(drawn(7), drawn(8));
        let told: Vec<String> = drawn(7).iter().map(ToString::to_string).collect();
        assert!(told.iter().all(|line| !line.is_empty()));
    }

    #[test]
    fn every_kind_is_drawn_at_its_pace_and_nothing_broken_is_broken_again() {
        let (mut kinds, mut now) = (BTreeSet::new(), Duration::ZERO);
        let mut plan = plan(1);
        let mut healing: Vec<(Part, Duration)> = Vec::new();
        for _ in 0..2000 {
            let planned = plan.planned();
            assert!((5.0..=30.0).contains(&planned.after.as_secs_f64()), "{planned}");
            now += planned.after;
            kinds.insert(planned.fault.kind());
            let Some(part) = planned.fault.part() else { continue };
            assert!(
                !healing.iter().any(|(broken, end)| *broken == part && *end >= now),
                "{planned} at {now:?}"
            );
            healing.push((part, now + planned.lasts));
        }
        assert_eq!(kinds.len(), 18, "{kinds:?}");
    }
}
