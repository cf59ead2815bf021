//! Upstreams: a set of servers and how to talk to them. Also inline in routes and services.

use std::sync::Arc;

use super::fields::{Fields, Item};
use super::hosts;
use super::invalid::Invalid;
use super::meta::{self, Meta};
use super::nodes::{self, Node};
use super::timeout::Timeout;
use crate::key::Key;

/// An upstream with every default filled. Its nodes are chosen by weighted round robin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// Name, description, labels.
    pub meta: Meta,
    /// `nodes`: an array's in its order, a map's in the order of its keys. May be empty, which serves nothing.
    pub nodes: Vec<Node>,
    /// `scheme`.
    pub scheme: Scheme,
    /// `pass_host`, with `upstream_host` where that is used.
    pub pass_host: PassHost,
    /// `retries`: tries beyond the first. `None` stands for one less than there are nodes.
    pub retries: Option<u32>,
    /// `timeout`.
    pub timeout: Option<Timeout>,
}

/// How to talk to the nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheme {
    /// Plain HTTP/1.1.
    #[default]
    Http,
    /// HTTP/1.1 over TLS; the node's certificate is not verified, as in APISIX.
    Https,
}

/// Which `Host` the node is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PassHost {
    /// The client's, unchanged.
    #[default]
    Pass,
    /// The node's own, with its port unless it is the scheme's standard one.
    Node,
    /// This one (`upstream_host`).
    Rewrite(String),
}

// === impl Scheme ===

impl Scheme {
    /// The port of a node that names none.
    #[must_use]
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }

    fn parse(item: Item) -> Result<Self, Invalid> {
        let path = item.path.clone();
        match item.string(1, 64)?.as_str() {
            "http" => Ok(Self::Http),
            "https" => Ok(Self::Https),
            other @ ("grpc" | "grpcs" | "tcp" | "tls" | "udp" | "kafka") => {
                let why = format!("nodes do not speak {other} to upstreams");
                Err(Invalid::not_yet(path, &why, "use http or https"))
            }
            other => Err(Invalid::new(path, format!("is `{other}`; use http or https"))),
        }
    }
}

pub(super) fn parse(key: &Key, value: &[u8]) -> Result<Upstream, Invalid> {
    meta::check_id(key)?;
    read(Fields::root("an upstream", value)?)
}

/// An upstream inside a route or service.
pub(super) fn inline(item: Item) -> Result<Arc<Upstream>, Invalid> {
    read(item.object("an upstream")?).map(Arc::new)
}

fn read(mut fields: Fields) -> Result<Upstream, Invalid> {
    refuse(&mut fields)?;
    balancer(&mut fields)?;
    refuse_tls(&mut fields)?;
    let scheme = fields.read("scheme", Scheme::parse)?.unwrap_or_default();
    let nodes = fields
        .read("nodes", |item| nodes::parse(item, scheme))?
        .ok_or_else(|| fields.invalid("nodes", "is missing; give the servers, or an empty array for none"))?;
    let upstream = Upstream {
        meta: meta::take(&mut fields)?,
        nodes,
        scheme,
        pass_host: pass_host(&mut fields)?,
        retries: fields.read("retries", |item| item.integer_within(0, u32::MAX.into()))?.map(|n| n as u32),
        timeout: fields.read("timeout", Timeout::parse)?,
    };
    fields.finish()?;
    Ok(upstream)
}

fn refuse(fields: &mut Fields) -> Result<(), Invalid> {
    for name in ["service_name", "discovery_type", "discovery_args"] {
        fields.refuse(name, "nodes do not ask a service discovery; list the servers in `nodes`")?;
    }
    fields.refuse("checks", "nodes do not check the health of servers")?;
    fields.refuse("keepalive_pool", "connection pools cannot be sized per upstream")?;
    if let Some(item) = fields.take("retry_timeout") {
        let path = item.path.clone();
        let seconds = item.number()?;
        if seconds < 0.0 {
            return Err(Invalid::new(path, "is negative; use seconds from 0 on"));
        }
        if seconds > 0.0 {
            return Err(Invalid::not_yet(path, "retries have no deadline of their own", "set it to 0"));
        }
    }
    Ok(())
}

/// `type`, with `hash_on` and `key`, which mean something to `chash` alone and are inert beside `roundrobin`.
fn balancer(fields: &mut Fields) -> Result<(), Invalid> {
    if let Some(item) = fields.take("type") {
        let path = item.path.clone();
        let name = item.string(0, 256)?;
        if name != "roundrobin" {
            let why = format!("nodes do not balance by `{name}`");
            return Err(Invalid::not_yet(path, &why, "use roundrobin"));
        }
    }
    fields.read("hash_on", |item| {
        let path = item.path.clone();
        match item.string(1, 64)?.as_str() {
            "vars" | "header" | "cookie" | "consumer" | "vars_combinations" => Ok(()),
            other => {
                let known = "vars, header, cookie, consumer or vars_combinations";
                Err(Invalid::new(path, format!("is `{other}`; use {known}")))
            }
        }
    })?;
    fields.read("key", |item| item.string(0, 4096))?;
    Ok(())
}

/// `tls`, an open object: only `verify: false`, which is what nodes do, can be honoured.
fn refuse_tls(fields: &mut Fields) -> Result<(), Invalid> {
    let Some(item) = fields.take("tls") else { return Ok(()) };
    let mut tls = item.object("tls")?;
    for name in ["client_cert_id", "client_cert", "client_key"] {
        tls.refuse(name, "nodes show upstreams no certificate")?;
    }
    if tls.read("verify", Item::boolean)? == Some(true) {
        let why = "nodes do not verify upstreams' certificates";
        return Err(Invalid::not_yet(tls.path_of("verify"), why, "set it to false"));
    }
    Ok(())
}

fn pass_host(fields: &mut Fields) -> Result<PassHost, Invalid> {
    let host = fields.read("upstream_host", |item| {
        let path = item.path.clone();
        // A request names one host, so a pattern is refused; its case is kept, for it is sent and not compared.
        let sent = item.value.as_str().map(str::to_owned).unwrap_or_default();
        match hosts::pattern(item)? {
            pattern if pattern.starts_with('*') => {
                Err(Invalid::new(path, "begins with a star; name the host to ask for"))
            }
            _ => Ok(sent),
        }
    })?;
    let Some(item) = fields.take("pass_host") else { return Ok(PassHost::Pass) };
    let path = item.path.clone();
    match (item.string(1, 64)?.as_str(), host) {
        ("pass", _) => Ok(PassHost::Pass),
        ("node", _) => Ok(PassHost::Node),
        ("rewrite", Some(host)) => Ok(PassHost::Rewrite(host)),
        ("rewrite", None) => Err(fields.invalid("upstream_host", "is missing; pass_host `rewrite` needs it")),
        (other, _) => Err(Invalid::new(path, format!("is `{other}`; use pass, node or rewrite"))),
    }
}
