//! One JSON line for every request.
//!
//! Requests hand their record to a bounded queue and never wait: a line for which there is no room is dropped and counted.
//! One task writes. It must never know how requests are served.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus_client::metrics::counter::Counter;
use serde::{Serialize, Serializer};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::config::{AccessLogConfig, AccessLogTarget};

/// What is written about one request.
#[derive(Debug, Clone, Serialize)]
pub struct Line {
    /// When its head was complete, UTC.
    #[serde(serialize_with = "utc")]
    pub time: SystemTime,
    /// The client's address.
    pub client: SocketAddr,
    /// `http` or `https`.
    pub scheme: &'static str,
    /// `HTTP/1.1` and so on.
    pub protocol: &'static str,
    /// The method.
    pub method: String,
    /// The host asked for, as matched.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// The request target as received.
    pub uri: String,
    /// The status answered; 499 where the client went away before.
    pub status: u16,
    /// Bytes of the request body passed on.
    pub bytes_in: u64,
    /// Bytes of the answer's body.
    pub bytes_out: u64,
    /// From the head of the request to the end of the answer, in milliseconds.
    pub latency_ms: f64,
    /// Whether the answer was passed on whole.
    pub complete: bool,
    /// The gateway's word for what went wrong, if something did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<&'static str>,
    /// The same in a sentence, with causes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Every try, in order.
    pub upstream: Vec<Attempt>,
    /// The matched route's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<Arc<str>>,
    /// Its service's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<Arc<str>>,
    /// `X-Request-Id` as the client sent it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// `User-Agent` as the client sent it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_agent: Option<String>,
    /// The configuration version that served it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<Arc<str>>,
}

/// One try at an upstream node.
#[derive(Debug, Clone, Serialize)]
pub struct Attempt {
    /// The node as configured, or its address once it is known.
    pub address: String,
    /// The status it answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// What went wrong, if something did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<&'static str>,
    /// From the choice of the node to its head, in milliseconds.
    pub latency_ms: f64,
}

/// Where requests hand in their lines; a clone is the same log.
#[derive(Debug, Clone)]
pub struct AccessLog {
    queue: Option<mpsc::Sender<Line>>,
    dropped: Counter,
}

impl AccessLog {
    /// Hands in a line, or drops it.
    pub fn write(&self, line: Box<Line>) {
        if let Some(queue) = &self.queue
            && queue.try_send(*line).is_err()
        {
            self.dropped.inc();
        }
    }

    /// Whether lines go anywhere.
    pub fn is_on(&self) -> bool {
        self.queue.is_some()
    }
}

/// Writes what was handed in.
#[derive(Debug)]
pub struct Writer {
    lines: mpsc::Receiver<Line>,
    sink: Sink,
    dropped: Counter,
}

#[derive(Debug)]
enum Sink {
    Stdout(tokio::io::Stdout),
    File(LogFile),
}

#[derive(Debug)]
struct LogFile {
    path: PathBuf,
    open: Option<tokio::fs::File>,
}

/// Lines written at once at most.
const BATCH: usize = 256;
/// How often a file is looked at: was it moved away?
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Opens the log. `None` for the writer where it is off.
///
/// # Errors
/// The file cannot be opened.
pub fn open(config: &AccessLogConfig, dropped: Counter) -> io::Result<(AccessLog, Option<Writer>)> {
    let sink = match &config.to {
        AccessLogTarget::Off => {
            let log = AccessLog { queue: None, dropped };
            return Ok((log, None));
        }
        AccessLogTarget::Stdout => Sink::Stdout(tokio::io::stdout()),
        AccessLogTarget::File(path) => {
            let file = open_for_append(path)?;
            Sink::File(LogFile { path: path.clone(), open: Some(tokio::fs::File::from_std(file)) })
        }
    };
    let (queue, lines) = mpsc::channel(config.queue);
    let log = AccessLog { queue: Some(queue), dropped: dropped.clone() };
    let writer = Writer { lines, sink, dropped };
    Ok((log, Some(writer)))
}

fn open_for_append(path: &Path) -> io::Result<std::fs::File> {
    std::fs::OpenOptions::new().create(true).append(true).open(path)
}

impl Writer {
    /// Writes until the log is closed, or until `end`; then what is queued is written and it returns.
    pub async fn run(mut self, end: CancellationToken) {
        let mut batch = Vec::with_capacity(BATCH);
        let mut look = tokio::time::interval(LOOK_INTERVAL);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                count = self.lines.recv_many(&mut batch, BATCH) => {
                    if count == 0 {
                        return;
                    }
                    self.write(&mut batch).await;
                }
                _ = look.tick() => self.look().await,
                () = end.cancelled() => {
                    // Closing lets those in the queue out and nobody in: `recv_many` then ends with 0.
                    self.lines.close();
                    while self.lines.recv_many(&mut batch, BATCH).await > 0 {
                        self.write(&mut batch).await;
                    }
                    return;
                }
            }
        }
    }

    async fn write(&mut self, batch: &mut Vec<Line>) {
        let mut text = Vec::with_capacity(batch.len() * 512);
        for line in batch.iter() {
            // A line is plain data: only an allocation could fail.
            if serde_json::to_writer(&mut text, line).is_ok() {
                text.push(b'\n');
            }
        }
        let count = batch.len() as u64;
        batch.clear();
        if let Err(error) = self.sink.write(&text).await {
            self.dropped.inc_by(count);
            tracing::warn!(%error, "access log lines were lost");
        }
    }

    async fn look(&mut self) {
        if let Sink::File(file) = &mut self.sink
            && let Err(error) = file.reopen_if_moved().await
        {
            tracing::warn!(%error, path = %file.path.display(), "the access log cannot be opened anew");
        }
    }
}

impl Sink {
    async fn write(&mut self, text: &[u8]) -> io::Result<()> {
        let sink: &mut (dyn AsyncWrite + Send + Unpin) = match self {
            Self::Stdout(stdout) => stdout,
            Self::File(file) => file.open.as_mut().ok_or_else(|| io::Error::other("the file is not open"))?,
        };
        sink.write_all(text).await?;
        sink.flush().await
    }
}

impl LogFile {
    /// Rotation needs no signal: a moved file is left alone and a new one begun.
    async fn reopen_if_moved(&mut self) -> io::Result<()> {
        if let Some(open) = &self.open
            && let Ok(there) = tokio::fs::metadata(&self.path).await
            && is_same_file(&open.metadata().await?, &there)
        {
            return Ok(());
        }
        let path = self.path.clone();
        let file =
            tokio::task::spawn_blocking(move || open_for_append(&path)).await.map_err(io::Error::other)??;
        self.open = Some(tokio::fs::File::from_std(file));
        Ok(())
    }
}

#[cfg(unix)]
fn is_same_file(one: &std::fs::Metadata, other: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    one.dev() == other.dev() && one.ino() == other.ino()
}

fn utc<S: Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_utc(*time))
}

/// RFC 3339 with milliseconds. Times before 1970 are written as 1970.
fn format_utc(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, of_day) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    // Days are counted from 0000-03-01, so that a leap day is the last of its year.
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    let millis = since.subsec_millis();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

#[cfg(test)]
mod tests;
