use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use headwater_process::{Policy, Supervisor};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tonic::transport::{Channel, Server};
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use crate::client::{ClientFiles, ClientTls, Connector, endpoint};
use crate::fixture::{Authority, Names};
use crate::material::TlsError;
use crate::server::{ClientCertificates, ServerFiles, ServerTls};
use crate::{Incoming, Peer, PeerIdentity};

const LIMIT: Duration = Duration::from_secs(5);

/// Answers the caller's names in place of an error, so that the test sees what the server saw.
struct WhoAmI;

#[tonic::async_trait]
impl Health for WhoAmI {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let peer = request.extensions().get::<Peer>().expect("tonic passes it on");
        let expected = request.get_ref().service.as_str();
        let seen = format!("{} {:?}", peer.encrypted, peer.identity().map(|identity| &identity.names));
        if seen != expected {
            return Err(Status::failed_precondition(seen));
        }
        Ok(Response::new(HealthCheckResponse { status: ServingStatus::Serving.into() }))
    }

    type WatchStream = futures_util::stream::Empty<Result<HealthCheckResponse, Status>>;

    async fn watch(&self, _: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        Err(Status::unimplemented("not needed"))
    }
}

/// A server with its files in a folder.
struct World {
    folder: TempDir,
    authority: Authority,
    supervisor: Supervisor,
    refused: Arc<AtomicU32>,
}

impl World {
    fn new() -> Self {
        let supervisor = Supervisor::new("test");
        Self {
            folder: TempDir::new().unwrap(),
            authority: Authority::new(),
            supervisor,
            refused: Arc::default(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn server_files(&self, client_certificates: ClientCertificates) -> ServerFiles {
        let (cert, key) =
            self.authority.write_pair(self.folder.path(), "server", &Names::Dns(&["localhost"]));
        let ca = self.authority.write(&self.path("ca.pem"));
        ServerFiles { cert, key, client_ca: Some(ca), client_certificates }
    }

    fn client_files(&self, pair: Option<(PathBuf, PathBuf)>) -> ClientFiles {
        let (cert, key) = pair.unzip();
        let ca = self.authority.write(&self.path("ca.pem"));
        ClientFiles { ca, cert, key, server_name: None }
    }

    async fn serve(&self, tls: Option<ServerTls>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("localhost:{}", listener.local_addr().unwrap().port());
        let refused = Arc::clone(&self.refused);
        let on_refused = Arc::new(move |_, _: &std::io::Error| {
            refused.fetch_add(1, Ordering::SeqCst);
        });
        let incoming = Incoming::new(listener, tls, LIMIT, on_refused);
        let router = Server::builder().add_service(HealthServer::new(WhoAmI));
        self.supervisor.spawn("server", Policy::best_effort().dropped_on_cancel(), async move {
            router.serve_with_incoming(incoming).await
        });
        address
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.supervisor.cancel();
    }
}

async fn channel(address: &str, tls: Option<ClientTls>) -> Channel {
    let endpoint = endpoint(address, tls.is_some()).unwrap();
    endpoint.connect_with_connector_lazy(Connector::new(tls, LIMIT))
}

/// Asks the server to confirm what it sees of us.
async fn confirm(channel: Channel, seen: &str) -> Result<(), Status> {
    let request = HealthCheckRequest { service: seen.to_owned() };
    HealthClient::new(channel).check(request).await.map(drop)
}

fn load_server(files: &ServerFiles) -> ServerTls {
    ServerTls::load(files, &[b"h2"]).unwrap()
}

fn load_client(files: &ClientFiles) -> ClientTls {
    ClientTls::load(files, &[b"h2"]).unwrap()
}

fn overwrite(files: (&Path, &Path), pair: &(String, String)) {
    std::fs::write(files.0, &pair.0).unwrap();
    std::fs::write(files.1, &pair.1).unwrap();
}

#[tokio::test]
async fn mutual_tls_tells_the_server_who_calls() {
    let world = World::new();
    let address = world.serve(Some(load_server(&world.server_files(ClientCertificates::Required)))).await;
    for (names, seen) in [
        (Names::Dns(&["node-1", "node-1.fleet"]), r#"true Some(["node-1", "node-1.fleet"])"#),
        (Names::Uri("spiffe://fleet/node-1"), r#"true Some(["spiffe://fleet/node-1"])"#),
        (Names::Common("node one"), r#"true Some(["node one"])"#),
    ] {
        let pair = world.authority.write_pair(world.folder.path(), "client", &names);
        let client = load_client(&world.client_files(Some(pair)));
        confirm(channel(&address, Some(client)).await, seen).await.unwrap();
    }
    assert_eq!(world.refused.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_client_without_certificate_is_refused_and_counted_unless_optional() {
    let world = World::new();
    let client = load_client(&world.client_files(None));
    let strict = world.serve(Some(load_server(&world.server_files(ClientCertificates::Required)))).await;
    confirm(channel(&strict, Some(client.clone())).await, "true None").await.expect_err("no certificate");
    assert_eq!(world.refused.load(Ordering::SeqCst), 1);
    let lenient = world.serve(Some(load_server(&world.server_files(ClientCertificates::Optional)))).await;
    confirm(channel(&lenient, Some(client)).await, "true None").await.unwrap();
    let plain = world.serve(None).await;
    confirm(channel(&plain, None).await, "false None").await.unwrap();
}

#[tokio::test]
async fn a_stranger_is_refused_on_either_side() {
    let world = World::new();
    let stranger = Authority::new();
    let address = world.serve(Some(load_server(&world.server_files(ClientCertificates::Required)))).await;
    let pair = stranger.write_pair(world.folder.path(), "stranger", &Names::Dns(&["node-1"]));
    let client = load_client(&world.client_files(Some(pair)));
    confirm(channel(&address, Some(client)).await, "").await.expect_err("issued by a stranger");

    let ca = stranger.write(&world.path("strange-ca.pem"));
    let files = ClientFiles { ca, cert: None, key: None, server_name: None };
    let error = Connector::new(Some(load_client(&files)), LIMIT);
    let port = address.rsplit(':').next().unwrap().parse().unwrap();
    let error = error.connect("localhost", port).await.expect_err("server issued by a stranger");
    assert!(error.to_string().contains("check `ca`"), "{error}");
    let files = ClientFiles { server_name: Some("elsewhere".into()), ..world.client_files(None) };
    let connector = Connector::new(Some(load_client(&files)), LIMIT);
    connector.connect("localhost", port).await.expect_err("the name does not match");
}

#[tokio::test]
async fn a_changed_pair_serves_the_next_connection_and_spares_the_open_one() {
    let world = World::new();
    let files = world.server_files(ClientCertificates::Optional);
    let server = load_server(&files);
    let address = world.serve(Some(server.clone())).await;
    let old = channel(&address, Some(load_client(&world.client_files(None)))).await;
    confirm(old.clone(), "true None").await.unwrap();

    // All is issued anew by another authority, the one for clients included.
    let next = Authority::new();
    let pair = next.issue(&Names::Dns(&["localhost"]), false);
    overwrite((&files.cert, &files.key), &pair);
    next.write(files.client_ca.as_ref().unwrap());
    assert!(server.look());
    assert!(!server.look(), "nothing changed since");

    let ca = next.write(&world.path("next-ca.pem"));
    let (cert, key) = next.write_pair(world.folder.path(), "client", &Names::Dns(&["node-2"]));
    let fresh = ClientFiles { ca, cert: Some(cert), key: Some(key), server_name: None };
    confirm(channel(&address, Some(load_client(&fresh))).await, r#"true Some(["node-2"])"#).await.unwrap();
    confirm(old, "true None").await.unwrap();
}

#[tokio::test]
async fn a_bad_new_file_keeps_the_old_and_says_so_until_it_is_good() {
    let world = World::new();
    let files = world.server_files(ClientCertificates::Required);
    let server = load_server(&files);
    let before = server.config();
    let (cert, key) = world.authority.issue(&Names::Dns(&["localhost"]), false);

    std::fs::write(&files.cert, &cert).unwrap();
    assert!(!server.look());
    let fault = server.fault().expect("a new certificate with the old key");
    assert!(fault.message.contains("is not the key of the certificate"), "{}", fault.message);
    std::fs::remove_file(&files.key).unwrap();
    assert!(!server.look());
    assert!(server.fault().unwrap().message.contains("server.key: cannot be read"));
    overwrite((&files.cert, &files.key), &world.authority.issue(&Names::Dns(&["localhost"]), true));
    assert!(!server.look());
    let fault = server.fault().unwrap();
    assert!(fault.message.contains("expired"), "{}", fault.message);
    assert!(Arc::ptr_eq(&before, &server.config()));

    overwrite((&files.cert, &files.key), &(cert, key));
    assert!(server.look());
    assert_eq!(server.fault(), None);
}

#[tokio::test(start_paused = true)]
async fn the_watch_looks_every_period() {
    let world = World::new();
    let files = world.server_files(ClientCertificates::Required);
    let server = load_server(&files);
    let before = server.config();
    let policy = Policy::essential().dropped_on_cancel();
    world.supervisor.spawn("reload", policy, server.watch(Duration::from_secs(5)));
    overwrite((&files.cert, &files.key), &world.authority.issue(&Names::Dns(&["localhost"]), false));
    let changed = async {
        while Arc::ptr_eq(&before, &server.config()) {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), changed).await.expect("reloaded within some periods");
}

#[test]
fn an_expired_certificate_loads_with_a_fault() {
    let world = World::new();
    let files = world.server_files(ClientCertificates::Required);
    overwrite((&files.cert, &files.key), &world.authority.issue(&Names::Dns(&["localhost"]), true));
    let server = load_server(&files);
    assert!(server.fault().expect("expired").message.contains("expired"));
    assert!(server.validity().expect("an own certificate").not_after < std::time::SystemTime::now());
}

#[test]
fn each_fault_names_the_file_and_the_cure() {
    let world = World::new();
    let good = world.server_files(ClientCertificates::Required);
    let odd = world.path("odd.pem");
    std::fs::write(&odd, "not PEM at all").unwrap();
    let other = world.authority.write_pair(world.folder.path(), "other", &Names::Dns(&["x"]));
    let cases = [
        (ServerFiles { cert: world.path("none.pem"), ..good.clone() }, "none.pem: cannot be read"),
        (ServerFiles { cert: odd.clone(), ..good.clone() }, "odd.pem: holds no certificate"),
        (ServerFiles { key: odd.clone(), ..good.clone() }, "odd.pem: holds no private key"),
        (ServerFiles { key: other.1, ..good.clone() }, "other.key: is not the key of the certificate"),
        (ServerFiles { client_ca: Some(odd), ..good }, "odd.pem: holds no certificate"),
    ];
    for (files, expected) in cases {
        let error = ServerTls::load(&files, &[]).expect_err(expected).to_string();
        assert!(error.contains(expected) && error.contains(": "), "{error}");
    }
    let half = ClientFiles { cert: Some(world.path("server.pem")), ..world.client_files(None) };
    assert!(matches!(ClientTls::load(&half, &[]), Err(TlsError::Half { .. })));
}

#[test]
fn addresses_are_host_and_port() {
    for bad in ["localhost", "http://localhost:1", "localhost:1/path", ""] {
        assert!(endpoint(bad, true).is_err(), "{bad}");
    }
    for good in ["localhost:1", "10.0.0.1:9190", "[::1]:9190"] {
        assert!(endpoint(good, false).is_ok(), "{good}");
    }
}

#[test]
fn identity_matches_in_any_case() {
    let identity = PeerIdentity { names: vec!["Node-1".into()] };
    assert!(identity.is("node-1") && !identity.is("node-2"));
    assert_eq!(PeerIdentity { names: vec![] }.to_string(), "(no name)");
}
