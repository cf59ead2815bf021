//! Routes: which requests, and where they go.

use std::sync::Arc;

use ipnet::IpNet;

use super::fields::{Fields, Item};
use super::hosts;
use super::invalid::Invalid;
use super::meta::{self, Meta};
use super::methods::Methods;
use super::plugins;
use super::references::{service_key, upstream_key};
use super::timeout::Timeout;
use super::upstream::{self, Upstream};
use super::uri::UriPattern;
use crate::key::Key;

/// A route with every default filled.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// Name, description, labels.
    pub meta: Meta,
    /// `uri` or `uris`: at least one, all different.
    pub uris: Vec<UriPattern>,
    /// `host` or `hosts`, lower-cased; empty when the route has none of its own.
    pub hosts: Vec<String>,
    /// `remote_addr` or `remote_addrs`; empty allows any peer.
    pub remote_addrs: Vec<IpNet>,
    /// `methods`.
    pub methods: Methods,
    /// `priority`, 0 by default: higher goes first among routes with the same literal uri.
    pub priority: i64,
    /// `status` is not 0: the route takes part in matching.
    pub enabled: bool,
    /// `timeout`, which goes before the upstream's.
    pub timeout: Option<Timeout>,
    /// `upstream`, inline.
    pub upstream: Option<Arc<Upstream>>,
    /// `upstream_id`, which goes before `upstream`.
    pub upstream_id: Option<Key>,
    /// `service_id`.
    pub service_id: Option<Key>,
}

pub(super) fn parse(key: &Key, value: &[u8]) -> Result<Route, Invalid> {
    meta::check_id(key)?;
    let mut fields = Fields::root("a route", value)?;
    refuse(&mut fields)?;
    let served = ["plugins", "upstream", "upstream_id", "service_id"].iter().any(|name| fields.has(name));
    if !served {
        return Err(fields.invalid("upstream", "is missing; give upstream, upstream_id or service_id"));
    }
    fields.read("plugins", plugins::refuse_enabled)?;
    let (host, hosts) = one_or_many(&mut fields, "host", "hosts", hosts::pattern)?;
    let (remote_addr, remote_addrs) =
        one_or_many(&mut fields, "remote_addr", "remote_addrs", hosts::network)?;
    let route = Route {
        meta: meta::take(&mut fields)?,
        uris: uris(&mut fields)?,
        hosts: hosts.unwrap_or_else(|| host.into_iter().collect()),
        remote_addrs: remote_addrs.unwrap_or_else(|| remote_addr.into_iter().collect()),
        methods: fields.read("methods", Methods::parse)?.unwrap_or_default(),
        priority: fields.read("priority", Item::integer)?.unwrap_or(0),
        enabled: fields.read("status", |item| item.integer_within(0, 1))? != Some(0),
        timeout: fields.read("timeout", Timeout::parse)?,
        upstream: fields.read("upstream", upstream::inline)?,
        upstream_id: fields.read("upstream_id", Item::id)?.map(upstream_key),
        service_id: fields.read("service_id", Item::id)?.map(service_key),
    };
    fields.finish()?;
    Ok(route)
}

fn refuse(fields: &mut Fields) -> Result<(), Invalid> {
    fields.refuse("script", "nodes run no Lua")?;
    fields.refuse("script_id", "nodes run no Lua")?;
    fields.refuse("filter_func", "nodes run no Lua, and the route must not match as if it were true")?;
    fields.refuse("plugin_config_id", "nodes run no plugins")?;
    if let Some(vars) = fields.take("vars") {
        let path = vars.path.clone();
        if !vars.array()?.is_empty() {
            let why = "nodes evaluate no expressions, and the route must not match as if they were true";
            return Err(Invalid::not_yet(path, why, "remove the field"));
        }
    }
    refuse_websocket(fields)
}

/// `enable_websocket`, of routes and services alike: `false` is what a node does.
pub(super) fn refuse_websocket(fields: &mut Fields) -> Result<(), Invalid> {
    if fields.read("enable_websocket", Item::boolean)? == Some(true) {
        let why = "nodes do not forward WebSocket connections";
        return Err(Invalid::not_yet(fields.path_of("enable_websocket"), why, "set it to false"));
    }
    Ok(())
}

fn uris(fields: &mut Fields) -> Result<Vec<UriPattern>, Invalid> {
    let (uri, uris) = one_or_many(fields, "uri", "uris", UriPattern::parse)?;
    uris.or_else(|| uri.map(|uri| vec![uri]))
        .ok_or_else(|| fields.invalid("uri", "is missing; give uri or uris"))
}

/// A field and its plural, of which at most one may be given.
fn one_or_many<T: Ord + Clone>(
    fields: &mut Fields,
    one: &str,
    many: &str,
    read: impl Fn(Item) -> Result<T, Invalid> + Copy,
) -> Result<(Option<T>, Option<Vec<T>>), Invalid> {
    let single = fields.read(one, read)?;
    let several = fields.read(many, |item| item.set(1, read))?;
    if single.is_some() && several.is_some() {
        return Err(fields.invalid(many, format!("stands beside `{one}`; keep one of the two")));
    }
    Ok((single, several))
}
