//! Who may join an environment: by the identity of a client certificate, or by a join token.

use std::collections::BTreeMap;
use std::sync::Arc;

use headwater_tls::PeerIdentity;

/// The rules of every environment.
#[derive(Clone, Debug, Default)]
pub struct Admission {
    /// The rules by environment name.
    pub environments: BTreeMap<Arc<str>, JoinRules>,
    /// Whether anybody who can connect may join (`insecure: true`).
    pub insecure: bool,
}

/// Who may join one environment.
#[derive(Clone, Default)]
pub struct JoinRules {
    /// Names a certificate may carry (SAN DNS or URI, or CN).
    pub identities: Vec<String>,
    /// Tokens by the name they are shown under.
    pub tokens: BTreeMap<String, String>,
}

/// Why a node may not join. Told to the node, with nothing that helps guessing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No environment of this name.
    #[error("this replica serves no environment named {0}")]
    UnknownEnvironment(Arc<str>),
    /// Neither a certificate nor a token.
    #[error("environment {0} wants a client certificate that it lists, or a join token: neither was given")]
    Nothing(Arc<str>),
    /// A token that the environment does not list.
    #[error("the join token is not one of environment {0}")]
    WrongToken(Arc<str>),
    /// A certificate that the environment does not list.
    #[error("the client certificate carries no name that environment {0} lists (it names {1})")]
    WrongIdentity(Arc<str>, String),
}

// === impl Admission ===

impl Admission {
    /// The name under which a node may join, or why it may not.
    ///
    /// # Errors
    /// [`Refusal`], to be counted here and told to the node.
    pub fn admit(
        &self,
        environment: &Arc<str>,
        identity: Option<&PeerIdentity>,
        token: Option<&str>,
    ) -> Result<Option<String>, Refusal> {
        let rules = self
            .environments
            .get(environment)
            .ok_or_else(|| Refusal::UnknownEnvironment(environment.clone()))?;
        if let Some(name) =
            identity.and_then(|identity| rules.identities.iter().find(|name| identity.is(name)))
        {
            return Ok(Some(name.clone()));
        }
        let named = token.and_then(|token| rules.tokens.iter().find(|(_, known)| equal(known, token)));
        if let Some((name, _)) = named {
            return Ok(Some(name.clone()));
        }
        if self.insecure {
            return Ok(identity.and_then(|identity| identity.names.first().cloned()));
        }
        Err(match (token, identity) {
            (Some(_), _) => Refusal::WrongToken(environment.clone()),
            (None, Some(identity)) => Refusal::WrongIdentity(environment.clone(), identity.names.join(", ")),
            (None, None) => Refusal::Nothing(environment.clone()),
        })
    }
}

impl Refusal {
    /// The reason as a metric label.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::UnknownEnvironment(_) => "unknown_environment",
            Self::Nothing(_) => "no_credentials",
            Self::WrongToken(_) => "wrong_token",
            Self::WrongIdentity(..) => "wrong_identity",
        }
    }
}

impl std::fmt::Debug for JoinRules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tokens: Vec<_> = self.tokens.keys().collect();
        f.debug_struct("JoinRules").field("identities", &self.identities).field("tokens", &tokens).finish()
    }
}

/// Compares without telling by its time where two texts differ.
fn equal(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().zip(b.bytes()).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission(insecure: bool) -> Admission {
        let rules = JoinRules {
            identities: vec!["node-1".to_owned()],
            tokens: [("ops".to_owned(), "secret".to_owned())].into(),
        };
        Admission { environments: [("prod".into(), rules)].into(), insecure }
    }

    fn identity(name: &str) -> PeerIdentity {
        PeerIdentity { names: vec![name.to_owned()] }
    }

    #[test]
    fn a_listed_certificate_or_token_may_join_and_is_named() {
        let admission = admission(false);
        let prod = Arc::from("prod");
        assert_eq!(admission.admit(&prod, Some(&identity("node-1")), None), Ok(Some("node-1".to_owned())));
        assert_eq!(admission.admit(&prod, None, Some("secret")), Ok(Some("ops".to_owned())));
        assert_eq!(
            admission.admit(&prod, Some(&identity("other")), Some("secret")),
            Ok(Some("ops".to_owned()))
        );
    }

    #[test]
    fn everything_else_is_refused_by_name() {
        let admission = admission(false);
        let prod: Arc<str> = "prod".into();
        for (refused, label) in [
            (admission.admit(&"test".into(), None, Some("secret")), "unknown_environment"),
            (admission.admit(&prod, None, None), "no_credentials"),
            (admission.admit(&prod, None, Some("secreT")), "wrong_token"),
            (admission.admit(&prod, Some(&identity("node-2")), None), "wrong_identity"),
        ] {
            assert_eq!(refused.unwrap_err().label(), label);
        }
    }

    #[test]
    fn insecure_lets_anybody_in_but_not_into_an_unknown_environment() {
        let admission = admission(true);
        assert_eq!(admission.admit(&"prod".into(), None, None), Ok(None));
        assert!(admission.admit(&"test".into(), None, None).is_err());
    }
}
