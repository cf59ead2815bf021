use std::collections::BTreeMap;

use bytes::Bytes;
use headwater_model::Revision;
use proptest::prelude::*;

use super::super::{
    Comparison, Event, EventKind, Interval, KeyValue, MvccError, Op, RangeRequest, Relation, Restore, Target,
    Txn,
};
use super::{WatchResponse, drain, everything, settle, store, watching};

/// A list of states, one for each revision: nothing clever.
#[derive(Default)]
struct Naive {
    states: Vec<(u64, BTreeMap<Bytes, KeyValue>)>,
    events: Vec<(u64, Vec<Event>)>,
}

#[derive(Clone, Debug)]
enum Step {
    Txn { guard: Option<(u8, u64)>, operations: Vec<Write> },
    Compact { back: u64 },
    Watch,
    CatchUp,
    Restart,
}

#[derive(Clone, Debug)]
enum Write {
    Put(u8, u8),
    Delete(u8),
    DeleteRange(u8, u8),
}

fn key(number: u8) -> Bytes {
    format!("/{number:02}").into()
}

fn write() -> impl Strategy<Value = Write> {
    prop_oneof![
        4 => (0..8u8, any::<u8>()).prop_map(|(key, value)| Write::Put(key, value)),
        2 => (0..8u8).prop_map(Write::Delete),
        1 => (0..8u8, 0..8u8).prop_map(|(from, to)| Write::DeleteRange(from, to)),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let guard = proptest::option::of((0..8u8, 0..4u64));
    prop_oneof![
        12 => (guard, prop::collection::vec(write(), 0..4))
            .prop_map(|(guard, operations)| Step::Txn { guard, operations }),
        1 => (0..6u64).prop_map(|back| Step::Compact { back }),
        1 => Just(Step::Watch),
        2 => Just(Step::CatchUp),
        1 => Just(Step::Restart),
    ]
}

impl Naive {
    fn new() -> Self {
        Self { states: vec![(1, BTreeMap::new())], events: Vec::new() }
    }

    fn head(&self) -> u64 {
        self.states.last().map_or(1, |(revision, _)| *revision)
    }

    fn at(&self, revision: u64) -> &BTreeMap<Bytes, KeyValue> {
        &self.states.iter().rfind(|(other, _)| *other <= revision).unwrap().1
    }

    fn txn(&mut self, guard: Option<(u8, u64)>, operations: &[Write]) {
        let mut state = self.at(self.head()).clone();
        if let Some((guarded, version)) = guard
            && state.get(&key(guarded)).map_or(0, |kv| kv.version) != version
        {
            return;
        }
        let revision = Revision(self.head() + 1);
        let mut events = Vec::new();
        for operation in operations {
            match operation {
                Write::Put(number, value) => {
                    let key = key(*number);
                    let old = state.get(&key);
                    let kv = KeyValue {
                        key: key.clone(),
                        value: vec![*value].into(),
                        create_revision: old.map_or(revision, |kv| kv.create_revision),
                        mod_revision: revision,
                        version: old.map_or(0, |kv| kv.version) + 1,
                    };
                    state.insert(key, kv.clone());
                    events.push(Event { kind: EventKind::Put, kv });
                }
                Write::Delete(number) => remove(&mut state, &key(*number), revision, &mut events),
                Write::DeleteRange(from, to) => {
                    for number in *from..*to {
                        remove(&mut state, &key(number), revision, &mut events);
                    }
                }
            }
        }
        if !events.is_empty() {
            self.states.push((revision.0, state));
            self.events.push((revision.0, events));
        }
    }
}

fn remove(state: &mut BTreeMap<Bytes, KeyValue>, key: &Bytes, revision: Revision, events: &mut Vec<Event>) {
    if state.remove(key).is_some() {
        let kv = KeyValue { key: key.clone(), mod_revision: revision, ..KeyValue::default() };
        events.push(Event { kind: EventKind::Delete, kv });
    }
}

fn transaction(guard: Option<(u8, u64)>, operations: &[Write]) -> Txn {
    Txn {
        compares: guard
            .map(|(number, version)| Comparison {
                interval: Interval::single(key(number)),
                target: Target::Version(version),
                relation: Relation::Equal,
            })
            .into_iter()
            .collect(),
        success: operations
            .iter()
            .map(|operation| match operation {
                Write::Put(number, value) => Op::Put { key: key(*number), value: vec![*value].into() },
                Write::Delete(number) => Op::DeleteRange(Interval::single(key(*number))),
                Write::DeleteRange(from, to) => Op::DeleteRange(Interval::from_request(key(*from), key(*to))),
            })
            .collect(),
        failure: Vec::new(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Reads at every kept revision and the events of every watch agree with the list of states.
    #[test]
    fn agrees_with_a_list_of_states(steps in prop::collection::vec(step(), 1..60)) {
        let (mut store, mut naive, mut compacted) = (store(), Naive::new(), 0);
        let mut watches: Vec<(super::StreamId, u64, Vec<WatchResponse>)> = Vec::new();
        for step in steps {
            match step {
                Step::Txn { guard, operations } => {
                    match store.txn(&transaction(guard, &operations)) {
                        Ok(_) => naive.txn(guard, &operations),
                        Err(error) => {
                            let refused = matches!(error, MvccError::DuplicateKey { .. });
                            prop_assert!(refused, "{error}");
                        }
                    }
                }
                Step::Compact { back } => {
                    let to = naive.head().saturating_sub(back);
                    let answer = store.compact(Revision(to));
                    prop_assert_eq!(answer.is_ok(), to > compacted);
                    compacted = compacted.max(to);
                }
                Step::Watch => {
                    let start = (compacted + naive.head()).div_ceil(2).max(compacted).max(1);
                    watches.push((watching(&mut store, start), start, Vec::new()));
                }
                Step::CatchUp => settle(&mut store),
                Step::Restart => {
                    let snapshot = store.snapshot();
                    store.restore(&snapshot, Restore::default());
                    for (stream, start, seen) in &mut watches {
                        prop_assert!(!store.is_open(*stream));
                        let last = seen.iter().flat_map(|response| &response.events).next_back();
                        let next = last.map_or(*start, |event| event.kv.mod_revision.0 + 1);
                        *stream = watching(&mut store, next);
                    }
                }
            }
            prop_assert_eq!(store.revision().0, naive.head());
            for (stream, _, seen) in &mut watches {
                seen.extend(drain(&mut store, *stream));
            }
        }
        check_reads(&store, &naive, compacted)?;
        settle(&mut store);
        for (stream, start, mut seen) in watches {
            seen.extend(drain(&mut store, stream));
            // A watcher that needed what was compacted is told so; nothing is skipped in silence.
            let lost = seen.iter().any(|response| response.compact_revision > Revision::ZERO);
            let seen: Vec<Event> = seen.into_iter().flat_map(|response| response.events).collect();
            let due: Vec<Event> = naive
                .events
                .iter()
                .filter(|(revision, _)| *revision >= start)
                .flat_map(|(_, events)| events.clone())
                .collect();
            if lost {
                prop_assert!(due.starts_with(&seen));
            } else {
                prop_assert_eq!(seen, due);
            }
        }
    }
}

fn check_reads(
    store: &super::super::Mvcc,
    naive: &Naive,
    compacted: u64,
) -> Result<(), proptest::test_runner::TestCaseError> {
    for revision in 1..=naive.head() {
        let request = RangeRequest::of(everything()).at(Revision(revision));
        let answer = store.range(&request);
        if revision < compacted {
            let refused = matches!(answer, Err(MvccError::Compacted { .. }));
            prop_assert!(refused);
            continue;
        }
        let answer = answer.unwrap();
        let state: Vec<KeyValue> = naive.at(revision).values().cloned().collect();
        prop_assert_eq!(answer.count, state.len());
        prop_assert_eq!(&answer.entries, &state);
        prop_assert_eq!(answer.header.revision.0, naive.head());
        let page = store.range(&request.clone().limit(3)).unwrap();
        prop_assert_eq!(page.more, state.len() > 3);
        prop_assert_eq!(page.count, state.len());
        let newer = RangeRequest { min_mod_revision: Revision(revision / 2), ..request };
        let newer = store.range(&newer).unwrap();
        prop_assert_eq!(newer.count, state.len());
        prop_assert!(newer.entries.iter().all(|kv| kv.mod_revision.0 >= revision / 2));
    }
    Ok(())
}
