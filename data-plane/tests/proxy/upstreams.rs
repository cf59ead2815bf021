//! Upstreams under a test's control.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use headwater_process::Supervisor;
use tokio::net::TcpListener;

use crate::gateway::spawn;
use crate::raw::{Message, Raw};

/// An upstream that is a function of raw connections.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    /// Connections accepted.
    pub(crate) connections: Arc<AtomicUsize>,
    /// Requests whose head was read, where the upstream counts them.
    pub(crate) requests: Arc<AtomicUsize>,
}

impl Upstream {
    /// `serve` gets each connection with the counter of requests.
    pub(crate) async fn start<F, S>(supervisor: &Supervisor, serve: S) -> Self
    where
        S: Fn(Raw, Arc<AtomicUsize>) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        Self::start_at(supervisor, "127.0.0.1:0", serve).await
    }

    /// The same at an address.
    pub(crate) async fn start_at<F, S>(supervisor: &Supervisor, address: &str, serve: S) -> Self
    where
        S: Fn(Raw, Arc<AtomicUsize>) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let requests = Arc::new(AtomicUsize::new(0));
        let (counted, counter) = (Arc::clone(&connections), Arc::clone(&requests));
        let tasks = supervisor.clone();
        spawn(supervisor, async move {
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                spawn(&tasks, serve(Raw::new(stream), Arc::clone(&counter)));
            }
        });
        Self { address, connections, requests }
    }

    /// Answers each request with `answer(request)`, over as many requests as come.
    pub(crate) async fn answering(
        supervisor: &Supervisor,
        answer: impl Fn(&Message) -> String + Send + Sync + 'static,
    ) -> Self {
        Self::answering_at(supervisor, "127.0.0.1:0", answer).await
    }

    /// The same at an address.
    pub(crate) async fn answering_at(
        supervisor: &Supervisor,
        address: &str,
        answer: impl Fn(&Message) -> String + Send + Sync + 'static,
    ) -> Self {
        let answer = Arc::new(answer);
        Self::start_at(supervisor, address, move |mut raw, requests| {
            let answer = Arc::clone(&answer);
            async move {
                while let Some(request) = raw.message().await {
                    requests.fetch_add(1, Ordering::SeqCst);
                    let answer = answer(&request);
                    raw.write(answer).await;
                }
            }
        })
        .await
    }

    /// Answers 200 with `text`.
    pub(crate) async fn saying(supervisor: &Supervisor, text: &'static str) -> Self {
        Self::answering(supervisor, move |_| ok(text)).await
    }

    /// Answers with the request as it arrived: its head line by line, then its body.
    pub(crate) async fn mirror(supervisor: &Supervisor) -> Self {
        Self::answering(supervisor, |request| ok(&reflect(request))).await
    }

    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// A 200 with a length.
pub(crate) fn ok(text: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len())
}

/// A request as text.
pub(crate) fn reflect(request: &Message) -> String {
    let mut text = format!("{}\n", request.start);
    for (name, value) in &request.headers {
        text.push_str(&format!("{name}: {value}\n"));
    }
    text.push('\n');
    text.push_str(&request.text());
    for (name, value) in &request.trailers {
        text.push_str(&format!("\ntrailer {name}: {value}"));
    }
    text
}

/// An address on which nobody listens.
pub(crate) fn nobody() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}
