//! The replica's half of the second hop: the real writer of its environment, its sessions and its registry.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use headwater_control_plane::approval;
use headwater_control_plane::backend::{Continuity, SourceEvent};
use headwater_control_plane::distribution::publication::Publication;
use headwater_control_plane::distribution::session;
use headwater_control_plane::environment::core::{Core, Effects, Keep};
use headwater_control_plane::environment::disk;
use headwater_control_plane::environment::older::Older;
use headwater_control_plane::fleet::Registry;
use headwater_control_plane::hold::Judged;
use headwater_model::Generation;
use headwater_model::guard::Removal;

use super::claims;
use super::file::{File, Known};
use super::line::Line;
use super::{ENVIRONMENT, PREFIX, South, UNIX_AT_ZERO};
use crate::simulation::mirror::Mirror;
use crate::simulation::random::Random;
use crate::simulation::world::{What, World};

/// What a replica is beside its tracker.
#[derive(Debug)]
pub struct Plane {
    /// The writer's core.
    pub core: Core,
    /// Older values.
    pub older: Older,
    /// What sessions see.
    pub publication: Arc<Publication>,
    /// The rows of nodes.
    pub registry: Registry,
    /// How sessions behave.
    pub config: session::Config,
    /// What an observer has noted down.
    pub line: Line,
    /// When this life began.
    pub started: Duration,
    /// Whether etcd is being asked about a version that a node claims.
    pub inquiring: bool,
    /// The generation that the source was asked to read everything again for.
    pub raising: Generation,
    /// Nodes cannot reach it until then.
    pub down_until: Duration,
    /// The file. It outlives the process.
    pub file: File,
    lost_retention: Duration,
}

// === impl Plane ===

impl Plane {
    /// A replica that holds nothing.
    pub fn new(random: &mut Random, name: usize, heartbeat: Duration) -> Self {
        let lost_retention = Duration::from_secs(*random.pick(&[60, 3_600]));
        let mut core = Core::new(PREFIX.into(), UNIX_AT_ZERO);
        let replica: Arc<str> = format!("replica {name}").into();
        Self {
            publication: Arc::new(core.publication()),
            core,
            older: Older::default(),
            registry: Registry::new(replica.clone(), lost_retention, UNIX_AT_ZERO),
            config: session::Config { replica_id: replica, heartbeat, max_fallbacks: 4 },
            line: Line::default(),
            started: Duration::ZERO,
            inquiring: false,
            raising: Generation(0),
            down_until: Duration::ZERO,
            file: File::new(random),
            lost_retention,
        }
    }

    /// The clock of this life.
    pub const fn now(&self, now: Duration) -> Duration {
        now.saturating_sub(self.started)
    }

    /// Starts again from its file; gives what an observer knows of the state that was found.
    pub fn restart(&mut self, now: Duration, unix: u64) -> Option<Mirror> {
        let found = self.file.held().cloned();
        self.started = now;
        self.older = Older::default();
        self.inquiring = false;
        self.raising = Generation(0);
        self.registry = Registry::new(self.config.replica_id.clone(), self.lost_retention, unix);
        let mirror = match found {
            Some((saved, Known { mirror, line })) => {
                let (core, expected) = disk::resume(saved, &ENVIRONMENT.into(), unix);
                for expected in expected {
                    self.registry.expect(expected, Duration::ZERO);
                }
                self.core = core;
                self.line = line;
                Some(mirror)
            }
            None => {
                self.core = Core::new(PREFIX.into(), unix);
                self.line = Line::default();
                None
            }
        };
        self.publication = Arc::new(self.core.publication());
        mirror
    }
}

// === impl World ===

impl World {
    /// A replica's writer takes an event of its source.
    pub(in crate::simulation) fn taken(&mut self, replica: usize, event: SourceEvent) {
        let (now, unix) = (self.schedule.now(), self.unix());
        let plane = &mut self.fleet.planes[replica];
        plane.older.follow(&event, plane.core.store().snapshot().content());
        let effects = plane.core.on_event(event.clone(), plane.now(now), unix);
        plane.line.publish(Some(&event), plane.core.store().snapshot().version());
        if let Some(judged) = &effects.judged {
            self.coverage.reached_some(judged_case(judged));
        }
        self.check_store(replica);
        self.published(replica, Some(&event), effects);
    }

    /// Shows what the core holds now, keeps it and wakes the sessions.
    pub(super) fn published(&mut self, replica: usize, event: Option<&SourceEvent>, effects: Effects) {
        let now = self.schedule.now();
        let plane = &mut self.fleet.planes[replica];
        let before = std::mem::replace(&mut plane.publication, Arc::new(plane.core.publication()));
        let version = plane.core.store().snapshot().version();
        if matches!(event, Some(SourceEvent::Loaded(load)) if load.generation > before.world.lineage().generation)
        {
            self.coverage.reached("generation/raised");
        }
        if event.is_none() {
            plane.line.publish(None, version);
        }
        self.check_served(replica, event, &before);
        let plane = &mut self.fleet.planes[replica];
        if effects.keep != Keep::Nothing {
            let mirror = self.replicas[replica].mirror.clone();
            let known = Known { mirror, line: plane.line.clone() };
            if plane.file.keep(effects.keep, &plane.core, known) {
                let takes = plane.file.takes(now, &mut self.random);
                self.file_writes(replica, takes);
            }
        }
        if effects.wake {
            self.serve_all(replica);
        }
    }

    fn file_writes(&mut self, replica: usize, takes: Duration) {
        let incarnation = self.replicas[replica].incarnation;
        self.schedule.after(takes, What::South(South::FileWritten { replica, incarnation }));
    }

    pub(super) fn file_written(&mut self, replica: usize, incarnation: u64) {
        if self.replicas[replica].incarnation != incarnation {
            return;
        }
        let now = self.schedule.now();
        let Plane { file, registry, .. } = &mut self.fleet.planes[replica];
        match file.written(registry) {
            Err(wrong) => self.violation(format!("replica {replica}: {wrong}")),
            Ok(true) => {
                let takes = file.takes(now, &mut self.random);
                self.file_writes(replica, takes);
            }
            Ok(false) => {}
        }
    }

    /// The store holds what its source's events add up to.
    fn check_store(&mut self, replica: usize) {
        let (state, plane) = (&self.replicas[replica], &self.fleet.planes[replica]);
        let Some(safe) = state.mirror.safe() else { return };
        let snapshot = plane.core.store().snapshot();
        let revision = snapshot.version().revision.0;
        if revision != safe {
            self.violation(format!(
                "replica {replica}: its store stands at {revision}, its source at {safe}"
            ));
        } else if let Some(difference) = claims::difference(snapshot.content(), state.mirror.facts()) {
            self.violation(format!("replica {replica}: in its store at {safe} {difference}"));
        }
        self.check_approvals(replica);
    }

    /// It knows every approval that is there at its safe revision, and no other.
    fn check_approvals(&mut self, replica: usize) {
        let (state, plane) = (&self.replicas[replica], &self.fleet.planes[replica]);
        let there: BTreeSet<&str> = state.mirror.facts().keys().filter_map(|key| approval::id(key)).collect();
        let known: BTreeSet<&str> = plane.core.hold().approvals().keys().map(|id| &**id).collect();
        if there != known {
            let what = format!("it knows the approvals {known:?}, those in etcd are {there:?}");
            self.violation(format!("replica {replica}: {what}"));
        }
    }

    /// Across a jump nothing may be served that removes more than the guard lets pass, unless an operator said so.
    fn check_served(&mut self, replica: usize, event: Option<&SourceEvent>, before: &Publication) {
        let jumped = match event {
            Some(SourceEvent::Loaded(load)) => {
                load.continuity != Continuity::Proven || load.generation > before.world.lineage().generation
            }
            _ => false,
        };
        let after = self.fleet.planes[replica].publication.clone();
        let (from, to) = (&before.serving, &after.serving);
        let released = before.hold.is_some() && after.hold.is_none();
        if !jumped && !released {
            return;
        }
        let removal = Removal::between(from.content(), to.content());
        if removal.is_held() && !self.is_approved(from.version(), to.version()) {
            let (from, to) = (from.version().clone(), to.version().clone());
            self.violation(format!("replica {replica}: serves {to:?} after {from:?}, a jump that {removal}"));
        }
    }
}

const fn judged_case(judged: &Judged) -> Option<&'static str> {
    match judged {
        Judged::Open | Judged::Stands => None,
        Judged::Began(_) => Some("hold/began"),
        Judged::Dissolved => Some("hold/dissolved"),
        Judged::Approved(_) => Some("hold/approved"),
    }
}
