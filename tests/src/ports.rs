//! Free ports, for programs that cannot be told to listen on port 0.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::sync::{Mutex, PoisonError};

static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// A port of 127.0.0.1 that was free just now and that this process gives out only once. Another process may still
/// take it, so a caller that fails to bind tries again with another.
///
/// # Panics
/// When the machine has no free port.
#[must_use]
pub fn free() -> u16 {
    loop {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port on the loopback");
        let port = listener.local_addr().expect("a bound socket has an address").port();
        if GIVEN.lock().unwrap_or_else(PoisonError::into_inner).insert(port) {
            return port;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_twice_the_same() {
        let ports: BTreeSet<u16> = (0..200).map(|_| free()).collect();
        assert_eq!(ports.len(), 200);
        TcpListener::bind(("127.0.0.1", *ports.first().unwrap())).expect("the port is free");
    }
}
