//! Writes down what happens in etcd, from a watch of the test's own on whichever member answers.
//!
//! It believes events alone: everything up to a revision is known once an event of that revision has come, and
//! [`EtcdLog::settle`] writes a key to have one. Progress is asked for only to notice that a member is silent.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use etcd_client::{Client, ConnectOptions, Event, EventType, GetOptions, WatchOptions, WatchStream};
use headwater_process::{Policy, Supervisor};
use tokio::time::{Instant, sleep, timeout};

use super::{Change, Fact, History, PREFIX, content_key};

/// For a member to answer anything.
const ANSWER: Duration = Duration::from_secs(2);
/// Without a response for so long, another member is asked.
const SILENCE: Duration = Duration::from_secs(3);
/// Between two requests for progress.
const ASK: Duration = Duration::from_millis(500);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(100);
/// Large enough for every answer.
const MESSAGE_MAX: usize = 1 << 30;
/// Below the prefix, and no content.
const MARK: &str = "/apisix/data_plane/settled";

/// A log that is written until it is dropped.
#[derive(Debug)]
pub struct EtcdLog {
    endpoints: Vec<String>,
    inner: Arc<Mutex<Inner>>,
    supervisor: Supervisor,
}

/// A log that is looked at, and not written meanwhile.
#[derive(Debug)]
pub struct Locked<'a>(MutexGuard<'a, Inner>);

#[derive(Debug)]
struct Inner {
    history: History,
    /// Why it can no longer be continued.
    broken: Option<String>,
}

// === impl EtcdLog ===

impl EtcdLog {
    /// From what etcd holds now on.
    ///
    /// # Errors
    /// When no member answers.
    pub async fn start(endpoints: Vec<String>) -> Result<Self> {
        let (content, revision) = read(&endpoints).await?;
        let facts = content.into_iter().map(|(key, (create, modified, value))| {
            let fact = Fact::new(&key, create, modified, &value);
            (key, fact)
        });
        let history = History::begin(revision, facts);
        let inner = Arc::new(Mutex::new(Inner { history, broken: None }));
        let supervisor = Supervisor::new("etcd log");
        let following = follow(endpoints.clone(), Arc::clone(&inner));
        supervisor.spawn("follow", Policy::best_effort().dropped_on_cancel(), following);
        Ok(Self { endpoints, inner, supervisor })
    }

    /// Looks at the history so far.
    pub fn look<T>(&self, at: impl FnOnce(&History) -> T) -> T {
        at(&lock(&self.inner).history)
    }

    /// Keeps it from being written for a while, for looks at several logs at once.
    #[must_use]
    pub fn lock(&self) -> Locked<'_> {
        Locked(lock(&self.inner))
    }

    /// Writes a key and waits until the log has it, and so everything before it; answers its revision.
    ///
    /// # Errors
    /// When that takes longer than `limit`, or the log is broken.
    pub async fn settle(&self, limit: Duration) -> Result<u64> {
        let deadline = Instant::now() + limit;
        let mut written = None;
        loop {
            for endpoint in &self.endpoints {
                if written.is_none() {
                    written = mark(endpoint).await.ok();
                }
            }
            let (head, broken) = {
                let inner = lock(&self.inner);
                (inner.history.head(), inner.broken.clone())
            };
            if let Some(why) = broken {
                bail!("the log of etcd cannot go on: {why}");
            }
            if let Some(revision) = written.filter(|revision| head >= *revision) {
                return Ok(revision);
            }
            ensure!(
                Instant::now() < deadline,
                "the log of etcd is at {head}, not at {written:?}, after {limit:?}"
            );
            sleep(PAUSE).await;
        }
    }
}

impl Drop for EtcdLog {
    fn drop(&mut self) {
        self.supervisor.cancel();
    }
}

// === impl Locked ===

impl Locked<'_> {
    /// The history so far.
    #[must_use]
    pub fn history(&self) -> &History {
        &self.0.history
    }
}

/// Key to create revision, mod revision and value.
pub type Stored = BTreeMap<String, (u64, u64, Vec<u8>)>;

/// All content of now and its revision, from the first member that answers; a linearizable read.
///
/// # Errors
/// When none does.
pub async fn read(endpoints: &[String]) -> Result<(Stored, u64)> {
    let mut last = None;
    for endpoint in endpoints {
        match read_from(endpoint).await {
            Ok(found) => return Ok(found),
            Err(error) => last = Some(error),
        }
    }
    Err(last.context("no member is known")?)
}

async fn read_from(endpoint: &str) -> Result<(Stored, u64)> {
    let mut kv = connect(endpoint).await?.kv_client().max_decoding_message_size(MESSAGE_MAX);
    let options = GetOptions::new().with_prefix();
    let answer = timeout(5 * ANSWER, kv.get(PREFIX, Some(options))).await.context("read etcd")??;
    let revision = number(answer.header().context("an answer has a header")?.revision());
    let pairs = answer.kvs().iter().filter_map(|pair| {
        let key = content_key(&pair.key()[PREFIX.len()..])?.to_owned();
        let (create, modified) = (number(pair.create_revision()), number(pair.mod_revision()));
        Some((key, (create, modified, pair.value().to_vec())))
    });
    Ok((pairs.collect(), revision))
}

async fn mark(endpoint: &str) -> Result<u64> {
    let mut client = connect(endpoint).await?;
    let answer = timeout(ANSWER, client.put(MARK, "", None)).await.context("write a mark")??;
    Ok(number(answer.header().context("an answer has a header")?.revision()))
}

async fn connect(endpoint: &str) -> Result<Client> {
    let options = ConnectOptions::new().with_connect_timeout(ANSWER).with_require_leader(true);
    Ok(timeout(ANSWER, Client::connect([endpoint], Some(options))).await.context("connect to etcd")??)
}

async fn follow(endpoints: Vec<String>, inner: Arc<Mutex<Inner>>) {
    for endpoint in endpoints.iter().cycle() {
        // An error is what is expected of members that are killed and stopped: the next one goes on from there.
        let _ = watch(endpoint, &inner).await;
        if lock(&inner).broken.is_some() {
            return;
        }
        sleep(PAUSE).await;
    }
}

async fn watch(endpoint: &str, inner: &Mutex<Inner>) -> Result<()> {
    let mut client = connect(endpoint).await?.watch_client().max_decoding_message_size(MESSAGE_MAX);
    let next = i64::try_from(lock(inner).history.head() + 1).context("a revision fits")?;
    let options = WatchOptions::new().with_prefix().with_start_revision(next);
    let mut stream =
        timeout(ANSWER, client.watch(PREFIX, Some(options))).await.context("open the watch")??;
    let mut heard = Instant::now();
    while heard.elapsed() < SILENCE {
        if take(&mut stream, inner).await? {
            heard = Instant::now();
        } else {
            timeout(ANSWER, stream.request_progress()).await.context("ask for progress")??;
        }
    }
    bail!("silent")
}

/// Takes one response; false when there was none for a while.
async fn take(stream: &mut WatchStream, inner: &Mutex<Inner>) -> Result<bool> {
    let Ok(answer) = timeout(ASK, stream.message()).await else { return Ok(false) };
    let response = answer?.context("the stream has ended")?;
    if response.compact_revision() > 0 {
        let why = format!("revisions before {} are compacted", response.compact_revision());
        lock(inner).broken = Some(why);
    }
    ensure!(!response.canceled(), "cancelled: {}", response.cancel_reason());
    // Fragments are not asked for, so a response holds whole revisions.
    let mut revisions: BTreeMap<u64, Vec<Change>> = BTreeMap::new();
    for event in response.events() {
        let (revision, change) = change(event)?;
        revisions.entry(revision).or_default().extend(change);
    }
    let mut inner = lock(inner);
    for (revision, changes) in revisions {
        inner.history.committed(revision, changes);
    }
    Ok(true)
}

/// Its revision, and what it did to content.
fn change(event: &Event) -> Result<(u64, Option<Change>)> {
    let pair = event.kv().context("an event has a key")?;
    let revision = number(pair.mod_revision());
    let Some(key) = content_key(&pair.key()[PREFIX.len()..]) else { return Ok((revision, None)) };
    let fact = (event.event_type() == EventType::Put)
        .then(|| Fact::new(key, number(pair.create_revision()), revision, pair.value()));
    Ok((revision, Some((key.to_owned(), fact))))
}

fn number(signed: i64) -> u64 {
    u64::try_from(signed).expect("etcd's revisions are not negative")
}

fn lock(inner: &Mutex<Inner>) -> MutexGuard<'_, Inner> {
    inner.lock().unwrap_or_else(PoisonError::into_inner)
}
