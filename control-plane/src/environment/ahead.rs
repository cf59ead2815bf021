//! Whether the source's history went back below what a node holds.

use std::time::Duration;

use headwater_model::Revision;

use crate::backend::Reader;

/// How far apart the two reads are: one late answer of a lagging member must not count twice.
const BETWEEN_READS: Duration = Duration::from_secs(1);

/// Two linearizable reads, both below the revision. No answer proves nothing.
pub(super) async fn head_lies_below(reader: &dyn Reader, revision: Revision) -> bool {
    let below = |head: Result<crate::backend::Head, _>| head.is_ok_and(|head| head.revision < revision);
    if !below(reader.head().await) {
        return false;
    }
    tokio::time::sleep(BETWEEN_READS).await;
    below(reader.head().await)
}
