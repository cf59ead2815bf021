//! Services: what several routes share.

use std::sync::Arc;

use super::fields::{Fields, Item};
use super::hosts;
use super::invalid::Invalid;
use super::meta::{self, Meta};
use super::plugins;
use super::references::upstream_key;
use super::route::refuse_websocket;
use super::upstream::{self, Upstream};
use crate::key::Key;

/// A service with every default filled.
#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    /// Name, description, labels.
    pub meta: Meta,
    /// `hosts`, lower-cased: for routes of this service without hosts of their own, which share them.
    pub hosts: Arc<[String]>,
    /// `upstream`, inline.
    pub upstream: Option<Arc<Upstream>>,
    /// `upstream_id`, which goes before `upstream`.
    pub upstream_id: Option<Key>,
}

pub(super) fn parse(key: &Key, value: &[u8]) -> Result<Service, Invalid> {
    meta::check_id(key)?;
    let mut fields = Fields::root("a service", value)?;
    fields.refuse("script", "nodes run no Lua")?;
    refuse_websocket(&mut fields)?;
    fields.read("plugins", plugins::refuse_enabled)?;
    let service = Service {
        meta: meta::take(&mut fields)?,
        hosts: fields.read("hosts", hosts::patterns)?.unwrap_or_default().into(),
        upstream: fields.read("upstream", upstream::inline)?,
        upstream_id: fields.read("upstream_id", Item::id)?.map(upstream_key),
    };
    fields.finish()?;
    Ok(service)
}
