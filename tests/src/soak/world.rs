//! The processes and the proxies between them, and how a fault is done and undone.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use etcd_client::{Client, ConnectOptions};
use tempfile::TempDir;
use tokio::net::TcpSocket;
use tokio::time::{Instant, sleep, timeout};

use super::options::Settings;
use super::plan::{Fault, Hop, Way, Who};
use crate::etcd::{Etcd, Options};
use crate::history::EtcdLog;
use crate::planes::{Node, Replica};
use crate::process::Process;
use crate::tcp_proxy::{Direction, Fault as Broken, TcpProxy};

/// For a process that was asked to end. A node drains for at most 30 s.
const END: Duration = Duration::from_secs(45);
/// For etcd to compact or to rewrite a file of a few megabytes.
const MAINTAIN: Duration = Duration::from_secs(20);
/// After a start, until a port that is taken would have ended it.
const SETTLED: Duration = Duration::from_millis(300);
/// Starts, should another process have its port for a moment.
const STARTS: u32 = 10;

/// Everything that runs.
#[derive(Debug)]
pub struct World {
    /// etcd.
    pub etcd: Etcd,
    /// In order.
    pub replicas: Vec<Replica>,
    /// In order.
    pub nodes: Vec<Node>,
    /// By replica, by member.
    first: Vec<Vec<TcpProxy>>,
    /// By node, by replica.
    second: Vec<Vec<TcpProxy>>,
    /// The ports of those that were killed: bound and not listened on, so that connections are refused as they should
    /// be and nobody else on the machine takes them.
    held: BTreeMap<Who, Vec<TcpSocket>>,
    folder: TempDir,
}

// === impl World ===

impl World {
    /// Starts it and waits until all are ready.
    ///
    /// # Errors
    /// When the folder cannot be made.
    ///
    /// # Panics
    /// When a process does not start or is not ready in time.
    pub async fn start(settings: &Settings) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("soak-").tempdir().context("make a folder")?;
        std::fs::create_dir(folder.path().join("logs")).context("make a folder")?;
        let etcd = Etcd::start_with(Options { members: settings.members, ..Options::default() }).await;
        let (mut replicas, mut first) = (Vec::new(), Vec::new());
        for number in 0..settings.replicas {
            let mut proxies = Vec::new();
            for member in etcd.members() {
                proxies.push(TcpProxy::start(&*member.address).await);
            }
            let addresses: Vec<String> = proxies.iter().map(|it| format!("http://{}", it.address)).collect();
            replicas.push(Replica::start(folder.path(), &format!("r{number}"), &addresses.join("', '"), &[]));
            first.push(proxies);
        }
        let (mut nodes, mut second) = (Vec::new(), Vec::new());
        for number in 0..settings.nodes {
            let mut proxies = Vec::new();
            for replica in &replicas {
                proxies.push(TcpProxy::start(&*replica.southbound).await);
            }
            let addresses: Vec<String> = proxies.iter().map(|it| it.address.to_string()).collect();
            nodes.push(Node::start(folder.path(), &format!("n{number}"), &addresses.join("', '"), &[]));
            second.push(proxies);
        }
        let mut world = Self { etcd, replicas, nodes, first, second, held: BTreeMap::new(), folder };
        sleep(SETTLED).await;
        for who in world.planes() {
            if !world.process(who).is_running() {
                world.start_again(who).await?;
            }
        }
        for replica in &world.replicas {
            replica.ready().await;
        }
        Ok(world)
    }

    /// Where everything lies.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The folder of a process's own files.
    #[must_use]
    pub fn data(&self, who: Who) -> PathBuf {
        self.folder.path().join(who.to_string())
    }

    /// Our own processes: replicas, then nodes.
    #[must_use]
    pub fn planes(&self) -> Vec<Who> {
        let replicas = (0..self.replicas.len()).map(Who::Replica);
        replicas.chain((0..self.nodes.len()).map(Who::Node)).collect()
    }

    /// The process.
    pub fn process(&mut self, who: Who) -> &mut Process {
        match who {
            Who::Member(number) => &mut self.etcd.member(number).process,
            Who::Replica(number) => &mut self.replicas[number].process,
            Who::Node(number) => &mut self.nodes[number].process,
        }
    }

    /// The number of one of our own processes, and where it shows its metrics.
    ///
    /// # Panics
    /// For a member of etcd, which is not ours.
    #[must_use]
    pub fn plane(&self, who: Who) -> (u32, &str) {
        match who {
            Who::Replica(number) => {
                let replica = &self.replicas[number];
                (replica.process.id(), &replica.health)
            }
            Who::Node(number) => {
                let node = &self.nodes[number];
                (node.process.id(), &node.health)
            }
            Who::Member(_) => unreachable!("levels are those of our own processes"),
        }
    }

    /// Begins a fault.
    ///
    /// # Errors
    /// When a process that was asked to end ended with a failure, or one that was started ended again.
    ///
    /// # Panics
    /// When a process that was asked to end does not.
    pub async fn begin(&mut self, fault: &Fault, log: &EtcdLog) -> Result<()> {
        match fault {
            Fault::Kill(who) => {
                self.process(*who).kill();
                self.hold_ports(*who);
            }
            Fault::Stop(who) => self.process(*who).pause(),
            Fault::Restart(who) => self.restart(*who).await?,
            Fault::Freeze(hop, way) => self.set(*hop, *way, Broken { freeze: true, ..Broken::default() }),
            Fault::Delay(hop, way, delay) => {
                self.set(*hop, *way, Broken { delay: *delay, ..Broken::default() });
            }
            Fault::Cut(hop) => self.proxies(*hop).iter().for_each(|proxy| proxy.cut()),
            Fault::Refuse(hop) => self.proxies(*hop).iter().for_each(|proxy| proxy.refuse()),
            Fault::Compact => self.compact(log).await,
            Fault::Defragment(member) => self.defragment(*member).await,
        }
        Ok(())
    }

    /// Ends one that lasts.
    ///
    /// # Errors
    /// When a process that is started ends again.
    pub async fn end(&mut self, fault: &Fault) -> Result<()> {
        match fault {
            Fault::Kill(who) => self.start_again(*who).await?,
            Fault::Stop(who) => self.process(*who).resume(),
            Fault::Freeze(hop, _) | Fault::Refuse(hop) | Fault::Delay(hop, ..) => {
                self.proxies(*hop).iter().for_each(|proxy| proxy.heal());
            }
            Fault::Restart(_) | Fault::Cut(_) | Fault::Compact | Fault::Defragment(_) => {}
        }
        Ok(())
    }

    /// Checks that everything runs that was not killed.
    ///
    /// # Errors
    /// Who does not.
    pub fn still_runs(&mut self, broken: &[(Instant, Fault)]) -> Result<()> {
        let members = (0..self.etcd.members().len()).map(Who::Member);
        for who in members.chain(self.planes()) {
            let killed = broken.iter().any(|(_, fault)| *fault == Fault::Kill(who));
            if !killed && !self.process(who).is_running() {
                bail!("{who} has ended by itself: {:?}", self.process(who).lines().last());
            }
        }
        Ok(())
    }

    /// Appends what each process wrote so far to its log in the folder.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn write_logs(&mut self) -> Result<()> {
        let members = (0..self.etcd.members().len()).map(Who::Member);
        for who in members.chain(self.planes()).collect::<Vec<_>>() {
            self.write_log(who)?;
        }
        Ok(())
    }

    /// Keeps the folder; answers where it is.
    #[must_use]
    pub fn keep(self) -> PathBuf {
        self.folder.keep()
    }

    async fn restart(&mut self, who: Who) -> Result<()> {
        let process = self.process(who);
        process.terminate();
        let status = process.wait(END).await;
        ensure!(status.success(), "{who}, asked to end, ended with {status}");
        self.start_again(who).await
    }

    async fn start_again(&mut self, who: Who) -> Result<()> {
        self.write_log(who)?;
        self.held.remove(&who);
        for _ in 0..STARTS {
            self.process(who).restart();
            sleep(SETTLED).await;
            if self.process(who).is_running() {
                return Ok(());
            }
            // A connection of another process may have the port as its own end for a moment.
            self.write_log(who)?;
            sleep(SETTLED).await;
        }
        bail!("{who} does not start: {:#?}", self.process(who).lines())
    }

    fn hold_ports(&mut self, who: Who) {
        let addresses = match who {
            Who::Member(number) => self.etcd.members()[number].addresses().to_vec(),
            Who::Replica(number) => {
                let replica = &self.replicas[number];
                vec![&*replica.southbound, &*replica.admin, &*replica.health]
            }
            Who::Node(number) => {
                let node = &self.nodes[number];
                vec![&*node.http, &*node.https, &*node.health, &*node.control]
            }
        };
        let hold = |address: &str| -> Option<TcpSocket> {
            let socket = TcpSocket::new_v4().ok()?;
            // Connections of the killed process may still be closing.
            socket.set_reuseaddr(true).ok()?;
            socket.bind(address.parse().ok()?).ok()?;
            Some(socket)
        };
        let held = addresses.into_iter().filter_map(hold).collect();
        self.held.insert(who, held);
    }

    fn write_log(&mut self, who: Who) -> Result<()> {
        let path = self.folder.path().join("logs").join(format!("{who}.log"));
        let mut file = OpenOptions::new().create(true).append(true).open(path).context("open a log")?;
        let process = self.process(who);
        writeln!(file, "--- process {} ---", process.id()).context("write a log")?;
        for line in process.lines() {
            writeln!(file, "{line}").context("write a log")?;
        }
        Ok(())
    }

    fn proxies(&self, hop: Hop) -> Vec<&TcpProxy> {
        match hop {
            Hop::First(replica, Some(member)) => vec![&self.first[replica][member]],
            Hop::First(replica, None) => self.first[replica].iter().collect(),
            Hop::Second(node, Some(replica)) => vec![&self.second[node][replica]],
            Hop::Second(node, None) => self.second[node].iter().collect(),
        }
    }

    fn set(&self, hop: Hop, way: Way, broken: Broken) {
        let ways = match way {
            Way::One(direction) => vec![direction],
            Way::Both => vec![Direction::Up, Direction::Down],
        };
        for proxy in self.proxies(hop) {
            ways.iter().for_each(|direction| proxy.set(*direction, broken));
        }
    }

    /// To the head of the log: what the log has not read yet must stay readable. It lags by milliseconds.
    async fn compact(&self, log: &EtcdLog) {
        let Ok(head) = i64::try_from(log.look(crate::history::History::head)) else { return };
        for endpoint in self.etcd.endpoints() {
            let compacted = async {
                let options = ConnectOptions::new().with_connect_timeout(MAINTAIN);
                Client::connect([endpoint], Some(options)).await?.compact(head, None).await
            };
            // One that is down is no obstacle: another does it for all.
            if matches!(timeout(MAINTAIN / 4, compacted).await, Ok(Ok(_))) {
                return;
            }
        }
    }

    async fn defragment(&self, member: usize) {
        let endpoint = self.etcd.endpoints().swap_remove(member);
        let rewritten = async { Client::connect([endpoint], None).await?.defragment().await };
        // A member that cannot do it now does without; it holds nothing else for it.
        let _ = timeout(MAINTAIN, rewritten).await;
    }
}
