//! One connection to one member. The only file that names the etcd client crate.
//!
//! The crate balances blindly, never reconnects a watch and has vague errors, so it is used for its messages alone:
//! one client per endpoint, and what an error means is decided here, once.

use std::error::Error as _;
use std::time::Duration;

use bytes::Bytes;
use etcd_client::{
    Certificate, Client, Compare, CompareOp, ConnectOptions, DeleteOptions, Error, GetOptions, Identity,
    PutOptions, ResponseHeader, TlsOptions, Txn, TxnOp, TxnOpResponse, WatchOptions,
};
use headwater_model::Revision;

use super::config::EtcdConfig;
use super::range::{Answer, KeyRange, Query};
use super::tracker::{Failure, Fault, Header, Member, MemberVersion, WatchResponse};
use crate::backend::{self, Committed, Entry, KeyEvent, Transaction};

/// HTTP/2 pings: etcd tolerates none faster than 5 s, and none without a stream.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(5));

/// W13: a catch-up batch is bounded in revisions, not in bytes; the crate's default of 4 MiB is a livelock.
const WATCH_DECODE_LIMIT: usize = 256 << 20;

/// Pages are halved when they are above it.
const RANGE_DECODE_LIMIT: usize = 64 << 20;

/// One connection to one member.
#[derive(Clone)]
pub(super) struct Connection {
    client: Client,
    endpoint: String,
}

/// The two halves of an open watch stream.
pub(super) struct Watch {
    requests: etcd_client::WatchRequestSender,
    responses: etcd_client::WatchResponseStream,
    range: KeyRange,
}

/// What a member says in its Status.
pub(super) struct Said {
    pub(super) member: Member,
    /// Whether the cluster is out of space (its NOSPACE alarm); nothing where Status was denied.
    pub(super) full: Option<bool>,
}

/// How a transaction ended.
pub(super) enum TxnEnd {
    Committed(Committed),
    Conflict,
}

// === impl Connection ===

impl Connection {
    /// Reads certificates, resolves the name, and authenticates where a user is set.
    pub(super) async fn open(endpoint: &str, config: &EtcdConfig) -> Result<Self, Failure> {
        // W18: a member without a leader answers progress requests, and they look fine.
        let mut options = ConnectOptions::new()
            .with_require_leader(true)
            .with_keep_alive(KEEP_ALIVE.0, KEEP_ALIVE.1)
            .with_keep_alive_while_idle(false)
            .with_connect_timeout(config.connect_timeout);
        if config.user.is_some() {
            options = options.with_auto_token_refresh(true);
        }
        if config.tls.is_some() {
            options = options.with_tls(tls(config).await?);
        }
        let client = Client::connect([endpoint], Some(options)).await.map_err(failure)?;
        let connection = Self { client, endpoint: endpoint.to_owned() };
        connection.authenticate(config).await?;
        Ok(connection)
    }

    /// The member's client URL, as configured.
    pub(super) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Gets a token for the password of now (W24). Where etcd asks for no user yet, none is told: whoever switches it
    /// on has the replicas configured first.
    pub(super) async fn authenticate(&self, config: &EtcdConfig) -> Result<(), Failure> {
        let Some(credentials) = credentials(config).await? else { return Ok(()) };
        match self.client.clone().update_user(Some(credentials)).await.map_err(failure) {
            Err(failure) if failure.message.contains("authentication is not enabled") => Ok(()),
            authenticated => authenticated,
        }
    }

    /// What the member says of itself; a denied Status is an answer too.
    pub(super) async fn status(&self) -> Result<Said, Failure> {
        let endpoint = self.endpoint.clone();
        match self.client.maintenance_client().status().await.map_err(failure) {
            Ok(status) => {
                let header = header(status.header());
                let member = Member {
                    endpoint,
                    version: MemberVersion::Known(status.version().to_owned()),
                    cluster_id: header.cluster_id,
                    member_id: header.member_id,
                    learner: status.is_learner(),
                    has_leader: status.leader() != 0,
                };
                let full = status.errors().iter().any(|error| error.contains("NOSPACE"));
                Ok(Said { member, full: Some(full) })
            }
            // Leader and learner are then found out by the linearizable read that follows.
            Err(Failure { fault: Fault::Denied, message }) => {
                let member = Member {
                    endpoint,
                    version: MemberVersion::Denied(message),
                    cluster_id: 0,
                    member_id: 0,
                    learner: false,
                    has_leader: true,
                };
                Ok(Said { member, full: None })
            }
            Err(failure) => Err(failure),
        }
    }

    /// One range read, linearizable.
    pub(super) async fn range(&self, range: &KeyRange, query: &Query) -> Result<Answer, Failure> {
        let (first, end) = query.bounds(range);
        let mut options =
            GetOptions::new().with_limit(i64::from(query.limit)).with_revision(signed(query.revision));
        if let Some(end) = end {
            options = options.with_range(end);
        }
        if query.count_only {
            options = options.with_count_only();
        }
        if query.keys_only {
            options = options.with_keys_only();
        }
        let mut kv = self.client.kv_client().max_decoding_message_size(RANGE_DECODE_LIMIT);
        let mut response = kv.get(first, Some(options)).await.map_err(failure)?;
        let header = header(response.header());
        let more = response.more();
        let entries = response
            .0
            .kvs
            .drain(..)
            .map(|kv| {
                Ok(Entry {
                    key: relative(range, kv.key)?,
                    value: Bytes::from(kv.value),
                    create_revision: Revision(unsigned(kv.create_revision)),
                    mod_revision: Revision(unsigned(kv.mod_revision)),
                })
            })
            .collect::<Result<_, Failure>>()?;
        Ok(Answer { header, entries, more })
    }

    /// Opens a stream with one watcher (W3); resolves with the member's first answer.
    pub(super) async fn watch(
        &self,
        range: &KeyRange,
        start: Revision,
        watch_id: i64,
    ) -> Result<Watch, Failure> {
        // W21: periodic progress is free. W30: neither prev_kv nor filters.
        let options = WatchOptions::new()
            .with_range(range.end())
            .with_start_revision(signed(start))
            .with_watch_id(watch_id)
            .with_progress_notify()
            .with_fragment();
        let mut client = self.client.watch_client().max_decoding_message_size(WATCH_DECODE_LIMIT);
        let stream = client.watch(range.start(), Some(options)).await.map_err(failure)?;
        let (requests, responses) = stream.split();
        Ok(Watch { requests, responses, range: range.clone() })
    }

    /// One transaction: all comparisons hold and all operations are done, or nothing is.
    pub(super) async fn commit(
        &self,
        range: &KeyRange,
        transaction: &Transaction,
    ) -> Result<TxnEnd, Failure> {
        let compares: Vec<_> = transaction.compares.iter().map(|compare| condition(range, compare)).collect();
        let operations: Vec<_> =
            transaction.operations.iter().map(|operation| write(range, operation)).collect();
        let mut kv = self.client.kv_client().max_decoding_message_size(RANGE_DECODE_LIMIT);
        let response = kv.txn(Txn::new().when(compares).and_then(operations)).await.map_err(failure)?;
        if !response.succeeded() {
            return Ok(TxnEnd::Conflict);
        }
        let header = header(response.header());
        let existed = response
            .op_responses()
            .iter()
            .map(|operation| match operation {
                TxnOpResponse::Put(put) => put.prev_key().is_some(),
                TxnOpResponse::Delete(delete) => delete.deleted() > 0,
                TxnOpResponse::Get(_) | TxnOpResponse::Txn(_) => false,
            })
            .collect();
        Ok(TxnEnd::Committed(Committed { cluster_id: header.cluster_id, revision: header.revision, existed }))
    }
}

// === impl Watch ===

impl Watch {
    /// The next response as it came, or why there are no more. May be given up at any time without loss.
    pub(super) async fn next(&mut self) -> Result<WatchResponse, Failure> {
        let message = self.responses.message().await.map_err(failure)?;
        let message = message.ok_or_else(|| Failure::new(Fault::Other, "the member ended the watch"))?;
        let header = header(message.header());
        let response = message.0;
        let mut bytes = 0;
        let mut events = Vec::with_capacity(response.events.len());
        for event in response.events {
            let deleted = event.r#type == etcd_client::EventType::Delete as i32;
            if !deleted && event.r#type != etcd_client::EventType::Put as i32 {
                return Err(Failure::new(Fault::Other, format!("an event of unknown type {}", event.r#type)));
            }
            let Some(kv) = event.kv else {
                return Err(Failure::new(Fault::Other, "an event without a key"));
            };
            bytes += kv.key.len() + kv.value.len();
            let key = relative(&self.range, kv.key)?;
            let revision = Revision(unsigned(kv.mod_revision));
            events.push(if deleted {
                KeyEvent::Delete { key, revision }
            } else {
                let create_revision = Revision(unsigned(kv.create_revision));
                KeyEvent::Put(Entry {
                    key,
                    value: Bytes::from(kv.value),
                    create_revision,
                    mod_revision: revision,
                })
            });
        }
        Ok(WatchResponse {
            header,
            watch_id: response.watch_id,
            created: response.created,
            cancelled: response.canceled,
            compact_revision: Revision(unsigned(response.compact_revision)),
            cancel_reason: response.cancel_reason,
            fragment: response.fragment,
            events,
            bytes,
        })
    }

    /// Asks for progress; the queue is the crate's, and bounded.
    pub(super) async fn request_progress(&mut self) -> Result<(), Failure> {
        self.requests.request_progress().await.map_err(failure)
    }
}

async fn credentials(config: &EtcdConfig) -> Result<Option<(String, String)>, Failure> {
    let Some(user) = &config.user else { return Ok(None) };
    let password = match (&config.password, &config.password_file) {
        (Some(password), _) => password.expose().clone(),
        (None, Some(file)) => {
            let text = String::from_utf8(read(file).await?);
            let unreadable = |_| Failure::new(Fault::Other, format!("{} is no text", file.display()));
            text.map_err(unreadable)?.trim_end_matches(['\r', '\n']).to_owned()
        }
        (None, None) => return Ok(None),
    };
    Ok(Some((user.clone(), password)))
}

async fn tls(config: &EtcdConfig) -> Result<TlsOptions, Failure> {
    let Some(tls) = &config.tls else { return Ok(TlsOptions::new()) };
    let mut options = TlsOptions::new().ca_certificate(Certificate::from_pem(read(&tls.ca).await?));
    if let (Some(cert), Some(key)) = (&tls.cert, &tls.key) {
        options = options.identity(Identity::from_pem(read(cert).await?, read(key).await?));
    }
    if let Some(name) = &tls.server_name {
        options = options.domain_name(name);
    }
    Ok(options)
}

async fn read(path: &std::path::Path) -> Result<Vec<u8>, Failure> {
    let unreadable =
        |error| Failure::new(Fault::Other, format!("{} cannot be read: {error}", path.display()));
    tokio::fs::read(path).await.map_err(unreadable)
}

fn condition(range: &KeyRange, compare: &backend::Compare) -> Compare {
    match compare {
        backend::Compare::ModRevision { key, is } => {
            Compare::mod_revision(range.absolute(key), CompareOp::Equal, signed(*is))
        }
        backend::Compare::Exists { key } => {
            Compare::create_revision(range.absolute(key), CompareOp::Greater, 0)
        }
        // Over a range each key must hold; an empty range holds, as etcd compares a zero revision then.
        backend::Compare::NoneWrittenSince { directory, revision } => {
            let below = range.below(directory);
            Compare::mod_revision(below.start(), CompareOp::Less, signed(revision.next()))
                .with_range(below.end())
        }
    }
}

fn write(range: &KeyRange, operation: &backend::Operation) -> TxnOp {
    match operation {
        // The former value tells whether there was one; nothing else does in the same transaction.
        backend::Operation::Put { key, value } => {
            TxnOp::put(range.absolute(key), value.as_ref(), Some(PutOptions::new().with_prev_key()))
        }
        backend::Operation::Delete { key } => TxnOp::delete(range.absolute(key), Some(DeleteOptions::new())),
    }
}

fn relative(range: &KeyRange, key: Vec<u8>) -> Result<Bytes, Failure> {
    range.relative(Bytes::from(key)).ok_or_else(|| {
        Failure::new(Fault::Other, "etcd answered with a key outside the prefix that was asked for")
    })
}

fn header(header: Option<&ResponseHeader>) -> Header {
    header.map_or_else(Header::default, |header| Header {
        cluster_id: header.cluster_id(),
        member_id: header.member_id(),
        revision: Revision(unsigned(header.revision())),
        raft_term: header.raft_term(),
    })
}

/// etcd's numbers are signed and never negative.
fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

fn signed(revision: Revision) -> i64 {
    i64::try_from(revision.0).unwrap_or(i64::MAX)
}

/// What an error means. Codes say little (a broken stream is Unknown), so what the server said comes first.
fn failure(error: Error) -> Failure {
    let Error::GRpcStatus(status) = &error else {
        let fault = match &error {
            Error::TransportError(_) | Error::IoError(_) => Fault::Transport,
            _ => Fault::Other,
        };
        return Failure::new(fault, chain(&error));
    };
    let text = status.message();
    let says = |needles: &[&str]| needles.iter().any(|needle| text.contains(needle));
    let fault = if says(&["decoded message length too large"]) {
        Fault::TooLarge
    } else if says(&["required revision has been compacted"]) {
        Fault::Compacted
    } else if says(&["is a future revision"]) {
        Fault::Future
    } else if says(&["invalid auth token", "auth store is old"]) {
        Fault::Token
    } else if says(&["permission denied", "user name is empty", "authentication failed"]) {
        Fault::Denied
    } else if says(&["no leader", "not supported for learner", "leader changed", "server stopped"]) {
        Fault::NoLeader
    } else if status.source().is_some() {
        // Only what this side made of a broken connection has a source.
        Fault::Transport
    } else if says(&["request timed out"]) {
        Fault::NoLeader
    } else {
        Fault::Other
    };
    let cause = status.source().map(|source| format!(": {}", chain(source))).unwrap_or_default();
    Failure::new(fault, format!("{text} ({:?}){cause}", status.code()))
}

fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        next = cause.source();
    }
    text
}
