//! The records of the file. Wire types of the disk: they die in this folder's conversions.
//!
//! A group is one or more records. A record with a header starts from nothing. Within a record the order is: header,
//! hold, world, frozen world, other keys, roster; the last one has the world's position, which ends the group.

use std::sync::Arc;

use bytes::Bytes;
use headwater_model::shape::{Shape, classify};
use headwater_model::{Digest, Generation, Key, Lineage, Resource, Revision, Version};

use super::{Marks, RosterRow};
use crate::fleet::registry::RowId;
use crate::store::Gap;

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Record {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
    #[prost(message, optional, tag = "2")]
    pub(super) hold: Option<HoldRow>,
    #[prost(message, optional, tag = "3")]
    pub(super) world: Option<WorldRows>,
    #[prost(message, optional, tag = "4")]
    pub(super) frozen: Option<WorldRows>,
    #[prost(message, repeated, tag = "5")]
    pub(super) others: Vec<OtherRow>,
    #[prost(message, repeated, tag = "6")]
    pub(super) roster: Vec<NodeRow>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Header {
    #[prost(string, tag = "1")]
    pub(super) prefix: String,
    #[prost(uint32, tag = "2")]
    pub(super) digest_scheme: u32,
}

/// The hold from here on. When one begins, its frozen world begins as the world is in the file before the group.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct HoldRow {
    #[prost(bool, tag = "1")]
    pub(super) stands: bool,
    #[prost(uint64, tag = "2")]
    pub(super) since_unix: u64,
    #[prost(bool, tag = "3")]
    pub(super) rejected: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct WorldRows {
    #[prost(string, repeated, tag = "1")]
    pub(super) deletes: Vec<String>,
    #[prost(message, repeated, tag = "2")]
    pub(super) puts: Vec<Row>,
    /// `changed_at` of resources that are not among the puts.
    #[prost(message, repeated, tag = "3")]
    pub(super) stamps: Vec<Stamp>,
    #[prost(message, repeated, tag = "4")]
    pub(super) tombstones: Vec<Stamp>,
    /// Keys that have no tombstone any more.
    #[prost(string, repeated, tag = "5")]
    pub(super) unburied: Vec<String>,
    #[prost(message, optional, tag = "6")]
    pub(super) position: Option<Position>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Row {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(uint64, tag = "2")]
    create_revision: u64,
    #[prost(uint64, tag = "3")]
    mod_revision: u64,
    #[prost(bytes = "bytes", tag = "4")]
    value: Bytes,
    #[prost(uint64, tag = "5")]
    pub(super) changed_at: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Stamp {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(uint64, tag = "2")]
    pub(super) revision: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Position {
    #[prost(message, optional, tag = "1")]
    pub(super) version: Option<VersionRow>,
    #[prost(uint64, tag = "2")]
    pub(super) deletions_known_since: u64,
    #[prost(message, repeated, tag = "5")]
    pub(super) gaps: Vec<GapRow>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct GapRow {
    #[prost(uint64, tag = "1")]
    from: u64,
    #[prost(uint64, tag = "2")]
    at: u64,
    #[prost(bool, tag = "3")]
    proven: bool,
}

// === impl GapRow ===

impl From<&Gap> for GapRow {
    fn from(gap: &Gap) -> Self {
        Self { from: gap.from.0, at: gap.at.0, proven: gap.proven }
    }
}

impl From<GapRow> for Gap {
    fn from(row: GapRow) -> Self {
        Self { from: Revision(row.from), at: Revision(row.at), proven: row.proven }
    }
}

#[derive(Clone, PartialEq, prost::Message)]
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

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct OtherRow {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
    #[prost(bool, tag = "2")]
    pub(super) gone: bool,
    #[prost(uint64, tag = "3")]
    create_revision: u64,
    #[prost(uint64, tag = "4")]
    mod_revision: u64,
    #[prost(bytes = "bytes", tag = "5")]
    value: Bytes,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct NodeRow {
    #[prost(string, tag = "1")]
    node_id: String,
    #[prost(string, tag = "2")]
    instance: String,
    #[prost(bool, tag = "3")]
    pub(super) gone: bool,
    #[prost(uint64, tag = "4")]
    last_seen_unix: u64,
    #[prost(message, optional, tag = "5")]
    applied: Option<VersionRow>,
    #[prost(bool, tag = "6")]
    left: bool,
    #[prost(bool, tag = "7")]
    forgotten: bool,
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

// === conversions ===

impl Row {
    pub(super) fn new(resource: &Resource, changed_at: Revision) -> Self {
        Self {
            key: resource.key().as_str().to_owned(),
            create_revision: resource.create_revision().0,
            mod_revision: resource.mod_revision().0,
            value: resource.value().clone(),
            changed_at: changed_at.0,
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

impl Stamp {
    pub(super) fn new(key: &Key, revision: Revision) -> Self {
        Self { key: key.as_str().to_owned(), revision: revision.0 }
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

impl OtherRow {
    pub(super) fn new(key: &Bytes, marks: Option<&Marks>) -> Self {
        Self {
            key: key.clone(),
            gone: marks.is_none(),
            create_revision: marks.map_or(0, |marks| marks.create_revision.0),
            mod_revision: marks.map_or(0, |marks| marks.mod_revision.0),
            value: marks.map_or_else(Bytes::new, |marks| marks.value.clone()),
        }
    }

    pub(super) fn marks(&self) -> Marks {
        Marks {
            create_revision: Revision(self.create_revision),
            mod_revision: Revision(self.mod_revision),
            value: self.value.clone(),
        }
    }
}

impl NodeRow {
    pub(super) fn new(id: &RowId, row: Option<&RosterRow>) -> Self {
        let (node_id, instance) = (id.node_id.to_string(), id.instance.to_string());
        match row {
            None => Self { node_id, instance, gone: true, ..Self::default() },
            Some(row) => Self {
                node_id,
                instance,
                gone: false,
                last_seen_unix: row.last_seen_unix,
                applied: row.applied.as_ref().map(VersionRow::from),
                left: row.left,
                forgotten: row.forgotten,
            },
        }
    }

    pub(super) fn id(&self) -> RowId {
        RowId { node_id: Arc::from(&*self.node_id), instance: Arc::from(&*self.instance) }
    }
}

impl TryFrom<NodeRow> for RosterRow {
    type Error = InvalidRow;

    fn try_from(row: NodeRow) -> Result<Self, InvalidRow> {
        Ok(Self {
            last_seen_unix: row.last_seen_unix,
            applied: row.applied.map(Version::try_from).transpose()?,
            left: row.left,
            forgotten: row.forgotten,
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
