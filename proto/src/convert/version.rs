//! Versions, lineages, changes and approvals.

use std::sync::Arc;

use headwater_model::shape::{Shape, classify};
use headwater_model::{Change, Digest, Generation, Key, Lineage, Resource, Revision, Version};

use super::{Invalid, bad};
use crate::config::Approval;
use crate::limits;
use crate::wire::config as wire;

pub(super) fn lineage(lineage: &Lineage) -> wire::Lineage {
    wire::Lineage {
        cluster_id: lineage.cluster_id,
        prefix: lineage.prefix.to_string(),
        generation: lineage.generation.0,
    }
}

pub(super) fn lineage_from(wire: wire::Lineage) -> Result<Lineage, Invalid> {
    if wire.prefix.len() > limits::MAX_KEY_BYTES {
        return Err(bad("lineage", "prefix", "is too long"));
    }
    Ok(Lineage {
        cluster_id: wire.cluster_id,
        prefix: wire.prefix.into(),
        generation: Generation(wire.generation),
    })
}

pub(super) fn version(version: &Version) -> wire::Version {
    wire::Version {
        lineage: Some(lineage(&version.lineage)),
        revision: version.revision.0,
        digest: version.digest.to_bytes().to_vec().into(),
    }
}

pub(super) fn version_from(wire: wire::Version) -> Result<Version, Invalid> {
    let lineage = lineage_from(wire.lineage.ok_or(bad("version", "lineage", "is missing"))?)?;
    let digest = digest_from(&wire.digest, "version")?;
    Ok(Version { lineage, revision: Revision(wire.revision), digest })
}

pub(super) fn required(wire: Option<wire::Version>, message: &'static str) -> Result<Version, Invalid> {
    version_from(wire.ok_or_else(|| bad(message, "version", "is missing"))?)
}

pub(super) fn optional(wire: Option<wire::Version>) -> Result<Option<Version>, Invalid> {
    wire.map(version_from).transpose()
}

pub(super) fn digest_from(bytes: &[u8], message: &'static str) -> Result<Digest, Invalid> {
    Digest::from_bytes(bytes).ok_or_else(|| bad(message, "digest", "is not 16 bytes long"))
}

pub(super) fn key_from(text: &str, message: &'static str) -> Result<Key, Invalid> {
    if text.len() > limits::MAX_KEY_BYTES {
        return Err(bad(message, "key", "is too long"));
    }
    match classify(text.as_bytes()) {
        Shape::Content(key) => Ok(key),
        Shape::Ignored(_) => Err(bad(message, "key", "is not of content shape")),
    }
}

pub(super) fn resource(resource: &Resource) -> wire::Change {
    wire::Change {
        key: resource.key().as_str().to_owned(),
        create_revision: resource.create_revision().0,
        mod_revision: resource.mod_revision().0,
        value: resource.value().clone(),
        deleted: false,
    }
}

pub(super) fn change(change: &Change) -> wire::Change {
    match change {
        Change::Put(put) => resource(put),
        Change::Delete(key) => {
            wire::Change { key: key.as_str().to_owned(), deleted: true, ..wire::Change::default() }
        }
    }
}

pub(super) fn resource_from(wire: wire::Change, message: &'static str) -> Result<Arc<Resource>, Invalid> {
    let key = key_from(&wire.key, message)?;
    Ok(Arc::new(Resource::new(key, wire.value, Revision(wire.create_revision), Revision(wire.mod_revision))))
}

pub(super) fn change_from(wire: wire::Change) -> Result<Change, Invalid> {
    if wire.deleted {
        return Ok(Change::Delete(key_from(&wire.key, "change")?));
    }
    resource_from(wire, "change").map(Change::Put)
}

pub(super) fn approval(approval: &Approval) -> wire::Approval {
    wire::Approval {
        id: approval.id.to_string(),
        from: Some(lineage(&approval.from)),
        base_at_most: approval.base_at_most.0,
        to: Some(lineage(&approval.to)),
        expires_unix: approval.expires_unix,
    }
}

pub(super) fn approval_from(wire: wire::Approval) -> Result<Approval, Invalid> {
    Ok(Approval {
        id: text(wire.id, "approval", "id")?,
        from: lineage_from(wire.from.ok_or(bad("approval", "from", "is missing"))?)?,
        base_at_most: Revision(wire.base_at_most),
        to: lineage_from(wire.to.ok_or(bad("approval", "to", "is missing"))?)?,
        expires_unix: wire.expires_unix,
    })
}

/// A bounded text that must not be empty.
pub(super) fn text(text: String, message: &'static str, field: &'static str) -> Result<Arc<str>, Invalid> {
    if text.is_empty() {
        return Err(bad(message, field, "is empty"));
    }
    if text.len() > limits::MAX_NAME_BYTES {
        return Err(bad(message, field, "is too long"));
    }
    Ok(text.into())
}

/// A free text, cut at the limit of a reason.
pub(super) fn prose(mut text: String) -> Arc<str> {
    if text.len() > limits::MAX_REASON_BYTES {
        let mut end = limits::MAX_REASON_BYTES;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
    }
    text.into()
}
