//! etcd that asks for client certificates: one that is replaced in its file is used. (Passwords, tokens and roles are
//! cases C14 and C15.)

#![expect(clippy::unwrap_used, reason = "a test ends where it fails")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use etcd_client::{Certificate, Client, ConnectOptions, Identity, TlsOptions};
use headwater_control_plane::backend::etcd::config::TlsConfig;
use headwater_control_plane::backend::etcd::{EtcdCluster, EtcdConfig, Metrics};
use headwater_control_plane::backend::{SourceState, Stage};
use headwater_tests::certificates::Authority;
use headwater_tests::etcd::{Etcd, Options, Tls, dependable};
use headwater_tests::follower::Follower;

const PREFIX: &str = "/apisix";

async fn put(client: &Client, key: &str, value: &str) {
    client.kv_client().put(format!("{PREFIX}/{key}"), value, None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_certificate_that_is_replaced_in_its_file_is_used_at_the_next_connection() {
    if !dependable("a_client_certificate_that_is_replaced_in_its_file_is_used_at_the_next_connection") {
        return;
    }
    let (folder, others) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let authority = Authority::new(folder.path());
    let (cert, key) = authority.issue("etcd", &["127.0.0.1", "localhost"]);
    let tls = Tls { cert, key, client_ca: Some(authority.ca.clone()) };
    let mut etcd = Etcd::start_with(Options { tls: Some(tls), ..Options::default() }).await;
    let own = authority.issue("test", &["test"]);
    let client = secure(&etcd, &authority, &own).await;
    put(&client, "routes/1", "{}").await;
    // Of an authority that etcd does not know.
    let stranger = Authority::new(others.path()).issue("replica", &["replica"]);
    let mine = (folder.path().join("replica.pem"), folder.path().join("replica.key"));
    std::fs::copy(&stranger.0, &mine.0).unwrap();
    std::fs::copy(&stranger.1, &mine.1).unwrap();
    let tls = TlsConfig {
        ca: authority.ca.clone(),
        cert: Some(mine.0.clone()),
        key: Some(mine.1.clone()),
        server_name: None,
    };
    let config = EtcdConfig {
        endpoints: etcd.endpoints(),
        tls: Some(tls),
        progress_interval: Duration::from_millis(500),
        liveness_timeout: Duration::from_secs(3),
        ..EtcdConfig::default()
    };
    assert_eq!(config.check("etcd"), []);
    let cluster = EtcdCluster::new(config, Metrics::default());
    let follower = Follower::resume(&cluster, PREFIX, None);
    let backs_off = |state: &SourceState| state.stage == Stage::BackingOff;
    follower.until("it is turned away", |told| told.states.iter().any(backs_off)).await;
    let issued = authority.issue("replica", &["replica"]);
    assert_eq!(issued, mine, "in the very files");
    follower.equals(&client).await;
    // Breaks every connection.
    etcd.kill();
    etcd.restart().await;
    let client = secure(&etcd, &authority, &own).await;
    put(&client, "routes/2", "{}").await;
    follower.equals(&client).await;
    assert_eq!(follower.told().loads.len(), 1);
}

async fn secure(etcd: &Etcd, authority: &Authority, own: &(PathBuf, PathBuf)) -> Client {
    let read = |path: &Path| std::fs::read(path).unwrap();
    let tls = TlsOptions::new()
        .ca_certificate(Certificate::from_pem(read(&authority.ca)))
        .identity(Identity::from_pem(read(&own.0), read(&own.1)));
    let options = ConnectOptions::new().with_tls(tls);
    Client::connect(etcd.endpoints(), Some(options)).await.unwrap()
}
