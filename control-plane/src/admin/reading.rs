//! Reads. One key is read from the source itself, so that it is as new as can be; lists come from this replica's own
//! state, so that they cost the source nothing. Each answer names the version it is of, and says when it may be old.

use headwater_model::{Digest, Key, Kind, Version};

use super::access::Role;
use super::environment::Environment;
use super::form;
use super::refusal::Refusal;
use super::view::EnvironmentState;

/// The most resources in one answer.
pub const PAGE: usize = 1000;
/// The most bytes of values in one answer, apart from its first: below gRPC's default limit of a message.
const PAGE_BYTES: usize = 3 << 20;

/// A resource as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The key.
    pub key: Key,
    /// The value; without private keys for a viewer.
    pub value: bytes::Bytes,
    /// Whether something was taken out.
    pub redacted: bool,
    /// The revision at which the key came into being.
    pub create_revision: u64,
    /// The revision of the last write.
    pub mod_revision: u64,
}

/// What a read answers.
#[derive(Clone, Debug)]
pub struct Read<T> {
    /// The answer.
    pub answer: T,
    /// The state it is of.
    pub version: Version,
    /// Why it may be old, if so.
    pub stale: Option<String>,
    /// The sentence of a standing hold.
    pub held: Option<String>,
}

/// A page of resources.
#[derive(Clone, Debug)]
pub struct Page {
    /// In key order.
    pub resources: Vec<Shown>,
    /// The last key, when there are more after it.
    pub next: Option<Key>,
    /// How many there are in all.
    pub total: usize,
}

// === impl Environment ===

impl Environment {
    /// One resource.
    ///
    /// # Errors
    /// When it does not exist, or nothing is loaded.
    pub async fn get(&self, key: &Key, role: Role) -> Result<Read<Shown>, Refusal> {
        let state = self.state().await?;
        let missing = || Refusal::NotFound { key: key.clone() };
        let stale = match self.reader.get(key.as_str().as_bytes()).await {
            Ok((entry, head)) => {
                let entry = entry.ok_or_else(missing)?;
                let shown =
                    Shown::new(key, &entry.value, (entry.create_revision.0, entry.mod_revision.0), role);
                let mut version = state.world.version().clone();
                version.lineage.cluster_id = head.cluster_id;
                version.revision = head.revision;
                version.digest = Digest::EMPTY;
                return Ok(Read { answer: shown, version, stale: None, held: state.held() });
            }
            Err(error) => {
                format!("the source cannot be read ({error}): this is the replica's last known state")
            }
        };
        let resource = state.world.content().get(key.as_str()).ok_or_else(missing)?;
        let revisions = (resource.create_revision().0, resource.mod_revision().0);
        let shown = Shown::new(key, resource.value(), revisions, role);
        Ok(Read {
            answer: shown,
            version: state.world.version().clone(),
            stale: Some(stale),
            held: state.held(),
        })
    }

    /// The resources of a kind, or of all kinds, after a key.
    ///
    /// # Errors
    /// When nothing is loaded.
    pub async fn list(
        &self,
        kind: Option<Kind>,
        after: Option<&str>,
        limit: usize,
        role: Role,
    ) -> Result<Read<Page>, Refusal> {
        let state = self.state().await?;
        let limit = if limit == 0 { PAGE } else { limit.min(PAGE) };
        let of_kind = || {
            state
                .world
                .content()
                .iter()
                .filter(|resource| kind.is_none_or(|kind| resource.key().kind() == kind))
        };
        let mut resources = Vec::new();
        let mut bytes = 0;
        let mut next = None;
        for resource in of_kind().filter(|resource| after.is_none_or(|after| resource.key().as_str() > after))
        {
            bytes += resource.value().len();
            if resources.len() >= limit || (bytes > PAGE_BYTES && !resources.is_empty()) {
                next = resources.last().map(|shown: &Shown| shown.key.clone());
                break;
            }
            let revisions = (resource.create_revision().0, resource.mod_revision().0);
            resources.push(Shown::new(resource.key(), resource.value(), revisions, role));
        }
        let page = Page { resources, next, total: of_kind().count() };
        Ok(Read::of(page, &state))
    }
}

// === impl Read ===

impl<T> Read<T> {
    fn of(answer: T, state: &EnvironmentState) -> Self {
        Self { answer, version: state.world.version().clone(), stale: state.degraded(), held: state.held() }
    }
}

// === impl Shown ===

impl Shown {
    fn new(key: &Key, value: &bytes::Bytes, (create_revision, mod_revision): (u64, u64), role: Role) -> Self {
        let redacted = if role == Role::Admin { None } else { form::redacted(key, value) };
        Self {
            key: key.clone(),
            redacted: redacted.is_some(),
            value: redacted.unwrap_or_else(|| value.clone()),
            create_revision,
            mod_revision,
        }
    }
}
