//! Writing: the rows that lead from one state to another, collected into records of a moderate size.

use headwater_durable::{Error, GroupWriter};
use headwater_model::Resource;
use headwater_model::diff::diff;
use imbl::ordmap::DiffItem;
use prost::Message;

use super::record::{
    GapRow, Header, HoldRow, NodeRow, OtherRow, Position, Record, Row, Stamp, VersionRow, WorldRows,
};
use super::{Saved, SavedHold, World};

/// About how large a record becomes before the next one is begun.
const RECORD_BYTES: usize = 256 << 10;

/// What a row costs beside its key and value, at most.
const ROW_BYTES: usize = 48;

/// Collects the rows of one group.
pub(super) struct Rows<'a, 'b> {
    group: &'a mut GroupWriter<'b>,
    record: Record,
    bytes: usize,
}

/// Which of the two worlds a row is of.
#[derive(Clone, Copy)]
enum Which {
    World,
    Frozen,
}

// === impl Rows ===

impl<'a, 'b> Rows<'a, 'b> {
    pub(super) fn new(group: &'a mut GroupWriter<'b>) -> Self {
        Self { group, record: Record::default(), bytes: 0 }
    }

    pub(super) fn header(&mut self, header: Header) {
        self.record.header = Some(header);
    }

    /// Writes what leads from one state to another, and ends the group.
    pub(super) fn difference(mut self, from: &Saved, to: &Saved) -> Result<(), Error> {
        self.hold(from, to)?;
        self.world(Which::World, &from.world, &to.world)?;
        for item in from.others.diff(&to.others) {
            let row = match item {
                DiffItem::Add(key, marks) | DiffItem::Update { new: (key, marks), .. } => {
                    OtherRow::new(key, Some(marks))
                }
                DiffItem::Remove(key, _) => OtherRow::new(key, None),
            };
            let bytes = row.key.len();
            self.record.others.push(row);
            self.grow(bytes)?;
        }
        for item in from.roster.diff(&to.roster) {
            let row = match item {
                DiffItem::Add(id, row) | DiffItem::Update { new: (id, row), .. } => {
                    NodeRow::new(id, Some(row))
                }
                DiffItem::Remove(id, _) => NodeRow::new(id, None),
            };
            let bytes = row.encoded_len();
            self.record.roster.push(row);
            self.grow(bytes)?;
        }
        self.rows(Which::World).position = Some(position(&to.world));
        self.flush()
    }

    fn hold(&mut self, from: &Saved, to: &Saved) -> Result<(), Error> {
        if from.hold == to.hold {
            return Ok(());
        }
        let Some(hold) = &to.hold else {
            self.record.hold = Some(HoldRow::default());
            return Ok(());
        };
        let SavedHold { frozen, since_unix, rejected } = hold;
        self.record.hold = Some(HoldRow { stands: true, since_unix: *since_unix, rejected: *rejected });
        let base = from.hold.as_ref().map_or(&from.world, |hold| &hold.frozen);
        self.world(Which::Frozen, base, frozen)?;
        self.rows(Which::Frozen).position = Some(position(frozen));
        self.flush()
    }

    fn world(&mut self, which: Which, from: &World, to: &World) -> Result<(), Error> {
        let changes = diff(&from.content, &to.content);
        for key in &changes.deletes {
            self.rows(which).deletes.push(key.as_str().to_owned());
            self.grow(key.as_str().len())?;
        }
        for resource in &changes.puts {
            let row = Row::new(resource, changed_at(to, resource));
            self.rows(which).puts.push(row);
            self.grow(resource.key().as_str().len() + resource.value().len())?;
        }
        for item in from.changed_at.diff(&to.changed_at) {
            // A put carries its own stamp, and a deletion drops it.
            let (key, revision) = match item {
                DiffItem::Add(key, revision) | DiffItem::Update { new: (key, revision), .. } => {
                    (key, revision)
                }
                DiffItem::Remove(..) => continue,
            };
            if changes.puts.binary_search_by(|resource| resource.key().cmp(key)).is_err() {
                self.rows(which).stamps.push(Stamp::new(key, *revision));
                self.grow(key.as_str().len())?;
            }
        }
        for item in from.tombstones.diff(&to.tombstones) {
            let key = match item {
                DiffItem::Add(key, revision) | DiffItem::Update { new: (key, revision), .. } => {
                    self.rows(which).tombstones.push(Stamp::new(key, *revision));
                    key
                }
                DiffItem::Remove(key, _) => {
                    self.rows(which).unburied.push(key.as_str().to_owned());
                    key
                }
            };
            self.grow(key.as_str().len())?;
        }
        Ok(())
    }

    fn rows(&mut self, which: Which) -> &mut WorldRows {
        match which {
            Which::World => self.record.world.get_or_insert_default(),
            Which::Frozen => self.record.frozen.get_or_insert_default(),
        }
    }

    fn grow(&mut self, bytes: usize) -> Result<(), Error> {
        self.bytes += bytes + ROW_BYTES;
        if self.bytes >= RECORD_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.bytes = 0;
        self.group.record(&std::mem::take(&mut self.record).encode_to_vec())
    }
}

fn changed_at(world: &World, resource: &Resource) -> headwater_model::Revision {
    world.changed_at.get(resource.key()).copied().unwrap_or_else(|| resource.mod_revision())
}

fn position(world: &World) -> Position {
    Position {
        version: Some(VersionRow::from(&world.version)),
        deletions_known_since: world.deletions_known_since.0,
        gaps: world.gaps.iter().map(GapRow::from).collect(),
    }
}
