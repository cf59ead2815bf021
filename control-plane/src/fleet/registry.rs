//! The registry of nodes: who is there, what each applied, and what it cannot use. Pure: events and `now` in.
//!
//! One row per (node id, instance). A row is live while its session is open, lost when the session ended without a
//! farewell, and has left when the node said that it ends. It must never know streams, stores or clocks.
//!
//! Invariant: nothing of an older connection changes what a newer connection of the same instance has said.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use headwater_model::{Key, Revision, Version};
use headwater_proto::config::{Ack, Bye, Hello, Refused, Reject, Rejects, TransferReason};
use imbl::OrdMap;

#[cfg(test)]
mod tests;

/// How long a lost row is expected to come back, by default.
pub const LOST_RETENTION: Duration = Duration::from_secs(3600);

/// All rows of a replica. Cloning is cheap and shares structure.
#[derive(Clone, Debug)]
pub struct Registry {
    replica: Arc<str>,
    lost_retention: Duration,
    unix_at_zero: u64,
    rows: OrdMap<RowId, Arc<Row>>,
    outdated: u64,
    membership: u64,
}

/// Names a row: the configured id of a node, and the random instance of its process.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowId {
    /// The configured id.
    pub node_id: Arc<str>,
    /// Random per process start.
    pub instance: Arc<str>,
}

/// One process of a node.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its name.
    pub id: RowId,
    /// What it said of itself when it joined.
    pub about: Arc<About>,
    /// The number of its connection, as the instance counts them.
    pub connection: u64,
    /// Live, lost or gone.
    pub state: RowState,
    /// When a frame of it was last heard (since the registry's start).
    pub heard: Duration,
    /// The version requests are served by.
    pub applied: Option<Version>,
    /// The newest version that survives a power cut.
    pub durable: Option<Version>,
    /// What is being sent to it.
    pub in_flight: Option<(Version, TransferReason)>,
    /// What it cannot use.
    pub rejects: Arc<BTreeMap<Key, Reject>>,
    /// Whether `rejects` is the node's whole set. Until then the node has not answered any wait.
    pub rejects_known: bool,
    /// The last transfer it refused, until it takes a later one.
    pub refused: Option<Refused>,
    /// Whether it is ahead of this replica and keeps what it has.
    pub held_ahead: bool,
    /// Whether it is served by this replica without proof of life of the source.
    pub degraded: bool,
}

/// What a node said of itself, and what its connection showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// The environment it belongs to.
    pub environment: Arc<str>,
    /// Its proven identity: of its certificate, or the name of its join token.
    pub identity: Option<Arc<str>>,
    /// Free labels.
    pub labels: BTreeMap<String, String>,
    /// The program's version.
    pub build: Arc<str>,
    /// The address it connects from.
    pub peer: Arc<str>,
    /// The replica that holds its session.
    pub replica: Arc<str>,
    /// When it joined (Unix seconds).
    pub joined_unix: u64,
}

/// Whether a row's process is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowState {
    /// Its session is open.
    Live,
    /// Its session ended without a farewell, or it moves to another replica.
    Lost {
        /// Since the registry's start.
        since: Duration,
        /// Why the session ended.
        reason: Arc<str>,
    },
    /// It said that it ends, and is expected no longer.
    Left {
        /// Since the registry's start.
        since: Duration,
    },
}

/// Something that happened on one connection of a node.
#[derive(Clone, Debug)]
pub struct FleetEvent {
    /// Whose.
    pub row: RowId,
    /// On which connection.
    pub connection: u64,
    /// What.
    pub happened: Happened,
}

/// What happened on a connection.
#[derive(Clone, Debug)]
pub enum Happened {
    /// The node said hello and was welcomed.
    Joined {
        /// What it said.
        hello: Box<Hello>,
        /// Its proven identity.
        identity: Option<String>,
        /// Its address.
        peer: String,
    },
    /// A version is applied, or durable.
    Acked(Ack),
    /// What it cannot use.
    Rejects(Rejects),
    /// It did not take a transfer.
    Refused(Refused),
    /// Any other frame.
    Heard,
    /// A transfer to it has begun.
    Transferring {
        /// Where it leads.
        target: Version,
        /// What for.
        reason: TransferReason,
    },
    /// How it stands to this replica.
    Standing {
        /// It is ahead of the replica and keeps what it has.
        held_ahead: bool,
        /// The replica has no proof of life of its source.
        degraded: bool,
    },
    /// The session ended.
    Left {
        /// The node's farewell, if it said one.
        bye: Option<Bye>,
        /// Why, in a sentence.
        reason: String,
    },
}

/// A node that is expected though this process has not seen it: kept over a restart of the replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Its row.
    pub row: RowId,
    /// Its environment.
    pub environment: Arc<str>,
    /// When its session was last known to be open (Unix seconds).
    pub seen_unix: u64,
}

/// How many rows there are in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// With an open session.
    pub live: usize,
    /// Lost and still expected.
    pub lost: usize,
    /// Gone with a farewell.
    pub left: usize,
}

// === impl Registry ===

impl Registry {
    /// An empty registry. `unix_at_zero` is the Unix time (seconds) at the `now` of zero, for display only.
    #[must_use]
    pub fn new(replica: impl Into<Arc<str>>, lost_retention: Duration, unix_at_zero: u64) -> Self {
        Self {
            replica: replica.into(),
            lost_retention,
            unix_at_zero,
            rows: OrdMap::new(),
            outdated: 0,
            membership: 0,
        }
    }

    /// Takes one event in. Answers whether it counted: an event of an older connection, or of a row that is not
    /// known, does not.
    pub fn apply(&mut self, event: FleetEvent, now: Duration) -> bool {
        let FleetEvent { row: id, connection, happened } = event;
        if let Happened::Joined { hello, identity, peer } = happened {
            return self.join(&id, &hello, identity, &peer, now);
        }
        let Some(row) = self.rows.get_mut(&id).filter(|row| row.connection == connection) else {
            self.outdated += 1;
            return false;
        };
        self.membership += u64::from(matches!(happened, Happened::Left { .. }));
        Arc::make_mut(row).take(happened, now);
        true
    }

    /// Whether the set of rejects that a node counts and hashes in its hello is known, so that it need not be sent.
    #[must_use]
    pub fn knows_rejects(&self, hello: &Hello) -> bool {
        self.known_rejects(hello).is_some()
    }

    /// Takes a row off, so that it is expected no longer. Only a row without an open session can be forgotten.
    ///
    /// # Errors
    /// When it is live, or not known.
    pub fn forget(&mut self, id: &RowId) -> Result<(), ForgetError> {
        let row = self.rows.get(id).ok_or_else(|| ForgetError::Unknown(id.clone()))?;
        if row.state == RowState::Live {
            return Err(ForgetError::Live(id.clone()));
        }
        self.rows.remove(id);
        self.membership += 1;
        Ok(())
    }

    /// Drops rows that ended longer than the retention ago.
    pub fn expire(&mut self, now: Duration) {
        let over: Vec<RowId> = self
            .rows
            .values()
            .filter(|row| row.ended().is_some_and(|since| !self.is_retained(since, now)))
            .map(|row| row.id.clone())
            .collect();
        for id in over {
            self.rows.remove(&id);
            self.membership += 1;
        }
    }

    /// Expects a node that was there before this replica restarted: lost, as of `now`, until it joins.
    pub fn expect(&mut self, expected: Expected, now: Duration) {
        let since = now.saturating_sub(Duration::from_secs(
            self.unix(now).saturating_sub(expected.seen_unix).min(now.as_secs()),
        ));
        let about = About {
            environment: expected.environment,
            identity: None,
            labels: BTreeMap::new(),
            build: "".into(),
            peer: "".into(),
            replica: self.replica.clone(),
            joined_unix: expected.seen_unix,
        };
        let mut row = Row::new(expected.row, Arc::new(about), 0, now);
        row.state = RowState::Lost { since, reason: "not seen since the replica restarted".into() };
        if !self.rows.contains_key(&row.id) {
            self.membership += 1;
            self.rows.insert(row.id.clone(), Arc::new(row));
        }
    }

    /// What a restarted replica must go on expecting: live rows, and lost ones within the retention.
    pub fn roster(&self, now: Duration) -> impl Iterator<Item = Expected> {
        self.expected(None, now).map(move |row| Expected {
            row: row.id.clone(),
            environment: row.about.environment.clone(),
            seen_unix: match &row.state {
                RowState::Lost { since, .. } => self.unix(*since),
                _ => self.unix(now),
            },
        })
    }

    /// The rows a wait counts: live ones, and those lost less than the retention ago. Of one environment, or of all.
    pub fn expected<'a>(
        &'a self,
        environment: Option<&'a str>,
        now: Duration,
    ) -> impl Iterator<Item = &'a Arc<Row>> {
        self.rows
            .values()
            .filter(move |row| environment.is_none_or(|environment| *row.about.environment == *environment))
            .filter(move |row| match row.state {
                RowState::Live => true,
                RowState::Lost { since, .. } => self.is_retained(since, now),
                RowState::Left { .. } => false,
            })
    }

    /// All rows, in order of node id and instance.
    pub fn rows(&self) -> impl Iterator<Item = &Arc<Row>> {
        self.rows.values()
    }

    /// One row.
    #[must_use]
    pub fn row(&self, id: &RowId) -> Option<&Arc<Row>> {
        self.rows.get(id)
    }

    /// Whether a second process of the same environment is live under this row's node id.
    #[must_use]
    pub fn is_duplicate(&self, row: &Row) -> bool {
        row.state == RowState::Live
            && self.of_node(&row.id.node_id).any(|other| {
                other.id != row.id
                    && other.state == RowState::Live
                    && other.about.environment == row.about.environment
            })
    }

    /// How many rows are in each state.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for row in self.rows.values() {
            match row.state {
                RowState::Live => counts.live += 1,
                RowState::Lost { .. } => counts.lost += 1,
                RowState::Left { .. } => counts.left += 1,
            }
        }
        counts
    }

    /// How many events came from connections that were no longer their instance's newest.
    #[must_use]
    pub const fn outdated(&self) -> u64 {
        self.outdated
    }

    /// Rises whenever a row comes, ends, or goes: while it stands, the same nodes are expected.
    #[must_use]
    pub const fn membership(&self) -> u64 {
        self.membership
    }

    /// A moment as Unix seconds.
    #[must_use]
    pub const fn unix(&self, at: Duration) -> u64 {
        self.unix_at_zero + at.as_secs()
    }

    /// The id of the replica whose sessions these are.
    #[must_use]
    pub const fn replica(&self) -> &Arc<str> {
        &self.replica
    }

    fn join(
        &mut self,
        id: &RowId,
        hello: &Hello,
        identity: Option<String>,
        peer: &str,
        now: Duration,
    ) -> bool {
        let before = self.rows.get(id);
        if before.is_some_and(|row| row.connection > hello.connection) {
            self.outdated += 1;
            return false;
        }
        let about = About {
            environment: hello.environment.clone(),
            identity: identity.map(Into::into),
            labels: hello.labels.clone(),
            build: hello.build.clone(),
            peer: peer.into(),
            replica: self.replica.clone(),
            joined_unix: self.unix(now),
        };
        let mut row = Row::new(id.clone(), Arc::new(about), hello.connection, now);
        row.applied = hello.held.clone();
        // What an earlier connection of this very process said of the disk stays true; a hello says nothing of it.
        row.durable = before.and_then(|row| row.durable.clone());
        row.refused = before.and_then(|row| row.refused.clone());
        if let Some(known) = self.known_rejects(hello) {
            row.rejects = known;
            row.rejects_known = true;
        }
        let replaced: Vec<RowId> = self
            .of_node(&id.node_id)
            .filter(|other| other.id != *id && other.about.environment == hello.environment)
            .filter(|other| other.state != RowState::Live)
            .map(|other| other.id.clone())
            .collect();
        for other in replaced {
            self.rows.remove(&other);
        }
        self.rows.insert(id.clone(), Arc::new(row));
        self.membership += 1;
        true
    }

    fn known_rejects(&self, hello: &Hello) -> Option<Arc<BTreeMap<Key, Reject>>> {
        if hello.rejects_count == 0 {
            return Some(Arc::default());
        }
        self.of_node(&hello.node_id)
            .filter(|row| row.rejects_known && row.about.environment == hello.environment)
            .find(|row| {
                row.rejects.len() as u64 == hello.rejects_count
                    && Reject::set_hash(row.rejects.values()) == hello.rejects_hash
            })
            .map(|row| row.rejects.clone())
    }

    fn of_node(&self, node_id: &Arc<str>) -> impl Iterator<Item = &Arc<Row>> {
        let first = RowId { node_id: node_id.clone(), instance: "".into() };
        let node_id = node_id.clone();
        self.rows.range(first..).map(|(_, row)| row).take_while(move |row| row.id.node_id == node_id)
    }

    fn is_retained(&self, since: Duration, now: Duration) -> bool {
        now.saturating_sub(since) < self.lost_retention
    }
}

/// Why a row was not forgotten.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForgetError {
    /// No such row.
    #[error("no node {} with the instance {} is known", .0.node_id, .0.instance)]
    Unknown(RowId),
    /// Its session is open.
    #[error("node {} ({}) is connected: only a lost node can be forgotten", .0.node_id, .0.instance)]
    Live(RowId),
}

// === impl Row ===

impl Row {
    fn new(id: RowId, about: Arc<About>, connection: u64, now: Duration) -> Self {
        Self {
            id,
            about,
            connection,
            state: RowState::Live,
            heard: now,
            applied: None,
            durable: None,
            in_flight: None,
            rejects: Arc::default(),
            rejects_known: false,
            refused: None,
            held_ahead: false,
            degraded: false,
        }
    }

    /// The revision of what it applied.
    #[must_use]
    pub fn applied_revision(&self) -> Option<Revision> {
        self.applied.as_ref().map(|version| version.revision)
    }

    fn take(&mut self, happened: Happened, now: Duration) {
        if let Happened::Left { bye, reason } = happened {
            self.in_flight = None;
            self.state = match bye {
                Some(Bye::Leaving) => RowState::Left { since: now },
                Some(Bye::Moving) | None => RowState::Lost { since: now, reason: reason.into() },
            };
            return;
        }
        self.heard = now;
        match happened {
            Happened::Acked(ack) => self.acked(ack),
            Happened::Rejects(rejects) => self.rejected(rejects),
            Happened::Refused(refused) => {
                self.in_flight = None;
                self.applied = refused.held.clone();
                self.refused = Some(refused);
            }
            Happened::Transferring { target, reason } => self.in_flight = Some((target, reason)),
            Happened::Standing { held_ahead, degraded } => {
                self.held_ahead = held_ahead;
                self.degraded = degraded;
            }
            Happened::Heard | Happened::Joined { .. } | Happened::Left { .. } => {}
        }
    }

    fn acked(&mut self, ack: Ack) {
        self.applied = ack.applied;
        self.durable = ack.durable;
        if self.in_flight.as_ref().is_some_and(|(target, _)| self.applied.as_ref() == Some(target)) {
            self.in_flight = None;
        }
        let taken = |refused: &Refused| {
            self.applied.as_ref().is_some_and(|applied| applied.cmp_position(&refused.target).is_ge())
        };
        if self.refused.as_ref().is_some_and(taken) {
            self.refused = None;
        }
    }

    fn rejected(&mut self, rejects: Rejects) {
        let set = Arc::make_mut(&mut self.rejects);
        if rejects.full {
            set.clear();
            self.rejects_known = true;
        }
        for key in &rejects.cleared {
            set.remove(key);
        }
        set.extend(rejects.rejected.into_iter().map(|reject| (reject.key.clone(), reject)));
    }

    const fn ended(&self) -> Option<Duration> {
        match self.state {
            RowState::Live => None,
            RowState::Lost { since, .. } | RowState::Left { since } => Some(since),
        }
    }
}
