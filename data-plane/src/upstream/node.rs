//! One node of an upstream: where it is, and what it is called.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::HeaderValue;

use super::resolver::{Name, Names};

/// A node.
#[derive(Debug)]
pub struct Node {
    place: Place,
    port: u16,
    /// `host[:port]`, the port only where it is not the scheme's own: the `Host` for `pass_host: node`.
    authority: HeaderValue,
    /// `host:port`, for the log.
    text: Arc<str>,
    rotation: AtomicUsize,
}

#[derive(Debug)]
enum Place {
    Address(IpAddr),
    Name(Arc<Name>),
}

impl Node {
    /// The node at `host` (a name, an IPv4 address, an IPv6 address with or without brackets). A name is entered in `names`.
    ///
    /// `None` where `host` cannot stand in a `Host` header.
    pub fn new(host: &str, port: u16, standard_port: u16, names: &Names) -> Option<Self> {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let (place, shown) = match bare.parse::<IpAddr>() {
            Ok(address @ IpAddr::V6(_)) => (Place::Address(address), format!("[{address}]")),
            Ok(address) => (Place::Address(address), address.to_string()),
            Err(_) => (Place::Name(names.get(bare)), bare.to_owned()),
        };
        let text = format!("{shown}:{port}");
        let authority = if port == standard_port { &shown } else { &text };
        let authority = HeaderValue::from_str(authority).ok()?;
        Some(Self { place, port, authority, text: text.into(), rotation: AtomicUsize::new(0) })
    }

    /// The addresses to try, the best first: those of the family that comes first, in rotation, then the others.
    ///
    /// # Errors
    /// Why the name has no address; see [`Name::addresses`] for `wait`.
    pub async fn addresses(&self, wait: Duration) -> Result<Vec<SocketAddr>, Arc<str>> {
        let name = match &self.place {
            Place::Address(address) => return Ok(vec![SocketAddr::new(*address, self.port)]),
            Place::Name(name) => name,
        };
        let known = name.addresses(wait).await?;
        let mut addresses: Vec<SocketAddr> =
            known.iter().map(|address| SocketAddr::new(*address, self.port)).collect();
        let first_is_v6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
        let family = addresses.iter().take_while(|address| address.is_ipv6() == first_is_v6).count();
        let turn = self.rotation.fetch_add(1, Ordering::Relaxed) % family.max(1);
        addresses[..family].rotate_left(turn);
        Ok(addresses)
    }

    /// Addresses in use now, without waiting.
    pub fn known_addresses(&self) -> Vec<SocketAddr> {
        match &self.place {
            Place::Address(address) => vec![SocketAddr::new(*address, self.port)],
            Place::Name(name) => {
                name.known().iter().map(|address| SocketAddr::new(*address, self.port)).collect()
            }
        }
    }

    /// The `Host` for `pass_host: node`.
    pub fn authority(&self) -> &HeaderValue {
        &self.authority
    }

    /// `host:port`, for the log.
    pub fn text(&self) -> &str {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::config::ResolverConfig;
    use crate::upstream::resolver::SystemLookup;

    fn node(host: &str, port: u16) -> Node {
        let names = Names::new(Arc::new(SystemLookup::default()), ResolverConfig::default());
        Node::new(host, port, 80, &names).unwrap()
    }

    #[tokio::test]
    async fn addresses_stand_for_themselves_with_or_without_brackets() {
        for host in ["::1", "[::1]"] {
            let node = node(host, 8080);
            assert_eq!(node.text(), "[::1]:8080");
            assert_eq!(node.authority(), "[::1]:8080");
            let expected: Vec<SocketAddr> = vec!["[::1]:8080".parse().unwrap()];
            assert_eq!(node.addresses(Duration::ZERO).await.unwrap(), expected);
        }
    }

    #[test]
    fn the_standard_port_is_left_out_of_the_host() {
        assert_eq!(node("a.test", 80).authority(), "a.test");
        assert_eq!(node("a.test", 81).authority(), "a.test:81");
        assert_eq!(node("a.test", 80).text(), "a.test:80");
    }
}
