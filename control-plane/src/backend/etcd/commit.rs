//! Reads beside the watch, and writes: over the second connection, at any member of the watched cluster.
//!
//! Nothing read here ever moves the safe revision.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use headwater_model::Revision;
use tokio::time::timeout;

use super::client::TxnEnd;
use super::load::read_all;
use super::member::EtcdCluster;
use super::range::{KeyRange, Query, Scope};
use super::tracker::{Failure, Fault, Header};
use crate::backend::{
    Commit, CommitError, Committed, Entry, Head, Operation, ReadError, Reader, Transaction,
};

/// etcd's `--max-txn-ops`, for comparisons and operations alike.
const MAX_OPERATIONS: usize = 128;

/// etcd's `--max-request-bytes`.
const MAX_BYTES: usize = 3 << 19;

/// What one comparison or operation costs besides its key and value, generously.
const OVERHEAD: usize = 32;

/// Reads of one environment.
#[derive(Clone, Debug)]
pub struct EtcdReader {
    cluster: Arc<EtcdCluster>,
    range: KeyRange,
}

/// Writes of one environment.
#[derive(Clone, Debug)]
pub struct EtcdCommit {
    cluster: Arc<EtcdCluster>,
    range: KeyRange,
}

// === impl EtcdReader ===

impl EtcdReader {
    /// Reads below `<prefix>/`.
    #[must_use]
    pub fn new(cluster: Arc<EtcdCluster>, prefix: &str) -> Self {
        Self { cluster, range: KeyRange::of_prefix(prefix) }
    }

    fn limit(&self) -> Duration {
        self.cluster.config().request_timeout
    }
}

#[async_trait]
impl Reader for EtcdReader {
    async fn heads(&self) -> Vec<Head> {
        let heads = super::others::ask_heads(self.cluster.config(), &self.range).await;
        heads.into_iter().map(head).collect()
    }

    async fn get_at(&self, key: &[u8], revision: Revision) -> Result<Option<Entry>, ReadError> {
        let scope = Scope::Key(Bytes::copy_from_slice(key));
        let query = Query { revision, scope, ..Query::default() };
        let answer = self.cluster.read(&self.range, &query, self.limit()).await;
        Ok(answer.map_err(|failure| read_error(failure, Some(revision), self.limit()))?.entries.pop())
    }

    async fn get(&self, key: &[u8]) -> Result<(Option<Entry>, Head), ReadError> {
        let query = Query { scope: Scope::Key(Bytes::copy_from_slice(key)), ..Query::default() };
        let answer = self.cluster.read(&self.range, &query, self.limit()).await;
        let mut answer = answer.map_err(|failure| read_error(failure, None, self.limit()))?;
        Ok((answer.entries.pop(), head(answer.header)))
    }

    async fn list(&self, directory: &[u8]) -> Result<(Vec<Entry>, Head), ReadError> {
        let scope = Scope::Directory(Bytes::copy_from_slice(directory));
        let limit = self.cluster.config().page_timeout;
        let (entries, header) = read_all(&self.cluster, &self.range, scope, None, limit)
            .await
            .map_err(|failure| read_error(failure, None, limit))?;
        Ok((entries, head(header)))
    }

    async fn state_at(&self, revision: Revision) -> Result<Vec<Entry>, ReadError> {
        let limit = self.cluster.config().page_timeout;
        let (entries, _) = read_all(&self.cluster, &self.range, Scope::All, Some(revision), limit)
            .await
            .map_err(|failure| read_error(failure, Some(revision), limit))?;
        Ok(entries)
    }
}

fn head(header: Header) -> Head {
    Head { cluster_id: header.cluster_id, revision: header.revision }
}

fn read_error(failure: Failure, revision: Option<Revision>, after: Duration) -> ReadError {
    let revision = revision.unwrap_or_default();
    match failure.fault {
        Fault::Compacted => ReadError::Compacted { revision, oldest: Revision::ZERO },
        Fault::Future => ReadError::Future { revision, head: Revision::ZERO },
        Fault::Denied | Fault::Token => ReadError::Refused(failure.message),
        _ => ReadError::Unavailable { cause: failure.message, after },
    }
}

// === impl EtcdCommit ===

impl EtcdCommit {
    /// Writes below `<prefix>/`.
    #[must_use]
    pub fn new(cluster: Arc<EtcdCluster>, prefix: &str) -> Self {
        Self { cluster, range: KeyRange::of_prefix(prefix) }
    }
}

#[async_trait]
impl Commit for EtcdCommit {
    async fn commit(&self, transaction: Transaction) -> Result<Committed, CommitError> {
        within_limits(&transaction)?;
        match self.commit_once(&transaction).await {
            // For certain nothing was written. The connection is another one now, with the credentials of now.
            Err(CommitError::Refused(_)) if self.cluster.config().user.is_some() => {
                self.commit_once(&transaction).await
            }
            ended => ended,
        }
    }
}

impl EtcdCommit {
    async fn commit_once(&self, transaction: &Transaction) -> Result<Committed, CommitError> {
        let limit = self.cluster.config().request_timeout;
        let unavailable = |failure: Failure| match failure.fault {
            Fault::Denied | Fault::Token => CommitError::Refused(failure.message),
            _ => CommitError::Unavailable(failure.message),
        };
        let opened = timeout(limit, self.cluster.side()).await;
        let timed_out = || Failure::new(Fault::Timeout, "no member answered in time");
        let connection = opened.unwrap_or_else(|_| Err(timed_out())).map_err(unavailable)?;
        // From here on a missing answer proves nothing.
        match timeout(limit, connection.commit(&self.range, transaction)).await {
            Ok(Ok(TxnEnd::Committed(committed))) => {
                // Deletions are taken without space too.
                if transaction.operations.iter().any(|it| matches!(it, Operation::Put { .. })) {
                    self.cluster.note_full(false);
                }
                Ok(committed)
            }
            Ok(Ok(TxnEnd::Conflict)) => Err(CommitError::Conflict),
            Ok(Err(failure)) => {
                if failure.is_of_the_connection() {
                    self.cluster.drop_side().await;
                }
                let error = commit_error(failure);
                if matches!(error, CommitError::ReadOnly(_)) {
                    self.cluster.note_full(true);
                }
                Err(error)
            }
            Err(_) => {
                self.cluster.drop_side().await;
                Err(CommitError::Unknown(format!("etcd did not answer within {:.1} s", limit.as_secs_f64())))
            }
        }
    }
}

/// Refused here, with the counts: etcd's own refusal names none.
fn within_limits(transaction: &Transaction) -> Result<(), CommitError> {
    let (operations, compares) = (transaction.operations.len(), transaction.compares.len());
    if operations > MAX_OPERATIONS || compares > MAX_OPERATIONS {
        return Err(CommitError::TooLarge(format!(
            "{operations} operations under {compares} conditions, at most {MAX_OPERATIONS} of each fit one transaction"
        )));
    }
    let bytes: usize = transaction
        .operations
        .iter()
        .map(|operation| match operation {
            Operation::Put { key, value } => key.len() + value.len() + OVERHEAD,
            Operation::Delete { key } => key.len() + OVERHEAD,
        })
        .sum::<usize>()
        + compares * OVERHEAD * 4;
    if bytes > MAX_BYTES {
        return Err(CommitError::TooLarge(format!(
            "{operations} operations of {bytes} bytes, at most {MAX_BYTES} bytes fit one transaction"
        )));
    }
    Ok(())
}

/// Only what etcd itself refused for certain is anything but unknown.
fn commit_error(failure: Failure) -> CommitError {
    let text = failure.message;
    let says = |needle: &str| text.contains(needle);
    if says("database space exceeded") {
        CommitError::ReadOnly(text)
    } else if says("too many operations") || says("request is too large") || says("larger than max") {
        CommitError::TooLarge(text)
    } else if matches!(failure.fault, Fault::Denied | Fault::Token) || says("duplicate key") {
        CommitError::Refused(text)
    } else if says("no leader") || says("tcp connect error") || says("dns error") || says("for learner") {
        // Refused before it was proposed, or never sent.
        CommitError::Unavailable(text)
    } else {
        CommitError::Unknown(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn puts(count: usize, bytes: usize) -> Transaction {
        let value = Bytes::from(vec![0; bytes]);
        let put = |id| Operation::Put { key: Bytes::from(format!("routes/{id}")), value: value.clone() };
        Transaction { compares: vec![], operations: (0..count).map(put).collect() }
    }

    #[test]
    fn what_is_above_etcds_limits_is_refused_with_the_counts() {
        assert!(within_limits(&puts(128, 10)).is_ok());
        let Err(CommitError::TooLarge(text)) = within_limits(&puts(129, 10)) else { panic!("passed") };
        assert!(text.contains("129") && text.contains("128"), "{text}");
        let Err(CommitError::TooLarge(text)) = within_limits(&puts(2, 1 << 20)) else { panic!("passed") };
        assert!(text.contains("1572864"), "{text}");
    }

    #[test]
    fn a_lost_answer_is_unknown_and_a_refusal_is_not() {
        let end = |fault, text: &str| commit_error(Failure::new(fault, text));
        let transport = end(Fault::Transport, "h2 protocol error: connection reset");
        assert!(matches!(transport, CommitError::Unknown(_)));
        assert!(matches!(end(Fault::NoLeader, "etcdserver: request timed out"), CommitError::Unknown(_)));
        assert!(matches!(end(Fault::NoLeader, "etcdserver: leader changed"), CommitError::Unknown(_)));
        assert!(matches!(end(Fault::NoLeader, "etcdserver: no leader"), CommitError::Unavailable(_)));
        let space = end(Fault::Other, "etcdserver: mvcc: database space exceeded (ResourceExhausted)");
        assert!(matches!(space, CommitError::ReadOnly(_)));
        assert!(matches!(end(Fault::Denied, "etcdserver: permission denied"), CommitError::Refused(_)));
    }
}
