//! Typed resources: parsing a value is validating it.
//!
//! [`parse`] answers two questions in one place, so that an admin's `validate` and a node's verdict say the same
//! sentence: is the value what APISIX's schema calls valid, and can a node honour all of it now. A field is read
//! into the typed form, or it is refused by name with a cure; it is never accepted and ignored. Defaults are
//! filled here, because etcd holds only what the client sent.
//!
//! Pure: the answer depends on key, value and [`Context`] alone. It must never know what else is in the content;
//! whether a reference resolves is for whoever holds all of it.
//!
//! ## What each kind becomes
//!
//! | kind | typed form | why |
//! | --- | --- | --- |
//! | routes, services, upstreams, ssls | their own | served |
//! | global_rules | [`Typed::Governing`] while a plugin of it is enabled, else inert | it governs every request |
//! | plugin_configs | inert | it governs only routes that name it in `plugin_config_id`, and those are rejected |
//! | consumers, credentials, consumer_groups | inert | they act only after an auth plugin ran, and a route or service with a plugin is rejected |
//! | plugin_metadata, `plugins`, protos, secrets, graphql_cost_decorations | inert | only plugins and `$secret://` references read them, and those are rejected |
//! | stream_routes | inert | they govern TCP and UDP listeners; an APISIX node that serves HTTP alone does not load them either |
//! | anything else | inert, not parsed | no APISIX data plane watches it |
//!
//! Inert values are validated all the same, so that a broken one is told when it is written and not on the day a
//! plugin begins to read it.

use std::sync::Arc;

use crate::key::{Key, Kind};

mod fields;
mod hosts;
mod inert;
mod invalid;
mod keyring;
mod meta;
mod methods;
mod nodes;
mod plugins;
mod references;
mod route;
mod service;
mod ssl;
mod timeout;
mod upstream;
mod uri;

pub use invalid::Invalid;
pub use keyring::{Keyring, KeyringError};
pub use meta::Meta;
pub use methods::Methods;
pub use nodes::Node;
pub use references::{references, referring_kinds, stored_references};
pub use route::Route;
pub use service::Service;
pub use ssl::{Protocols, Sni, Ssl, SslPurpose};
pub use timeout::Timeout;
pub use upstream::{PassHost, Scheme, Upstream};
pub use uri::UriPattern;

/// What parsing needs to know beside key and value.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// The keys that encrypted fields may have been encrypted with (`data_encryption.keyring`).
    pub keyring: Keyring,
}

/// A usable value.
#[derive(Clone, Debug, PartialEq)]
pub enum Typed {
    /// A route.
    Route(Arc<Route>),
    /// A service.
    Service(Arc<Service>),
    /// An upstream.
    Upstream(Arc<Upstream>),
    /// A certificate object.
    Ssl(Arc<Ssl>),
    /// Valid, with nothing to serve.
    Inert,
    /// Valid, but it governs requests in a way that cannot be honoured.
    Governing(Governs),
}

/// A value that governs every request of the environment and cannot be honoured. Unless the operator allows the
/// key by name, every request is refused while it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Governs {
    /// The names of the enabled plugins, in order.
    pub plugins: Vec<String>,
    /// One sentence: the field, what cannot be honoured, and the cure.
    pub reason: String,
}

/// Parses and validates a value.
///
/// # Errors
/// [`Invalid`] names the first field that is wrong or cannot be honoured.
pub fn parse(key: &Key, value: &[u8], context: &Context) -> Result<Typed, Invalid> {
    match key.kind() {
        Kind::Routes => route::parse(key, value).map(|route| Typed::Route(Arc::new(route))),
        Kind::Services => service::parse(key, value).map(|service| Typed::Service(Arc::new(service))),
        Kind::Upstreams => upstream::parse(key, value).map(|upstream| Typed::Upstream(Arc::new(upstream))),
        Kind::Ssls => ssl::parse(key, value, &context.keyring).map(|ssl| Typed::Ssl(Arc::new(ssl))),
        Kind::GlobalRules => inert::global_rule(key, value),
        kind => inert::parse(kind, key, value).map(|()| Typed::Inert),
    }
}

#[cfg(test)]
mod tests;
