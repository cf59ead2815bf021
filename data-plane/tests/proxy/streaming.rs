//! Large bodies in both directions, with memory that stays flat.
//!
//! 64 MiB each way; 1 GiB where the environment variable `HEADWATER_FULL_SIZE` is set.

use std::sync::atomic::Ordering;

use headwater_process::Supervisor;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::gateway::{Gateway, route_to};
use crate::upstreams::Upstream;

const PART: usize = 64 * 1024;
/// What buffers of sockets and libraries may take, whatever the size of the body.
const FLAT_KIB: u64 = 48 * 1024;

fn size() -> usize {
    let full = std::env::var_os("HEADWATER_FULL_SIZE").is_some();
    if full { 1 << 30 } else { 64 << 20 }
}

/// The highest memory this process has had so far, in KiB.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

async fn write_body(stream: &mut (impl AsyncWriteExt + Unpin), size: usize) {
    let part = vec![b'x'; PART];
    for _ in 0..size / PART {
        stream.write_all(&part).await.unwrap();
    }
}

async fn read_body(stream: &mut (impl AsyncReadExt + Unpin), size: usize) {
    let mut part = vec![0; PART];
    let mut left = size;
    while left > 0 {
        let count = stream.read(&mut part[..left.min(PART)]).await.unwrap();
        assert!(count > 0, "the body ended {left} bytes too early");
        assert!(part[..count].iter().all(|byte| *byte == b'x'));
        left -= count;
    }
}

/// Reads a head byte by byte, so that nothing of the body is taken.
async fn read_head(stream: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_bodies_pass_both_ways_with_flat_memory() {
    let size = size();
    let supervisor = Supervisor::new("test");
    let upstream = Upstream::start(&supervisor, move |mut raw, requests| async move {
        read_head(&mut raw.stream).await;
        read_body(&mut raw.stream, size).await;
        requests.fetch_add(1, Ordering::SeqCst);
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n");
        raw.write(head).await;
        write_body(&mut raw.stream, size).await;
    })
    .await;
    let gateway = Gateway::start(&[("routes/1", route_to(&[upstream.address]))]).await;
    let before = peak_kib();
    let mut stream = TcpStream::connect(gateway.http).await.unwrap();
    let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    write_body(&mut stream, size).await;
    let head = read_head(&mut stream).await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    // A client that reads slowly at first must not make the gateway take the answer in.
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    read_body(&mut stream, size).await;
    assert_eq!(upstream.requests(), 1);
    let grown = peak_kib() - before;
    assert!(grown < FLAT_KIB, "memory grew by {grown} KiB over {size} bytes each way");
    let line = gateway.log(1).await.remove(0);
    assert_eq!(
        (line["bytes_in"].as_u64(), line["bytes_out"].as_u64()),
        (Some(size as u64), Some(size as u64))
    );
}
