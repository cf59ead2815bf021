//! How long requests and responses are on etcd's wire: its limits and its fragments go by that.

use super::transaction::{Comparison, Op, Target, Txn};
use super::watch::WatchResponse;
use super::{Event, EventKind, Header};

/// The length of a transaction request.
pub(super) fn txn(txn: &Txn) -> usize {
    let compares = txn.compares.iter().map(|comparison| nested(compare(comparison))).sum::<usize>();
    let operations = txn.success.iter().chain(&txn.failure);
    compares + operations.map(|operation| nested(nested(op(operation)))).sum::<usize>()
}

/// The length of a watch response.
pub(super) fn response(response: &WatchResponse) -> usize {
    let flags = [response.created, response.cancelled, response.fragment];
    nested(header(&response.header))
        + number(response.watch_id.cast_unsigned())
        + 2 * flags.iter().filter(|flag| **flag).count()
        + number(response.compact_revision.0)
        + bytes(response.cancel_reason.len())
        + response.events.iter().map(|one| nested(event(one))).sum::<usize>()
}

/// What one event adds to a watch response.
pub(super) fn event_in_response(one: &Event) -> usize {
    nested(event(one))
}

fn header(header: &Header) -> usize {
    number(header.cluster_id)
        + number(header.member_id)
        + number(header.revision.0)
        + number(header.raft_term)
}

fn event(event: &Event) -> usize {
    let kv = &event.kv;
    let kind = if event.kind == EventKind::Delete { 2 } else { 0 };
    kind + nested(
        bytes(kv.key.len())
            + number(kv.create_revision.0)
            + number(kv.mod_revision.0)
            + number(kv.version)
            + bytes(kv.value.len()),
    )
}

fn compare(comparison: &Comparison) -> usize {
    let target = match &comparison.target {
        Target::Version(number) => varint(*number) + 1,
        Target::Create(revision) | Target::Mod(revision) => varint(revision.0) + 1,
        Target::Value(value) => nested(value.len()),
    };
    // The kind of comparison and of target: one small number each.
    4 + target + bytes(comparison.interval.key().len()) + bytes(comparison.interval.range_end().len())
}

fn op(operation: &Op) -> usize {
    match operation {
        Op::Put { key, value } => bytes(key.len()) + bytes(value.len()),
        Op::DeleteRange(interval) => bytes(interval.key().len()) + bytes(interval.range_end().len()),
        Op::Range(request) => {
            let interval = &request.interval;
            let flags = [request.keys_only, request.count_only];
            bytes(interval.key().len())
                + bytes(interval.range_end().len())
                + number(request.limit as u64)
                + number(request.revision.0)
                + number(request.min_mod_revision.0)
                + 2 * flags.iter().filter(|flag| **flag).count()
        }
    }
}

/// A message or byte string in a field with a small number.
const fn nested(length: usize) -> usize {
    1 + varint(length as u64) + length
}

/// A byte string field, absent when empty.
const fn bytes(length: usize) -> usize {
    if length == 0 { 0 } else { nested(length) }
}

/// A number field, absent when zero.
const fn number(value: u64) -> usize {
    if value == 0 { 0 } else { 1 + varint(value) }
}

const fn varint(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}
