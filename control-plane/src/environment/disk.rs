//! The environment's last known good on disk: what a core becomes in the file, and the core that a file becomes.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use headwater_durable::Keys;
use headwater_model::Revision;
use headwater_model::guard::Removal;
use headwater_model::shape::{Shape, classify};
use imbl::OrdMap;

use super::core::{Core, Keep};
use super::keeper::{File, Job};
use crate::approval;
use crate::backend::KeyEvent;
use crate::fleet::{Expected, Fleet, Registry, RowId, RowState};
use crate::hold::{Hold, Standing};
use crate::last_known_good::{
    self, Group, HoldChange, LastKnownGood, Marks, RosterRow, Saved, SavedHold, World,
};
use crate::store::Snapshot;

/// How old, in seconds, the file's word on when a node was last seen may be.
const SEEN_WITHIN: u64 = 60;

/// The file of one environment, with the fleet whose roster it keeps along.
pub struct Disk {
    file: LastKnownGood,
    environment: Arc<str>,
    fleet: Fleet,
    /// The membership and the minute at which the file's roster was last brought up to date.
    roster_of: Option<(u64, u64)>,
}

/// An opened file and what it held.
pub struct Found {
    /// The file, to be written by a [`Disk`].
    pub file: LastKnownGood,
    /// The core to start with: of the file, or empty.
    pub core: Core,
    /// The nodes that are expected.
    pub expected: Vec<Expected>,
    /// What was wrong with the file and what was done about it, a sentence each.
    pub faults: Vec<String>,
}

/// Opens an environment's file.
///
/// # Errors
/// When the device fails to read; a damaged or foreign file is set aside and named among the faults.
pub fn open(
    path: &Path,
    prefix: &str,
    environment: &Arc<str>,
    keys: &Keys,
    now_unix: u64,
) -> Result<Found, last_known_good::Error> {
    let (file, opened) = LastKnownGood::open(path, prefix, keys)?;
    let (core, expected) = match opened.saved {
        Some(saved) => resume(saved, environment, now_unix),
        None => (Core::new(prefix.into(), now_unix), Vec::new()),
    };
    Ok(Found { file, core, expected, faults: opened.faults })
}

// === impl Disk ===

impl Disk {
    /// Writes an environment's jobs to an opened file.
    #[must_use]
    pub const fn new(file: LastKnownGood, environment: Arc<str>, fleet: Fleet) -> Self {
        Self { file, environment, fleet, roster_of: None }
    }

    /// What the file's roster lacks: who came and went, at once, and when nodes were last seen, once a minute. A
    /// change of the content moves every node's row, and must cost the disk its own size all the same.
    fn roster_changes(&mut self) -> Vec<(RowId, Option<RosterRow>)> {
        let registry = self.fleet.registry();
        let of = (registry.membership(), registry.unix(self.fleet.now()) / SEEN_WITHIN);
        if self.roster_of.replace(of) == Some(of) {
            return Vec::new();
        }
        let (before, now) = (&self.file.saved().roster, self.roster());
        let is_old = |old: &RosterRow, new: &RosterRow| {
            old.left != new.left || new.last_seen_unix >= old.last_seen_unix + SEEN_WITHIN
        };
        let differs = |(id, row): &(&RowId, &RosterRow)| before.get(*id).is_none_or(|old| is_old(old, row));
        let changed = now.iter().filter(differs).map(|(id, row)| (id.clone(), Some(row.clone())));
        let gone = before.keys().filter(|id| !now.contains_key(*id)).map(|id| (id.clone(), None));
        changed.chain(gone).collect()
    }

    fn roster(&self) -> OrdMap<RowId, RosterRow> {
        roster(&self.fleet.registry(), &self.environment)
    }
}

impl File for Disk {
    fn write(&mut self, job: &Job) -> Result<(), String> {
        if !self.file.is_writer() && self.file.take_over().map_err(|error| error.to_string())?.is_none() {
            return Err("another process writes the file: it is taken over when that one ends".to_owned());
        }
        let written = match &job.keep {
            Keep::Nothing => return Ok(()),
            Keep::Revision => {
                let changes = self.roster_changes();
                self.file.append(&group(job, &[], changes))
            }
            Keep::Events(events) => {
                let changes = self.roster_changes();
                self.file.append(&group(job, events, changes))
            }
            Keep::Everything => self.file.save_full(&saved(job, self.roster())),
        };
        // A file that was in doubt, or of another writer, is brought to the whole state.
        let written = match written {
            Err(_) if job.keep != Keep::Everything => self.file.save_full(&saved(job, self.roster())),
            written => written,
        };
        written.and_then(|()| self.file.sync()).map_err(|error| error.to_string())
    }
}

/// The rows of an environment's nodes, as the file keeps them.
#[must_use]
pub fn roster(registry: &Registry, environment: &str) -> OrdMap<RowId, RosterRow> {
    let rows = registry.rows().filter(|row| *row.about.environment == *environment);
    rows.map(|row| {
        let saved = RosterRow {
            last_seen_unix: registry.unix(row.heard),
            applied: row.applied.clone(),
            left: matches!(row.state, RowState::Left { .. }),
            forgotten: false,
        };
        (row.id.clone(), saved)
    })
    .collect()
}

/// What a file that holds `before` holds after a job.
#[must_use]
pub fn after(before: &Saved, job: &Job, roster: OrdMap<RowId, RosterRow>) -> Saved {
    let events = match &job.keep {
        Keep::Nothing => return before.clone(),
        Keep::Revision => &[][..],
        Keep::Events(events) => events,
        Keep::Everything => return saved(job, roster),
    };
    let mut after = before.clone();
    after.apply(&group(job, events, Vec::new()));
    after.roster = roster;
    after
}

fn group(job: &Job, events: &[KeyEvent], roster: Vec<(RowId, Option<RosterRow>)>) -> Group {
    let snapshot = &job.snapshot;
    let mut group = Group {
        version: snapshot.version().clone(),
        deletions_known_since: snapshot.deletions_known_since(),
        gaps: snapshot.gaps().to_vec(),
        deletes: Vec::new(),
        puts: Vec::new(),
        others: Vec::new(),
        hold: HoldChange::None,
        roster,
    };
    for event in events {
        let Shape::Content(key) = classify(event.key()) else {
            let marks = job.others.get(event.key()).map(|revisions| marks(job, event.key(), *revisions));
            group.others.push((event.key().clone(), marks));
            continue;
        };
        if let Some(held) = snapshot.held(key.as_str()) {
            group.puts.push((held.resource.clone(), held.changed_at));
        } else if let Some(revision) = snapshot.tombstone(key.as_str()) {
            group.deletes.push((key, revision));
        }
    }
    group
}

/// The core that a saved state goes on as, and the nodes that are expected.
#[must_use]
pub fn resume(saved: Saved, environment: &Arc<str>, now_unix: u64) -> (Core, Vec<Expected>) {
    let snapshot = snapshot(&saved.world);
    let standing = saved.hold.map(|hold| {
        let frozen = self::snapshot(&hold.frozen);
        Standing {
            removal: Removal::between(frozen.content(), snapshot.content()),
            frozen,
            since_unix: hold.since_unix,
            to: snapshot.version().clone(),
            rejected: hold.rejected,
        }
    });
    let others =
        saved.others.iter().map(|(key, marks)| (key.clone(), (marks.create_revision, marks.mod_revision)));
    let approvals = saved.others.iter().filter_map(|(key, marks)| {
        let id = approval::id(key).filter(|_| !marks.value.is_empty())?;
        approval::decode(id, &marks.value).ok()
    });
    let hold = Hold::resume(standing, approvals);
    let core = Core::resume(snapshot, hold, others.collect(), now_unix);
    let expected = saved.roster.iter().filter(|(_, row)| !row.left && !row.forgotten).map(|(id, row)| {
        Expected { row: id.clone(), environment: environment.clone(), seen_unix: row.last_seen_unix }
    });
    (core, expected.collect())
}

fn saved(job: &Job, roster: OrdMap<RowId, RosterRow>) -> Saved {
    Saved {
        world: world(&job.snapshot),
        others: job.others.iter().map(|(key, at)| (key.clone(), marks(job, key, *at))).collect(),
        hold: job.hold.as_ref().map(|standing| SavedHold {
            frozen: world(&standing.frozen),
            since_unix: standing.since_unix,
            rejected: standing.rejected,
        }),
        roster,
    }
}

/// What is kept of a key that is no content: of an approval the value too, which a start without a reload has from
/// nowhere else.
fn marks(job: &Job, key: &Bytes, (create_revision, mod_revision): (Revision, Revision)) -> Marks {
    let approval = approval::id(key).and_then(|id| job.approvals.get(id));
    Marks { create_revision, mod_revision, value: approval.map(approval::encode).unwrap_or_default() }
}

fn world(snapshot: &Snapshot) -> World {
    World {
        version: snapshot.version().clone(),
        content: snapshot.content().clone(),
        changed_at: snapshot.all_held().map(|held| (held.resource.key().clone(), held.changed_at)).collect(),
        tombstones: snapshot.tombstones().map(|(key, revision)| (key.clone(), revision)).collect(),
        deletions_known_since: snapshot.deletions_known_since(),
        gaps: snapshot.gaps().to_vec(),
    }
}

fn snapshot(world: &World) -> Snapshot {
    let resources = world.content.iter().map(|resource| {
        let changed_at = world.changed_at.get(resource.key()).copied();
        (resource.clone(), changed_at.unwrap_or_else(|| resource.mod_revision()))
    });
    let tombstones = world.tombstones.iter().map(|(key, revision)| (key.clone(), *revision));
    Snapshot::from_parts(
        world.version.clone(),
        resources,
        tombstones,
        world.deletions_known_since,
        world.gaps.clone(),
    )
}

#[cfg(test)]
mod tests;
