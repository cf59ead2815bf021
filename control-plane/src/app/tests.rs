//! A whole replica in this process, on the embedded store and on ports of its own.

use headwater_process::settings::{self, Sources};
use headwater_proto::admin as wire;
use headwater_proto::admin::fleet_client::FleetClient;
use headwater_proto::admin::resources_client::ResourcesClient;
use headwater_proto::admin::source_client::SourceClient;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use super::*;

const UPSTREAM: &[u8] = br#"{"type":"roundrobin","nodes":{"127.0.0.1:80":1}}"#;

/// The settings of a replica below a folder; `more` is laid over them.
fn config(folder: &std::path::Path, more: &str) -> Config {
    let text = format!(
        "replica_id: r1\nstate_dir: {0}/state\nembedded: {{directory: {0}/store}}\n\
         southbound: {{listen: '127.0.0.1:0', insecure: true, heartbeat: 100ms}}\n\
         health: {{listen: '127.0.0.1:0'}}\n{more}",
        folder.display()
    );
    settings::load(Sources::new().text("test.yaml", text)).unwrap()
}

const OPEN: &str = "admin: {listen: '127.0.0.1:0', insecure: true}\n";

async fn replica(folder: &std::path::Path, more: &str) -> (Bound, Channel) {
    let bound = start(config(folder, more)).await.unwrap();
    while !bound.readiness().report().ready {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let address = format!("http://{}", bound.addresses.admin);
    let channel = Channel::from_shared(address).unwrap().connect().await.unwrap();
    (bound, channel)
}

async fn page(address: SocketAddr, path: &str) -> String {
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

fn put(key: &str, value: &[u8]) -> wire::PutRequest {
    wire::PutRequest { key: key.into(), value: value.to_vec(), ..wire::PutRequest::default() }
}

fn word(status: &Status) -> &str {
    status.metadata().get(grpc::REASON_TRAILER).unwrap().to_str().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_is_read_listed_and_kept_over_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (bound, channel) = replica(folder.path(), OPEN).await;
    let mut resources = ResourcesClient::new(channel);
    let written = resources.put(put("upstreams/1", UPSTREAM)).await.unwrap().into_inner();
    assert_eq!(written.committed[0].keys[0].done(), wire::Done::Created);
    let list = wire::ListRequest { kind: "upstreams".into(), ..wire::ListRequest::default() };
    let listed = resources.list(list.clone()).await.unwrap().into_inner();
    assert_eq!(
        (listed.total, listed.resources[0].key.as_str(), listed.stale.as_str()),
        (1, "upstreams/1", "")
    );
    assert!(bound.shutdown().await.is_none());

    let (bound, channel) = replica(folder.path(), OPEN).await;
    let again = ResourcesClient::new(channel).list(list).await.unwrap().into_inner();
    assert_eq!(again.resources, listed.resources);
    let generations = [listed, again].map(|listed| listed.version.unwrap().generation);
    assert!(generations[1] > generations[0], "an embedded store raises the generation at each opening");
    assert!(bound.shutdown().await.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_have_a_code_a_word_and_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let (bound, channel) = replica(folder.path(), OPEN).await;
    let mut resources = ResourcesClient::new(channel);
    resources.put(put("upstreams/1", UPSTREAM)).await.unwrap();
    let conflict = wire::PutRequest { if_mod_revision: Some(99), ..put("upstreams/1", UPSTREAM) };
    let missing = wire::DeleteRequest { key: "routes/9".into(), ..wire::DeleteRequest::default() };
    let elsewhere = wire::PutRequest { environment: "other".into(), ..put("upstreams/1", UPSTREAM) };
    for (answer, code, expected, part) in [
        (resources.put(put("rutes/1", b"{}")).await, Code::InvalidArgument, "bad_request", "no known kind"),
        (resources.put(put("routes/1", b"{}")).await, Code::InvalidArgument, "invalid", "routes/1: "),
        (resources.put(conflict).await, Code::Aborted, "conflict", "mod revision"),
        (resources.put(elsewhere).await, Code::NotFound, "unknown_environment", "default"),
        (resources.delete(missing).await, Code::NotFound, "not_found", "routes/9"),
    ] {
        let status = answer.unwrap_err();
        assert_eq!((status.code(), word(&status)), (code, expected), "{status}");
        assert!(status.message().contains(part), "{status}");
    }
    bound.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_streams_progress_and_one_last_answer() {
    let folder = tempfile::tempdir().unwrap();
    let (bound, channel) = replica(folder.path(), OPEN).await;
    let written = ResourcesClient::new(channel.clone()).put(put("upstreams/1", UPSTREAM)).await.unwrap();
    let version = written.into_inner().committed[0].version.clone();
    let request = wire::WaitRequest { version, timeout_ms: 600, ..wire::WaitRequest::default() };
    let mut answers = FleetClient::new(channel).wait(request).await.unwrap().into_inner();
    let mut last = None;
    while let Some(answer) = answers.message().await.unwrap() {
        assert!(last.as_ref().is_none_or(|last: &wire::WaitAnswer| !last.r#final));
        last = Some(answer);
    }
    let last = last.unwrap();
    assert_eq!((last.outcome.as_str(), last.r#final, last.expected), ("no_nodes", true, 0));
    assert_eq!(last.replicas, ["r1"]);
    bound.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_are_told_apart_by_their_keys() {
    let folder = tempfile::tempdir().unwrap();
    let callers = "admin:\n  listen: '127.0.0.1:0'\n  insecure: true\n  callers:\n    \
        - {name: ops, role: admin, key: admin-admin-admin}\n    \
        - {name: ci, role: viewer, key: viewer-viewer-viewer}\n";
    let (bound, channel) = replica(folder.path(), callers).await;
    let mut source = SourceClient::new(channel.clone());
    let mut resources = ResourcesClient::new(channel);
    let with = |key: &'static str, message: wire::PutRequest| {
        let mut request = Request::new(message);
        request.metadata_mut().insert(grpc::KEY_HEADER, key.parse().unwrap());
        request
    };
    let anonymous = source.status(wire::StatusRequest {}).await.unwrap_err();
    assert_eq!((anonymous.code(), word(&anonymous)), (Code::Unauthenticated, "not_allowed"));
    let wrong = resources.put(with("wrong-wrong-wrong", put("upstreams/1", UPSTREAM))).await.unwrap_err();
    assert_eq!(wrong.code(), Code::Unauthenticated);
    let viewer = resources.put(with("viewer-viewer-viewer", put("upstreams/1", UPSTREAM))).await.unwrap_err();
    assert_eq!(viewer.code(), Code::PermissionDenied);
    assert!(resources.put(with("admin-admin-admin", put("upstreams/1", UPSTREAM))).await.is_ok());
    let metrics = page(bound.addresses.health, "/metrics").await;
    for reason in ["anonymous", "unknown", "role"] {
        let line = format!("headwater_admin_denied_total{{reason=\"{reason}\"}} 1");
        assert!(metrics.contains(&line), "{metrics}");
    }
    bound.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_pages_tell_readiness_and_status() {
    let folder = tempfile::tempdir().unwrap();
    let (bound, _channel) = replica(folder.path(), OPEN).await;
    let health = bound.addresses.health;
    assert!(page(health, "/livez").await.starts_with("HTTP/1.1 200"));
    assert!(page(health, "/readyz").await.starts_with("HTTP/1.1 200"));
    let status = page(health, "/status/config").await;
    let body = status.split_once("\r\n\r\n").unwrap().1;
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(body["environments"][0]["source"]["stage"], "live");
    let metrics = page(health, "/metrics").await;
    for line in [
        "headwater_source_live{environment=\"default\"} 1.0",
        "headwater_nodes_live{environment=\"default\"} 0.0",
    ] {
        assert!(metrics.contains(line), "{metrics}");
    }
    bound.shutdown().await;
}

#[tokio::test]
async fn static_faults_name_the_setting() {
    let folder = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let more = format!("admin: {{listen: '127.0.0.1:{port}', insecure: true}}\n");
    let error = start(config(folder.path(), &more)).await.unwrap_err().to_string();
    assert!(error.starts_with("admin: ") && error.contains(&port.to_string()), "{error}");

    let missing = "admin: {listen: '127.0.0.1:0', tls: {cert: /none.pem, key: /none.pem}, \
        callers: [{name: ops, role: admin, key: admin-admin-admin}]}\n";
    let faults = check(&config(folder.path(), missing));
    assert!(faults[0].to_string().contains("/none.pem"), "{faults:?}");

    std::fs::write(folder.path().join("file"), "").unwrap();
    let mut blocked = config(folder.path(), OPEN);
    blocked.state_dir = folder.path().join("file/below");
    let error = start(blocked).await.unwrap_err().to_string();
    assert!(error.starts_with("state_dir: "), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_etcd_away_a_replica_starts_says_so_and_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut away = config(folder.path(), OPEN);
    away.embedded = None;
    away.etcd = Some(crate::backend::etcd::EtcdConfig {
        endpoints: vec!["http://127.0.0.1:1".into()],
        ..crate::backend::etcd::EtcdConfig::default()
    });
    away.start_deadline = Duration::from_millis(200);
    let bound = start(away).await.unwrap();
    while !bound.readiness().report().ready {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let ready = page(bound.addresses.health, "/readyz").await;
    assert!(ready.contains("given up: environment default: not loaded within 200ms"), "{ready}");
    let address = format!("http://{}", bound.addresses.admin);
    let channel = Channel::from_shared(address).unwrap().connect().await.unwrap();
    let refused = ResourcesClient::new(channel).put(put("upstreams/1", UPSTREAM)).await.unwrap_err();
    assert_eq!((refused.code(), word(&refused)), (Code::Unavailable, "not_complete"));
    assert!(bound.shutdown().await.is_none());
}

const ENCRYPTED: &str = "admin: {listen: '127.0.0.1:0', insecure: true}\n\
    state_encryption: {keys: [{key: AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=}]}\n";

fn is_seen(file: &std::path::Path, text: &str) -> bool {
    std::fs::read(file).unwrap().windows(text.len()).any(|window| window == text.as_bytes())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_key_in_the_settings_the_embedded_store_is_encrypted() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("store/default.store");
    for (settings, seen) in [(OPEN, true), (ENCRYPTED, false)] {
        let (bound, channel) = replica(folder.path(), settings).await;
        let mut resources = ResourcesClient::new(channel);
        resources.put(put("upstreams/1", UPSTREAM)).await.unwrap();
        let list = wire::ListRequest { kind: "upstreams".into(), ..wire::ListRequest::default() };
        assert_eq!(resources.list(list).await.unwrap().into_inner().total, 1);
        assert!(bound.shutdown().await.is_none());
        assert_eq!((is_seen(&file, "upstreams/1"), is_seen(&file, "127.0.0.1:80")), (seen, seen));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_key_in_the_settings_the_last_known_good_is_encrypted_at_the_start() {
    use crate::last_known_good::{LastKnownGood, Saved};

    let folder = tempfile::tempdir().unwrap();
    let mut away = config(folder.path(), ENCRYPTED);
    away.embedded = None;
    away.etcd = Some(crate::backend::etcd::EtcdConfig {
        endpoints: vec!["http://127.0.0.1:1".into()],
        ..crate::backend::etcd::EtcdConfig::default()
    });
    let file = folder.path().join("state/default.last-known-good");
    let (mut plain, _) = LastKnownGood::open(&file, "/apisix", &<_>::default()).unwrap();
    plain.save_full(&Saved::empty("/apisix".into())).unwrap();
    drop(plain);
    assert!(is_seen(&file, "/apisix"));
    let bound = start(away.clone()).await.unwrap();
    assert!(!is_seen(&file, "/apisix"));
    assert!(bound.shutdown().await.is_none());
    let keys = away.state_keys().unwrap();
    let (_, opened) = LastKnownGood::open(&file, "/apisix", &keys).unwrap();
    assert!(opened.saved.is_some() && opened.faults.is_empty(), "{:?}", opened.faults);

    away.state_encryption.keys[0].key = None;
    let error = start(away).await.unwrap_err().to_string();
    assert!(error.contains("state_encryption.keys[0]: is empty"), "{error}");
}
