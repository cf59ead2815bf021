//! The content proof (W7): is a member's state at the safe revision the one that is held?

use headwater_model::Digest;

use super::client::Connection;
use super::load::PAGE_KEYS;
use super::range::{KeyRange, Query, Scope};
use super::tracker::{Failure, Fault, Found, Header, Proof, ProofQuestion, key_hash, value_hash};

/// Asks what the tracker judges: every key with its revisions, page by page and without values, and the newest one
/// with its value.
pub(super) async fn prove(
    connection: &Connection,
    range: &KeyRange,
    question: &ProofQuestion,
) -> Result<Proof, Failure> {
    let (header, count, keys) = keys_at(connection, range, question).await?;
    let newest = match &question.key {
        Some(key) => {
            let scope = Scope::Key(key.clone());
            let query = Query { revision: question.revision, scope, ..Query::default() };
            connection.range(range, &query).await?.entries.pop()
        }
        None => None,
    };
    let newest = newest.map(|entry| Found {
        create_revision: entry.create_revision,
        mod_revision: entry.mod_revision,
        value: value_hash(&entry.value),
    });
    Ok(Proof { header, count, keys, newest })
}

async fn keys_at(
    connection: &Connection,
    range: &KeyRange,
    question: &ProofQuestion,
) -> Result<(Header, u64, Digest), Failure> {
    let mut query =
        Query { revision: question.revision, limit: PAGE_KEYS, keys_only: true, ..Query::default() };
    let (mut first, mut count, mut keys) = (None::<Header>, 0, Digest::EMPTY);
    loop {
        let answer = connection.range(range, &query).await?;
        let header = *first.get_or_insert(answer.header);
        if (answer.header.cluster_id, answer.header.member_id) != (header.cluster_id, header.member_id) {
            return Err(Failure::new(Fault::Other, "two parts of the content proof came from two members"));
        }
        count += answer.entries.len() as u64;
        let hashes = answer
            .entries
            .iter()
            .map(|entry| key_hash(&entry.key, entry.create_revision, entry.mod_revision));
        keys = hashes.fold(keys, Digest::plus);
        match answer.entries.last() {
            Some(last) if answer.more => query.after = Some(last.key.clone()),
            _ => return Ok((header, count, keys)),
        }
    }
}
