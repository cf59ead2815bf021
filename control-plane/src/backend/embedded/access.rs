//! Reads and writes of the embedded store.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use headwater_model::Revision;
use tokio::sync::oneshot;

use super::EmbeddedStore;
use super::mvcc::{
    Comparison, Interval, KeyValue, Mvcc, MvccError, Op, OpAnswer, RangeRequest, Relation, Target, Txn,
    TxnResponse,
};
use super::writer::{Job, Refused};
use crate::backend::{
    Commit, CommitError, Committed, Compare, Entry, Head, Operation, ReadError, Reader, Transaction,
};

/// For the disk to take a write.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(10);

// === impl Reader for EmbeddedStore ===

#[async_trait]
impl Reader for EmbeddedStore {
    async fn get(&self, key: &[u8]) -> Result<(Option<Entry>, Head), ReadError> {
        let store = self.shared.store.load_full();
        let found = read(&store, Interval::single(Bytes::copy_from_slice(key)), Revision::ZERO)?;
        Ok((found.into_iter().next(), head(&store)))
    }

    async fn heads(&self) -> Vec<Head> {
        vec![head(&self.shared.store.load())]
    }

    async fn get_at(&self, key: &[u8], revision: Revision) -> Result<Option<Entry>, ReadError> {
        let store = self.shared.store.load_full();
        Ok(read(&store, Interval::single(Bytes::copy_from_slice(key)), revision)?.into_iter().next())
    }

    async fn list(&self, directory: &[u8]) -> Result<(Vec<Entry>, Head), ReadError> {
        let store = self.shared.store.load_full();
        let found = read(&store, below(directory), Revision::ZERO)?;
        Ok((found, head(&store)))
    }

    async fn state_at(&self, revision: Revision) -> Result<Vec<Entry>, ReadError> {
        read(&self.shared.store.load_full(), below(&[]), revision)
    }
}

// === impl Commit for EmbeddedStore ===

#[async_trait]
impl Commit for EmbeddedStore {
    async fn commit(&self, transaction: Transaction) -> Result<Committed, CommitError> {
        let jobs = self.jobs.as_ref().map_err(|why| CommitError::ReadOnly(why.clone()))?;
        let (reply, outcome) = oneshot::channel();
        let job = Job { txn: translate(transaction), reply };
        jobs.send_timeout(job, COMMIT_TIMEOUT).await.map_err(|_| {
            CommitError::Unavailable("the store takes no writes now: its disk is too slow".to_owned())
        })?;
        let unknown = |what: &str| CommitError::Unknown(what.to_owned());
        let answer = tokio::time::timeout(COMMIT_TIMEOUT, outcome)
            .await
            .map_err(|_| unknown("the disk has not answered"))?
            .map_err(|_| unknown("the store's writer has ended"))?;
        committed(self.cluster_id, answer.map_err(commit_error)?)
    }
}

/// Everything the store holds at a revision; at zero, now.
pub(super) fn everything(store: &Mvcc, revision: Revision) -> Result<Vec<Entry>, ReadError> {
    read(store, below(&[]), revision)
}

/// The entry of a key as the store holds it.
pub(super) fn entry(kv: KeyValue) -> Entry {
    let KeyValue { key, value, create_revision, mod_revision, .. } = kv;
    Entry { key, value, create_revision, mod_revision }
}

const fn head(store: &Mvcc) -> Head {
    Head { cluster_id: store.identity().cluster_id, revision: store.revision() }
}

/// All keys that start with `directory`. No key is empty, so the smallest is one zero byte.
fn below(directory: &[u8]) -> Interval {
    if directory.is_empty() {
        Interval::from_request(Bytes::from_static(&[0]), Bytes::from_static(&[0]))
    } else {
        Interval::prefix(Bytes::copy_from_slice(directory))
    }
}

fn read(store: &Mvcc, interval: Interval, revision: Revision) -> Result<Vec<Entry>, ReadError> {
    match store.range(&RangeRequest::of(interval).at(revision)) {
        Ok(answer) => Ok(answer.entries.into_iter().map(entry).collect()),
        Err(MvccError::Compacted { requested, compacted }) => {
            Err(ReadError::Compacted { revision: requested, oldest: compacted })
        }
        Err(MvccError::Future { requested, current }) => {
            Err(ReadError::Future { revision: requested, head: current })
        }
        Err(error) => Err(ReadError::Refused(error.to_string())),
    }
}

fn translate(transaction: Transaction) -> Txn {
    let compares = transaction.compares.into_iter().map(|compare| match compare {
        Compare::ModRevision { key, is } => {
            Comparison { interval: Interval::single(key), target: Target::Mod(is), relation: Relation::Equal }
        }
        Compare::Exists { key } => Comparison {
            interval: Interval::single(key),
            target: Target::Version(0),
            relation: Relation::Greater,
        },
        Compare::NoneWrittenSince { directory, revision } => Comparison {
            interval: below(&directory),
            target: Target::Mod(revision.next()),
            relation: Relation::Less,
        },
    });
    let operations = transaction.operations.into_iter().map(|operation| match operation {
        Operation::Put { key, value } => Op::Put { key, value },
        Operation::Delete { key } => Op::DeleteRange(Interval::single(key)),
    });
    Txn { compares: compares.collect(), success: operations.collect(), failure: Vec::new() }
}

fn committed(cluster_id: u64, answer: TxnResponse) -> Result<Committed, CommitError> {
    if !answer.succeeded {
        return Err(CommitError::Conflict);
    }
    let existed = |answer: &OpAnswer| match answer {
        OpAnswer::Put { previous } => previous.is_some(),
        OpAnswer::Deleted { previous } => !previous.is_empty(),
        OpAnswer::Range(read) => read.count > 0,
    };
    let existed = answer.answers.iter().map(existed).collect();
    Ok(Committed { cluster_id, revision: answer.header.revision, existed })
}

fn commit_error(refused: Refused) -> CommitError {
    match refused {
        Refused::Store(MvccError::TooManyOperations { operations, limit }) => CommitError::TooLarge(format!(
            "{operations} operations in one transaction, at most {limit} are allowed"
        )),
        Refused::Store(MvccError::TooLarge { bytes, limit }) => {
            CommitError::TooLarge(format!("{bytes} bytes in one transaction, at most {limit} are allowed"))
        }
        Refused::Store(MvccError::DuplicateKey { key }) => CommitError::Refused(format!(
            "{} is written twice, or written and deleted, in one transaction",
            String::from_utf8_lossy(&key)
        )),
        Refused::Store(MvccError::EmptyKey) => CommitError::Refused("a key is empty".to_owned()),
        Refused::Store(error) => CommitError::Refused(error.to_string()),
        Refused::ReadOnly(why) => CommitError::ReadOnly(why),
        Refused::Failed(why) => CommitError::Unavailable(why),
        Refused::Unknown(why) => CommitError::Unknown(why),
    }
}
