//! The methods a route answers.

use std::fmt;

use super::fields::Item;
use super::invalid::Invalid;

/// The ten methods a route can list.
const NAMES: [&str; 10] =
    ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "CONNECT", "TRACE", "PURGE"];

/// A set of methods; the empty set stands for any method at all.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Methods(u16);

// === impl Methods ===

impl Methods {
    /// Any method, also one that no route can list.
    pub const ANY: Self = Self(0);

    pub(super) fn parse(item: Item) -> Result<Self, Invalid> {
        let bits = item.set(0, |item| {
            let path = item.path.clone();
            let name = item.string(1, 64)?;
            NAMES
                .iter()
                .position(|known| *known == name)
                .ok_or_else(|| Invalid::new(path, format!("is `{name}`; use one of {}", NAMES.join(", "))))
        })?;
        Ok(Self(bits.into_iter().fold(0, |set, bit| set | 1 << bit)))
    }

    /// Whether a request with this method is answered. Methods are case-sensitive.
    #[must_use]
    pub fn allow(self, method: &str) -> bool {
        self == Self::ANY || self.iter().any(|name| name == method)
    }

    /// The listed methods; none when any is allowed.
    pub fn iter(self) -> impl Iterator<Item = &'static str> {
        NAMES.into_iter().enumerate().filter(move |(bit, _)| self.0 & (1 << bit) != 0).map(|(_, name)| name)
    }
}

impl fmt::Debug for Methods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}
