//! What would be wrong with a write, and with what is stored. Pure.
//!
//! A value is judged by [`resources::parse`], the same function by which a node decides, so that an operator reads
//! now the sentence a node would have said later. On top stand the rules that take the whole content: what a value
//! names must exist, and what is named must not be deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bytes::Bytes;
use headwater_model::resources::{self, Context, Typed, referring_kinds, stored_references};
use headwater_model::{Content, Key, Kind};

/// How many referring keys an answer names.
const NAMED_REFERRERS: usize = 5;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// The key.
    pub key: String,
    /// The field as a dotted path, if it is about one.
    pub field: String,
    /// What is wrong with it, and the cure.
    pub problem: String,
}

/// Values to be stored (or keys to be deleted, without a value), by key.
pub type Proposed = BTreeMap<Key, Option<Bytes>>;

/// Who refers to a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Referrers {
    /// The first few.
    pub named: Vec<Key>,
    /// All of them.
    pub count: usize,
}

/// What is wrong with a value by itself.
#[must_use]
pub fn of_value(key: &Key, value: &[u8], context: &Context) -> Option<Fault> {
    match resources::parse(key, value, context) {
        Ok(Typed::Governing(governs)) => Some(Fault::new(key, "plugins", governs.reason)),
        Ok(_) => None,
        Err(invalid) => Some(Fault::new(key, &invalid.field, format!("{invalid}"))),
    }
}

/// What the proposed values name outside of themselves, with who names it. A key that is named and deleted at once
/// is a fault.
#[must_use]
pub fn outside_references(proposed: &Proposed) -> (BTreeMap<Key, Key>, Vec<Fault>) {
    let mut outside = BTreeMap::new();
    let mut faults = Vec::new();
    for (key, value) in proposed {
        let Some(value) = value else { continue };
        for named in stored_references(key, value) {
            match proposed.get(&named) {
                Some(Some(_)) => {}
                Some(None) => {
                    let problem =
                        format!("names {named}, which the same request deletes: keep one of the two");
                    faults.push(Fault::new(key, "", problem));
                }
                None => {
                    outside.entry(named).or_insert_with(|| key.clone());
                }
            }
        }
    }
    (outside, faults)
}

/// A reference that leads nowhere.
#[must_use]
pub fn dangling(key: &Key, named: &Key) -> Fault {
    Fault::new(key, "", format!("names {named}, which does not exist: write it first, or in the same apply"))
}

/// Who in the content, with the proposed writes laid over it, refers to `key`.
#[must_use]
pub fn referrers(key: &Key, content: &Content, proposed: &Proposed) -> Referrers {
    let mut found = BTreeSet::new();
    for directory in referring_directories(key) {
        let stored = content
            .resources()
            .range(Key::new(directory.as_str())..)
            .map(|(_, resource)| resource)
            .take_while(|resource| resource.key().as_str().starts_with(&directory))
            .filter(|resource| !proposed.contains_key(resource.key()))
            .filter(|resource| names(resource.key(), resource.value(), key));
        found.extend(stored.map(|resource| resource.key().clone()));
    }
    let written = proposed.iter().filter_map(|(own, value)| Some((own, value.as_ref()?)));
    found.extend(written.filter(|(own, value)| names(own, value, key)).map(|(own, _)| own.clone()));
    Referrers { count: found.len(), named: found.into_iter().take(NAMED_REFERRERS).collect() }
}

/// The directories in which a resource could name `key`, each with its slash.
#[must_use]
pub fn referring_directories(key: &Key) -> Vec<String> {
    referring_kinds(key.kind())
        .iter()
        .map(|kind| match kind {
            Kind::Credentials => format!("consumers/{}/credentials/", key.id()),
            kind => format!("{kind}/"),
        })
        .collect()
}

/// Everything that is wrong with a content: what nodes would reject, and references that lead nowhere.
#[must_use]
pub fn of_content(content: &Content, context: &Context) -> Vec<Fault> {
    let mut faults = Vec::new();
    for resource in content.iter() {
        let key = resource.key();
        faults.extend(of_value(key, resource.value(), context));
        let named = stored_references(key, resource.value());
        faults.extend(
            named
                .iter()
                .filter(|named| content.get(named.as_str()).is_none())
                .map(|named| dangling(key, named)),
        );
    }
    faults
}

/// Whether a value names `key`. Most values do not even hold its id, which is cheaper to see than to parse; one
/// with an escape might hide it.
fn names(own: &Key, value: &[u8], key: &Key) -> bool {
    let id = key.id().as_bytes();
    let may = own.kind() == Kind::Credentials
        || value.contains(&b'\\')
        || value.windows(id.len().max(1)).any(|window| window == id);
    may && stored_references(own, value).contains(key)
}

// === impl Fault ===

impl Fault {
    /// A fault of a key.
    pub fn new(key: &Key, field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { key: key.to_string(), field: field.into(), problem: problem.into() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.problem)
    }
}

#[cfg(test)]
mod tests {
    use headwater_model::{Resource, Revision};

    use super::*;

    fn content(entries: &[(&str, &str)]) -> Content {
        let resource = |(key, value): &(&str, &str)| {
            Resource::new(Key::new(*key), Bytes::from((*value).to_owned()), Revision(1), Revision(1))
        };
        entries.iter().map(resource).collect()
    }

    fn proposed(entries: &[(&str, Option<&str>)]) -> Proposed {
        entries
            .iter()
            .map(|(key, value)| (Key::new(*key), value.map(|value| Bytes::from(value.to_owned()))))
            .collect()
    }

    const ROUTE: &str = r#"{"uri":"/a","upstream_id":"1"}"#;
    const UPSTREAM: &str = r#"{"type":"roundrobin","nodes":{"127.0.0.1:80":1}}"#;

    #[test]
    fn a_value_is_judged_as_a_node_would() {
        let context = Context::default();
        assert_eq!(of_value(&Key::new("routes/1"), ROUTE.as_bytes(), &context), None);
        let fault = of_value(&Key::new("routes/1"), br#"{"uri":1}"#, &context).unwrap();
        let node = resources::parse(&Key::new("routes/1"), br#"{"uri":1}"#, &context).unwrap_err();
        assert_eq!((fault.field, fault.problem), (node.field.clone(), node.to_string()));
        let rule = br#"{"plugins":{"key-auth":{}}}"#;
        assert!(of_value(&Key::new("global_rules/1"), rule, &context).is_some());
    }

    #[test]
    fn references_may_be_met_by_the_same_request() {
        let both = proposed(&[("routes/1", Some(ROUTE)), ("upstreams/1", Some(UPSTREAM))]);
        assert_eq!(outside_references(&both), (BTreeMap::new(), vec![]));
        let (outside, _) = outside_references(&proposed(&[("routes/1", Some(ROUTE))]));
        assert_eq!(outside, [(Key::new("upstreams/1"), Key::new("routes/1"))].into());
        let (_, faults) = outside_references(&proposed(&[("routes/1", Some(ROUTE)), ("upstreams/1", None)]));
        assert!(faults[0].problem.contains("upstreams/1"), "{faults:?}");
    }

    #[test]
    fn what_is_in_use_is_found_with_the_writes_laid_over() {
        let content = content(&[("routes/1", ROUTE), ("routes/2", ROUTE), ("upstreams/1", UPSTREAM)]);
        let key = Key::new("upstreams/1");
        let found = referrers(&key, &content, &Proposed::new());
        assert_eq!((found.count, found.named.len()), (2, 2));
        let repointed =
            proposed(&[("routes/1", None), ("routes/2", Some(r#"{"uri":"/a","upstream_id":1}"#))]);
        assert_eq!(referrers(&key, &content, &repointed).named, [Key::new("routes/2")]);
        let gone = proposed(&[("routes/1", None), ("routes/2", Some(r#"{"uri":"/a","upstream_id":"2"}"#))]);
        assert_eq!(referrers(&key, &content, &gone), Referrers::default());
    }

    #[test]
    fn an_escaped_id_is_found_too() {
        let content = content(&[("routes/1", r#"{"upstream_id":"\u0031"}"#)]);
        assert_eq!(referrers(&Key::new("upstreams/1"), &content, &Proposed::new()).count, 1);
    }

    #[test]
    fn credentials_protect_their_consumer() {
        let content =
            content(&[("consumers/jack/credentials/c", "{}"), ("consumers/jacky/credentials/c", "{}")]);
        let found = referrers(&Key::new("consumers/jack"), &content, &Proposed::new());
        assert_eq!(found.named, [Key::new("consumers/jack/credentials/c")]);
    }

    #[test]
    fn a_stored_content_is_walked_whole() {
        let content = content(&[("routes/1", ROUTE), ("routes/2", "{"), ("upstreams/2", UPSTREAM)]);
        let keys: Vec<String> =
            of_content(&content, &Context::default()).into_iter().map(|fault| fault.key).collect();
        assert_eq!(keys, ["routes/1", "routes/2"]);
    }
}
