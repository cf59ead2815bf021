//! What a version claims, held against what an independent observer knows.
//!
//! It shares no code with what is checked but the types that cross the wire.

use headwater_model::shape::{Shape, classify};
use headwater_model::{Content, Key, Resource, Revision, Version};

use crate::simulation::truth::{Epoch, Fact, Facts, Truth};

/// The first difference between a content and a state of etcd, in words. Keys that are no content do not count.
#[must_use]
pub fn difference(content: &Content, facts: &Facts) -> Option<String> {
    let mut count = 0;
    for (key, fact) in content_of(facts) {
        count += 1;
        match content.get(key.as_str()) {
            Some(held) if is(held, fact) => {}
            Some(held) => {
                let (held, fact) = (held.mod_revision(), fact.mod_revision);
                return Some(format!("{key} is of revision {held}, in etcd it was of {fact}"));
            }
            None => return Some(format!("{key} is missing, in etcd it was of {}", fact.mod_revision)),
        }
    }
    if count == content.len() {
        return None;
    }
    let known = |key: &Key| facts.contains_key(key.as_str().as_bytes());
    let extra = content.iter().find(|held| !known(held.key()));
    Some(format!("{:?} is held, in etcd it was not there", extra.map(|held| held.key().as_str())))
}

/// The histories in which a version is what it says: its content at its revision, under its cluster id. Newest first.
pub fn histories<'a>(
    truth: &'a Truth,
    version: &'a Version,
    content: &'a Content,
) -> impl Iterator<Item = Epoch> + 'a {
    truth.epochs().filter(|epoch| truth.cluster_id(*epoch) == version.lineage.cluster_id).filter(|epoch| {
        truth.at(*epoch, version.revision.0).is_some_and(|facts| difference(content, facts).is_none())
    })
}

/// Whether a content is etcd's at the version's revision, in some history.
///
/// # Errors
/// How it differs from the newest history.
pub fn check(truth: &Truth, version: &Version, content: &Content) -> Result<(), String> {
    if content.digest() != version.digest {
        return Err(format!("{version:?} has a content of another digest, {}", content.digest()));
    }
    if histories(truth, version, content).next().is_some() {
        return Ok(());
    }
    let newest = truth.at(truth.epoch(), version.revision.0);
    let how = newest.map_or_else(
        || "the present one never got that far".to_owned(),
        |facts| difference(content, facts).unwrap_or_else(|| "only the cluster id differs".to_owned()),
    );
    Err(format!("{version:?} was never etcd's content at that revision, in no history: {how}"))
}

/// Whether a version's digest is that of etcd's content at its revision, in some history.
#[must_use]
pub fn is_true(truth: &Truth, version: &Version) -> bool {
    truth.epochs().any(|epoch| is_true_in(truth, epoch, version))
}

/// Whether a version's digest is that of etcd's content at its revision in one history.
#[must_use]
pub fn is_true_in(truth: &Truth, epoch: Epoch, version: &Version) -> bool {
    truth.cluster_id(epoch) == version.lineage.cluster_id
        && truth.digest_at(epoch, version.revision.0, |facts| content(facts).digest()) == Some(version.digest)
}

/// The content of a state.
#[must_use]
pub fn content(facts: &Facts) -> Content {
    content_of(facts)
        .map(|(key, fact)| {
            let (create, modified) = (Revision(fact.create_revision), Revision(fact.mod_revision));
            Resource::new(key, fact.value.clone(), create, modified)
        })
        .collect()
}

fn content_of(facts: &Facts) -> impl Iterator<Item = (Key, &Fact)> {
    facts.iter().filter_map(|(key, fact)| match classify(key) {
        Shape::Content(key) => Some((key, fact)),
        Shape::Ignored(_) => None,
    })
}

fn is(held: &Resource, fact: &Fact) -> bool {
    held.mod_revision().0 == fact.mod_revision
        && held.create_revision().0 == fact.create_revision
        && *held.value() == fact.value
}
