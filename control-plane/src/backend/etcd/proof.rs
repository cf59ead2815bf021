//! The content proof (W7): is a member's state at the safe revision the one that is held?

use super::client::Connection;
use super::range::{KeyRange, Query, Scope};
use super::tracker::{Failure, Found, Proof, ProofQuestion, value_hash};

/// Asks what the tracker judges. The count is the server's of all keys at the revision, whatever limit and filter
/// say; the filter finds a key written after the newest one held.
pub(super) async fn prove(
    connection: &Connection,
    range: &KeyRange,
    question: &ProofQuestion,
) -> Result<Proof, Failure> {
    let query = Query {
        revision: question.revision,
        written_since: question.newest.next(),
        limit: 1,
        keys_only: true,
        ..Query::default()
    };
    let answer = connection.range(range, &query).await?;
    let newest = match &question.key {
        Some(key) => {
            let scope = Scope::Key(key.clone());
            let query = Query { revision: question.revision, scope, ..Query::default() };
            connection.range(range, &query).await?.entries.pop()
        }
        None => None,
    };
    Ok(Proof {
        header: answer.header,
        count: answer.count,
        newer: answer.entries.into_iter().next().map(|entry| entry.key),
        newest: newest.map(|entry| Found {
            create_revision: entry.create_revision,
            mod_revision: entry.mod_revision,
            value: value_hash(&entry.value),
        }),
    })
}
