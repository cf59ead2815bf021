//! Certificate objects in a table, by server name.
//!
//! The exact name goes first, then the longest wildcard. A wildcard takes one label: where the longest that fits by
//! suffix does not take the name for that, nothing else is tried. Of two objects with one pattern the first in key
//! order is shown. Objects that are off, and those for upstreams, are held but not in the index.

use std::cmp::Ordering;
use std::sync::Arc;

use equivalent::{Comparable, Equivalent};
use headwater_model::Key;
use headwater_model::resources::{Sni, Ssl, SslPurpose};
use imbl::OrdMap;

use super::Change;
use crate::routing::{longest_first, reversed};

/// Certificate objects by server name.
#[derive(Clone, Debug, Default)]
pub(super) struct SniIndex {
    slots: OrdMap<Slot, Arc<Ssl>>,
}

/// One server name pattern of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Slot {
    name: Name,
    key: Key,
    /// A `*` that takes names of any number of labels.
    any: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Name {
    Exact(String),
    /// Reversed, so that the longest suffix is the longest prefix.
    Suffix(String),
}

/// The borrowed form of [`Name`], in the same order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum NameRef<'a> {
    Exact(&'a str),
    Suffix(&'a str),
}

/// A place right before or right after all slots of a name.
struct Edge<'a> {
    name: NameRef<'a>,
    side: Ordering,
}

// === impl SniIndex ===

impl SniIndex {
    pub(super) fn find(&self, name: &str) -> Option<&Arc<Ssl>> {
        let name = name.to_ascii_lowercase();
        let name = name.strip_suffix('.').unwrap_or(&name);
        if let Some((_, ssl)) = self.first(NameRef::Exact(name)) {
            return Some(ssl);
        }
        let backwards = reversed(name);
        let suffix = longest_first(&backwards, |upto| self.floor(upto)).next()?;
        let (slot, ssl) = self.first(NameRef::Suffix(suffix))?;
        let label = &backwards[suffix.len()..];
        (slot.any || !label.contains('.')).then_some(ssl)
    }

    fn first(&self, name: NameRef<'_>) -> Option<(&Slot, &Arc<Ssl>)> {
        let found = self.slots.get_next(&Edge { name, side: Ordering::Less });
        found.filter(|(slot, _)| slot.name.as_ref() == name)
    }

    /// The greatest suffix that is not above `upto`.
    fn floor(&self, upto: &str) -> Option<&str> {
        let edge = Edge { name: NameRef::Suffix(upto), side: Ordering::Greater };
        match self.slots.get_prev(&edge)?.0.name.as_ref() {
            NameRef::Suffix(suffix) => Some(suffix),
            NameRef::Exact(_) => None,
        }
    }
}

// === impl Slot ===

impl Slot {
    fn new(key: &Key, sni: &Sni) -> Self {
        let (name, any) = match sni {
            Sni::Exact(name) => (Name::Exact(name.clone()), false),
            Sni::Label(suffix) => (Name::Suffix(reversed(suffix)), false),
            Sni::Any => (Name::Suffix(String::new()), true),
        };
        Self { name, key: key.clone(), any }
    }
}

// === impl Name ===

impl Name {
    fn as_ref(&self) -> NameRef<'_> {
        match self {
            Self::Exact(name) => NameRef::Exact(name),
            Self::Suffix(suffix) => NameRef::Suffix(suffix),
        }
    }
}

// === impl Edge ===

impl Equivalent<Slot> for Edge<'_> {
    fn equivalent(&self, _: &Slot) -> bool {
        false
    }
}

impl Comparable<Slot> for Edge<'_> {
    fn compare(&self, slot: &Slot) -> Ordering {
        self.name.cmp(&slot.name.as_ref()).then(self.side)
    }
}

// === impl Change ===

impl<U: Clone> Change<U> {
    /// An object equal to the one before stays.
    pub(super) fn put_ssl(&mut self, key: &Key, ssl: &Arc<Ssl>) {
        if self.table.ssls.get(key).is_some_and(|known| known == ssl) {
            return;
        }
        self.remove_ssl(key);
        self.stats.ssls += 1;
        if ssl.enabled && ssl.purpose == SslPurpose::Server {
            for sni in &ssl.snis {
                self.table.snis.slots.insert(Slot::new(key, sni), ssl.clone());
            }
        }
        self.table.ssls.insert(key.clone(), ssl.clone());
    }

    pub(super) fn remove_ssl(&mut self, key: &Key) {
        let Some(known) = self.table.ssls.remove(key) else { return };
        for sni in &known.snis {
            self.table.snis.slots.remove(&Slot::new(key, sni));
        }
    }
}
