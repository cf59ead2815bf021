//! Reads over the second connection, page by page: for loads, audits and the reader.

use std::time::Duration;

use bytes::Bytes;
use headwater_model::Revision;

use super::member::EtcdCluster;
use super::range::{KeyRange, Query, Scope};
use super::tracker::{Failure, Fault, Header, Page};
use crate::backend::Entry;

/// The keys of a page where nobody says otherwise; halved when a page is too big.
pub(super) const PAGE_KEYS: u32 = 5_000;

/// One page of a load. Without a revision it is linearizable, and its header's revision is the state read.
pub(super) async fn read_page(
    cluster: &EtcdCluster,
    range: &KeyRange,
    revision: Option<Revision>,
    after: Option<Bytes>,
    limit: u32,
) -> Result<Page, Failure> {
    let query = Query { revision: revision.unwrap_or_default(), after, limit, ..Query::default() };
    let answer = cluster.read(range, &query, cluster.config().page_timeout).await?;
    Ok(Page { header: answer.header, entries: answer.entries, more: answer.more })
}

/// All keys of a scope at one revision; `None`: as they are now. The header is that of the first page.
pub(super) async fn read_all(
    cluster: &EtcdCluster,
    range: &KeyRange,
    scope: Scope,
    revision: Option<Revision>,
    page_timeout: Duration,
) -> Result<(Vec<Entry>, Header), Failure> {
    let mut query =
        Query { revision: revision.unwrap_or_default(), scope, limit: PAGE_KEYS, ..Query::default() };
    let mut entries: Vec<Entry> = Vec::new();
    let mut first: Option<Header> = None;
    loop {
        let answer = match cluster.read(range, &query, page_timeout).await {
            Err(failure) if failure.fault == Fault::TooLarge && query.limit > 1 => {
                query.limit /= 2;
                continue;
            }
            answer => answer?,
        };
        let header = *first.get_or_insert(answer.header);
        if answer.header.cluster_id != header.cluster_id {
            return Err(Failure::new(Fault::Other, "two pages were answered by two clusters"));
        }
        if query.revision == Revision::ZERO {
            query.revision = header.revision;
        }
        let more = answer.more && !answer.entries.is_empty();
        entries.extend(answer.entries);
        if !more {
            return Ok((entries, header));
        }
        query.after = entries.last().map(|entry| entry.key.clone());
    }
}
