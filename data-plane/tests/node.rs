//! A whole node against a replica that the test plays: it becomes ready, acknowledges, keeps on disk, and after a
//! restart without any replica serves the same, retained values included.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use headwater_data_plane::app::{self, Running, StartError};
use headwater_data_plane::config::{ControlPlane, Listen, NodeConfig};
use headwater_data_plane::proxy::config::{AccessLogTarget, ProxyConfig};
use headwater_data_plane::sync::last_known_good::{Group, LastKnownGood};
use headwater_model::{Change, Content, Generation, Key, Lineage, Resource, Revision, Version, diff};
use headwater_process::settings::KeySource;
use headwater_process::{Policy, Supervisor};
use headwater_proto::config::{
    Begin, NodeMessage, ReplicaMessage, Standing, TransferPart, TransferReason, Welcome,
};
use headwater_proto::frame::Frame;
use headwater_proto::service::config_server::{Config, ConfigServer};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, mpsc};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

const DEADLINE: Duration = Duration::from_secs(30);

/// The replica's side of one stream, in the test's hands.
struct Replica {
    frames: mpsc::Sender<Result<Frame, Status>>,
    messages: mpsc::Receiver<NodeMessage>,
}

struct Service {
    supervisor: Supervisor,
    streams: mpsc::Sender<Replica>,
    authorizations: Arc<Mutex<Vec<String>>>,
}

#[tonic::async_trait]
impl Config for Service {
    type SyncStream = Pin<Box<dyn Stream<Item = Result<Frame, Status>> + Send>>;

    async fn sync(&self, request: Request<Streaming<Frame>>) -> Result<Response<Self::SyncStream>, Status> {
        let token = request.metadata().get("authorization").and_then(|token| token.to_str().ok());
        self.authorizations.lock().await.push(token.unwrap_or_default().to_owned());
        let (frames, outgoing) = mpsc::channel(16);
        let (heard, messages) = mpsc::channel(64);
        let mut incoming = request.into_inner();
        self.supervisor.spawn("read", Policy::best_effort().dropped_on_cancel(), async move {
            while let Some(Ok(frame)) = incoming.next().await {
                let _ = heard.send(NodeMessage::decode(frame).expect("a message")).await;
            }
        });
        self.streams.send(Replica { frames, messages }).await.expect("the test listens");
        Ok(Response::new(Box::pin(ReceiverStream::new(outgoing))))
    }
}

impl Replica {
    async fn say(&self, message: ReplicaMessage) {
        self.frames.send(Ok(message.encode())).await.expect("the node listens");
    }

    async fn hear(&mut self) -> NodeMessage {
        tokio::time::timeout(DEADLINE, self.messages.recv())
            .await
            .expect("in time")
            .expect("the stream is open")
    }

    /// Hears until the disk has this version, and gives everything heard.
    async fn until_durable(&mut self, version: &Version) -> Vec<NodeMessage> {
        let mut heard = Vec::new();
        loop {
            let message = self.hear().await;
            let durable = matches!(&message, NodeMessage::Ack(ack) if ack.durable.as_ref() == Some(version));
            heard.push(message);
            if durable {
                return heard;
            }
        }
    }

    async fn transfer(&self, from: Option<&Content>, to: &Content, revision: u64) -> Version {
        let target = version(to, revision);
        let changes = diff::diff(&from.cloned().unwrap_or_default(), to);
        let deletes = changes.deletes.into_iter().map(Change::Delete);
        let changes: Vec<Change> = deletes.chain(changes.puts.into_iter().map(Change::Put)).collect();
        let begin = Begin {
            base: from.map(Content::digest),
            target: target.clone(),
            reason: if from.is_some() { TransferReason::Step } else { TransferReason::First },
            approval: None,
            changes: changes.len() as u64,
            bytes: 0,
        };
        self.say(ReplicaMessage::Part(TransferPart { begin: Some(begin), changes, last: true })).await;
        target
    }
}

fn version(content: &Content, revision: u64) -> Version {
    let lineage = Lineage { cluster_id: 1, prefix: "/apisix".into(), generation: Generation(0) };
    Version { lineage, revision: Revision(revision), digest: content.digest() }
}

fn resource(key: &str, value: &str, modified: u64) -> Arc<Resource> {
    let value = Bytes::copy_from_slice(value.as_bytes());
    Arc::new(Resource::new(Key::new(key), value, Revision(1), Revision(modified)))
}

async fn replica(supervisor: &Supervisor) -> (SocketAddr, mpsc::Receiver<Replica>, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let (streams, opened) = mpsc::channel(4);
    let authorizations = Arc::new(Mutex::new(Vec::new()));
    let service = Service { supervisor: supervisor.clone(), streams, authorizations: authorizations.clone() };
    let server = tonic::transport::Server::builder()
        .add_service(ConfigServer::new(service))
        .serve_with_incoming(TcpListenerStream::new(listener));
    supervisor.spawn("replica", Policy::best_effort().dropped_on_cancel(), server);
    (address, opened, authorizations)
}

fn config(directory: &std::path::Path, replica: SocketAddr) -> NodeConfig {
    let mut proxy = ProxyConfig { http: vec![local()], https: Vec::new(), ..ProxyConfig::default() };
    proxy.access_log.to = AccessLogTarget::Off;
    NodeConfig {
        node_id: "edge-1".into(),
        data_dir: directory.to_owned(),
        control_plane: ControlPlane {
            addresses: vec![replica.to_string()],
            insecure: true,
            token: Some("t0ken".to_owned().into()),
            ..ControlPlane::default()
        },
        proxy,
        listen: Listen { health: local(), control: local() },
        ..NodeConfig::default()
    }
}

fn local() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

async fn start(config: NodeConfig) -> Running {
    app::bind(&config).await.expect("nothing static is wrong").start(config)
}

async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("it answers");
    let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status line");
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default();
    (status, body)
}

async fn ready(address: SocketAddr) {
    let wait = async {
        while get(address, "/readyz").await.0 != 200 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(DEADLINE, wait).await.expect("ready in time");
}

async fn status(address: SocketAddr) -> Value {
    serde_json::from_str(&get(address, "/status/config").await.1).expect("JSON")
}

#[tokio::test]
async fn a_node_serves_keeps_and_serves_again_without_anybody() {
    let supervisor = Supervisor::new("test");
    let directory = tempfile::tempdir().unwrap();
    let (address, mut streams, authorizations) = replica(&supervisor).await;
    let node = start(config(directory.path(), address)).await;
    let health = node.addresses.health;

    let mut stream = tokio::time::timeout(DEADLINE, streams.recv()).await.unwrap().unwrap();
    assert!(matches!(stream.hear().await, NodeMessage::Hello(hello) if hello.held.is_none()));
    assert_eq!(*authorizations.lock().await, ["Bearer t0ken"]);
    let (code, body) = get(health, "/readyz").await;
    assert_eq!(code, 503);
    assert!(body.contains("pending: configuration"), "{body}");

    let upstream = resource("upstreams/1", r#"{"type":"roundrobin","nodes":{"127.0.0.1:1":1}}"#, 1);
    let route = resource("routes/1", r#"{"uri":"/a","upstream_id":"1"}"#, 2);
    let first: Content = [upstream, route].into_iter().collect();
    let welcome = Welcome {
        replica_id: "r".into(),
        heartbeat: Duration::from_secs(10),
        max_message_bytes: 1 << 20,
        standing: Standing::Live,
        serving: version(&first, 2),
    };
    stream.say(ReplicaMessage::Welcome(welcome)).await;
    let held = stream.transfer(None, &first, 2).await;
    stream.until_durable(&held).await;
    ready(health).await;
    assert_eq!(get(node.addresses.http[0], "/nowhere").await.0, 404);
    assert_eq!(get(node.addresses.http[0], "/a").await.0, 502, "the upstream's port is closed");

    let mut second = Content::new();
    second.put(resource("routes/1", r#"{"uri":7}"#, 5));
    let held = stream.transfer(Some(&first), &second, 5).await;
    let heard = stream.until_durable(&held).await;
    assert!(matches!(&heard[0], NodeMessage::Rejects(rejects) if rejects.rejected.len() == 1), "{heard:?}");
    let before = status(health).await;
    let report = node.shutdown().await;
    assert!(report.late.is_empty() && report.cause.is_none(), "{report:?}");
    assert!(matches!(stream.hear().await, NodeMessage::Bye(_)));
    supervisor.cancel();

    let node = start(config(directory.path(), address)).await;
    let health = node.addresses.health;
    ready(health).await;
    let after = status(health).await;
    assert_eq!(after["applied"]["revision"], 5);
    assert_eq!(after["rejected"], before["rejected"], "the same rejects since the same time");
    assert_eq!(get(node.addresses.http[0], "/a").await.0, 502, "still served, with what it referenced");
    let (code, dump) = get(node.addresses.control, "/v1/route/1").await;
    assert!(code == 200 && dump.contains("retained") && dump.contains("upstreams/1"), "{dump}");
    let (_, metrics) = get(health, "/metrics").await;
    assert!(metrics.contains("headwater_config_retained_keys 1"), "{metrics}");
    let (_, all) = get(node.addresses.control, "/config_dump").await;
    assert!(all.contains("routes/1") && !all.contains("t0ken"), "{all}");
    assert!(node.shutdown().await.late.is_empty());
}

#[tokio::test]
async fn ports_in_use_are_static_faults_that_are_told_all_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind(local()).await.unwrap();
    let mut config = config(directory.path(), local());
    config.listen.control = taken.local_addr().unwrap();
    config.proxy.http = vec![config.listen.control];
    let faults = app::bind(&config).await.err().expect("refused").0;
    assert!(
        matches!(faults[..], [StartError::Listen { what: "dumps", .. }, StartError::Proxy(_)]),
        "{faults:?}"
    );
    assert!(faults[0].to_string().contains(&config.listen.control.to_string()));
}

#[tokio::test]
async fn a_damaged_file_and_an_absent_replica_end_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path(), local());
    std::fs::write(config.last_known_good(), b"not a file of ours").unwrap();
    let node = start(config).await;
    assert_eq!(get(node.addresses.health, "/readyz").await.0, 503);
    assert_eq!(get(node.addresses.health, "/livez").await.0, 200);
    let faults = status(node.addresses.health).await["disk"]["faults"].clone();
    assert!(faults.as_array().is_some_and(|faults| !faults.is_empty()), "{faults}");
    assert!(node.shutdown().await.late.is_empty());
}

#[tokio::test]
async fn with_a_key_in_the_settings_the_file_is_encrypted_and_without_it_the_node_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path(), local());
    let file = config.last_known_good();
    let (mut plain, _) = LastKnownGood::open(&file, &config.environment, &<_>::default()).unwrap();
    let content: Content = [resource("routes/secret", r#"{"uri":"/a","status":0}"#, 2)].into_iter().collect();
    let version = version(&content, 2);
    plain.append(&Group { version, content, retained: Vec::new() }).unwrap();
    drop(plain);
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(3600);
    std::fs::File::options().write(true).open(&file).unwrap().set_modified(long_ago).unwrap();
    let age = || std::fs::metadata(&file).unwrap().modified().unwrap();
    let before = age();
    let is_seen = || std::fs::read(&file).unwrap().windows(13).any(|window| window == b"routes/secret");
    assert!(is_seen());

    let key = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
    let source = KeySource { file: None, key: Some(key.to_owned().into()) };
    config.state_encryption.keys = vec![source];
    let node = start(config.clone()).await;
    ready(node.addresses.health).await;
    assert!(!is_seen());
    assert_eq!(age(), before, "what it holds is as old as before");
    let (_, all) = get(node.addresses.control, "/config_dump").await;
    assert!(all.contains("routes/secret") && !all.contains(key), "{all}");
    assert!(node.shutdown().await.late.is_empty());

    config.state_encryption.keys.clear();
    let node = start(config.clone()).await;
    let status = status(node.addresses.health).await;
    assert!(
        status["disk"]["faults"][0].as_str().is_some_and(|fault| fault.contains("add that key")),
        "{status}"
    );
    assert_eq!(get(node.addresses.health, "/readyz").await.0, 503);
    assert!(node.shutdown().await.late.is_empty());

    config.state_encryption.keys = vec![KeySource::default(), KeySource::default()];
    let faults = app::bind(&config).await.err().expect("refused").0;
    assert!(matches!(faults[..], [StartError::StateKey(_), StartError::StateKey(_)]), "{faults:?}");
}
