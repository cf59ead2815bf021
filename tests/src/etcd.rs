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

mod binary;
mod grpc_proxy;
mod peers;
mod wiped;

pub use binary::{Binaries, Version, dependable, etcd_binary, etcdutl_binary, restorable, skipped};

pub use grpc_proxy::GrpcProxy;

use peers::PeerLinks;

/// How long a cluster may take to start, election included.
const START: Duration = Duration::from_secs(30);
/// Tries with other ports, should another process have taken one.
const TRIES: u32 = 3;

/// A running cluster. Dropped, its members are killed and its folder is removed.
#[derive(Debug)]
pub struct Etcd {
    members: Vec<Member>,
    options: Options,
    /// Names the history: another token makes other ids.
    token: String,
    snapshots: u32,
    /// The ways between the members, where they can be cut.
    links: Option<PeerLinks>,
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
    /// What to run, if not [`etcd_binary`] and [`etcdutl_binary`].
    pub binaries: Option<Binaries>,
    /// Members talk through proxies, so that one can be [cut off](Etcd::cut_off). Needs Linux's `/proc`.
    pub peer_links: bool,
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
    /// `host:port` it listens on for its peers, and what it tells them.
    peer: String,
    advertised: String,
    data: PathBuf,
}

/// What members of one start have in common.
struct Formation<'a> {
    options: &'a Options,
    token: &'a str,
    cluster: &'a str,
    /// `new` or `existing`.
    state: &'a str,
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
        let (arguments, tls, binaries) = (Vec::new(), None, None);
        Self { members: 1, fsync: false, arguments, tls, binaries, peer_links: false }
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
        let peers: Vec<String> = addresses.iter().map(|it| it[1].clone()).collect();
        let links = if options.peer_links { Some(PeerLinks::start(&peers).await) } else { None };
        let advertised = links.as_ref().map_or(peers, PeerLinks::addresses);
        let names = (0..).map(|index| format!("m{index}"));
        let cluster = initial_cluster(names.clone().zip(advertised.iter().map(String::as_str)));
        let formation = Formation { options: &options, token: &token, cluster: &cluster, state: "new" };
        let places = names.zip(addresses).zip(advertised);
        let members = places.map(|((name, [address, peer, metrics]), advertised)| {
            let data = folder.path().join(&name);
            let process = formation.program(&name, &data, [&address, &peer, &advertised, &metrics]).start();
            Member { process, address, metrics, name, peer, advertised, data }
        });
        let members = members.collect();
        let etcd = Self { members, options, token, snapshots: 0, links, folder };
        etcd.tell_links();
        etcd
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
        self.tell_links();
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
        self.kill();
        if how == Restore::OtherIds {
            self.token = format!("token-{}", ports::free());
        }
        let cluster = self.initial_cluster();
        let utl = match &self.options.binaries {
            Some(binaries) => binaries.etcdutl.as_deref(),
            None => etcdutl_binary(),
        };
        let utl = utl.expect("restoring needs etcdutl: `make etcd` builds it, or set ETCDUTL_BIN");
        let (options, token) = (&self.options, &self.token);
        let formation = Formation { options, token, cluster: &cluster, state: "new" };
        for member in &mut self.members {
            std::fs::remove_dir_all(&member.data).expect("a killed member's data can be removed");
            member.restore(utl, snapshot, how, &formation).await;
            member.process = formation.program_of(member).start();
        }
        self.tell_links();
        self.ready().await;
    }

    fn initial_cluster(&self) -> String {
        initial_cluster(self.members.iter().map(|it| (it.name.clone(), it.advertised.as_str())))
    }

    fn tell_links(&self) {
        if let Some(links) = &self.links {
            links.set_processes(self.members.iter().map(|member| member.process.id()).collect());
        }
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

    /// Every `host:port` it listens on.
    #[must_use]
    pub fn addresses(&self) -> [&str; 3] {
        [&self.address, &self.peer, &self.metrics]
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

    async fn restore(&self, utl: &Path, snapshot: &Snapshot, how: Restore, formation: &Formation<'_>) {
        let mut program = Program::new(utl).args(["snapshot", "restore"]).arg(&snapshot.0);
        program = program.args(["--name", &self.name, "--initial-cluster-token", formation.token]);
        program = program.args(["--initial-cluster", formation.cluster]);
        program = program.args(["--initial-advertise-peer-urls", &format!("http://{}", self.advertised)]);
        program = program.arg("--data-dir").arg(&self.data);
        if let Restore::Bumped(by) = how {
            program = program.args(["--bump-revision", &by.to_string(), "--mark-compacted"]);
        }
        let (status, lines) = program.run(START).await;
        assert!(status.success(), "etcdutl refuses the restore: {lines:#?}");
    }
}

// === impl Formation ===

impl Formation<'_> {
    fn program_of(&self, member: &Member) -> Program {
        let Member { address, peer, advertised, metrics, .. } = member;
        self.program(&member.name, &member.data, [address, peer, advertised, metrics])
    }

    fn program(
        &self,
        name: &str,
        data: &Path,
        [address, peer, advertised, metrics]: [&String; 4],
    ) -> Program {
        let scheme = scheme(self.options);
        let own = self.options.binaries.as_ref().map(|it| it.etcd.as_path());
        let binary = own.unwrap_or_else(|| etcd_binary());
        let mut program = Program::new(binary).args(["--name", name]).arg("--data-dir").arg(data);
        for (flag, value) in [
            ("--listen-client-urls", format!("{scheme}://{address}")),
            ("--advertise-client-urls", format!("{scheme}://{address}")),
            ("--listen-peer-urls", format!("http://{peer}")),
            ("--initial-advertise-peer-urls", format!("http://{advertised}")),
            ("--listen-metrics-urls", format!("http://{metrics}")),
            ("--initial-cluster", self.cluster.to_owned()),
            ("--initial-cluster-token", self.token.to_owned()),
            ("--initial-cluster-state", self.state.to_owned()),
            ("--log-level", "warn".to_owned()),
        ] {
            program = program.arg(flag).arg(value);
        }
        if !self.options.fsync {
            program = program.arg("--unsafe-no-fsync");
        }
        if let Some(tls) = &self.options.tls {
            program = program.arg("--cert-file").arg(&tls.cert).arg("--key-file").arg(&tls.key);
            if let Some(ca) = &tls.client_ca {
                program = program.arg("--client-cert-auth").arg("--trusted-ca-file").arg(ca);
            }
        }
        program.args(&self.options.arguments)
    }
}

fn initial_cluster<'a>(members: impl Iterator<Item = (String, &'a str)>) -> String {
    members.map(|(name, peer)| format!("{name}=http://{peer}")).collect::<Vec<_>>().join(",")
}

fn scheme(options: &Options) -> &'static str {
    if options.tls.is_some() { "https" } else { "http" }
}

#[cfg(test)]
mod tests;
