//! What each member says for itself, when one of them says that the history was replaced.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;

use super::client::Connection;
use super::config::EtcdConfig;
use super::proof::prove;
use super::range::{KeyRange, Query};
use super::tracker::{Failure, Fault, Header, ProofQuestion, Testimony};

/// For every member to say its head; who has not answered by then is left out (DESIGN section 5).
const HEADS_TIMEOUT: Duration = Duration::from_secs(5);

/// Asks all members but the one that is followed, at once; whoever does not answer within the time is left out.
pub(super) async fn ask_others(
    config: &EtcdConfig,
    followed: &Connection,
    range: &KeyRange,
    question: &ProofQuestion,
    within: Duration,
) -> Vec<Testimony> {
    let others = config.endpoints.iter().filter(|endpoint| *endpoint != followed.endpoint());
    let asked = others.map(|endpoint| timeout(within, testimony(endpoint, config, range, question)));
    join_all(asked).await.into_iter().filter_map(|answer| answer.ok()?.ok()).collect()
}

/// The heads of all members that answer in time, each asked for itself.
pub(super) async fn ask_heads(config: &EtcdConfig, range: &KeyRange) -> Vec<Header> {
    let head = |endpoint| async move { own_head(&Connection::open(endpoint, config).await?, range).await };
    let asked = config.endpoints.iter().map(|endpoint| timeout(HEADS_TIMEOUT, head(endpoint)));
    join_all(asked).await.into_iter().filter_map(|answer| answer.ok()?.ok()).collect()
}

/// Linearizable: a member that has lost its cluster has no say.
async fn own_head(connection: &Connection, range: &KeyRange) -> Result<Header, Failure> {
    let query = Query { limit: 1, count_only: true, ..Query::default() };
    Ok(connection.range(range, &query).await?.header)
}

async fn testimony(
    endpoint: &str,
    config: &EtcdConfig,
    range: &KeyRange,
    question: &ProofQuestion,
) -> Result<Testimony, Failure> {
    let connection = Connection::open(endpoint, config).await?;
    let header = own_head(&connection, range).await?;
    let proof = match prove(&connection, range, question).await {
        Ok(proof) => Some(proof),
        Err(Failure { fault: Fault::Compacted | Fault::Future, .. }) => None,
        Err(failure) => return Err(failure),
    };
    Ok(Testimony { endpoint: endpoint.to_owned(), header, proof })
}
