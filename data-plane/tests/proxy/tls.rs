//! TLS towards clients by SNI, and towards upstreams.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use headwater_process::Supervisor;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::gateway::{Gateway, eventually, route_to, route_with, spawn};
use crate::http2;
use crate::upstreams::Upstream;

/// An ssl object for `name` with a certificate of its own; and that certificate.
fn ssl(name: &str) -> (Value, Vec<u8>) {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed([name.replace('*', "any")]).unwrap();
    (json!({ "sni": name, "cert": cert.pem(), "key": signing_key.serialize_pem() }), cert.der().to_vec())
}

fn name(text: &str) -> ServerName<'static> {
    ServerName::try_from(text.to_owned()).unwrap()
}

async fn shown(gateway: &Gateway, sni: &str) -> std::io::Result<Vec<u8>> {
    let stream = http2::tls(gateway.https, name(sni), &["http/1.1"]).await?;
    Ok(stream.get_ref().1.peer_certificates().unwrap()[0].to_vec())
}

#[tokio::test]
async fn the_name_chooses_the_certificate_and_no_name_or_an_unknown_one_ends_the_handshake() {
    let (exact, exact_der) = ssl("a.test");
    let (wild, wild_der) = ssl("*.test");
    let gateway = Gateway::start(&[("ssls/1", exact), ("ssls/2", wild)]).await;
    assert_eq!(shown(&gateway, "a.test").await.unwrap(), exact_der);
    assert_eq!(shown(&gateway, "A.TEST").await.unwrap(), exact_der);
    assert_eq!(shown(&gateway, "b.test").await.unwrap(), wild_der);
    assert!(shown(&gateway, "a.b.test").await.is_err());
    assert!(shown(&gateway, "127.0.0.1").await.is_err(), "an address is no name");
    let count = |kind| {
        let labels = headwater_data_plane::proxy::metrics::ErrorLabels { kind };
        gateway.metrics.handshake_failures.get_or_create_owned(&labels).get()
    };
    eventually(|| (count("unknown_name") == 1 && count("no_name") == 1).then_some(())).await;
}

#[tokio::test]
async fn http2_and_http1_are_served_over_tls_as_the_client_offers() {
    let supervisor = Supervisor::new("test");
    let upstream = Upstream::mirror(&supervisor).await;
    let gateway =
        Gateway::start(&[("routes/1", route_to(&[upstream.address])), ("ssls/1", ssl("a.test").0)]).await;
    let mut stream = http2::tls(gateway.https, name("a.test"), &["http/1.1"]).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    let port = gateway.https.port();
    for expected in ["x-forwarded-proto: https".to_owned(), format!("x-forwarded-port: {port}")] {
        assert!(text.contains(&expected), "{expected} in {text}");
    }
    let stream = http2::tls(gateway.https, name("a.test"), &["h2", "http/1.1"]).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (mut client, driver) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    spawn(&supervisor, async move {
        let _ = driver.await;
    });
    let request = Request::get("https://a.test/two").body(Full::<Bytes>::default()).unwrap();
    let answer = client.send_request(request).await.unwrap().into_body().collect().await.unwrap().to_bytes();
    assert!(answer.starts_with(b"GET /two HTTP/1.1"));
}

#[tokio::test]
async fn the_protocols_of_an_object_are_the_ones_offered() {
    let (mut only, _) = ssl("a.test");
    only["ssl_protocols"] = json!(["TLSv1.2"]);
    let gateway = Gateway::start(&[("ssls/1", only), ("ssls/2", ssl("b.test").0)]).await;
    for (host, version) in
        [("a.test", rustls::ProtocolVersion::TLSv1_2), ("b.test", rustls::ProtocolVersion::TLSv1_3)]
    {
        let stream = http2::tls(gateway.https, name(host), &[]).await.unwrap();
        assert_eq!(stream.get_ref().1.protocol_version(), Some(version), "{host}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_changes_under_continuous_handshakes_without_a_failure() {
    let supervisor = Supervisor::new("test");
    let upstream = Upstream::saying(&supervisor, "fine").await;
    let certificates: Vec<(Value, Vec<u8>)> = (0..20).map(|_| ssl("a.test")).collect();
    let route = route_to(&[upstream.address]);
    let resources = |ssl: &Value| [("routes/1", route.clone()), ("ssls/1", ssl.clone())];
    let gateway = Arc::new(Gateway::start(&resources(&certificates[0].0)).await);
    let (done, failed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let stop = Arc::new(AtomicBool::new(false));
    for _ in 0..4 {
        let (gateway, done, failed, stop) =
            (Arc::clone(&gateway), Arc::clone(&done), Arc::clone(&failed), Arc::clone(&stop));
        spawn(&supervisor, async move {
            while !stop.load(Ordering::SeqCst) {
                match request(&gateway).await {
                    Ok(()) => done.fetch_add(1, Ordering::SeqCst),
                    Err(_) => failed.fetch_add(1, Ordering::SeqCst),
                };
            }
        });
    }
    for (ssl, der) in &certificates {
        gateway.apply(&resources(ssl));
        assert_eq!(shown(&gateway, "a.test").await.unwrap(), *der, "the next handshake has the new one");
        let before = done.load(Ordering::SeqCst);
        eventually(|| (done.load(Ordering::SeqCst) >= before + 5).then_some(())).await;
    }
    stop.store(true, Ordering::SeqCst);
    assert_eq!(failed.load(Ordering::SeqCst), 0);
}

async fn request(gateway: &Gateway) -> std::io::Result<()> {
    let mut stream = http2::tls(gateway.https, name("a.test"), &["http/1.1"]).await?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n").await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    if text.starts_with("HTTP/1.1 200") { Ok(()) } else { Err(std::io::Error::other(text)) }
}

/// An HTTPS upstream that answers with the name it was asked for in the handshake.
async fn https_upstream(supervisor: &Supervisor) -> std::net::SocketAddr {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["nobody.test".to_owned()]).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tasks = supervisor.clone();
    spawn(supervisor, async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            spawn(&tasks, async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let asked = stream.get_ref().1.server_name().unwrap_or("-").to_owned();
                let mut buffer = vec![0; 4096];
                while stream.read(&mut buffer).await.is_ok_and(|count| count > 0) {
                    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{asked}", asked.len());
                    if stream.write_all(answer.as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn an_https_upstream_is_asked_for_its_host_and_not_verified() {
    let supervisor = Supervisor::new("test");
    let node = https_upstream(&supervisor).await;
    for (more, expected) in [
        (json!({ "scheme": "https" }), "a.test"),
        (json!({ "scheme": "https", "pass_host": "rewrite", "upstream_host": "b.test" }), "b.test"),
        (json!({ "scheme": "https", "pass_host": "node" }), "-"),
    ] {
        let gateway = Gateway::start(&[("routes/1", route_with(&[node], &more))]).await;
        for _ in 0..2 {
            assert_eq!(crate::raw::get(gateway.http, "/").await.text(), expected, "{more}");
        }
    }
}

#[tokio::test]
async fn a_handshake_that_never_comes_is_ended() {
    let resources = [("ssls/1", ssl("a.test").0)];
    let gateway =
        Gateway::start_set(&resources, |config| config.limits.handshake_timeout = Duration::from_millis(100))
            .await;
    assert!(crate::raw::Raw::connect(gateway.https).await.ended().await);
}
