//! A client that writes and reads bytes, and a server likewise: for what no HTTP library would send.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::gateway::DEADLINE;

/// A raw connection with what was read beyond the last message.
pub(crate) struct Raw {
    pub(crate) stream: TcpStream,
    pub(crate) rest: Vec<u8>,
}

/// A message read from a raw connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    /// The first line.
    pub(crate) start: String,
    /// Header lines, names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    /// The body, chunks joined.
    pub(crate) body: Vec<u8>,
    /// Trailer lines of a chunked body.
    pub(crate) trailers: Vec<(String, String)>,
}

impl Message {
    pub(crate) fn status(&self) -> u16 {
        self.start.split(' ').nth(1).unwrap().parse().unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Raw {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self { stream, rest: Vec::new() }
    }

    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self::new(TcpStream::connect(address).await.unwrap())
    }

    pub(crate) async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Reads more; false at the end.
    async fn fill(&mut self) -> bool {
        let read = self.stream.read_buf(&mut self.rest);
        let count = tokio::time::timeout(DEADLINE, read).await.expect("nothing came");
        count.is_ok_and(|count| count > 0)
    }

    /// Whether the other side ended the connection, with nothing more to read.
    pub(crate) async fn ended(&mut self) -> bool {
        self.rest.is_empty() && !self.fill().await
    }

    async fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.rest.windows(2).position(|two| two == b"\r\n") {
                let line = self.rest.drain(..end + 2).collect::<Vec<u8>>();
                return Some(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            if !self.fill().await {
                return None;
            }
        }
    }

    async fn headers(&mut self) -> Option<Vec<(String, String)>> {
        let mut headers = Vec::new();
        loop {
            let line = self.line().await?;
            if line.is_empty() {
                return Some(headers);
            }
            let (name, value) = line.split_once(':')?;
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }

    /// The head of the next message, without its body; `None` where the connection ended before.
    pub(crate) async fn head(&mut self) -> Option<Message> {
        let start = self.line().await?;
        let headers = self.headers().await?;
        Some(Message { start, headers, body: Vec::new(), trailers: Vec::new() })
    }

    /// Exactly so many bytes.
    pub(crate) async fn bytes(&mut self, count: usize) -> Option<Vec<u8>> {
        while self.rest.len() < count {
            if !self.fill().await {
                return None;
            }
        }
        Some(self.rest.drain(..count).collect())
    }

    /// The next message whole, or `None`. A response to HEAD and the like goes by [`head`](Self::head).
    pub(crate) async fn message(&mut self) -> Option<Message> {
        let mut message = self.head().await?;
        if message.header("transfer-encoding") == Some("chunked") {
            loop {
                let size = usize::from_str_radix(self.line().await?.split(';').next()?, 16).ok()?;
                if size == 0 {
                    message.trailers = self.headers().await?;
                    break;
                }
                message.body.extend(self.bytes(size).await?);
                self.line().await?;
            }
        } else if let Some(length) = message.header("content-length") {
            let length = length.parse().ok()?;
            message.body = self.bytes(length).await?;
        }
        Some(message)
    }
}

/// Sends one request on a connection of its own and reads the answer.
pub(crate) async fn exchange(address: SocketAddr, request: &str) -> Option<Message> {
    let mut raw = Raw::connect(address).await;
    raw.write(request).await;
    raw.message().await
}

/// A plain GET.
pub(crate) async fn get(address: SocketAddr, path: &str) -> Message {
    exchange(address, &format!("GET {path} HTTP/1.1\r\nHost: a.test\r\n\r\n")).await.expect("an answer")
}
