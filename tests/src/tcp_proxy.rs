//! A TCP proxy that breaks connections on purpose: freezes, delays, throttles or cuts them.
//!
//! It knows nothing of what passes. To break single streams of an HTTP/2 connection see [`crate::h2_proxy`].

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use headwater_process::{Policy, Supervisor};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};

/// Bytes read at a time.
const CHUNK: usize = 16 * 1024;
/// Chunks under way in one direction; more wait in the sender's socket.
const CHUNKS_MAX: usize = 64;

/// A running proxy to one address. Dropped, all its connections are closed.
#[derive(Debug)]
pub struct TcpProxy {
    /// Where clients connect.
    pub address: SocketAddr,
    control: Arc<Control>,
    supervisor: Supervisor,
}

/// The two directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From client to server.
    Up,
    /// From server to client.
    Down,
}

/// What happens to the bytes of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fault {
    /// Nothing passes, nothing is closed.
    pub freeze: bool,
    /// Each byte arrives this much later.
    pub delay: Duration,
    /// No more than this many bytes a second.
    pub bytes_per_second: Option<u64>,
}

#[derive(Debug)]
struct Control {
    target: String,
    up: watch::Sender<Fault>,
    down: watch::Sender<Fault>,
    /// Rises at each cut; a connection that began under a lower number ends.
    cuts: watch::Sender<u64>,
    /// Likewise; such a connection stays open and passes nothing.
    strandings: watch::Sender<u64>,
    refusing: watch::Sender<bool>,
    /// Rises at each half-close; a connection that began under a lower number ends its direction down.
    half_closes: watch::Sender<u64>,
    accepted: AtomicU64,
    bytes_up: AtomicU64,
    bytes_down: AtomicU64,
}

// === impl TcpProxy ===

impl TcpProxy {
    /// A proxy on a free port of the loopback, to `host:port`.
    ///
    /// # Panics
    /// When no port is free.
    pub async fn start(target: impl Into<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port on the loopback");
        let address = listener.local_addr().expect("a bound socket has an address");
        let control = Arc::new(Control {
            target: target.into(),
            up: watch::Sender::default(),
            down: watch::Sender::default(),
            cuts: watch::Sender::new(0),
            strandings: watch::Sender::new(0),
            refusing: watch::Sender::new(false),
            half_closes: watch::Sender::new(0),
            accepted: AtomicU64::new(0),
            bytes_up: AtomicU64::new(0),
            bytes_down: AtomicU64::new(0),
        });
        let supervisor = Supervisor::new("tcp proxy");
        let accepting = accept(listener, Arc::clone(&control), supervisor.clone());
        supervisor.spawn("accept", Policy::best_effort().dropped_on_cancel(), accepting);
        Self { address, control, supervisor }
    }

    /// Sets what happens in one direction, to open and coming connections.
    pub fn set(&self, direction: Direction, fault: Fault) {
        self.control.fault(direction).send_replace(fault);
    }

    /// Freezes both directions.
    pub fn freeze(&self) {
        let frozen = Fault { freeze: true, ..Fault::default() };
        self.set(Direction::Up, frozen);
        self.set(Direction::Down, frozen);
    }

    /// Closes what is open, at once and with a reset; new connections are welcome.
    pub fn cut(&self) {
        self.control.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// What is open stays open at both ends and never passes anything again; new connections are welcome. So it is
    /// for both when a middlebox forgets a connection, or one end is gone without a word.
    pub fn strand(&self) {
        self.control.strandings.send_modify(|strandings| *strandings += 1);
    }

    /// Closes what is open, and each new connection as it comes.
    pub fn refuse(&self) {
        self.control.refusing.send_replace(true);
        self.cut();
    }

    /// Tells the clients of open connections that the server will say no more; what they send still passes.
    pub fn half_close(&self) {
        self.control.half_closes.send_modify(|times| *times += 1);
    }

    /// No fault in either direction, new connections welcome.
    pub fn heal(&self) {
        self.control.refusing.send_replace(false);
        self.set(Direction::Up, Fault::default());
        self.set(Direction::Down, Fault::default());
    }

    /// Connections accepted so far.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.control.accepted.load(Ordering::Relaxed)
    }

    /// Bytes that have passed in one direction.
    #[must_use]
    pub fn bytes(&self, direction: Direction) -> u64 {
        self.control.counter(direction).load(Ordering::Relaxed)
    }
}

impl Drop for TcpProxy {
    fn drop(&mut self) {
        self.supervisor.cancel();
    }
}

// === impl Control ===

impl Control {
    const fn fault(&self, direction: Direction) -> &watch::Sender<Fault> {
        match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        }
    }

    const fn counter(&self, direction: Direction) -> &AtomicU64 {
        match direction {
            Direction::Up => &self.bytes_up,
            Direction::Down => &self.bytes_down,
        }
    }
}

async fn accept(listener: TcpListener, control: Arc<Control>, supervisor: Supervisor) {
    loop {
        let Ok((client, _)) = listener.accept().await else { continue };
        control.accepted.fetch_add(1, Ordering::Relaxed);
        let policy = Policy::best_effort().dropped_on_cancel();
        supervisor.spawn("connection", policy, connection(client, Arc::clone(&control)));
    }
}

async fn connection(mut client: TcpStream, control: Arc<Control>) {
    let (mut cuts, mut strandings) = (control.cuts.subscribe(), control.strandings.subscribe());
    if *control.refusing.borrow() {
        let _ = client.set_zero_linger();
        return;
    }
    let Ok(mut server) = TcpStream::connect(&control.target).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let cut = {
        let (client_read, client_write) = client.split();
        let (server_read, server_write) = server.split();
        let passing = async {
            tokio::join!(
                pass(client_read, server_write, &control, Direction::Up),
                pass(server_read, client_write, &control, Direction::Down),
            )
        };
        tokio::select! {
            _ = passing => false,
            _ = cuts.changed() => true,
            _ = strandings.changed() => cuts.changed().await.is_ok(),
        }
    };
    if cut {
        // Without this the sockets would close politely, which is no fault.
        let _ = (client.set_zero_linger(), server.set_zero_linger());
    }
}

/// One direction: read, let the delay pass, write. Reading and writing overlap, so a delay does not throttle.
async fn pass(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    control: &Control,
    direction: Direction,
) -> io::Result<()> {
    let (sender, mut receiver) = mpsc::channel::<(Instant, Vec<u8>)>(CHUNKS_MAX);
    let mut fault = control.fault(direction).subscribe();
    let mut half_closes = control.half_closes.subscribe();
    let half_closed = async {
        match direction {
            Direction::Up => std::future::pending().await,
            Direction::Down => half_closes.changed().await,
        }
    };
    let reading = async {
        let mut buffer = vec![0; CHUNK];
        loop {
            let length = from.read(&mut buffer).await.unwrap_or(0);
            let due = Instant::now() + control.fault(direction).borrow().delay;
            if length == 0 || sender.send((due, buffer[..length].to_vec())).await.is_err() {
                break;
            }
        }
        drop(sender);
    };
    let writing = async {
        while let Some((due, bytes)) = receiver.recv().await {
            sleep_until(due).await;
            write(&mut to, &bytes, &mut fault, control.counter(direction)).await?;
        }
        thawed(&mut fault).await;
        Ok(())
    };
    let passing = async {
        let ((), written) = tokio::join!(reading, writing);
        written
    };
    let written = tokio::select! {
        written = passing => written,
        _ = half_closed => Ok(()),
    };
    to.shutdown().await.and(written)
}

async fn write(
    to: &mut WriteHalf<'_>,
    bytes: &[u8],
    fault: &mut watch::Receiver<Fault>,
    counter: &AtomicU64,
) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        thawed(fault).await;
        let rate = fault.borrow().bytes_per_second;
        // Twenty pieces a second, so that a slow link is slow evenly.
        let piece = rate.map_or(rest.len(), |rate| usize::try_from(rate / 20).unwrap_or(usize::MAX).max(1));
        let (now, later) = rest.split_at(piece.min(rest.len()));
        to.write_all(now).await?;
        counter.fetch_add(now.len() as u64, Ordering::Relaxed);
        if let Some(rate) = rate {
            sleep(Duration::from_secs_f64(now.len() as f64 / rate.max(1) as f64)).await;
        }
        rest = later;
    }
    Ok(())
}

/// Waits while the direction is frozen.
async fn thawed(fault: &mut watch::Receiver<Fault>) {
    // The sender lives as long as the proxy; without it the connection is about to be dropped.
    let _ = fault.wait_for(|fault| !fault.freeze).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOMENT: Duration = Duration::from_millis(200);
    const LIMIT: Duration = Duration::from_secs(10);

    /// An echo server behind a proxy.
    async fn echo() -> (TcpProxy, Supervisor) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = TcpProxy::start(listener.local_addr().unwrap().to_string()).await;
        let supervisor = Supervisor::new("echo");
        let scope = supervisor.clone();
        supervisor.spawn("accept", Policy::best_effort(), async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                scope.spawn("echo", Policy::best_effort(), async move {
                    let (mut read, mut write) = stream.split();
                    tokio::io::copy(&mut read, &mut write).await.map(drop)
                });
            }
        });
        (proxy, supervisor)
    }

    async fn ask(stream: &mut TcpStream, text: &[u8]) -> io::Result<()> {
        stream.write_all(text).await?;
        let mut answer = vec![0; text.len()];
        stream.read_exact(&mut answer).await?;
        assert_eq!(answer, text);
        Ok(())
    }

    #[tokio::test]
    async fn passes_everything_and_counts_it() {
        let (proxy, _echo) = echo().await;
        let mut stream = TcpStream::connect(proxy.address).await.unwrap();
        ask(&mut stream, &[7; 100_000]).await.unwrap();
        stream.shutdown().await.unwrap();
        assert_eq!(stream.read(&mut [0; 1]).await.unwrap(), 0, "the end passes too");
        assert_eq!((proxy.bytes(Direction::Up), proxy.bytes(Direction::Down)), (100_000, 100_000));
        assert_eq!(proxy.accepted(), 1);
    }

    #[tokio::test]
    async fn frozen_nothing_passes_and_nothing_is_lost() {
        let (proxy, _echo) = echo().await;
        let mut stream = TcpStream::connect(proxy.address).await.unwrap();
        ask(&mut stream, b"before").await.unwrap();
        proxy.set(Direction::Down, Fault { freeze: true, ..Fault::default() });
        stream.write_all(b"meanwhile").await.unwrap();
        let mut answer = [0; 9];
        assert!(tokio::time::timeout(MOMENT, stream.read_exact(&mut answer)).await.is_err());
        proxy.heal();
        tokio::time::timeout(LIMIT, stream.read_exact(&mut answer)).await.unwrap().unwrap();
        assert_eq!(&answer, b"meanwhile");
    }

    #[tokio::test]
    async fn a_delay_delays_without_throttling() {
        let (proxy, _echo) = echo().await;
        let mut stream = TcpStream::connect(proxy.address).await.unwrap();
        proxy.set(Direction::Up, Fault { delay: MOMENT, ..Fault::default() });
        let began = Instant::now();
        ask(&mut stream, &[7; 20 * CHUNK]).await.unwrap();
        let took = began.elapsed();
        assert!(took >= MOMENT && took < MOMENT * 10, "{took:?} for twenty chunks");
    }

    #[tokio::test]
    async fn a_throttle_holds_the_rate() {
        let (proxy, _echo) = echo().await;
        let mut stream = TcpStream::connect(proxy.address).await.unwrap();
        proxy.set(Direction::Down, Fault { bytes_per_second: Some(20_000), ..Fault::default() });
        let began = Instant::now();
        ask(&mut stream, &[7; 10_000]).await.unwrap();
        assert!(began.elapsed() >= Duration::from_millis(450), "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn a_cut_resets_and_refusing_lasts_until_healed() {
        let (proxy, _echo) = echo().await;
        let mut stream = TcpStream::connect(proxy.address).await.unwrap();
        ask(&mut stream, b"before").await.unwrap();
        proxy.cut();
        let end = tokio::time::timeout(LIMIT, stream.read(&mut [0; 1])).await.unwrap();
        assert_eq!(end.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        ask(&mut TcpStream::connect(proxy.address).await.unwrap(), b"again").await.unwrap();

        proxy.refuse();
        let mut refused = TcpStream::connect(proxy.address).await.unwrap();
        assert!(tokio::time::timeout(LIMIT, ask(&mut refused, b"refused")).await.unwrap().is_err());
        proxy.heal();
        ask(&mut TcpStream::connect(proxy.address).await.unwrap(), b"healed").await.unwrap();
    }

    #[tokio::test]
    async fn what_is_stranded_is_neither_heard_nor_closed_and_the_next_one_passes() {
        let (proxy, _echo) = echo().await;
        let mut stream = TcpStream::connect(proxy.address).await.unwrap();
        ask(&mut stream, b"before").await.unwrap();
        proxy.strand();
        ask(&mut TcpStream::connect(proxy.address).await.unwrap(), b"another").await.unwrap();
        stream.write_all(b"lost").await.unwrap();
        let silent = tokio::time::timeout(MOMENT, stream.read(&mut [0; 1])).await;
        assert!(silent.is_err(), "neither an answer nor an end: {silent:?}");
        proxy.heal();
        assert!(tokio::time::timeout(MOMENT, stream.read(&mut [0; 1])).await.is_err(), "for good");
        proxy.cut();
        let end = tokio::time::timeout(LIMIT, stream.read(&mut [0; 1])).await.unwrap();
        assert_eq!(end.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    }

    #[tokio::test]
    async fn a_half_closed_connection_takes_and_gives_nothing() {
        let (proxy, _echo) = echo().await;
        let mut stream = TcpStream::connect(proxy.address).await.unwrap();
        ask(&mut stream, b"before").await.unwrap();
        proxy.half_close();
        let end = tokio::time::timeout(LIMIT, stream.read(&mut [0; 1])).await.unwrap();
        assert_eq!(end.unwrap(), 0, "an end, not a reset");
        let passed = proxy.bytes(Direction::Up);
        stream.write_all(b"after").await.unwrap();
        crate::eventually::eventually("the way up is open", LIMIT, || async {
            let now = proxy.bytes(Direction::Up);
            if now == passed + 5 { Ok(()) } else { Err(now) }
        })
        .await;
        ask(&mut TcpStream::connect(proxy.address).await.unwrap(), b"again").await.unwrap();
    }
}
