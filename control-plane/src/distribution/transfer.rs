//! Encoded transfers, made once and shared by every session that needs the same one.
//!
//! A transfer to a version is put together from the resources' own encoded changes; sessions at the same base share
//! the very frames. The cache belongs to one publication and holds weak references only: a transfer that nobody is
//! sending is forgotten.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytes::Bytes;
use headwater_model::{Change, Digest, Revision, Version};
use headwater_proto::config::{Approval, Begin, TransferReason};
use headwater_proto::convert::{encode_change, encode_part};
use headwater_proto::frame::Framed;
use headwater_proto::limits::PART_BYTES;

use crate::store::Snapshot;

/// What a session asks for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Plan {
    /// The revision and digest to start from; nothing for the full content.
    pub base: Option<(Revision, Digest)>,
    /// What for.
    pub reason: TransferReason,
    /// The id of the approval that covers it.
    pub approval: Option<Arc<str>>,
}

/// One encoded transfer.
#[derive(Debug)]
pub struct Transfer {
    /// Where it leads.
    pub target: Version,
    /// What for.
    pub reason: TransferReason,
    /// Its frames, in order; at least one.
    pub frames: Vec<Framed>,
    /// The bytes of all frames.
    pub bytes: usize,
    /// How many resources change.
    pub changes: usize,
}

/// The transfers to one version that somebody is sending.
#[derive(Debug, Default)]
pub struct Transfers {
    made: Mutex<BTreeMap<Plan, Weak<Transfer>>>,
}

// === impl Transfers ===

impl Transfers {
    /// The transfer of a plan to a snapshot; nothing when the snapshot's deletions do not reach back to the base.
    #[must_use]
    pub fn get(
        &self,
        plan: &Plan,
        snapshot: &Snapshot,
        approval: Option<&Approval>,
    ) -> Option<Arc<Transfer>> {
        // Made under the lock on purpose: a thousand sessions that wake at once must not encode it a thousand times.
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(transfer) = made.get(plan).and_then(Weak::upgrade) {
            return Some(transfer);
        }
        let transfer = Arc::new(Transfer::make(plan, snapshot, approval.cloned())?);
        made.retain(|_, transfer| transfer.strong_count() > 0);
        made.insert(plan.clone(), Arc::downgrade(&transfer));
        Some(transfer)
    }
}

// === impl Transfer ===

impl Transfer {
    fn make(plan: &Plan, snapshot: &Snapshot, approval: Option<Approval>) -> Option<Self> {
        let (pieces, value_bytes) = match plan.base {
            Some((revision, _)) => pieces_since(snapshot, revision)?,
            None => all_pieces(snapshot),
        };
        let target = snapshot.version().clone();
        let begin = Begin {
            base: plan.base.map(|(_, digest)| digest),
            target: target.clone(),
            reason: plan.reason,
            approval: approval.filter(|_| plan.approval.is_some()),
            changes: pieces.len() as u64,
            bytes: value_bytes,
        };
        let frames = cut(&begin, &pieces);
        let bytes = frames.iter().map(Framed::len).sum();
        Some(Self { target, reason: plan.reason, frames, bytes, changes: pieces.len() })
    }
}

fn pieces_since(snapshot: &Snapshot, base: Revision) -> Option<(Vec<Bytes>, u64)> {
    let since = snapshot.since(base)?;
    let mut value_bytes = 0;
    let mut pieces = Vec::with_capacity(since.deleted.len() + since.changed.len());
    pieces.extend(since.deleted.into_iter().map(|key| encode_change(&Change::Delete(key))));
    for held in &since.changed {
        value_bytes += held.resource.value().len() as u64;
        pieces.push(held.encoded().clone());
    }
    Some((pieces, value_bytes))
}

fn all_pieces(snapshot: &Snapshot) -> (Vec<Bytes>, u64) {
    let pieces = snapshot.all_held().map(|held| held.encoded().clone()).collect();
    (pieces, snapshot.content().value_bytes())
}

/// Cuts pieces into frames of about [`PART_BYTES`]; a larger single piece goes alone.
fn cut(begin: &Begin, pieces: &[Bytes]) -> Vec<Framed> {
    let mut groups: Vec<&[Bytes]> = Vec::new();
    let (mut start, mut size) = (0, 0);
    for (index, piece) in pieces.iter().enumerate() {
        if index > start && size + piece.len() > PART_BYTES {
            groups.push(&pieces[start..index]);
            (start, size) = (index, 0);
        }
        size += piece.len();
    }
    groups.push(&pieces[start..]);
    let end = groups.len() - 1;
    groups
        .into_iter()
        .enumerate()
        .map(|(index, group)| encode_part((index == 0).then_some(begin), group.iter(), index == end))
        .collect()
}

#[cfg(test)]
mod tests {
    use headwater_model::{Changes, Content, Generation};
    use headwater_proto::config::ReplicaMessage;

    use super::*;
    use crate::backend::{Batch, Continuity, Entry, KeyEvent, Load};
    use crate::store::Store;

    fn entry(id: u64, revision: u64, size: usize) -> Entry {
        Entry {
            key: Bytes::from(format!("routes/{id:04}")),
            value: Bytes::from(vec![b'x'; size]),
            create_revision: Revision(revision),
            mod_revision: Revision(revision),
        }
    }

    fn store(resources: u64, size: usize) -> Store {
        let mut store = Store::new("/apisix".into());
        let entries = (0..resources).map(|id| entry(id, 1, size)).collect();
        store.load(&Load {
            cluster_id: 1,
            revision: Revision(9),
            entries,
            continuity: Continuity::First,
            generation: Generation(0),
        });
        store
    }

    fn plan(base: Option<(Revision, Digest)>) -> Plan {
        let reason = if base.is_some() { TransferReason::Step } else { TransferReason::First };
        Plan { base, reason, approval: None }
    }

    fn received(transfer: &Transfer) -> (Begin, Changes) {
        let mut begin = None;
        let mut changes = Vec::new();
        for (index, frame) in transfer.frames.iter().enumerate() {
            let Ok(ReplicaMessage::Part(part)) = ReplicaMessage::decode(frame.frame()) else {
                panic!("frame {index} is no part")
            };
            assert_eq!(part.last, index + 1 == transfer.frames.len());
            assert_eq!(part.begin.is_some(), index == 0);
            begin = begin.or(part.begin);
            changes.extend(part.changes);
        }
        (begin.unwrap(), changes.into_iter().collect())
    }

    #[test]
    fn a_full_transfer_is_cut_and_whole() {
        let store = store(500, 1000);
        let transfer = Transfers::default().get(&plan(None), store.snapshot(), None).unwrap();
        assert!(transfer.frames.len() > 5);
        assert!(transfer.frames.iter().all(|frame| frame.len() < PART_BYTES + 2048));
        let (begin, changes) = received(&transfer);
        let mut content = Content::new();
        content.apply(&changes);
        assert_eq!(content.digest(), begin.target.digest);
        assert_eq!((begin.changes, begin.bytes), (500, 500_000));
    }

    #[test]
    fn a_large_value_goes_alone_and_an_empty_transfer_is_one_frame() {
        let store = store(3, PART_BYTES * 2);
        let full = Transfers::default().get(&plan(None), store.snapshot(), None).unwrap();
        assert_eq!(full.frames.len(), 3);
        let base = Some((Revision(9), store.snapshot().digest()));
        let step = Transfers::default().get(&plan(base), store.snapshot(), None).unwrap();
        assert_eq!(step.frames.len(), 1);
    }

    #[test]
    fn sessions_at_one_base_share_the_very_frames_and_nothing_outlives_them() {
        let mut store = store(3, 10);
        let digest = store.snapshot().digest();
        store.apply(&Batch::new(Revision(10), vec![KeyEvent::Put(entry(1, 10, 20))]));
        let transfers = Transfers::default();
        let step = plan(Some((Revision(9), digest)));
        let one = transfers.get(&step, store.snapshot(), None).unwrap();
        let two = transfers.get(&step, store.snapshot(), None).unwrap();
        assert!(Arc::ptr_eq(&one, &two));
        assert_eq!(one.changes, 1);
        let weak = Arc::downgrade(&one);
        drop((one, two));
        assert!(weak.upgrade().is_none());
        assert!(transfers.get(&plan(Some((Revision(8), digest))), store.snapshot(), None).is_none());
    }
}
