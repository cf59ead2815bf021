//! A node's process: the real protocol, the real applier with the real verdict, and what its shell keeps in memory.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use headwater_data_plane::compile;
use headwater_data_plane::sync::applier::{Applier, Job, Views};
use headwater_data_plane::sync::last_known_good::Group;
use headwater_data_plane::sync::protocol::{Action, Identity, Moment, Protocol, Settings};
use headwater_data_plane::sync::verdict::{Retained, Values};
use headwater_model::{Content, Key, Version, resources};
use headwater_proto::config::TransferReason;

use super::ENVIRONMENT;
use super::stream::StreamId;

/// Upstreams without a live side.
#[derive(Debug)]
pub struct NoUpstreams;

/// The applier, which has no form to print.
pub struct Desk(pub Applier<Values, NoUpstreams>);

/// A process.
#[derive(Debug)]
pub struct Process {
    /// Its number among all processes.
    pub number: u64,
    /// The core.
    pub protocol: Protocol,
    /// Judges and compiles.
    pub desk: Desk,
    /// What is served.
    pub views: Views,
    /// What is to be applied; the first is being applied while `busy`.
    pub jobs: VecDeque<Job>,
    /// Whether a job is under way.
    pub busy: bool,
    /// The connection that is being dialled.
    pub dialling: Option<u64>,
    /// The open stream.
    pub stream: Option<StreamId>,
    /// When it is to be told the time, as planned.
    pub wake: Duration,
    /// Wakes in one moment.
    pub spins: u32,
    /// It stands still until then.
    pub paused_until: Duration,
    /// What it held when it was last looked at.
    pub seen: Option<Version>,
    /// Every version it has held, with its content.
    pub trail: Vec<(Version, Content)>,
    /// The version that is being published, and what for.
    pub publishing: Option<(Version, TransferReason)>,
    /// How long publishing takes at most.
    pub pace: Duration,
}

// === impl Process ===

impl Process {
    /// Starts from what the file held, if it held anything; gives the first actions too.
    pub fn start(
        (number, node_id): (u64, &Arc<str>),
        settings: Settings,
        found: Option<&Group>,
        pace: Duration,
        at: Moment,
    ) -> (Self, Vec<Action>) {
        let identity = Identity {
            node_id: node_id.clone(),
            instance: instance(number),
            environment: ENVIRONMENT.into(),
            labels: BTreeMap::new(),
            build: "simulated".into(),
        };
        let views = Views::default();
        let swap = Box::new(|_, _: &Version| ());
        let mut applier = Applier::new(Values::default(), Arc::new(NoUpstreams), swap, views.clone());
        let mut judged = Default::default();
        let held = found.map(|group| {
            let rows: Vec<Retained> = group.retained.iter().cloned().map(Into::into).collect();
            judged = applier.restore(&group.version, &group.content, &rows, at.unix);
            (group.version.clone(), group.content.clone())
        });
        let seen = held.as_ref().map(|(version, _)| version.clone());
        let trail = held.clone().into_iter().collect();
        let mut protocol = Protocol::new(identity, settings, held);
        let mut actions = protocol.judged(judged.0, judged.1, at);
        actions.extend(protocol.start(at));
        let process = Self {
            number,
            protocol,
            desk: Desk(applier),
            views,
            jobs: VecDeque::new(),
            busy: false,
            dialling: None,
            stream: None,
            wake: Duration::MAX,
            spins: 0,
            paused_until: Duration::ZERO,
            seen,
            trail,
            publishing: None,
            pace,
        };
        (process, actions)
    }

    /// What it holds, as its file would keep it.
    pub fn group(&self, version: Version) -> Group {
        let retained = self.views.load().retained.iter().cloned().map(Into::into).collect();
        Group { version, content: self.protocol.content().clone(), retained }
    }
}

/// The instance of a process.
pub fn instance(number: u64) -> Arc<str> {
    format!("process {number}").into()
}

impl compile::Registry for NoUpstreams {
    type Upstream = ();

    fn upstream(&self, _holder: &Key, _definition: &Arc<resources::Upstream>) {}
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Desk")
    }
}
