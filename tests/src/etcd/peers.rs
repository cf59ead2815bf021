//! The ways between the members of a cluster, each of which can be cut by itself.
//!
//! Members tell each other one address, and both ends dial: a member's messages go out on connections that the other
//! opened. So there is a front for each member, and behind it a proxy for each other member; a connection goes to the
//! proxy of whoever opened it. Who that is the system knows: the process that owns the socket at the other end.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use headwater_process::{Policy, Supervisor};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

use super::Etcd;
use crate::tcp_proxy::TcpProxy;

/// How often, 10 ms apart, the owner of a connection is looked for: a member dials before it is known which process
/// it is.
const LOOKS: u32 = 100;

/// The ways of one cluster. Dropped, they are closed.
#[derive(Debug)]
pub(super) struct PeerLinks {
    fronts: Vec<SocketAddr>,
    shared: Arc<Shared>,
    supervisor: Supervisor,
}

#[derive(Debug)]
struct Shared {
    /// By who dials and who is dialled.
    ways: BTreeMap<(usize, usize), TcpProxy>,
    /// Process ids of the members, in their order.
    processes: Mutex<Vec<u32>>,
}

// === impl PeerLinks ===

impl PeerLinks {
    /// To members that listen at these addresses.
    pub(super) async fn start(peers: &[String]) -> Self {
        let mut ways = BTreeMap::new();
        for (to, peer) in peers.iter().enumerate() {
            for from in (0..peers.len()).filter(|from| *from != to) {
                ways.insert((from, to), TcpProxy::start(peer).await);
            }
        }
        let shared = Arc::new(Shared { ways, processes: Mutex::default() });
        let supervisor = Supervisor::new("peer links");
        let mut fronts = Vec::new();
        for to in 0..peers.len() {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port on the loopback");
            fronts.push(listener.local_addr().expect("a bound socket has an address"));
            let accepting = accept(listener, to, Arc::clone(&shared), supervisor.clone());
            supervisor.spawn("accept", Policy::best_effort().dropped_on_cancel(), accepting);
        }
        Self { fronts, shared, supervisor }
    }

    /// What each member tells its peers, `host:port`.
    pub(super) fn addresses(&self) -> Vec<String> {
        self.fronts.iter().map(ToString::to_string).collect()
    }

    /// Which processes the members are. Connections of others are not let in.
    pub(super) fn set_processes(&self, ids: Vec<u32>) {
        *self.shared.processes.lock().unwrap_or_else(PoisonError::into_inner) = ids;
    }

    fn ways_of(&self, member: usize) -> impl Iterator<Item = &TcpProxy> {
        let ways = self.shared.ways.iter();
        ways.filter(move |((from, to), _)| *from == member || *to == member).map(|(_, proxy)| proxy)
    }
}

impl Drop for PeerLinks {
    fn drop(&mut self) {
        self.supervisor.cancel();
    }
}

// === impl Etcd ===

impl Etcd {
    /// Nothing passes any more between this member and the others, in either direction; clients reach all of them.
    ///
    /// # Panics
    /// When the cluster was started without [`peer_links`](super::Options::peer_links).
    pub fn cut_off(&self, index: usize) {
        self.links().ways_of(index).for_each(TcpProxy::freeze);
    }

    /// The member talks to the others again.
    ///
    /// # Panics
    /// As [`Etcd::cut_off`].
    pub fn rejoin(&self, index: usize) {
        self.links().ways_of(index).for_each(TcpProxy::heal);
    }

    fn links(&self) -> &PeerLinks {
        self.links.as_ref().expect("Options::peer_links was set")
    }
}

async fn accept(listener: TcpListener, to: usize, shared: Arc<Shared>, supervisor: Supervisor) {
    loop {
        let Ok((client, dialler)) = listener.accept().await else { continue };
        let policy = Policy::best_effort().dropped_on_cancel();
        supervisor.spawn("connection", policy, connection(client, dialler, to, Arc::clone(&shared)));
    }
}

async fn connection(mut client: TcpStream, dialler: SocketAddr, to: usize, shared: Arc<Shared>) {
    for _ in 0..LOOKS {
        let processes = shared.processes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(from) = owner(dialler, &processes) {
            let Some(way) = shared.ways.get(&(from, to)) else { return };
            let Ok(mut server) = TcpStream::connect(way.address).await else { return };
            let _ = (client.set_nodelay(true), server.set_nodelay(true));
            let _ = copy_bidirectional(&mut client, &mut server).await;
            return;
        }
        sleep(Duration::from_millis(10)).await;
    }
}

/// Which of the processes has the socket with this local address.
fn owner(local: SocketAddr, processes: &[u32]) -> Option<usize> {
    let table = std::fs::read_to_string("/proc/net/tcp").ok()?;
    let inode = inode_of(local.port(), &table)?;
    let socket = format!("socket:[{inode}]");
    let has = |id: &u32| {
        let open = std::fs::read_dir(format!("/proc/{id}/fd")).into_iter().flatten().flatten();
        open.filter_map(|file| std::fs::read_link(file.path()).ok()).any(|to| to == Path::new(&socket))
    };
    processes.iter().position(has)
}

/// The inode of the socket of 127.0.0.1 that has this local port and is connected, of the table of the kernel.
fn inode_of(port: u16, table: &str) -> Option<&str> {
    let local = format!("0100007F:{port:04X}");
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let connected = fields.get(3) == Some(&"01");
        (fields.get(1) == Some(&local.as_str()) && connected).then(|| fields.get(9).copied()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inode_is_that_of_the_connected_socket_with_the_local_port() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1001 1\n\
            1: 0100007F:A000 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 1002 1\n\
            2: 0100007F:1F90 0100007F:A000 01 00000000:00000000 00:00000000 00000000     0        0 1003 1\n";
        assert_eq!(inode_of(0xA000, table), Some("1002"));
        assert_eq!(inode_of(0x1F90, table), Some("1003"), "not the one that listens");
        assert_eq!(inode_of(0xA001, table), None);
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_connection_belongs_to_the_process_that_opened_it() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (_server, dialler) = listener.accept().await.unwrap();
        assert_eq!(owner(dialler, &[1, std::process::id()]), Some(1));
        assert_eq!(owner(dialler, &[]), None);
        drop(client);
    }
}
