//! The state that the file's groups fold to.

use std::sync::Arc;

use headwater_durable::{Error, Fold, GroupWriter, Refused};
use headwater_model::digest::DIGEST_SCHEME;
use headwater_model::{Resource, Revision, Version};
use prost::Message;

use super::record::{Header, HoldRow, InvalidRow, Record, WorldRows, key};
use super::rows::Rows;
use super::{Gap, RosterRow, Saved, SavedHold, World};

/// What a row costs beside its value, roughly.
const ROW_BYTES: u64 = 64;

#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) saved: Saved,
    /// Whether there was any group.
    pub(super) present: bool,
}

// === impl State ===

impl State {
    pub(super) fn empty(prefix: Arc<str>) -> Self {
        Self { saved: Saved::empty(prefix), present: false }
    }

    pub(super) const fn prefix(&self) -> &Arc<str> {
        &self.saved.world.version.lineage.prefix
    }

    fn start(&mut self, header: &Header) -> Result<(), Refused> {
        if *header.prefix != **self.prefix() {
            let why = format!("it is of the prefix \"{}\"", header.prefix);
            return Err(Refused::Foreign("other-environment", why));
        }
        if header.digest_scheme != DIGEST_SCHEME {
            let why = format!("its digests are of scheme {}, known is {DIGEST_SCHEME}", header.digest_scheme);
            return Err(Refused::Foreign("other-digest-scheme", why));
        }
        *self = Self::empty(self.prefix().clone());
        Ok(())
    }

    /// Applies a record and answers whether it ended the group.
    fn apply_record(&mut self, record: Record) -> Result<bool, InvalidRow> {
        let saved = &mut self.saved;
        if let Some(row) = record.hold {
            saved.hold = hold(row, saved);
        }
        let ends = record.world.as_ref().is_some_and(|rows| rows.position.is_some());
        if let Some(rows) = record.frozen {
            saved.hold.as_mut().ok_or(InvalidRow::Missing)?.frozen.apply_rows(rows)?;
        }
        if let Some(rows) = record.world {
            saved.world.apply_rows(rows)?;
        }
        for row in record.others {
            match row.gone {
                true => drop(saved.others.remove(&row.key)),
                false => drop(saved.others.insert(row.key.clone(), row.marks())),
            }
        }
        for row in record.roster {
            match row.gone {
                true => drop(saved.roster.remove(&row.id())),
                false => drop(saved.roster.insert(row.id(), RosterRow::try_from(row)?)),
            }
        }
        Ok(ends)
    }
}

/// The hold after a row. One that begins freezes the world as it was before the group.
fn hold(row: HoldRow, saved: &mut Saved) -> Option<SavedHold> {
    let before = saved.hold.take();
    row.stands.then(|| SavedHold {
        frozen: before.map_or_else(|| saved.world.clone(), |hold| hold.frozen),
        since_unix: row.since_unix,
        rejected: row.rejected,
    })
}

// === impl World ===

impl World {
    fn apply_rows(&mut self, rows: WorldRows) -> Result<(), InvalidRow> {
        for text in rows.deletes {
            self.content.delete(&text);
            self.changed_at.remove(text.as_str());
        }
        for row in rows.puts {
            let changed_at = Revision(row.changed_at);
            let resource = Resource::try_from(row)?;
            self.changed_at.insert(resource.key().clone(), changed_at);
            self.content.put(Arc::new(resource));
        }
        for stamp in rows.stamps {
            self.changed_at.insert(key(stamp.key)?, Revision(stamp.revision));
        }
        for stamp in rows.tombstones {
            self.tombstones.insert(key(stamp.key)?, Revision(stamp.revision));
        }
        for text in rows.unburied {
            self.tombstones.remove(text.as_str());
        }
        if let Some(position) = rows.position {
            self.gaps = position.gaps.into_iter().map(Gap::from).collect();
            self.version = Version::try_from(position.version.ok_or(InvalidRow::Missing)?)?;
            self.deletions_known_since = Revision(position.deletions_known_since);
        }
        Ok(())
    }
}

// === impl Fold ===

impl Fold for State {
    fn write_full(&self, group: &mut GroupWriter<'_>) -> Result<(), Error> {
        let mut rows = Rows::new(group);
        rows.header(Header { prefix: self.prefix().to_string(), digest_scheme: DIGEST_SCHEME });
        rows.difference(&Saved::empty(self.prefix().clone()), &self.saved)
    }

    fn write_difference(&self, to: &Self, group: &mut GroupWriter<'_>) -> Result<(), Error> {
        if self.saved == to.saved { Ok(()) } else { Rows::new(group).difference(&self.saved, &to.saved) }
    }

    fn apply(&mut self, records: &[Vec<u8>]) -> Result<(), Refused> {
        let invalid = |error: InvalidRow| Refused::Invalid(error.to_string());
        let prefix = self.prefix().clone();
        let mut ended = false;
        for (index, payload) in records.iter().enumerate() {
            // Decoded into memory of its own: a value must not keep the record it came in alive.
            let record = Record::decode(&payload[..]).map_err(|error| invalid(error.into()))?;
            match &record.header {
                Some(header) => self.start(header)?,
                None if index == 0 && !self.present => {
                    return Err(Refused::Invalid("it does not say whose it is".to_owned()));
                }
                None => {}
            }
            ended = self.apply_record(record).map_err(invalid)?;
        }
        let worlds = [Some(&self.saved.world), self.saved.hold.as_ref().map(|hold| &hold.frozen)];
        for world in worlds.into_iter().flatten() {
            world.check(&prefix).map_err(|error| Refused::Invalid(error.to_string()))?;
        }
        if !ended {
            return Err(Refused::Invalid("a group has no version".to_owned()));
        }
        self.present = true;
        Ok(())
    }

    fn live_bytes(&self) -> u64 {
        let world = |world: &World| {
            world.content.value_bytes() + (world.content.len() + world.tombstones.len()) as u64 * ROW_BYTES
        };
        let rows = (self.saved.others.len() + 2 * self.saved.roster.len()) as u64 * ROW_BYTES;
        world(&self.saved.world) + self.saved.hold.as_ref().map_or(0, |hold| world(&hold.frozen)) + rows
    }
}
