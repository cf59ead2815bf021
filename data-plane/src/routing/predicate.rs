//! What else a route asks of a request beside host and uri: its method and its peer. Pure.

use std::net::IpAddr;

use headwater_model::resources::Route;

use super::RequestFacts;

/// Whether the route takes the request, host and uri aside.
pub(super) fn admits(route: &Route, facts: &RequestFacts<'_>) -> bool {
    route.methods.allow(facts.method.as_str()) && admits_peer(route, facts.remote)
}

/// An IPv4 peer of a socket that also takes IPv6 is the IPv4 address.
fn admits_peer(route: &Route, remote: IpAddr) -> bool {
    let remote = remote.to_canonical();
    route.remote_addrs.is_empty() || route.remote_addrs.iter().any(|network| network.contains(&remote))
}
