//! Host patterns and addresses of peers.

use std::net::IpAddr;

use ipnet::IpNet;

use super::fields::Item;
use super::invalid::Invalid;

/// A host pattern, lower-cased: a name, `*`, or a star followed by a suffix (`*.foo.com`, `*foo.com`).
pub(super) fn pattern(item: Item) -> Result<String, Invalid> {
    let path = item.path.clone();
    let text = item.string(1, 4096)?;
    let name = text.strip_prefix('*').unwrap_or(&text);
    let legal =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'[' | b']' | b':');
    if !name.bytes().all(legal) {
        let problem = format!("is `{text}`; use a host name whose only star, if any, stands first");
        return Err(Invalid::new(path, problem));
    }
    Ok(text.to_ascii_lowercase())
}

/// One or more different host patterns.
pub(super) fn patterns(item: Item) -> Result<Vec<String>, Invalid> {
    item.set(1, pattern)
}

/// A peer's address, or a network in CIDR form.
pub(super) fn network(item: Item) -> Result<IpNet, Invalid> {
    let path = item.path.clone();
    let text = item.string(1, 64)?;
    let network = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    network.map(|network| network.trunc()).map_err(|_| {
        Invalid::new(path, format!("is `{text}`; use an IP address or a network such as 10.0.0.0/8"))
    })
}
