//! How a gateway comes to rest.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use headwater_data_plane::proxy::metrics::{ListenerLabels, Scheme};
use headwater_process::Supervisor;
use headwater_process::drain::Drained;
use http::Request;
use http_body_util::{BodyExt, Full};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use crate::gateway::{Gateway, eventually, route_to};
use crate::http2;
use crate::raw::Raw;
use crate::upstreams::{Upstream, ok};

const GRACE: Duration = Duration::from_secs(10);
const FORCE: Duration = Duration::from_secs(2);

/// Answers once it is told to.
async fn waiting(supervisor: &Supervisor, go: &Arc<Notify>) -> Upstream {
    let go = Arc::clone(go);
    Upstream::start(supervisor, move |mut raw, requests| {
        let go = Arc::clone(&go);
        async move {
            while raw.message().await.is_some() {
                requests.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                go.notified().await;
                raw.write(ok("at last")).await;
            }
        }
    })
    .await
}

#[tokio::test]
async fn requests_under_way_are_finished_and_nothing_new_is_accepted() {
    let supervisor = Supervisor::new("test");
    let go = Arc::new(Notify::new());
    let upstream = waiting(&supervisor, &go).await;
    let mut gateway = Gateway::start(&[("routes/1", route_to(&[upstream.address]))]).await;
    let mut one = Raw::connect(gateway.http).await;
    one.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let mut two = http2::connect(&supervisor, gateway.http).await;
    let request = Request::get("http://a.test/").body(Full::<Bytes>::default()).unwrap();
    let second = two.send_request(request);
    let mut idle = Raw::connect(gateway.http).await;
    let connections =
        gateway.metrics.connections.get_or_create_owned(&ListenerLabels { listener: Scheme::Http });
    eventually(|| (upstream.requests() == 2 && connections.get() == 3).then_some(())).await;
    let trigger = gateway.trigger.take().unwrap();
    let clients = async {
        assert!(idle.ended().await, "an idle connection is closed");
        eventually(|| std::net::TcpStream::connect(gateway.http).err()).await;
        go.notify_one();
        go.notify_one();
        let answer = one.message().await.unwrap();
        assert_eq!((answer.text().as_str(), answer.header("connection")), ("at last", Some("close")));
        assert!(one.ended().await);
        let answer = second.await.unwrap().into_body().collect().await.unwrap().to_bytes();
        assert_eq!(answer, "at last");
        let request = Request::get("http://a.test/").body(Full::<Bytes>::default()).unwrap();
        assert!(two.send_request(request).await.is_err(), "an HTTP/2 client was told to go away");
    };
    let (drained, ()) = tokio::join!(trigger.drain(GRACE, FORCE), clients);
    assert_eq!(drained, Drained::Gracefully);
}

#[tokio::test]
async fn what_does_not_end_is_dropped_when_the_drain_is_forced() {
    let supervisor = Supervisor::new("test");
    let upstream = waiting(&supervisor, &Arc::new(Notify::new())).await;
    let mut gateway = Gateway::start(&[("routes/1", route_to(&[upstream.address]))]).await;
    let mut raw = Raw::connect(gateway.http).await;
    raw.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    eventually(|| (upstream.requests() == 1).then_some(())).await;
    let trigger = gateway.trigger.take().unwrap();
    assert_eq!(trigger.drain(Duration::from_millis(100), FORCE).await, Drained::ByForce);
    assert_eq!(raw.message().await, None);
    assert!(TcpStream::connect(gateway.http).await.is_err());
}
