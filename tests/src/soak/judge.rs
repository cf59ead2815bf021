//! Everybody who is watched, and what came of it.

use std::time::Duration;

use super::clients::{self, SyncClient};
use super::options::Settings;
use super::world::World;
use crate::follower::Follower;
use crate::history::{Breach, Checker, Checks, EtcdLog, Recorder, Sighting};
use crate::tcp_proxy::TcpProxy;

/// Between two looks at a node's version; a look costs it about a millisecond.
const LOOK: Duration = Duration::from_millis(100);

/// All that is watched, each with its judge.
#[derive(Debug)]
pub struct Judge {
    watched: Vec<(Watched, Checker)>,
    /// Between the clients and what they follow.
    proxies: Vec<TcpProxy>,
}

#[derive(Debug)]
enum Watched {
    Node(Recorder),
    Client(SyncClient),
    Follower(Follower),
}

// === impl Judge ===

impl Judge {
    /// Watches every node from outside and inside, a client behind each replica, and a follower of etcd.
    pub async fn start(world: &World, settings: &Settings) -> Self {
        let (mut watched, mut proxies) = (Vec::new(), Vec::new());
        for (number, node) in world.nodes.iter().enumerate() {
            let versions = Watched::Node(Recorder::of_versions(node, LOOK));
            watched.push((versions, Checker::new(format!("n{number}"))));
            let contents = Watched::Node(Recorder::of_contents(node, settings.look_inside));
            watched.push((contents, Checker::new(format!("n{number}, inside,"))));
        }
        for (number, replica) in (0..).zip(&world.replicas) {
            let proxy = TcpProxy::start(&*replica.southbound).await;
            let client = SyncClient::start(&proxy.address.to_string(), number);
            watched.push((Watched::Client(client), Checker::new(format!("a client of r{number}"))));
            proxies.push(proxy);
        }
        let mut endpoints = Vec::new();
        for member in world.etcd.members() {
            let proxy = TcpProxy::start(&*member.address).await;
            endpoints.push(format!("http://{}", proxy.address));
            proxies.push(proxy);
        }
        let follower = Follower::start(endpoints, "/apisix");
        watched.push((Watched::Follower(follower), Checker::new("a follower of etcd")));
        Self { watched, proxies }
    }

    /// Resets the connections of all clients: what they are told must go on where it stopped.
    pub fn cut(&self) {
        self.proxies.iter().for_each(TcpProxy::cut);
    }

    /// Judges what was seen since the last call. The log must be settled.
    pub fn judge(&mut self, log: &EtcdLog) {
        for (watched, checker) in &mut self.watched {
            let sightings = watched.take();
            log.look(|history| sightings.iter().for_each(|sighting| checker.see(sighting, &[history])));
        }
    }

    /// Who has not been seen to hold etcd's newest content yet.
    #[must_use]
    pub fn lacking(&self, log: &EtcdLog) -> Vec<String> {
        let lacks = |checker: &Checker| {
            let lacks = log.look(|history| checker.lacks(history))?;
            Some(format!("{} {lacks}", checker.name()))
        };
        self.watched.iter().filter_map(|(_, checker)| lacks(checker)).collect()
    }

    /// Once everything has had the time to arrive.
    pub fn end(&mut self, log: &EtcdLog) {
        for (_, checker) in &mut self.watched {
            log.look(|history| checker.end(history));
        }
    }

    /// How often each guarantee was looked at.
    #[must_use]
    pub fn checks(&self) -> Checks {
        let mut sum = Checks::new();
        for (guarantee, count) in self.watched.iter().flat_map(|(_, checker)| checker.checks()) {
            *sum.entry(*guarantee).or_default() += count;
        }
        sum
    }

    /// What was found; of each who is watched the first few.
    #[must_use]
    pub fn breaches(&self) -> Vec<&Breach> {
        self.watched.iter().flat_map(|(_, checker)| checker.breaches()).collect()
    }

    /// How many were found.
    #[must_use]
    pub fn violations(&self) -> u64 {
        self.watched.iter().map(|(_, checker)| checker.violations()).sum()
    }
}

// === impl Watched ===

impl Watched {
    fn take(&self) -> Vec<Sighting> {
        match self {
            Self::Node(recorder) => recorder.take(),
            Self::Client(client) => client.take(),
            Self::Follower(follower) => clients::take(follower),
        }
    }
}
