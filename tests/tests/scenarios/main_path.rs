//! The main path: what is put into etcd is what a request through a node meets.

use std::path::Path;
use std::sync::Arc;

use headwater_tests::certificates::Authority;
use headwater_tests::etcd::{Etcd, dependable};
use headwater_tests::http;
use headwater_tests::keys::{Keys, Write, route, upstream};
use headwater_tests::origin::Origin;
use headwater_tests::planes::{LIMIT, Node, Replica};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_put_is_served_changed_and_gone() {
    if !dependable("a_put_is_served_changed_and_gone") {
        return;
    }
    let (etcd, folder) = (Etcd::start().await, tempfile::tempdir().unwrap());
    let keys = Keys::new(etcd.client().await);
    let (one, two) = (Origin::start("one").await, Origin::start("two").await);
    let node = Node::start(folder.path(), "n1", "127.0.0.1:1", &[]);
    node.shows("that it cannot reach anybody", |it| !it["stream"]["last_error"].is_null()).await;
    assert_eq!(http::get(&node.health, "/readyz").await.unwrap().0, 503, "ready without a configuration");
    assert_eq!(http::get(&node.health, "/livez").await.unwrap().0, 200);
    drop(node);

    let replica = Replica::start(folder.path(), "r1", &etcd.endpoints()[0], &[]);
    let node = Node::start(folder.path(), "n1", &replica.southbound, &[]);
    replica.ready().await;
    node.ready().await;
    node.answers("/hello", 404, "", LIMIT).await;

    let write = Write::default().put("upstreams/1", &upstream(&one.node()));
    keys.commit(write.put("routes/1", &route("/hello", "1"))).await;
    node.answers("/hello", 200, "one", LIMIT).await;
    keys.put("upstreams/1", &upstream(&two.node())).await;
    node.answers("/hello", 200, "two", LIMIT).await;
    keys.delete("routes/1").await;
    node.answers("/hello", 404, "", LIMIT).await;
    assert_eq!(http::get(&node.health, "/readyz").await.unwrap().0, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_chosen_by_name() {
    if !dependable("certificates_are_chosen_by_name") {
        return;
    }
    let (etcd, folder) = (Etcd::start().await, tempfile::tempdir().unwrap());
    let keys = Keys::new(etcd.client().await);
    let origin = Origin::start("secure").await;
    let authority = Authority::new(folder.path());
    let mut write = Write::default().put("upstreams/1", &upstream(&origin.node()));
    write = write.put("routes/1", &route("/hello", "1"));
    for name in ["a.test", "b.test"] {
        let (cert, key) = authority.issue(name, &[name]);
        let (cert, key) = (std::fs::read_to_string(cert).unwrap(), std::fs::read_to_string(key).unwrap());
        write = write.put(&format!("ssls/{name}"), &json!({ "snis": [name], "cert": cert, "key": key }));
    }
    let revision = keys.commit(write).await;
    let replica = Replica::start(folder.path(), "r1", &etcd.endpoints()[0], &[]);
    let node = Node::start(folder.path(), "n1", &replica.southbound, &[]);
    let status = node.reaches(revision).await;
    assert_eq!(status["rejected"], json!([]));
    for name in ["a.test", "b.test"] {
        let answer = over_tls(&node.https, name, &authority.ca).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("secure"), "{name}: {answer}");
    }
    assert!(over_tls(&node.https, "c.test", &authority.ca).await.is_err(), "served a name without one");
}

/// One request over TLS to a name, whose certificate is verified.
async fn over_tls(address: &str, name: &'static str, ca: &Path) -> std::io::Result<String> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(ca).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let stream = TcpStream::connect(address).await?;
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let mut stream = connector.connect(ServerName::try_from(name).unwrap(), stream).await?;
    let request = format!("GET /hello HTTP/1.1\r\nhost: {name}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}
