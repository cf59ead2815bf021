//! The floor: one loop that writes the same bytes to every socket, then reads a short reply from each.
//!
//! No framing, no protocol, no runtime on the writing side; what any fan-out on this machine costs at least.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::beat::{Beats, REPLY};
use super::child::{Answer, Order, Parent};
use super::options::Contender;
use super::receivers::Receivers;

/// A socket that neither takes nor gives a byte for so long has lost its peer.
const STUCK: Duration = Duration::from_secs(60);

/// Runs the writer until the parent is done.
///
/// # Errors
/// When a socket or the parent fails.
pub async fn write(options: Contender) -> Result<()> {
    let listener = TcpListener::bind(&options.address).context("listen")?;
    let mut parent = Parent::new();
    parent.tell(&Answer::Ready).await?;
    let (count, bytes) = (options.count, options.bytes);
    let mut sockets = tokio::task::spawn_blocking(move || accept(&listener, count)).await??;
    let mut sent = 0;
    while let Some(order) = parent.order().await? {
        let Order::Send { updates, pace_ns } = order else { bail!("a writer only sends") };
        let beats = Beats::new(sent + 1, Duration::from_nanos(pace_ns));
        sent += updates;
        let looped = move || -> Result<_> {
            for index in 0..updates {
                std::thread::sleep(beats.until(index));
                pass(&mut sockets, &beats.message(index, bytes))?;
            }
            Ok(sockets)
        };
        sockets = tokio::task::spawn_blocking(looped).await??;
        parent.tell(&Answer::Sent(sent)).await?;
    }
    Ok(())
}

fn accept(listener: &TcpListener, count: u64) -> Result<Vec<TcpStream>> {
    let accepted = (0..count).map(|_| {
        let (socket, _) = listener.accept().context("accept")?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(STUCK))?;
        socket.set_write_timeout(Some(STUCK))?;
        Ok(socket)
    });
    accepted.collect()
}

/// One message to every socket, then a reply from each.
fn pass(sockets: &mut [TcpStream], message: &[u8]) -> Result<()> {
    for socket in &mut *sockets {
        socket.write_all(message).context("write")?;
    }
    let mut reply = [0; REPLY];
    for socket in sockets {
        socket.read_exact(&mut reply).context("read a reply")?;
    }
    Ok(())
}

/// Runs the readers until the parent is done.
///
/// # Errors
/// When the parent cannot be talked to.
pub async fn read(options: Contender) -> Result<()> {
    let bytes = options.bytes;
    let receive = move |all: Arc<Receivers>, receiver| receive(all, receiver, bytes);
    Receivers::new(options.address, options.count)?.run(receive).await
}

async fn receive(all: Arc<Receivers>, receiver: usize, bytes: usize) -> Result<()> {
    let starting = all.place().await?;
    let mut socket = tokio::net::TcpStream::connect(&all.address).await.context("connect")?;
    socket.set_nodelay(true)?;
    all.is_ready();
    drop(starting);
    let mut message = vec![0; bytes];
    loop {
        socket.read_exact(&mut message).await.context("read")?;
        all.received(receiver, &message);
        socket.write_all(&[0; REPLY]).await.context("reply")?;
    }
}
