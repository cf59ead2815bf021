//! The environment's last known good on disk: what a core becomes in the file, and the core that a file becomes.

use std::path::Path;
use std::sync::Arc;

use headwater_model::guard::Removal;
use headwater_model::shape::{Shape, classify};
use imbl::OrdMap;

use super::core::{Core, Keep};
use super::keeper::{File, Job};
use crate::backend::KeyEvent;
use crate::fleet::{Expected, Fleet, RowState};
use crate::hold::{Hold, Standing};
use crate::last_known_good::{
    self, Group, HoldChange, LastKnownGood, Marks, RosterRow, Saved, SavedHold, World,
};
use crate::store::Snapshot;

/// The file of one environment, with the fleet whose roster it keeps along.
pub struct Disk {
    file: LastKnownGood,
    environment: Arc<str>,
    fleet: Fleet,
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
    now_unix: u64,
) -> Result<Found, last_known_good::Error> {
    let (file, opened) = LastKnownGood::open(path, prefix)?;
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
        Self { file, environment, fleet }
    }

    fn roster(&self) -> OrdMap<crate::fleet::RowId, RosterRow> {
        let registry = self.fleet.registry();
        let rows = registry.rows().filter(|row| row.about.environment == self.environment);
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

    fn group(&self, job: &Job, events: &[KeyEvent]) -> Group {
        let snapshot = &job.snapshot;
        let mut group = Group {
            version: snapshot.version().clone(),
            deletions_known_since: snapshot.deletions_known_since(),
            unproven_at: snapshot.unproven_at(),
            deletes: Vec::new(),
            puts: Vec::new(),
            others: Vec::new(),
            hold: HoldChange::None,
            roster: Vec::new(),
        };
        for event in events {
            let Shape::Content(key) = classify(event.key()) else {
                let marks = job.others.get(event.key()).map(|(create_revision, mod_revision)| Marks {
                    create_revision: *create_revision,
                    mod_revision: *mod_revision,
                });
                group.others.push((event.key().clone(), marks));
                continue;
            };
            if let Some(held) = snapshot.held(key.as_str()) {
                group.puts.push((held.resource.clone(), held.changed_at));
            } else if let Some(revision) = snapshot.tombstone(key.as_str()) {
                group.deletes.push((key, revision));
            }
        }
        let (before, now) = (&self.file.saved().roster, self.roster());
        for (id, row) in &now {
            if before.get(id) != Some(row) {
                group.roster.push((id.clone(), Some(row.clone())));
            }
        }
        group.roster.extend(before.keys().filter(|id| !now.contains_key(*id)).map(|id| (id.clone(), None)));
        group
    }
}

impl File for Disk {
    fn write(&mut self, job: &Job) -> Result<(), String> {
        if !self.file.is_writer() && self.file.take_over().map_err(|error| error.to_string())?.is_none() {
            return Err("another process writes the file: it is taken over when that one ends".to_owned());
        }
        let written = match &job.keep {
            Keep::Nothing => return Ok(()),
            Keep::Revision => self.file.append(&self.group(job, &[])),
            Keep::Events(events) => self.file.append(&self.group(job, events)),
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
    let core = Core::resume(snapshot, Hold::resume(standing), others.collect(), now_unix);
    let expected = saved.roster.iter().filter(|(_, row)| !row.left && !row.forgotten).map(|(id, row)| {
        Expected { row: id.clone(), environment: environment.clone(), seen_unix: row.last_seen_unix }
    });
    (core, expected.collect())
}

fn saved(job: &Job, roster: OrdMap<crate::fleet::RowId, RosterRow>) -> Saved {
    let marks = |(key, (create, modified)): (&bytes::Bytes, &(_, _))| {
        (key.clone(), Marks { create_revision: *create, mod_revision: *modified })
    };
    Saved {
        world: world(&job.snapshot),
        others: job.others.iter().map(marks).collect(),
        hold: job.hold.as_ref().map(|standing| SavedHold {
            frozen: world(&standing.frozen),
            since_unix: standing.since_unix,
            rejected: standing.rejected,
        }),
        roster,
    }
}

fn world(snapshot: &Snapshot) -> World {
    World {
        version: snapshot.version().clone(),
        content: snapshot.content().clone(),
        changed_at: snapshot.all_held().map(|held| (held.resource.key().clone(), held.changed_at)).collect(),
        tombstones: snapshot.tombstones().map(|(key, revision)| (key.clone(), revision)).collect(),
        deletions_known_since: snapshot.deletions_known_since(),
        unproven_at: snapshot.unproven_at(),
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
        world.unproven_at,
    )
}

#[cfg(test)]
mod tests;
