//! From writes to a transaction: form, validation, conditions, limits and order. Pure.

use std::collections::{BTreeMap, BTreeSet};

use headwater_model::resources::{Context, stored_references};
use headwater_model::{Key, Kind, Revision};

use super::Write;
use crate::admin::form;
use crate::admin::refusal::Refusal;
use crate::admin::validation::{self, Fault, Proposed};
use crate::admin::view::EnvironmentState;
use crate::backend::{Compare, Entry, Operation, Transaction};

/// etcd's `--max-txn-ops`: of operations, and of comparisons.
pub const MAX_OPERATIONS: usize = 128;
/// etcd's `--max-request-bytes` (1.5 MiB), less what the request's own framing takes.
pub const MAX_BYTES: usize = 1_536 * 1024 - 16 * 1024;
/// What an operation or comparison takes beside its key and value; the prefix is in it.
const FRAMING: usize = 96;

/// The order in which kinds are written over several transactions: what is named comes before what names it.
/// Deletions go the other way round.
const ORDER: [Kind; 15] = [
    Kind::Secrets,
    Kind::Protos,
    Kind::PluginMetadata,
    Kind::Plugins,
    Kind::Ssls,
    Kind::Upstreams,
    Kind::PluginConfigs,
    Kind::GlobalRules,
    Kind::ConsumerGroups,
    Kind::Services,
    Kind::GraphqlCostDecorations,
    Kind::Consumers,
    Kind::Credentials,
    Kind::Routes,
    Kind::StreamRoutes,
];

/// A transaction with what its writer must know of it.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What to commit.
    pub transaction: Transaction,
    /// The keys of its operations, in order, and whether each is deleted.
    pub keys: Vec<(Key, bool)>,
    /// Keys that hold the same value already.
    pub unchanged: Vec<Key>,
    /// What is named outside of the writes, and by whom.
    pub outside: BTreeMap<Key, Key>,
}

/// Splits writes into groups that fit a transaction each, or answers one group.
///
/// # Errors
/// When a key is written twice, or everything does not fit one transaction and `batches` is not asked for.
pub fn groups(mut writes: Vec<Write>, batches: bool) -> Result<Vec<Vec<Write>>, Refusal> {
    let mut seen = BTreeSet::new();
    if let Some(twice) = writes.iter().find(|write| !seen.insert(&write.key)) {
        let sentence = format!("{} is written twice in one request: keep one of the two", twice.key);
        return Err(Refusal::BadRequest(sentence));
    }
    writes.sort_by_key(|write| (write.value.is_none(), rank(write), write.key.clone()));
    let mut groups: Vec<Vec<Write>> = Vec::new();
    let mut room = Room::default();
    for write in writes {
        let size = Room::of(&write);
        match groups.last_mut().filter(|_| room.fits(&size)) {
            Some(group) => group.push(write),
            None => {
                room = Room::default();
                groups.push(vec![write]);
            }
        }
        room.take(&size);
    }
    if groups.len() > 1 && !batches {
        let writes: usize = groups.iter().map(Vec::len).sum();
        let bytes: usize = groups.iter().flatten().map(|write| Room::of(write).bytes).sum();
        return Err(too_large(
            writes,
            groups.iter().flatten().map(|write| Room::of(write).compares).sum(),
            bytes,
        ));
    }
    Ok(groups)
}

/// The directories that hold the keys of the writes, each with its slash.
#[must_use]
pub fn directories(writes: &[Write]) -> BTreeSet<String> {
    let directory = |write: &Write| write.key.as_str().split_once('/').map(|(first, _)| format!("{first}/"));
    // The single key `plugins` is its own directory.
    writes.iter().map(|write| directory(write).unwrap_or_else(|| write.key.to_string())).collect()
}

// === impl Plan ===

impl Plan {
    /// Plans a transaction against what is stored now (`present`) and the state that references are judged on.
    ///
    /// # Errors
    /// All faults of all values at once; a condition of the caller that does not hold; a key that is not there or
    /// is in use.
    pub fn new(
        writes: &[Write],
        present: &BTreeMap<Key, Entry>,
        state: &EnvironmentState,
        context: &Context,
        now_unix: u64,
    ) -> Result<Self, Refusal> {
        let proposed = propose(writes, present, context, now_unix)?;
        let (outside, faults) = validation::outside_references(&proposed);
        if !faults.is_empty() {
            return Err(Refusal::Invalid(faults));
        }
        let mut plan = Self {
            transaction: Transaction::default(),
            keys: Vec::new(),
            unchanged: Vec::new(),
            outside: BTreeMap::new(),
        };
        for write in writes {
            check_condition(write, present.get(&write.key))?;
            plan.add(write, &proposed, present.get(&write.key));
        }
        let is_written = |key: &Key| plan.keys.iter().any(|(written, _)| written == key);
        plan.outside = outside.into_iter().filter(|(_, by)| is_written(by)).collect();
        let exists = plan.outside.keys().map(|named| Compare::Exists { key: bytes(named) });
        plan.transaction.compares.extend(exists);
        plan.protect_referrers(&proposed, state)?;
        Ok(plan)
    }

    /// Whether the transaction is within etcd's limits.
    ///
    /// # Errors
    /// With the counts.
    pub fn check_limits(&self) -> Result<(), Refusal> {
        let operations = &self.transaction.operations;
        let size = |operation: &Operation| match operation {
            Operation::Put { key, value } => key.len() + value.len() + FRAMING,
            Operation::Delete { key } => key.len() + FRAMING,
        };
        let compares = self.transaction.compares.len();
        let total: usize = operations.iter().map(size).sum::<usize>() + compares * FRAMING;
        if operations.len() <= MAX_OPERATIONS && compares <= MAX_OPERATIONS && total <= MAX_BYTES {
            return Ok(());
        }
        Err(too_large(operations.len(), compares, total))
    }

    fn add(&mut self, write: &Write, proposed: &Proposed, present: Option<&Entry>) {
        let key = bytes(&write.key);
        let value = proposed.get(&write.key).cloned().flatten();
        let is_unchanged = match (&value, present) {
            (Some(value), Some(present)) => form::is_same(value, &present.value),
            _ => false,
        };
        if is_unchanged {
            self.unchanged.push(write.key.clone());
            return;
        }
        match write.if_mod_revision {
            Some(is) => self.transaction.compares.push(Compare::ModRevision { key: key.clone(), is }),
            None if value.is_none() => self.transaction.compares.push(Compare::Exists { key: key.clone() }),
            None => {}
        }
        self.keys.push((write.key.clone(), value.is_none()));
        self.transaction.operations.push(match value {
            Some(value) => Operation::Put { key, value },
            None => Operation::Delete { key },
        });
    }

    /// Refuses to delete what is in use, and lets the commit fail if a referring kind is written after the check.
    fn protect_referrers(&mut self, proposed: &Proposed, state: &EnvironmentState) -> Result<(), Refusal> {
        let mut directories = BTreeSet::new();
        for (key, _) in proposed.iter().filter(|(_, value)| value.is_none()) {
            let found = validation::referrers(key, state.world.content(), proposed);
            if found.count > 0 {
                return Err(Refusal::InUse { key: key.clone(), by: found.named, count: found.count });
            }
            directories.extend(validation::referring_directories(key));
        }
        let revision = state.world.version().revision;
        let unwritten = directories
            .into_iter()
            .map(|directory| Compare::NoneWrittenSince { directory: directory.into(), revision });
        self.transaction.compares.extend(unwritten);
        Ok(())
    }
}

/// The values to store, in their form, all of them valid.
fn propose(
    writes: &[Write],
    present: &BTreeMap<Key, Entry>,
    context: &Context,
    now_unix: u64,
) -> Result<Proposed, Refusal> {
    let mut proposed = Proposed::new();
    let mut faults = Vec::new();
    for write in writes {
        let Some(written) = &write.value else {
            if !present.contains_key(&write.key) {
                return Err(Refusal::NotFound { key: write.key.clone() });
            }
            proposed.insert(write.key.clone(), None);
            continue;
        };
        let stored = present.get(&write.key).map(|entry| &*entry.value);
        match form::stored(&write.key, written, stored, now_unix) {
            Ok(value) => {
                faults.extend(validation::of_value(&write.key, &value, context));
                proposed.insert(write.key.clone(), Some(value));
            }
            Err(error) => faults.push(Fault::new(&write.key, error.field, error.to_string())),
        }
    }
    if faults.is_empty() { Ok(proposed) } else { Err(Refusal::Invalid(faults)) }
}

fn check_condition(write: &Write, present: Option<&Entry>) -> Result<(), Refusal> {
    let Some(expected) = write.if_mod_revision else { return Ok(()) };
    let found = present.map(|entry| entry.mod_revision);
    if found.unwrap_or(Revision::ZERO) == expected {
        return Ok(());
    }
    Err(Refusal::Conflict { key: write.key.clone(), expected, found })
}

fn too_large(operations: usize, compares: usize, bytes: usize) -> Refusal {
    Refusal::TooLarge(format!(
        "{operations} writes with {compares} conditions and {bytes} bytes do not fit one transaction (at most \
         {MAX_OPERATIONS} writes, {MAX_OPERATIONS} conditions, {MAX_BYTES} bytes): write less at once, or allow \
         batches, each of which is atomic by itself"
    ))
}

fn rank(write: &Write) -> usize {
    let rank = ORDER.iter().position(|kind| *kind == write.key.kind()).unwrap_or(ORDER.len());
    if write.value.is_some() { rank } else { ORDER.len() - rank }
}

fn bytes(key: &Key) -> bytes::Bytes {
    key.as_str().to_owned().into()
}

/// What writes take of a transaction's limits, estimated from above.
#[derive(Clone, Copy, Debug, Default)]
struct Room {
    operations: usize,
    compares: usize,
    bytes: usize,
}

// === impl Room ===

impl Room {
    fn of(write: &Write) -> Self {
        let own = usize::from(write.if_mod_revision.is_some() || write.value.is_none());
        let named = write.value.as_ref().map_or_else(
            || validation::referring_directories(&write.key).len(),
            |value| stored_references(&write.key, value).len(),
        );
        // Id and times are added to what the operator wrote.
        let value = write.value.as_ref().map_or(0, |value| value.len() + FRAMING);
        let compares = own + named;
        Self { operations: 1, compares, bytes: write.key.as_str().len() + value + FRAMING * (1 + compares) }
    }

    const fn fits(&self, other: &Self) -> bool {
        self.operations + other.operations <= MAX_OPERATIONS
            && self.compares + other.compares <= MAX_OPERATIONS
            && self.bytes + other.bytes <= MAX_BYTES
    }

    const fn take(&mut self, other: &Self) {
        self.operations += other.operations;
        self.compares += other.compares;
        self.bytes += other.bytes;
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn write(key: &str, value: Option<&str>) -> Write {
        Write {
            key: Key::new(key),
            value: value.map(|value| Bytes::from(value.to_owned())),
            if_mod_revision: None,
        }
    }

    #[test]
    fn what_is_named_is_written_first_and_deleted_last() {
        let writes = vec![
            write("upstreams/2", None),
            write("routes/2", None),
            write("routes/1", Some("{}")),
            write("services/1", Some("{}")),
            write("upstreams/1", Some("{}")),
        ];
        let order: Vec<String> =
            groups(writes, true).unwrap().concat().into_iter().map(|write| write.key.to_string()).collect();
        assert_eq!(order, ["upstreams/1", "services/1", "routes/1", "routes/2", "upstreams/2"]);
    }

    #[test]
    fn the_limits_are_refused_with_the_counts_unless_batches_are_allowed() {
        let many: Vec<Write> = (0..200).map(|id| write(&format!("routes/{id}"), Some("{}"))).collect();
        let refusal = groups(many.clone(), false).unwrap_err();
        assert!(refusal.to_string().contains("200 writes"), "{refusal}");
        let split = groups(many, true).unwrap();
        assert_eq!(split.iter().map(Vec::len).collect::<Vec<_>>(), [128, 72]);

        let large = "x".repeat(MAX_BYTES / 2);
        let two = vec![write("routes/1", Some(&large)), write("routes/2", Some(&large))];
        assert_eq!(groups(two.clone(), false).unwrap_err().word(), "too_large");
        assert_eq!(groups(two, true).unwrap().len(), 2);
    }

    #[test]
    fn conditions_count_against_the_limits_too() {
        let route = r#"{"uri":"/a","service_id":"1","upstream_id":"1"}"#;
        let many: Vec<Write> = (0..100).map(|id| write(&format!("routes/{id}"), Some(route))).collect();
        assert_eq!(groups(many, true).unwrap().len(), 2);
    }

    #[test]
    fn a_key_written_twice_is_refused() {
        let twice = vec![write("routes/1", Some("{}")), write("routes/1", None)];
        assert!(groups(twice, true).unwrap_err().to_string().contains("routes/1"));
    }

    #[test]
    fn whole_directories_are_read_with_their_slash() {
        let writes =
            [write("consumers/j/credentials/c", None), write("routes/1", None), write("plugins", None)];
        assert_eq!(
            directories(&writes).into_iter().collect::<Vec<_>>(),
            ["consumers/", "plugins", "routes/"]
        );
    }
}
