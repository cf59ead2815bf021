//! The search for an older value in etcd's own history. Pure; the shell reads.
//!
//! etcd keeps what was written until it is compacted, so a value that was replaced before this replica started can
//! still be found: the state of the key just below the rejected revision, then below that one, a few at most.

use std::sync::Arc;

use headwater_model::{Key, Resource, Revision};
use headwater_proto::config::FallbackRequest;

use super::usable;
use crate::backend::{Entry, ReadError};

/// How many older revisions of a key are looked at.
const MAX_LOOKS: usize = 8;

/// A search under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookup {
    request: FallbackRequest,
    at: Revision,
    left: usize,
}

/// How a search goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// Read [this](Lookup::asks).
    Read(Lookup),
    /// It is over: this was found, or there is none.
    Done(Option<Arc<Resource>>),
    /// etcd gave no answer: the same may be read again.
    Unanswered(Lookup),
}

// === impl Lookup ===

impl Lookup {
    /// Begins a search.
    #[must_use]
    pub fn begin(request: FallbackRequest) -> Look {
        let below = request.below;
        Self { request, at: below, left: MAX_LOOKS }.below(below)
    }

    /// The key to read, and at which revision.
    #[must_use]
    pub const fn asks(&self) -> (&Key, Revision) {
        (&self.request.key, self.at)
    }

    /// Goes on with what was read.
    #[must_use]
    pub fn answered(self, found: Result<Option<Entry>, ReadError>) -> Look {
        let entry = match found {
            Ok(Some(entry)) if entry.create_revision == self.request.create_revision => entry,
            // The key was not there, or in an earlier life, or nobody can tell any more: there is no older value.
            Ok(_) | Err(ReadError::Compacted { .. } | ReadError::Future { .. } | ReadError::Refused(_)) => {
                return Look::Done(None);
            }
            Err(ReadError::Unavailable { .. }) => return Look::Unanswered(self),
        };
        let Entry { value, create_revision, mod_revision, .. } = entry;
        let resource = Resource::new(self.request.key.clone(), value, create_revision, mod_revision);
        if usable(&resource) { Look::Done(Some(Arc::new(resource))) } else { self.below(mod_revision) }
    }

    fn below(mut self, revision: Revision) -> Look {
        if self.left == 0 || revision <= self.request.create_revision {
            return Look::Done(None);
        }
        self.left -= 1;
        self.at = Revision(revision.0 - 1);
        Look::Read(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(create: u64, below: u64) -> FallbackRequest {
        FallbackRequest {
            key: Key::new("routes/1"),
            create_revision: Revision(create),
            below: Revision(below),
        }
    }

    fn entry(create: u64, modified: u64, value: &'static str) -> Result<Option<Entry>, ReadError> {
        Ok(Some(Entry {
            key: "routes/1".into(),
            value: value.into(),
            create_revision: Revision(create),
            mod_revision: Revision(modified),
        }))
    }

    fn reads(look: Look) -> Lookup {
        let Look::Read(lookup) = look else { panic!("{look:?}") };
        lookup
    }

    const GOOD: &str = r#"{"uri":"/","upstream":{"type":"roundrobin","nodes":{"127.0.0.1:80":1}}}"#;

    #[test]
    fn the_newest_usable_value_below_is_found() {
        let lookup = reads(Lookup::begin(request(3, 9)));
        assert_eq!(lookup.asks().1, Revision(8));
        let lookup = reads(lookup.answered(entry(3, 7, "bad")));
        assert_eq!(lookup.asks().1, Revision(6));
        let Look::Done(Some(found)) = lookup.answered(entry(3, 4, GOOD)) else { panic!("not found") };
        assert_eq!((found.mod_revision(), found.value().as_ref()), (Revision(4), GOOD.as_bytes()));
    }

    #[test]
    fn there_is_none_before_the_key_in_another_life_or_where_etcd_forgot() {
        assert_eq!(Lookup::begin(request(9, 9)), Look::Done(None));
        let lookup = || reads(Lookup::begin(request(3, 9)));
        assert_eq!(lookup().answered(Ok(None)), Look::Done(None));
        assert_eq!(lookup().answered(entry(2, 2, GOOD)), Look::Done(None));
        assert_eq!(lookup().answered(entry(3, 3, "bad")), Look::Done(None));
        let compacted = ReadError::Compacted { revision: Revision(8), oldest: Revision(9) };
        assert_eq!(lookup().answered(Err(compacted)), Look::Done(None));
    }

    #[test]
    fn only_a_few_are_looked_at_and_silence_is_no_answer() {
        let mut look = Lookup::begin(request(1, 100));
        let mut looks = 0;
        while let Look::Read(lookup) = look {
            looks += 1;
            look = lookup.answered(entry(1, 100 - looks, "bad"));
        }
        assert_eq!((looks, look), (MAX_LOOKS as u64, Look::Done(None)));
        let lookup = reads(Lookup::begin(request(1, 100)));
        let silence = ReadError::Unavailable { cause: "away".to_owned(), after: std::time::Duration::ZERO };
        assert_eq!(lookup.clone().answered(Err(silence)), Look::Unanswered(lookup));
    }
}
