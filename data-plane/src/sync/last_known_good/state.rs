//! The state that the file's groups fold to.

use std::sync::Arc;

use headwater_durable::{Error, Fold, GroupWriter, Refused};
use headwater_model::diff::diff;
use headwater_model::digest::DIGEST_SCHEME;
use headwater_model::{Content, Key, Version};
use imbl::OrdMap;
use imbl::ordmap::DiffItem;

use super::record::{Header, InvalidRow, Record, Rows, key};
use super::{Group, Retained};

/// What a row costs beside its value, roughly.
const ROW_BYTES: u64 = 48;

#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) environment: Arc<str>,
    /// Nothing before the first group.
    pub(super) version: Option<Version>,
    pub(super) content: Content,
    pub(super) retained: OrdMap<Key, Arc<Retained>>,
}

// === impl State ===

impl State {
    pub(super) fn empty(environment: &str) -> Self {
        Self {
            environment: environment.into(),
            version: None,
            content: Content::new(),
            retained: OrdMap::new(),
        }
    }

    /// The state that a caller asks for.
    pub(super) fn changed_to(&self, group: &Group) -> Self {
        let retained = group.retained.iter().map(|retained| (retained.served.key().clone(), retained));
        Self {
            environment: self.environment.clone(),
            version: Some(group.version.clone()),
            content: group.content.clone(),
            retained: retained.map(|(key, retained)| (key, Arc::new(retained.clone()))).collect(),
        }
    }

    fn start(&mut self, header: &Header) -> Result<(), Refused> {
        if *header.environment != *self.environment {
            let why = format!("it is of the environment \"{}\"", header.environment);
            return Err(Refused::Foreign("other-environment", why));
        }
        if header.digest_scheme != DIGEST_SCHEME {
            let why = format!("its digests are of scheme {}, known is {DIGEST_SCHEME}", header.digest_scheme);
            return Err(Refused::Foreign("other-digest-scheme", why));
        }
        *self = Self::empty(&self.environment);
        Ok(())
    }

    fn apply_rows(&mut self, record: Record) -> Result<Option<Version>, InvalidRow> {
        for text in record.deletes {
            self.content.delete(&text);
        }
        for row in record.puts {
            self.content.put(Arc::new(row.try_into()?));
        }
        for text in record.released {
            self.retained.remove(&key(text)?);
        }
        for row in record.retained {
            let retained = Retained::try_from(row)?;
            self.retained.insert(retained.served.key().clone(), Arc::new(retained));
        }
        record.version.map(Version::try_from).transpose()
    }
}

// === impl Fold ===

impl Fold for State {
    fn write_full(&self, group: &mut GroupWriter<'_>) -> Result<(), Error> {
        let mut rows = Rows::new(group);
        rows.header(Header { environment: self.environment.to_string(), digest_scheme: DIGEST_SCHEME });
        Self::empty(&self.environment).write_rows(self, rows)
    }

    fn write_difference(&self, to: &Self, group: &mut GroupWriter<'_>) -> Result<(), Error> {
        // A retained value may change while the version stands.
        let same = self.version == to.version && self.content == to.content && self.retained == to.retained;
        if same { Ok(()) } else { self.write_rows(to, Rows::new(group)) }
    }

    fn apply(&mut self, records: &[Vec<u8>]) -> Result<(), Refused> {
        let invalid = |error: InvalidRow| Refused::Invalid(error.to_string());
        let mut version = None;
        for (index, payload) in records.iter().enumerate() {
            let record = Record::read(payload).map_err(invalid)?;
            match &record.header {
                Some(header) => self.start(header)?,
                None if index == 0 && self.version.is_none() => {
                    return Err(Refused::Invalid("it does not say whose it is".to_owned()));
                }
                None => {}
            }
            version = self.apply_rows(record).map_err(invalid)?;
        }
        let Some(version) = version else {
            return Err(Refused::Invalid("a group has no version".to_owned()));
        };
        if self.content.digest() != version.digest {
            let found = self.content.digest();
            return Err(Refused::Invalid(format!("the content's digest {found} is not that of {version:?}")));
        }
        self.version = Some(version);
        Ok(())
    }

    fn live_bytes(&self) -> u64 {
        let retained = self.retained.values().map(|retained| {
            let references = retained.references.iter().map(|reference| reference.value().len() as u64);
            retained.served.value().len() as u64 + references.sum::<u64>()
        });
        self.content.value_bytes() + self.content.len() as u64 * ROW_BYTES + retained.sum::<u64>()
    }
}

// === writing ===

impl State {
    fn write_rows(&self, to: &Self, mut rows: Rows<'_, '_>) -> Result<(), Error> {
        let Some(version) = &to.version else { return Ok(()) };
        let changes = diff(&self.content, &to.content);
        changes.deletes.iter().try_for_each(|key| rows.delete(key))?;
        changes.puts.iter().try_for_each(|resource| rows.put(resource))?;
        for item in self.retained.diff(&to.retained) {
            match item {
                DiffItem::Add(_, retained) | DiffItem::Update { new: (_, retained), .. } => {
                    rows.retain(retained)?;
                }
                DiffItem::Remove(key, _) => rows.release(key)?,
            }
        }
        rows.version(version)
    }
}
