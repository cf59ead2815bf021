//! The mass-deletion guard: what a jump would remove from a receiver, and whether that is held.
//!
//! Judged twice with the same rule: by the replica against its memory or file, and by the node against its own
//! table. Ordinary changes are never guarded; only jumps are.

use std::fmt;

use crate::Key;
use crate::content::Content;

/// What going from one content to another would remove.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Removal {
    /// How many resources the receiver holds.
    pub held: usize,
    /// How many of their keys the target lacks.
    pub removed: usize,
    /// Whether the receiver has routes and the target has none.
    pub last_route: bool,
    /// Whether the receiver has certificates and the target has none.
    pub last_certificate: bool,
}

// === impl Removal ===

impl Removal {
    /// What a jump from `held` to `target` would remove.
    #[must_use]
    pub fn between(held: &Content, target: &Content) -> Self {
        let is_gone = |key: &Key| target.get(key.as_str()).is_none();
        // A reload that found nothing new is a jump too, and is not to cost a look at every key.
        let same = held.digest() == target.digest();
        let removed = if same { 0 } else { held.iter().filter(|resource| is_gone(resource.key())).count() };
        Self {
            held: held.len(),
            removed,
            last_route: held.routes() > 0 && target.routes() == 0,
            last_certificate: held.certificates() > 0 && target.certificates() == 0,
        }
    }

    /// Whether a jump that removes this much is held: more than half, the last route, or the last certificate.
    #[must_use]
    pub const fn is_held(&self) -> bool {
        self.removed * 2 > self.held || self.last_route || self.last_certificate
    }
}

impl fmt::Display for Removal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "removes {} of {} resources", self.removed, self.held)?;
        if self.last_route {
            f.write_str(", the last route among them")?;
        }
        if self.last_certificate {
            f.write_str(", the last certificate among them")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::key::Key;
    use crate::resource::Resource;
    use crate::version::Revision;

    fn content(keys: &[&str]) -> Content {
        keys.iter().map(|key| Resource::new(Key::new(*key), Bytes::new(), Revision(1), Revision(1))).collect()
    }

    #[test]
    fn more_than_half_is_held_and_half_is_not() {
        let held = content(&["routes/1", "routes/2", "routes/3", "routes/4"]);
        assert!(!Removal::between(&held, &content(&["routes/1", "routes/2"])).is_held());
        assert!(Removal::between(&held, &content(&["routes/1"])).is_held());
        assert!(!Removal::between(&held, &content(&["routes/1", "routes/2", "routes/9"])).is_held());
    }

    #[test]
    fn the_last_route_and_the_last_certificate_are_held() {
        let held = content(&["routes/1", "ssls/1", "upstreams/1", "upstreams/2", "upstreams/3"]);
        let removal =
            Removal::between(&held, &content(&["ssls/1", "upstreams/1", "upstreams/2", "upstreams/3"]));
        assert!(removal.is_held() && removal.last_route && !removal.last_certificate);
        let removal =
            Removal::between(&held, &content(&["routes/1", "upstreams/1", "upstreams/2", "upstreams/3"]));
        assert!(removal.is_held() && !removal.last_route && removal.last_certificate);
    }

    #[test]
    fn an_empty_receiver_has_nothing_to_lose() {
        assert!(!Removal::between(&content(&[]), &content(&[])).is_held());
        assert!(!Removal::between(&content(&[]), &content(&["routes/1"])).is_held());
    }
}
