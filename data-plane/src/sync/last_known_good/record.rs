//! The records of the file. Wire types of the disk: they die in this module's conversions.
//!
//! A group is one or more records; the last one has the version. A record with a header starts from nothing. Within a
//! record the order is: header, deletes, puts, released, retained, version.

use std::sync::Arc;

use bytes::Bytes;
use headwater_durable::{Error, GroupWriter};
use headwater_model::shape::{Shape, classify};
use headwater_model::{Digest, Generation, Key, Lineage, Resource, Revision, Version};
use prost::Message;

use super::Retained;

/// About how large a record becomes before the next one is begun.
const RECORD_BYTES: usize = 256 << 10;

#[derive(Clone, PartialEq, Message)]
pub(super) struct Record {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
    #[prost(string, repeated, tag = "2")]
    pub(super) deletes: Vec<String>,
    #[prost(message, repeated, tag = "3")]
    pub(super) puts: Vec<Row>,
    /// Keys that are no longer retained.
    #[prost(string, repeated, tag = "4")]
    pub(super) released: Vec<String>,
    #[prost(message, repeated, tag = "5")]
    pub(super) retained: Vec<RetainedRow>,
    #[prost(message, optional, tag = "6")]
    pub(super) version: Option<VersionRow>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Header {
    #[prost(string, tag = "1")]
    pub(super) environment: String,
    #[prost(uint32, tag = "2")]
    pub(super) digest_scheme: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Row {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(uint64, tag = "2")]
    create_revision: u64,
    #[prost(uint64, tag = "3")]
    mod_revision: u64,
    #[prost(bytes = "bytes", tag = "4")]
    value: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RetainedRow {
    #[prost(message, optional, tag = "1")]
    served: Option<Row>,
    #[prost(uint64, tag = "2")]
    rejected: u64,
    #[prost(uint64, tag = "3")]
    since_unix: u64,
    #[prost(message, repeated, tag = "4")]
    references: Vec<Row>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct VersionRow {
    #[prost(fixed64, tag = "1")]
    cluster_id: u64,
    #[prost(string, tag = "2")]
    prefix: String,
    #[prost(uint64, tag = "3")]
    generation: u64,
    #[prost(uint64, tag = "4")]
    revision: u64,
    #[prost(bytes = "bytes", tag = "5")]
    digest: Bytes,
}

/// A row that no writer of this format wrote; says what is wrong with it.
#[derive(Debug, thiserror::Error)]
pub(super) enum InvalidRow {
    #[error("a record cannot be decoded: {0}")]
    Undecodable(#[from] prost::DecodeError),
    #[error("{0:?} is no key of content")]
    Key(String),
    #[error("a part of a row is missing")]
    Missing,
}

/// Collects rows into records of a moderate size.
pub(super) struct Rows<'a, 'b> {
    group: &'a mut GroupWriter<'b>,
    record: Record,
    bytes: usize,
}

// === impl Record ===

impl Record {
    /// Decodes a record into memory of its own: a value must not keep the record it came in alive.
    pub(super) fn read(payload: &[u8]) -> Result<Self, InvalidRow> {
        Ok(Self::decode(payload)?)
    }
}

// === impl Rows ===

impl<'a, 'b> Rows<'a, 'b> {
    pub(super) fn new(group: &'a mut GroupWriter<'b>) -> Self {
        Self { group, record: Record::default(), bytes: 0 }
    }

    pub(super) fn header(&mut self, header: Header) {
        self.record.header = Some(header);
    }

    pub(super) fn delete(&mut self, key: &Key) -> Result<(), Error> {
        self.record.deletes.push(key.as_str().to_owned());
        self.grow(key.as_str().len())
    }

    pub(super) fn put(&mut self, resource: &Resource) -> Result<(), Error> {
        let row = Row::from(resource);
        let bytes = row.encoded_len();
        self.record.puts.push(row);
        self.grow(bytes)
    }

    pub(super) fn release(&mut self, key: &Key) -> Result<(), Error> {
        self.record.released.push(key.as_str().to_owned());
        self.grow(key.as_str().len())
    }

    pub(super) fn retain(&mut self, retained: &Retained) -> Result<(), Error> {
        let row = RetainedRow::from(retained);
        let bytes = row.encoded_len();
        self.record.retained.push(row);
        self.grow(bytes)
    }

    /// Ends the group.
    pub(super) fn version(mut self, version: &Version) -> Result<(), Error> {
        self.record.version = Some(VersionRow::from(version));
        self.flush()
    }

    fn grow(&mut self, bytes: usize) -> Result<(), Error> {
        self.bytes += bytes;
        if self.bytes >= RECORD_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.bytes = 0;
        self.group.record(&std::mem::take(&mut self.record).encode_to_vec())
    }
}

// === conversions ===

impl From<&Resource> for Row {
    fn from(resource: &Resource) -> Self {
        Self {
            key: resource.key().as_str().to_owned(),
            create_revision: resource.create_revision().0,
            mod_revision: resource.mod_revision().0,
            value: resource.value().clone(),
        }
    }
}

impl TryFrom<Row> for Resource {
    type Error = InvalidRow;

    fn try_from(row: Row) -> Result<Self, InvalidRow> {
        let (created, modified) = (Revision(row.create_revision), Revision(row.mod_revision));
        Ok(Self::new(key(row.key)?, row.value, created, modified))
    }
}

impl From<&Retained> for RetainedRow {
    fn from(retained: &Retained) -> Self {
        Self {
            served: Some(Row::from(&*retained.served)),
            rejected: retained.rejected.0,
            since_unix: retained.since_unix,
            references: retained.references.iter().map(|reference| Row::from(&**reference)).collect(),
        }
    }
}

impl TryFrom<RetainedRow> for Retained {
    type Error = InvalidRow;

    fn try_from(row: RetainedRow) -> Result<Self, InvalidRow> {
        let references = row.references.into_iter().map(|row| row.try_into().map(Arc::new));
        Ok(Self {
            served: Arc::new(row.served.ok_or(InvalidRow::Missing)?.try_into()?),
            rejected: Revision(row.rejected),
            since_unix: row.since_unix,
            references: references.collect::<Result<_, _>>()?,
        })
    }
}

impl From<&Version> for VersionRow {
    fn from(version: &Version) -> Self {
        Self {
            cluster_id: version.lineage.cluster_id,
            prefix: version.lineage.prefix.to_string(),
            generation: version.lineage.generation.0,
            revision: version.revision.0,
            digest: Bytes::copy_from_slice(&version.digest.to_bytes()),
        }
    }
}

impl TryFrom<VersionRow> for Version {
    type Error = InvalidRow;

    fn try_from(row: VersionRow) -> Result<Self, InvalidRow> {
        let generation = Generation(row.generation);
        Ok(Self {
            lineage: Lineage { cluster_id: row.cluster_id, prefix: row.prefix.into(), generation },
            revision: Revision(row.revision),
            digest: Digest::from_bytes(&row.digest).ok_or(InvalidRow::Missing)?,
        })
    }
}

/// A key as a record names it.
pub(super) fn key(text: String) -> Result<Key, InvalidRow> {
    match classify(text.as_bytes()) {
        Shape::Content(key) => Ok(key),
        Shape::Ignored(_) => Err(InvalidRow::Key(text)),
    }
}
