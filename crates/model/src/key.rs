//! Keys below an environment's prefix, and the kinds they belong to.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// A key of content, relative to the environment's prefix and without a leading slash: `routes/1`.
///
/// Only [`shape::classify`](crate::shape::classify) and the wire make keys, so a `Key` is always of content shape.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<str>);

/// The resource kinds of the APISIX layout, by their first key segment (and, for sub-kinds, the third).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `consumer_groups/{id}`
    ConsumerGroups,
    /// `consumers/{username}`
    Consumers,
    /// `consumers/{username}/credentials/{id}`
    Credentials,
    /// `global_rules/{id}`
    GlobalRules,
    /// `services/{id}/graphql_cost_decorations/{id}`
    GraphqlCostDecorations,
    /// `plugin_configs/{id}`
    PluginConfigs,
    /// `plugin_metadata/{plugin}`
    PluginMetadata,
    /// The single key `plugins`.
    Plugins,
    /// `protos/{id}`
    Protos,
    /// `routes/{id}`
    Routes,
    /// `secrets/{manager}/{id}`
    Secrets,
    /// `services/{id}`
    Services,
    /// `ssls/{id}`
    Ssls,
    /// `stream_routes/{id}`
    StreamRoutes,
    /// `upstreams/{id}`
    Upstreams,
    /// Content by shape whose first segment names no kind that Headwater knows.
    Unknown,
}

// === impl Key ===

impl Key {
    /// A key from text that is already known to be of content shape.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The whole key, as in `routes/1`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The kind, by the key's segments alone.
    #[must_use]
    pub fn kind(&self) -> Kind {
        Kind::of(&self.0)
    }

    /// What follows the first segment: the resource's id (`1` of `routes/1`, `jack/credentials/c1`), or nothing
    /// for `plugins`.
    #[must_use]
    pub fn id(&self) -> &str {
        self.0.split_once('/').map_or("", |(_, id)| id)
    }
}

impl Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// === impl Kind ===

impl Kind {
    /// Every kind with a directory of its own, in the order of the names; [`Kind::Unknown`] is not among them.
    pub const ALL: [Self; 15] = [
        Self::ConsumerGroups,
        Self::Consumers,
        Self::Credentials,
        Self::GlobalRules,
        Self::GraphqlCostDecorations,
        Self::PluginConfigs,
        Self::PluginMetadata,
        Self::Plugins,
        Self::Protos,
        Self::Routes,
        Self::Secrets,
        Self::Services,
        Self::Ssls,
        Self::StreamRoutes,
        Self::Upstreams,
    ];

    /// The kind of a key of content shape.
    #[must_use]
    pub fn of(key: &str) -> Self {
        let mut segments = key.split('/');
        let first = segments.next().unwrap_or_default();
        let third = segments.nth(1);
        match (first, third) {
            ("consumers", Some("credentials")) => Self::Credentials,
            ("services", Some("graphql_cost_decorations")) => Self::GraphqlCostDecorations,
            ("plugins", _) if key != "plugins" => Self::Unknown,
            ("credentials" | "graphql_cost_decorations", _) => Self::Unknown,
            _ => Self::ALL.into_iter().find(|kind| kind.name() == first).unwrap_or(Self::Unknown),
        }
    }

    /// The directory's name: `routes`. Sub-kinds give their sub-directory's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ConsumerGroups => "consumer_groups",
            Self::Consumers => "consumers",
            Self::Credentials => "credentials",
            Self::GlobalRules => "global_rules",
            Self::GraphqlCostDecorations => "graphql_cost_decorations",
            Self::PluginConfigs => "plugin_configs",
            Self::PluginMetadata => "plugin_metadata",
            Self::Plugins => "plugins",
            Self::Protos => "protos",
            Self::Routes => "routes",
            Self::Secrets => "secrets",
            Self::Services => "services",
            Self::Ssls => "ssls",
            Self::StreamRoutes => "stream_routes",
            Self::Upstreams => "upstreams",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_follow_the_segments() {
        for (key, kind) in [
            ("routes/1", Kind::Routes),
            ("consumers/jack", Kind::Consumers),
            ("consumers/jack/credentials/c1", Kind::Credentials),
            ("services/s/graphql_cost_decorations/d", Kind::GraphqlCostDecorations),
            ("secrets/vault/1", Kind::Secrets),
            ("plugins", Kind::Plugins),
            ("plugins/x", Kind::Unknown),
            ("credentials/x", Kind::Unknown),
            ("routes_old/1", Kind::Unknown),
        ] {
            assert_eq!(Key::new(key).kind(), kind, "{key}");
        }
    }

    #[test]
    fn ids_are_what_follows_the_directory() {
        assert_eq!(Key::new("routes/1").id(), "1");
        assert_eq!(Key::new("consumers/jack/credentials/c1").id(), "jack/credentials/c1");
        assert_eq!(Key::new("plugins").id(), "");
    }
}
