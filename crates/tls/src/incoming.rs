//! Connections of a tonic server, with or without TLS.
//!
//! The handshake is driven by the first read or write of the connection itself, hence in the task that serves it: a
//! slow or hostile peer holds up nobody, and a fleet that comes back at once is handshaken on all cores. So the
//! peer's identity is known by the time a request arrives, not when the connection is accepted; [`Peer`] is filled
//! in between.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Sleep;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, TlsAcceptor};
use tonic::transport::server::Connected;

use crate::{PeerIdentity, ServerTls};

/// How long to wait after an accept failed for want of something, such as file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Called with the address and the error of each handshake that failed, to count and name it.
pub type OnRefused = Arc<dyn Fn(SocketAddr, &io::Error) + Send + Sync>;

/// The accepted connections, for `serve_with_incoming_shutdown`. Never ends by itself.
pub struct Incoming {
    listener: TcpListener,
    tls: Option<ServerTls>,
    handshake_timeout: Duration,
    on_refused: OnRefused,
    pause: Option<Pin<Box<Sleep>>>,
}

/// One connection.
pub struct Accepted {
    state: State,
    peer: Peer,
    on_refused: OnRefused,
}

/// What a request handler finds in the request's extensions.
#[derive(Debug, Clone)]
pub struct Peer {
    /// The other end.
    pub address: SocketAddr,
    /// Whether the connection is encrypted.
    pub encrypted: bool,
    identity: Arc<OnceLock<PeerIdentity>>,
}

enum State {
    Plain(TcpStream),
    Handshake(Box<Accept<TcpStream>>, Pin<Box<Sleep>>),
    Tls(Box<TlsStream<TcpStream>>),
    Failed,
}

// === impl Peer ===

impl Peer {
    /// Who the peer proved to be; none without a client certificate.
    #[must_use]
    pub fn identity(&self) -> Option<&PeerIdentity> {
        self.identity.get()
    }
}

// === impl Incoming ===

impl Incoming {
    /// Accepts from `listener`; without `tls` in plain text. A handshake ends within `handshake_timeout`.
    #[must_use]
    pub fn new(
        listener: TcpListener,
        tls: Option<ServerTls>,
        handshake_timeout: Duration,
        on_refused: OnRefused,
    ) -> Self {
        Self { listener, tls, handshake_timeout, on_refused, pause: None }
    }

    fn accepted(&self, stream: TcpStream, address: SocketAddr) -> Accepted {
        // Small messages must not wait for each other; a socket that refuses this is about to fail anyway.
        let _ = stream.set_nodelay(true);
        let peer = Peer { address, encrypted: self.tls.is_some(), identity: Arc::default() };
        let state = match &self.tls {
            None => State::Plain(stream),
            Some(tls) => State::Handshake(
                Box::new(TlsAcceptor::from(tls.config()).accept(stream)),
                Box::pin(tokio::time::sleep(self.handshake_timeout)),
            ),
        };
        Accepted { state, peer, on_refused: Arc::clone(&self.on_refused) }
    }
}

impl Stream for Incoming {
    type Item = io::Result<Accepted>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(cx));
                self.pause = None;
            }
            match ready!(self.listener.poll_accept(cx)) {
                Ok((stream, address)) => return Poll::Ready(Some(Ok(self.accepted(stream, address)))),
                Err(error) => {
                    // Out of descriptors, or a peer that left: neither is a reason to stop listening.
                    tracing::warn!(%error, "accept failed, listening on");
                    self.pause = Some(Box::pin(tokio::time::sleep(ACCEPT_PAUSE)));
                }
            }
        }
    }
}

// === impl Accepted ===

impl Accepted {
    /// Drives the handshake to its end; ready at once when there is none to do.
    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let State::Handshake(accept, limit) = &mut self.state else {
            return Poll::Ready(match self.state {
                State::Failed => Err(io::ErrorKind::NotConnected.into()),
                _ => Ok(()),
            });
        };
        let outcome = match Pin::new(accept.as_mut()).poll(cx) {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => {
                ready!(limit.as_mut().poll(cx));
                Err(io::Error::new(io::ErrorKind::TimedOut, "the TLS handshake did not end in time"))
            }
        };
        match outcome {
            Ok(stream) => {
                let (_, session) = stream.get_ref();
                if let Some(certificate) = session.peer_certificates().and_then(<[_]>::first) {
                    let _ = self.peer.identity.set(PeerIdentity::from_certificate(certificate));
                }
                self.state = State::Tls(Box::new(stream));
                Poll::Ready(Ok(()))
            }
            Err(error) => {
                (self.on_refused)(self.peer.address, &error);
                self.state = State::Failed;
                Poll::Ready(Err(error))
            }
        }
    }
}

impl Connected for Accepted {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Accepted {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_open(cx))?;
        match &mut this.state {
            State::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            State::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
            State::Handshake(..) | State::Failed => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }
}

impl AsyncWrite for Accepted {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_open(cx))?;
        match &mut this.state {
            State::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            State::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
            State::Handshake(..) | State::Failed => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().state {
            State::Plain(stream) => Pin::new(stream).poll_flush(cx),
            State::Tls(stream) => Pin::new(stream).poll_flush(cx),
            // Nothing was written yet.
            State::Handshake(..) | State::Failed => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().state {
            State::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            State::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
            // Dropping the socket closes it.
            State::Handshake(..) | State::Failed => Poll::Ready(Ok(())),
        }
    }
}
