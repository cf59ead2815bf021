//! Real etcd: one member or three, on free ports and in a temporary folder, killed, paused, restarted and restored
//! from snapshots at will.
//!
//! The binary is `$ETCD_BIN`, else what `make etcd` left in `.cache/etcd/`, else `etcd` on the path. A test that
//! relies on progress notifications asks [`dependable`] first.

use std::path::{Path, PathBuf};
use std::time::Duration;

use etcd_client::{Client, ConnectOptions};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;

use crate::eventually::eventually;
use crate::http;
use crate::ports;
use crate::process::{Process, Program};
use crate::tcp_proxy::TcpProxy;

mod binary;
mod grpc_proxy;

pub use binary::{Version, dependable, etcd_binary, etcdutl_binary, restorable, skipped};
pub use grpc_proxy::GrpcProxy;

/// How long a cluster may take to start, election included.
const START: Duration = Duration::from_secs(30);
/// Tries with other ports, should another process have taken one.
const TRIES: u32 = 3;

/// A running cluster. Dropped, its members are killed and its folder is removed.
#[derive(Debug)]
pub struct Etcd {
    members: Vec<Member>,
    options: Options,
    /// In front of each member, for its peers; none without `peer_proxies`.
    proxies: Vec<TcpProxy>,
    /// Names the history: another token makes other ids.
    token: String,
    snapshots: u32,
    folder: TempDir,
}

/// How to start a cluster.
#[derive(Debug, Clone)]
pub struct Options {
    /// One or three.
    pub members: usize,
    /// Whether etcd syncs its log to disk. Off by default: kill -9 loses nothing that the kernel has.
    pub fsync: bool,
    /// Further flags for each member.
    pub arguments: Vec<String>,
    /// `https` towards clients, with these files.
    pub tls: Option<Tls>,
    /// Whether members reach each other through proxies, so that [`Etcd::isolate`] can cut one off from its peers.
    pub peer_proxies: bool,
}

/// Files for TLS towards clients.
#[derive(Debug, Clone)]
pub struct Tls {
    /// The members' certificate, PEM.
    pub cert: PathBuf,
    /// Its key, PEM.
    pub key: PathBuf,
    /// Who issues client certificates; with it they are required.
    pub client_ca: Option<PathBuf>,
}

/// One member.
#[derive(Debug)]
pub struct Member {
    /// The process; kill, pause, resume and restart it here.
    pub process: Process,
    /// `host:port` for clients.
    pub address: String,
    /// `host:port` of `/health` and `/metrics`, without TLS or login.
    pub metrics: String,
    name: String,
    /// `host:port` where it listens for its peers,
    peer: String,
    /// and where they find it.
    advertised: String,
    data: PathBuf,
}

/// A snapshot on disk, as `etcdctl snapshot save` makes them.
#[derive(Debug, Clone)]
pub struct Snapshot(PathBuf);

/// What a restore does to the identity and the numbers of the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restore {
    /// Cluster and member ids stay; the revision falls back.
    SameIds,
    /// Another cluster id.
    OtherIds,
    /// Ids stay; the revision is raised by this much and all before it marked compacted
    /// (`--bump-revision --mark-compacted`).
    Bumped(u64),
}

impl Default for Options {
    fn default() -> Self {
        Self { members: 1, fsync: false, arguments: Vec::new(), tls: None, peer_proxies: false }
    }
}

// === impl Etcd ===

impl Etcd {
    /// One member.
    ///
    /// # Panics
    /// When there is no etcd, or it does not start.
    pub async fn start() -> Self {
        Self::start_with(Options::default()).await
    }

    /// Three members.
    ///
    /// # Panics
    /// As [`Etcd::start`].
    pub async fn cluster() -> Self {
        Self::start_with(Options { members: 3, ..Options::default() }).await
    }

    /// As the options say.
    ///
    /// # Panics
    /// As [`Etcd::start`].
    pub async fn start_with(options: Options) -> Self {
        for attempt in 1..=TRIES {
            let mut cluster = Self::spawn(options.clone()).await;
            // A port that was taken ends a member within moments.
            tokio::time::sleep(Duration::from_millis(300)).await;
            if attempt == TRIES || cluster.members.iter_mut().all(|member| member.process.is_running()) {
                cluster.ready().await;
                return cluster;
            }
        }
        unreachable!("the last attempt answers or panics")
    }

    async fn spawn(options: Options) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let token = format!("token-{}", ports::free());
        let addresses: Vec<[String; 3]> = (0..options.members)
            .map(|_| std::array::from_fn(|_| format!("127.0.0.1:{}", ports::free())))
            .collect();
        let mut proxies = Vec::new();
        for [_, peer, _] in addresses.iter().filter(|_| options.peer_proxies) {
            proxies.push(TcpProxy::start(peer.as_str()).await);
        }
        let mut advertised: Vec<String> = addresses.iter().map(|[_, peer, _]| peer.clone()).collect();
        for (peer, proxy) in advertised.iter_mut().zip(&proxies) {
            *peer = proxy.address.to_string();
        }
        let named = advertised.iter().enumerate().map(|(index, at)| (format!("m{index}"), at.as_str()));
        let cluster = initial_cluster(named);
        let addresses = addresses.into_iter().zip(advertised).enumerate();
        let members = addresses.map(|(index, ([address, peer, metrics], advertised))| {
            let name = format!("m{index}");
            let data = folder.path().join(&name);
            let at = [&address, &peer, &advertised, &metrics].map(String::as_str);
            let program = program(&options, &token, &cluster, &name, &data, at);
            Member { process: program.start(), address, metrics, name, peer, advertised, data }
        });
        Self { members: members.collect(), options, proxies, token, snapshots: 0, folder }
    }

    /// Waits until every running member says it is healthy, which takes a leader.
    ///
    /// # Panics
    /// When that takes longer than 30 s.
    pub async fn ready(&self) {
        for member in &self.members {
            member.healthy(START).await;
        }
    }

    /// The members, in the order they were named.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// One member, to be maltreated.
    pub fn member(&mut self, index: usize) -> &mut Member {
        &mut self.members[index]
    }

    /// `http://host:port` of each member, or `https://`.
    #[must_use]
    pub fn endpoints(&self) -> Vec<String> {
        let scheme = scheme(&self.options);
        self.members.iter().map(|member| format!("{scheme}://{}", member.address)).collect()
    }

    /// `host:port` of the first member.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.members[0].address
    }

    /// A client of the test's own, on all members; only where there is no TLS.
    ///
    /// # Panics
    /// When it cannot connect.
    pub async fn client(&self) -> Client {
        let options = ConnectOptions::new().with_connect_timeout(START).with_timeout(START);
        Client::connect(self.endpoints(), Some(options)).await.expect("a client connects to a healthy etcd")
    }

    /// kill -9 to all.
    pub fn kill(&mut self) {
        self.members.iter_mut().for_each(|member| member.process.kill());
    }

    /// SIGSTOP to all.
    pub fn pause(&self) {
        self.members.iter().for_each(|member| member.process.pause());
    }

    /// SIGCONT to all.
    pub fn resume(&self) {
        self.members.iter().for_each(|member| member.process.resume());
    }

    /// Starts all again on the data they have, and waits until they are healthy.
    ///
    /// # Panics
    /// When they do not become so.
    pub async fn restart(&mut self) {
        self.members.iter_mut().for_each(|member| member.process.restart());
        self.ready().await;
    }

    /// Saves a snapshot of what is committed now.
    ///
    /// # Panics
    /// When etcd does not give one.
    pub async fn snapshot(&mut self) -> Snapshot {
        self.snapshots += 1;
        let path = self.folder.path().join(format!("snapshot-{}.db", self.snapshots));
        let mut file = tokio::fs::File::create(&path).await.expect("own folder can be written");
        let mut stream = self.client().await.snapshot().await.expect("etcd gives a snapshot");
        while let Some(part) = stream.message().await.expect("the snapshot comes whole") {
            file.write_all(part.blob()).await.expect("own folder can be written");
        }
        file.flush().await.expect("own folder can be written");
        Snapshot(path)
    }

    /// Kills all members, replaces their data by the snapshot's and starts them on the same addresses.
    ///
    /// # Panics
    /// When `etcdutl` is missing (see [`etcdutl_binary`]) or refuses, or the cluster does not come up.
    pub async fn restore(&mut self, snapshot: &Snapshot, how: Restore) {
        self.anew(Some((snapshot, how))).await;
    }

    /// Kills all members, removes their data and starts them on the same addresses: an empty etcd of other ids.
    ///
    /// # Panics
    /// When the cluster does not come up.
    pub async fn wipe(&mut self) {
        self.anew(None).await;
    }

    async fn anew(&mut self, from: Option<(&Snapshot, Restore)>) {
        self.kill();
        if from.is_none_or(|(_, how)| how == Restore::OtherIds) {
            self.token = format!("token-{}", ports::free());
        }
        let named = self.members.iter().map(|it| (it.name.clone(), it.advertised.as_str()));
        let cluster = initial_cluster(named);
        for member in &mut self.members {
            std::fs::remove_dir_all(&member.data).expect("a killed member's data can be removed");
            if let Some((snapshot, how)) = from {
                member.restore(snapshot, how, &self.token, &cluster).await;
            }
            let at = [&member.address, &member.peer, &member.advertised, &member.metrics].map(String::as_str);
            let program = program(&self.options, &self.token, &cluster, &member.name, &member.data, at);
            member.process = program.start();
        }
        self.ready().await;
    }

    /// Cuts a running member off from its peers, both ways; clients still reach it. Takes `peer_proxies`, and Linux.
    ///
    /// # Panics
    /// When there are no proxies between the members.
    pub fn isolate(&self, index: usize) {
        assert_eq!(self.proxies.len(), self.members.len(), "start it with peer_proxies");
        for (at, proxy) in self.proxies.iter().enumerate() {
            if at == index { proxy.refuse() } else { proxy.refuse_process(self.members[index].process.id()) }
        }
    }

    /// Ends the isolation of a member.
    ///
    /// # Panics
    /// When there are no proxies between the members.
    pub fn rejoin(&self, index: usize) {
        assert!(index < self.proxies.len(), "start it with peer_proxies");
        self.proxies.iter().for_each(TcpProxy::heal);
    }
}

// === impl Member ===

impl Member {
    /// Waits until it says it is healthy.
    ///
    /// # Panics
    /// When it does not within `limit`.
    pub async fn healthy(&self, limit: Duration) {
        eventually(&format!("etcd {} healthy", self.name), limit, || async {
            match http::get(&self.metrics, "/health").await {
                Ok((200, body)) if body.contains(r#""health":"true""#) => Ok(()),
                other => Err(other.map_err(|error| format!("{error:#}"))),
            }
        })
        .await;
    }

    /// The value of one metric without labels, such as `etcd_debugging_mvcc_watcher_total`.
    ///
    /// # Panics
    /// When it is not there.
    pub async fn metric(&self, name: &str) -> f64 {
        let (_, text) = http::get(&self.metrics, "/metrics").await.expect("a healthy etcd shows metrics");
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("etcd shows no metric {name}"))
    }

    async fn restore(&self, snapshot: &Snapshot, how: Restore, token: &str, cluster: &str) {
        let utl =
            etcdutl_binary().expect("restoring needs etcdutl: `make etcd` builds it, or set ETCDUTL_BIN");
        let mut program = Program::new(utl).args(["snapshot", "restore"]).arg(&snapshot.0);
        program = program.args(["--name", &self.name, "--initial-cluster-token", token]);
        program = program.args(["--initial-cluster", cluster]);
        program = program.args(["--initial-advertise-peer-urls", &format!("http://{}", self.advertised)]);
        program = program.arg("--data-dir").arg(&self.data);
        if let Restore::Bumped(by) = how {
            program = program.args(["--bump-revision", &by.to_string(), "--mark-compacted"]);
        }
        let (status, lines) = program.run(START).await;
        assert!(status.success(), "etcdutl refuses the restore: {lines:#?}");
    }
}

fn initial_cluster<'a>(members: impl Iterator<Item = (String, &'a str)>) -> String {
    members.map(|(name, peer)| format!("{name}=http://{peer}")).collect::<Vec<_>>().join(",")
}

fn scheme(options: &Options) -> &'static str {
    if options.tls.is_some() { "https" } else { "http" }
}

fn program(
    options: &Options,
    token: &str,
    cluster: &str,
    name: &str,
    data: &Path,
    [address, peer, advertised, metrics]: [&str; 4],
) -> Program {
    let scheme = scheme(options);
    let mut program = Program::new(etcd_binary()).args(["--name", name]).arg("--data-dir").arg(data);
    for (flag, value) in [
        ("--listen-client-urls", format!("{scheme}://{address}")),
        ("--advertise-client-urls", format!("{scheme}://{address}")),
        ("--listen-peer-urls", format!("http://{peer}")),
        ("--initial-advertise-peer-urls", format!("http://{advertised}")),
        ("--listen-metrics-urls", format!("http://{metrics}")),
        ("--initial-cluster", cluster.to_owned()),
        ("--initial-cluster-token", token.to_owned()),
        ("--log-level", "warn".to_owned()),
    ] {
        program = program.arg(flag).arg(value);
    }
    if !options.fsync {
        program = program.arg("--unsafe-no-fsync");
    }
    if let Some(tls) = &options.tls {
        program = program.arg("--cert-file").arg(&tls.cert).arg("--key-file").arg(&tls.key);
        if let Some(ca) = &tls.client_ca {
            program = program.arg("--client-cert-auth").arg("--trusted-ca-file").arg(ca);
        }
    }
    program.args(&options.arguments)
}

#[cfg(test)]
mod tests;
