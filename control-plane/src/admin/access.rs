//! Who may ask for what. A caller proves itself by a client certificate or by a key; each has one of two roles.
//!
//! Keys are compared in a time that does not depend on where they differ. A refusal is counted and named, and never
//! says which half of a guess was right.

use headwater_process::settings::Secret;
use headwater_tls::PeerIdentity;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use serde::{Deserialize, Serialize};

/// What a caller may do. Ordered: a greater role may do all that a lesser one may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Read everything but private keys, and wait.
    Viewer,
    /// All of it.
    Admin,
}

/// One entry of the list of callers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caller {
    /// What logs call it.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// The DNS name or URI in its client certificate.
    #[serde(default)]
    pub identity: Option<String>,
    /// Its key, sent as `x-api-key`.
    #[serde(default)]
    pub key: Option<Secret<String>>,
}

/// The list of callers, with the count of those that were turned away.
#[derive(Clone, Debug)]
pub struct Access {
    callers: Vec<Caller>,
    open: bool,
    denied: Family<Reason, Counter>,
}

/// Who was let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// Its name.
    pub name: String,
    /// Its role.
    pub role: Role,
}

/// Why a caller was turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// It showed nothing.
    #[error("no client certificate and no x-api-key was shown: this listener asks for one of them")]
    Anonymous,
    /// Neither what it showed nor its certificate is on the list.
    #[error("the client certificate or key is not on this listener's list of callers")]
    Unknown,
    /// A viewer asked for a change.
    #[error("the role viewer may not do this: it takes the role admin")]
    Role,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

// === impl Access ===

impl Access {
    /// A list of callers. An empty one lets nobody in, unless `open`: then whoever reaches the listener is admin.
    #[must_use]
    pub fn new(callers: Vec<Caller>, open: bool) -> Self {
        Self { open: open && callers.is_empty(), callers, denied: Family::default() }
    }

    /// Registers the counter of those turned away.
    pub fn register(&self, registry: &mut Registry) {
        let help = "Requests of operators that were turned away, by reason";
        registry.register("admin_denied", help, self.denied.clone());
    }

    /// Lets a caller in that has at least the role `needed`.
    ///
    /// # Errors
    /// Why not; counted.
    pub fn admit(
        &self,
        identity: Option<&PeerIdentity>,
        key: Option<&str>,
        needed: Role,
    ) -> Result<Admitted, Denied> {
        let judged = self
            .judge(identity, key)
            .and_then(|admitted| if admitted.role >= needed { Ok(admitted) } else { Err(Denied::Role) });
        if let Err(denied) = &judged {
            self.denied.get_or_create(&Reason { reason: denied.label() }).inc();
        }
        judged
    }

    fn judge(&self, identity: Option<&PeerIdentity>, key: Option<&str>) -> Result<Admitted, Denied> {
        if self.open {
            return Ok(Admitted { name: "anyone".into(), role: Role::Admin });
        }
        if identity.is_none() && key.is_none() {
            return Err(Denied::Anonymous);
        }
        let by_certificate = |caller: &&Caller| {
            caller.identity.as_ref().is_some_and(|name| identity.is_some_and(|shown| shown.is(name)))
        };
        let by_key = |caller: &&Caller| match (&caller.key, key) {
            (Some(own), Some(shown)) => is_equal(own.expose().as_bytes(), shown.as_bytes()),
            _ => false,
        };
        // Whoever is on the list twice has the greater role.
        self.callers
            .iter()
            .filter(|caller| by_certificate(caller) | by_key(caller))
            .max_by_key(|caller| caller.role)
            .map(|caller| Admitted { name: caller.name.clone(), role: caller.role })
            .ok_or(Denied::Unknown)
    }
}

// === impl Denied ===

impl Denied {
    /// The reason as a label.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Anonymous => "anonymous",
            Self::Unknown => "unknown",
            Self::Role => "role",
        }
    }
}

/// Compares without stopping at the first difference.
fn is_equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access() -> Access {
        let caller = |name: &str, role, identity: Option<&str>, key: Option<&str>| Caller {
            name: name.into(),
            role,
            identity: identity.map(Into::into),
            key: key.map(|key| Secret::new(key.into())),
        };
        Access::new(
            vec![
                caller("ops", Role::Admin, Some("ops.example"), None),
                caller("ci", Role::Viewer, None, Some("0123456789abcdef")),
            ],
            true,
        )
    }

    fn certificate(name: &str) -> PeerIdentity {
        PeerIdentity { names: vec![name.into()] }
    }

    #[test]
    fn a_certificate_or_a_key_lets_in() {
        let access = access();
        let ops = access.admit(Some(&certificate("ops.example")), None, Role::Admin);
        assert_eq!(ops, Ok(Admitted { name: "ops".into(), role: Role::Admin }));
        assert!(access.admit(None, Some("0123456789abcdef"), Role::Viewer).is_ok());
    }

    #[test]
    fn a_refusal_has_a_reason_and_is_counted() {
        let access = access();
        for (identity, key, needed, denied) in [
            (None, None, Role::Viewer, Denied::Anonymous),
            (None, Some("0123456789abcdeX"), Role::Viewer, Denied::Unknown),
            (Some(certificate("other.example")), None, Role::Viewer, Denied::Unknown),
            (None, Some("0123456789abcdef"), Role::Admin, Denied::Role),
        ] {
            assert_eq!(access.admit(identity.as_ref(), key, needed), Err(denied));
            assert!(access.denied.get_or_create(&Reason { reason: denied.label() }).get() > 0);
        }
    }

    #[test]
    fn without_callers_only_an_open_listener_lets_in() {
        assert_eq!(Access::new(vec![], false).admit(None, Some("x"), Role::Viewer), Err(Denied::Unknown));
        assert!(Access::new(vec![], true).admit(None, None, Role::Admin).is_ok());
        assert!(access().admit(None, None, Role::Viewer).is_err(), "a list closes even an insecure listener");
    }
}
