//! A set of keys as etcd's requests name it: one key, a half-open range, or everything from a key on.

use std::ops::Bound;

use bytes::Bytes;

/// A set of neighbouring keys, in byte order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interval {
    key: Bytes,
    end: End,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    Single,
    Below(Bytes),
    Open,
}

// === impl Interval ===

impl Interval {
    /// One key.
    #[must_use]
    pub const fn single(key: Bytes) -> Self {
        Self { key, end: End::Single }
    }

    /// Every key that starts with `prefix`; all keys for an empty one.
    #[must_use]
    pub fn prefix(prefix: Bytes) -> Self {
        let mut end = prefix.to_vec();
        while let Some(last) = end.pop() {
            if last < u8::MAX {
                end.push(last + 1);
                return Self { key: prefix, end: End::Below(end.into()) };
            }
        }
        Self { key: prefix, end: End::Open }
    }

    /// From a request's `key` and `range_end`: empty means the single key, one zero byte means every key from `key`
    /// on, anything else is the first key outside.
    #[must_use]
    pub fn from_request(key: Bytes, range_end: Bytes) -> Self {
        let end = match range_end.as_ref() {
            [] => End::Single,
            [0] => End::Open,
            _ => End::Below(range_end),
        };
        Self { key, end }
    }

    /// The first key that may be inside.
    #[must_use]
    pub const fn key(&self) -> &Bytes {
        &self.key
    }

    /// The request form of the end, as [`Interval::from_request`] takes it.
    #[must_use]
    pub fn range_end(&self) -> Bytes {
        match &self.end {
            End::Single => Bytes::new(),
            End::Open => Bytes::from_static(&[0]),
            End::Below(end) => end.clone(),
        }
    }

    /// The part of it that lies after `key`: how the next page of a read is asked for. The end stays.
    #[must_use]
    pub fn after(&self, key: &[u8]) -> Self {
        let mut next = key.to_vec();
        next.push(0);
        Self { key: next.into(), end: self.end.clone() }
    }

    /// Whether it holds one key.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        match &self.end {
            End::Single => key == self.key,
            End::Open => key >= self.key.as_ref(),
            End::Below(end) => key >= self.key.as_ref() && key < end.as_ref(),
        }
    }

    /// Whether it can hold no key at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(&self.end, End::Below(end) if self.key >= *end)
    }

    /// For the range methods of ordered maps; an [empty](Interval::is_empty) one must not be asked for.
    pub(super) fn bounds(&self) -> (Bound<&Bytes>, Bound<&Bytes>) {
        let end = match &self.end {
            End::Single => Bound::Included(&self.key),
            End::Open => Bound::Unbounded,
            End::Below(end) => Bound::Excluded(end),
        };
        (Bound::Included(&self.key), end)
    }
}
