//! An environment's keys as a range of etcd's, and reads over it.

use bytes::{Buf, Bytes};
use headwater_model::Revision;

use super::tracker::Header;
use crate::backend::Entry;

/// Everything below `<prefix>/`, with the slash: `/apisix2` is none of `/apisix`'s.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyRange {
    start: Bytes,
}

/// Which keys of the range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Scope {
    #[default]
    All,
    /// Those that begin with this.
    Directory(Bytes),
    /// This one.
    Key(Bytes),
}

/// What is asked of a range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Query {
    /// Zero: now.
    pub(super) revision: Revision,
    /// Only keys after this one.
    pub(super) after: Option<Bytes>,
    pub(super) scope: Scope,
    /// Zero: all.
    pub(super) limit: u32,
    pub(super) keys_only: bool,
    pub(super) count_only: bool,
}

/// What is answered.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) header: Header,
    pub(super) entries: Vec<Entry>,
    pub(super) more: bool,
}

// === impl KeyRange ===

impl KeyRange {
    pub(super) fn of_prefix(prefix: &str) -> Self {
        Self { start: Bytes::from(format!("{}/", prefix.trim_end_matches('/'))) }
    }

    /// All keys that begin with `directory`, which is relative to this range.
    pub(super) fn below(&self, directory: &[u8]) -> Self {
        Self { start: Bytes::from(self.absolute(directory)) }
    }

    pub(super) fn start(&self) -> Vec<u8> {
        self.start.to_vec()
    }

    /// The first key after all that begin with the start.
    pub(super) fn end(&self) -> Vec<u8> {
        let mut end = self.start.to_vec();
        while let Some(last) = end.pop() {
            if last < u8::MAX {
                end.push(last + 1);
                return end;
            }
        }
        // Only bytes of 255: to the end of all keys.
        vec![0]
    }

    pub(super) fn absolute(&self, key: &[u8]) -> Vec<u8> {
        [self.start.as_ref(), key].concat()
    }

    pub(super) fn relative(&self, mut key: Bytes) -> Option<Bytes> {
        if !key.starts_with(&self.start) {
            return None;
        }
        // In place: a slice of it would be one more allocation for each key of a read.
        key.advance(self.start.len());
        Some(key)
    }
}

// === impl Query ===

impl Query {
    /// The first key asked for, and the end of the range; `None` for a single key.
    pub(super) fn bounds(&self, range: &KeyRange) -> (Vec<u8>, Option<Vec<u8>>) {
        let within = match &self.scope {
            Scope::Key(key) => return (range.absolute(key), None),
            Scope::Directory(directory) => range.below(directory),
            Scope::All => range.clone(),
        };
        let first = match &self.after {
            // The smallest key after it.
            Some(after) => [range.start.as_ref(), after.as_ref(), &[0]].concat(),
            None => within.start(),
        };
        (first, Some(within.end()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_is_below_the_slash() {
        for prefix in ["/apisix", "/apisix/"] {
            let range = KeyRange::of_prefix(prefix);
            assert_eq!((range.start(), range.end()), (b"/apisix/".to_vec(), b"/apisix0".to_vec()));
        }
        let range = KeyRange::of_prefix("/apisix");
        assert_eq!(
            range.relative(Bytes::from_static(b"/apisix/routes/1")),
            Some(Bytes::from_static(b"routes/1"))
        );
        assert_eq!(range.relative(Bytes::from_static(b"/apisix2/routes/1")), None);
        assert_eq!(range.below(b"routes/").end(), b"/apisix/routes0".to_vec());
        assert_eq!(range.below(&[255]).end(), b"/apisix0".to_vec());
    }

    #[test]
    fn a_page_begins_right_after_the_last_key() {
        let range = KeyRange::of_prefix("/a");
        let after = Some(Bytes::from_static(b"b/1"));
        let query = Query { after: after.clone(), ..Query::default() };
        assert_eq!(query.bounds(&range), (b"/a/b/1\0".to_vec(), Some(b"/a0".to_vec())));
        let scope = Scope::Directory(Bytes::from_static(b"b/"));
        let query = Query { after, scope, ..Query::default() };
        assert_eq!(query.bounds(&range), (b"/a/b/1\0".to_vec(), Some(b"/a/b0".to_vec())));
        let query = Query { scope: Scope::Key(Bytes::from_static(b"b/1")), ..Query::default() };
        assert_eq!(query.bounds(&range), (b"/a/b/1".to_vec(), None));
    }
}
