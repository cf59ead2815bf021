//! etcd that asks who one is: authentication switched on under a live watch, tokens that end, a password and a role
//! that change, and client certificates. A real etcd each time; nothing is restarted and nothing is lost.

#![expect(clippy::unwrap_used, reason = "a test ends where it fails")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Certificate, Client, ConnectOptions, Identity, Permission, TlsOptions};
use headwater_control_plane::backend::etcd::{EtcdCluster, EtcdCommit, EtcdConfig, Metrics};
use headwater_control_plane::backend::{Commit, CommitError, Operation, Stage, Transaction};
use headwater_tests::certificates::Authority;
use headwater_tests::etcd::{Etcd, Options, Tls, dependable};
use headwater_tests::eventually::eventually;
use headwater_tests::follower::Follower;

const PREFIX: &str = "/apisix";

fn config(etcd: &Etcd, password: &Path) -> EtcdConfig {
    EtcdConfig {
        endpoints: etcd.endpoints(),
        user: Some("headwater".to_owned()),
        password_file: Some(password.to_owned()),
        progress_interval: Duration::from_millis(500),
        liveness_timeout: Duration::from_secs(3),
        ..EtcdConfig::default()
    }
}

fn follow(config: &EtcdConfig) -> (Arc<EtcdCluster>, Follower) {
    assert_eq!(config.check("etcd"), []);
    let cluster = EtcdCluster::new(config.clone(), Metrics::default());
    let follower = Follower::resume(&cluster, PREFIX, None);
    (cluster, follower)
}

/// A client with all rights, which logs in itself.
async fn root(etcd: &Etcd) -> Client {
    let options = ConnectOptions::new().with_user("root", "root").with_auto_token_refresh(true);
    Client::connect(etcd.endpoints(), Some(options)).await.unwrap()
}

/// Users and roles, and authentication on.
async fn switch_on(etcd: &Etcd, password: &str) -> Client {
    let mut client = etcd.client().await;
    client.user_add("root", "root", None).await.unwrap();
    client.user_grant_role("root", "root").await.unwrap();
    client.user_add("headwater", password, None).await.unwrap();
    client.role_add("gateway").await.unwrap();
    grant(&mut client).await;
    client.user_grant_role("headwater", "gateway").await.unwrap();
    client.auth_enable().await.unwrap();
    root(etcd).await
}

async fn grant(client: &mut Client) {
    client.role_grant_permission("gateway", Permission::read_write("/apisix/").with_prefix()).await.unwrap();
}

async fn put(client: &Client, key: &str, value: &str) {
    client.kv_client().put(format!("{PREFIX}/{key}"), value, None).await.unwrap();
}

/// Breaks every watch of etcd, as a restart of its process does.
async fn restarted(etcd: &mut Etcd) {
    etcd.kill();
    etcd.restart().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn authentication_switched_on_under_a_live_watch_costs_nothing() {
    if !dependable("authentication_switched_on_under_a_live_watch_costs_nothing") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let password = folder.path().join("password");
    std::fs::write(&password, "first\n").unwrap();
    let mut etcd = Etcd::start().await;
    let open = etcd.client().await;
    put(&open, "routes/1", "{}").await;
    let (cluster, follower) = follow(&config(&etcd, &password));
    follower.equals(&open).await;

    let client = switch_on(&etcd, "first").await;
    put(&client, "routes/2", "{}").await;
    follower.equals(&client).await;
    // The process starts again: no stream and no token outlives it.
    restarted(&mut etcd).await;
    let client = root(&etcd).await;
    put(&client, "routes/3", "{}").await;
    client.kv_client().delete(format!("{PREFIX}/routes/1"), None).await.unwrap();
    follower.equals(&client).await;
    write(&cluster, "routes/4").await.unwrap();
    follower.equals(&client).await;
    assert_eq!(follower.told().loads.len(), 1, "the watch went on, nothing was read again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_that_changes_in_etcd_and_in_the_file_is_followed() {
    if !dependable("a_password_that_changes_in_etcd_and_in_the_file_is_followed") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let password = folder.path().join("password");
    std::fs::write(&password, "first").unwrap();
    let mut etcd = Etcd::start().await;
    let mut client = switch_on(&etcd, "first").await;
    put(&client, "routes/1", "{}").await;
    let (cluster, follower) = follow(&config(&etcd, &password));
    follower.equals(&client).await;
    write(&cluster, "routes/2").await.unwrap();
    follower.equals(&client).await;

    // Changed in etcd first: until the file follows, nothing new may be learnt, and what is held stays.
    client.user_change_password("headwater", "second").await.unwrap();
    restarted(&mut etcd).await;
    let client = root(&etcd).await;
    let said = |state: &headwater_control_plane::backend::SourceState| {
        state.stage == Stage::Refused && state.note.as_deref().is_some_and(|note| note.contains("password"))
    };
    follower.until("it says why", |told| told.states.iter().any(said)).await;
    // The connections of before are broken, which a write finds out first.
    eventually("a write is refused by name", Duration::from_secs(30), || async {
        match write(&cluster, "routes/3").await {
            Err(CommitError::Refused(_)) => Ok(()),
            Ok(()) => panic!("written under a password that is no more"),
            Err(other) => Err(format!("{other:?}")),
        }
    })
    .await;
    put(&client, "routes/4", "{}").await;
    assert_eq!(follower.told().keys.len(), 2);
    std::fs::write(&password, "second").unwrap();
    follower.equals(&client).await;
    write(&cluster, "routes/5").await.unwrap();
    follower.equals(&client).await;
    assert_eq!(follower.told().loads.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_that_is_taken_away_is_named_and_loses_no_route() {
    if !dependable("a_role_that_is_taken_away_is_named_and_loses_no_route") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let password = folder.path().join("password");
    std::fs::write(&password, "first").unwrap();
    let mut etcd = Etcd::start().await;
    let mut client = switch_on(&etcd, "first").await;
    put(&client, "routes/1", "{}").await;
    let (_cluster, follower) = follow(&config(&etcd, &password));
    follower.equals(&client).await;

    client.user_revoke_role("headwater", "gateway").await.unwrap();
    restarted(&mut etcd).await;
    let mut client = root(&etcd).await;
    put(&client, "routes/2", "{}").await;
    follower
        .until("it says that it may not read", |told| {
            let last = told.states.last();
            last.is_some_and(|state| state.stage == Stage::Refused && format!("{state:?}").contains("denied"))
        })
        .await;
    assert_eq!(follower.told().keys.len(), 1, "what is held stays");
    client.user_grant_role("headwater", "gateway").await.unwrap();
    follower.equals(&client).await;
    assert_eq!(follower.told().loads.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_that_end_within_seconds_are_replaced() {
    if !dependable("tokens_that_end_within_seconds_are_replaced") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let password = folder.path().join("password");
    std::fs::write(&password, "first").unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let (public, private) = (folder.path().join("public.pem"), folder.path().join("private.pem"));
    std::fs::write(&public, key.public_key_pem()).unwrap();
    std::fs::write(&private, key.serialize_pem()).unwrap();
    let token =
        format!("jwt,pub-key={},priv-key={},sign-method=ES256,ttl=2s", public.display(), private.display());
    for kind in [token.as_str(), "simple"] {
        let arguments = ["--auth-token", kind, "--auth-token-ttl", "2"].map(str::to_owned).to_vec();
        let mut etcd = Etcd::start_with(Options { arguments, ..Options::default() }).await;
        let client = switch_on(&etcd, "first").await;
        put(&client, "routes/0", "{}").await;
        let (cluster, follower) = follow(&config(&etcd, &password));
        follower.equals(&client).await;
        for round in 1..4 {
            tokio::time::sleep(Duration::from_secs(3)).await;
            if round == 2 {
                restarted(&mut etcd).await;
            }
            put(&root(&etcd).await, &format!("routes/{round}"), "{}").await;
            write(&cluster, &format!("routes/own-{round}")).await.unwrap();
            follower.equals(&root(&etcd).await).await;
        }
        assert_eq!(follower.told().loads.len(), 1, "{kind}");
    }
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
    let tls = headwater_control_plane::backend::etcd::config::TlsConfig {
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
    let (_cluster, follower) = follow(&config);
    let backs_off = |state: &headwater_control_plane::backend::SourceState| state.stage == Stage::BackingOff;
    follower.until("it is turned away", |told| told.states.iter().any(backs_off)).await;
    let issued = authority.issue("replica", &["replica"]);
    assert_eq!(issued, mine, "in the very files");
    follower.equals(&client).await;
    restarted(&mut etcd).await;
    let client = secure(&etcd, &authority, &own).await;
    put(&client, "routes/2", "{}").await;
    follower.equals(&client).await;
    assert_eq!(follower.told().loads.len(), 1);
}

async fn secure(
    etcd: &Etcd,
    authority: &Authority,
    own: &(std::path::PathBuf, std::path::PathBuf),
) -> Client {
    let read = |path: &Path| std::fs::read(path).unwrap();
    let tls = TlsOptions::new()
        .ca_certificate(Certificate::from_pem(read(&authority.ca)))
        .identity(Identity::from_pem(read(&own.0), read(&own.1)));
    let options = ConnectOptions::new().with_tls(tls);
    Client::connect(etcd.endpoints(), Some(options)).await.unwrap()
}

/// Writes as an operator's request does.
async fn write(cluster: &Arc<EtcdCluster>, key: &str) -> Result<(), CommitError> {
    let put = Operation::Put { key: key.to_owned().into(), value: "{}".into() };
    let transaction = Transaction { compares: Vec::new(), operations: vec![put] };
    EtcdCommit::new(Arc::clone(cluster), PREFIX).commit(transaction).await.map(|_| ())
}
