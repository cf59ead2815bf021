//! An upstream's servers, in both forms the schema allows.

use serde_json::Value;

use super::fields::Item;
use super::hosts;
use super::invalid::Invalid;
use super::upstream::Scheme;

/// One server of an upstream.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Node {
    /// A host name or an address, lower-cased, an IPv6 address without its brackets.
    pub host: String,
    /// The port, by the scheme when none is given.
    pub port: u16,
    /// The share of requests. 0 is not picked beside a node above 0.
    pub weight: u32,
}

// === impl Node ===

impl Node {
    /// The host as it stands in a `Host` header or an authority: an IPv6 address in brackets.
    #[must_use]
    pub fn bracketed_host(&self) -> String {
        if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() }
    }
}

/// A map `"host[:port]": weight`, or an array of objects.
pub(super) fn parse(item: Item, scheme: Scheme) -> Result<Vec<Node>, Invalid> {
    match item.value {
        Value::Object(_) => {
            item.object("nodes")?.rest().map(|(name, item)| named(&name, item, scheme)).collect()
        }
        Value::Array(_) => listed(item, scheme),
        _ => Err(item.invalid("must be an array of servers or a map of their weights")),
    }
}

fn named(name: &str, item: Item, scheme: Scheme) -> Result<Node, Invalid> {
    let path = item.path.clone();
    let weight = weight(item)?;
    let problem = || Invalid::new(&path, "must be named by a host with an optional port from 1 to 65535");
    // Only a bracket or a single colon can part a port from a host, so a bare IPv6 address has no port.
    let (host, port) = match name.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, port)) => (host, Some(port.strip_prefix(':').ok_or_else(problem)?)),
        None => match name.split_once(':') {
            Some((host, port)) if !port.contains(':') => (host, Some(port)),
            _ => (name, None),
        },
    };
    let port = match port {
        Some(port) => port.parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(problem)?,
        None => scheme.default_port(),
    };
    let host = server(Item { path: path.clone(), value: Value::String(host.to_owned()) })?;
    Ok(Node { host, port, weight })
}

fn listed(item: Item, scheme: Scheme) -> Result<Vec<Node>, Invalid> {
    let mut nodes = Vec::new();
    let mut priority = None;
    for item in item.array()? {
        // The object is open, and `metadata` means something to discoveries alone.
        let mut fields = item.object("a node")?;
        let host = server(fields.required("host")?)?;
        let weight = weight(fields.required("weight")?)?;
        let port = fields.read("port", |item| item.integer_within(1, 65535))?.map(|port| port as u16);
        fields.read("metadata", |item| item.object("metadata"))?;
        let own = fields.read("priority", Item::integer)?.unwrap_or(0);
        if *priority.get_or_insert(own) != own {
            let why = "nodes do not serve one group of servers before another";
            return Err(Invalid::not_yet(fields.path_of("priority"), why, "give all the same priority"));
        }
        nodes.push(Node { host, port: port.unwrap_or_else(|| scheme.default_port()), weight });
    }
    Ok(nodes)
}

fn server(item: Item) -> Result<String, Invalid> {
    let path = item.path.clone();
    let host = hosts::pattern(item)?;
    let host = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(&host);
    let address = host.parse::<std::net::Ipv6Addr>().is_ok();
    if host.is_empty() || host.contains(['*', '[', ']']) || (host.contains(':') && !address) {
        return Err(Invalid::new(
            path,
            format!("names `{host}`, which is no server; use a host name or an address"),
        ));
    }
    Ok(host.to_owned())
}

fn weight(item: Item) -> Result<u32, Invalid> {
    item.integer_within(0, u32::MAX.into()).map(|weight| weight as u32)
}
