//! Between messages and the use cases' types.

use headwater_model::{Digest, Key, Revision, Version};
use headwater_proto::admin as wire;
use tonic::Status;

use super::bad_request;
use crate::admin::form;
use crate::admin::reading::Shown;
use crate::admin::validation::Fault;
use crate::admin::writing::{Done, Write, Written};

pub(super) fn key(text: &str) -> Result<Key, Status> {
    form::key(text).map_err(bad_request)
}

pub(super) fn version(version: &Version) -> wire::Version {
    let digest = if version.digest == Digest::EMPTY { String::new() } else { version.digest.to_string() };
    wire::Version {
        cluster_id: version.lineage.cluster_id,
        prefix: version.lineage.prefix.to_string(),
        generation: version.lineage.generation.0,
        revision: version.revision.0,
        digest,
    }
}

pub(super) fn resource(shown: Shown) -> wire::Resource {
    wire::Resource {
        key: shown.key.to_string(),
        value: shown.value.into(),
        create_revision: shown.create_revision,
        mod_revision: shown.mod_revision,
        redacted: shown.redacted,
    }
}

pub(super) fn write(wire: wire::Write) -> Result<Write, Status> {
    Ok(Write {
        key: key(&wire.key)?,
        value: wire.value.map(Into::into),
        if_mod_revision: wire.if_mod_revision.map(Revision),
    })
}

/// All writes, or every bad key at once.
pub(super) fn writes(wires: Vec<wire::Write>) -> Result<Vec<Write>, Status> {
    let mut writes = Vec::with_capacity(wires.len());
    let mut faults = Vec::new();
    for wire in wires {
        match write(wire) {
            Ok(write) => writes.push(write),
            Err(status) => faults.push(status.message().to_owned()),
        }
    }
    if faults.is_empty() { Ok(writes) } else { Err(bad_request(faults.join("\n"))) }
}

pub(super) fn written(written: Written) -> wire::WriteResponse {
    let committed = written.committed.into_iter().map(|at| wire::Committed {
        version: Some(version(&at.version)),
        keys: at
            .keys
            .into_iter()
            .map(|(key, what)| wire::WrittenKey { key: key.to_string(), done: done(what).into() })
            .collect(),
    });
    wire::WriteResponse {
        committed: committed.collect(),
        unchanged: written.unchanged.iter().map(ToString::to_string).collect(),
        failed_reason: written.failed.as_ref().map(|refusal| refusal.word().to_owned()).unwrap_or_default(),
        failed: written.failed.map(|refusal| refusal.to_string()).unwrap_or_default(),
        held: written.held.unwrap_or_default(),
        notes: written.notes,
    }
}

pub(super) fn fault(fault: Fault) -> wire::Fault {
    wire::Fault { message: fault.to_string(), key: fault.key, field: fault.field }
}

const fn done(done: Done) -> wire::Done {
    match done {
        Done::Created => wire::Done::Created,
        Done::Replaced => wire::Done::Replaced,
        Done::Deleted => wire::Done::Deleted,
    }
}
