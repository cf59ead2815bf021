//! What an independent observer knows: every state that etcd was ever in, in every history.
//!
//! A restore begins a new history that shares its past with an older one up to the snapshot. Compaction changes
//! nothing here.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use bytes::Bytes;
use headwater_control_plane::backend::embedded::mvcc::{Event, EventKind};
use headwater_model::Digest;
use imbl::OrdMap;

/// A key with what etcd says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// Its value.
    pub value: Bytes,
    /// The revision at which it came into being.
    pub create_revision: u64,
    /// The revision of its last write.
    pub mod_revision: u64,
}

/// Everything below the prefix, relative to it.
pub type Facts = OrdMap<Bytes, Fact>;

/// Names a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(usize);

/// All histories.
#[derive(Clone, Debug)]
pub struct Truth {
    prefix: Bytes,
    histories: Vec<History>,
}

#[derive(Clone, Debug)]
struct History {
    /// The history it began in, and the revision up to which it shares it.
    parent: Option<(Epoch, u64)>,
    cluster_id: u64,
    head: u64,
    /// The state from each revision on that changed it.
    states: BTreeMap<u64, State>,
}

#[derive(Clone, Debug, Default)]
struct State {
    facts: Facts,
    /// Of the content in it, once somebody asked: the same few states are asked for again and again.
    digest: OnceCell<Digest>,
}

// === impl Truth ===

impl Truth {
    /// One history, at revision 1 with nothing in it.
    #[must_use]
    pub fn new(prefix: Bytes, cluster_id: u64) -> Self {
        let states = BTreeMap::from([(1, State::default())]);
        Self { prefix, histories: vec![History { parent: None, cluster_id, head: 1, states }] }
    }

    /// The history that goes on now.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        Epoch(self.histories.len() - 1)
    }

    /// A revision was committed.
    pub fn committed(&mut self, revision: u64, events: &[Event]) {
        let prefix = self.prefix.clone();
        let history = self.histories.last_mut().expect("there is always a history");
        let newest = history.states.last_key_value();
        let mut facts = newest.map(|(_, state)| state.facts.clone()).unwrap_or_default();
        for event in events {
            let Some(key) = event.kv.key.strip_prefix(prefix.as_ref()) else { continue };
            let key = Bytes::copy_from_slice(key);
            match event.kind {
                EventKind::Delete => drop(facts.remove(&key)),
                EventKind::Put => {
                    let fact = Fact {
                        value: event.kv.value.clone(),
                        create_revision: event.kv.create_revision.0,
                        mod_revision: event.kv.mod_revision.0,
                    };
                    facts.insert(key, fact);
                }
            }
        }
        history.head = revision;
        history.states.insert(revision, State { facts, digest: OnceCell::new() });
    }

    /// A history begins as another one was at a revision, under a cluster id, with its head moved up by `bump`.
    pub fn restored(&mut self, from: Epoch, revision: u64, cluster_id: u64, bump: u64) {
        let states = self.histories[from.0].states.range(..=revision).map(|(at, state)| (*at, state.clone()));
        let (parent, states) = (Some((from, revision)), states.collect());
        let history = History { parent, cluster_id, head: revision + bump, states };
        self.histories.push(history);
    }

    /// What a history's state at a revision was; nothing for a revision that it never reached.
    #[must_use]
    pub fn at(&self, epoch: Epoch, revision: u64) -> Option<&Facts> {
        self.state(epoch, revision).map(|state| &state.facts)
    }

    /// The digest of a history's content at a revision, as `of` finds it from the state.
    pub fn digest_at(
        &self,
        epoch: Epoch,
        revision: u64,
        of: impl FnOnce(&Facts) -> Digest,
    ) -> Option<Digest> {
        self.state(epoch, revision).map(|state| *state.digest.get_or_init(|| of(&state.facts)))
    }

    fn state(&self, epoch: Epoch, revision: u64) -> Option<&State> {
        let history = &self.histories[epoch.0];
        if revision > history.head {
            return None;
        }
        history.states.range(..=revision).next_back().map(|(_, state)| state)
    }

    /// The newest revision of a history.
    #[must_use]
    pub fn head(&self, epoch: Epoch) -> u64 {
        self.histories[epoch.0].head
    }

    /// The cluster id that a history goes by.
    #[must_use]
    pub fn cluster_id(&self, epoch: Epoch) -> u64 {
        self.histories[epoch.0].cluster_id
    }

    /// Whether what was committed at a revision of one history is part of another.
    #[must_use]
    pub fn contains(&self, history: Epoch, committed: (Epoch, u64)) -> bool {
        let (epoch, revision) = committed;
        if history == epoch {
            return revision <= self.head(history);
        }
        self.histories[history.0]
            .parent
            .is_some_and(|(parent, shared)| revision <= shared && self.contains(parent, committed))
    }

    /// All histories, the newest first.
    pub fn epochs(&self) -> impl Iterator<Item = Epoch> + use<> {
        (0..self.histories.len()).rev().map(Epoch)
    }

    /// Every history from one on.
    pub fn since(&self, epoch: Epoch) -> impl Iterator<Item = Epoch> + use<> {
        (epoch.0..self.histories.len()).map(Epoch)
    }
}

/// The first difference between two states, in words.
#[must_use]
pub fn difference(held: &Facts, true_facts: &Facts) -> Option<String> {
    // Side by side first: they are nearly always the same.
    if held == true_facts {
        return None;
    }
    let keys = held.keys().chain(true_facts.keys());
    let key = keys.filter(|key| held.get(*key) != true_facts.get(*key)).min()?;
    let say = |fact: Option<&Fact>| match fact {
        Some(fact) => format!("{:?} of revision {}", fact.value, fact.mod_revision),
        None => "nothing".to_owned(),
    };
    let (held, truth) = (say(held.get(key)), say(true_facts.get(key)));
    Some(format!("{} is {held}, but etcd had {truth}", String::from_utf8_lossy(key)))
}
