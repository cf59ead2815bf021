//! A replica that is cut off until etcd has forgotten what it missed.

use serde_json::Value;

use crate::eventually::eventually;
use crate::keys::Keys;
use crate::planes::{LIMIT, Replica};
use crate::tcp_proxy::TcpProxy;

/// Cuts a replica off from its one member, lets `meanwhile` happen and etcd compact it away, and waits until the
/// replica has read everything again, once. Answers the revision of the compaction.
///
/// # Panics
/// When it does not, or reads more than once.
pub async fn until_compacted<F: Future>(
    proxy: &TcpProxy,
    keys: &Keys,
    replica: &Replica,
    meanwhile: F,
) -> u64 {
    let loads = replica.metric("headwater_source_loads_total").await;
    proxy.refuse();
    for round in 0..20 {
        keys.put_raw("data_plane/server_info/other", format!("{round}")).await;
    }
    meanwhile.await;
    let compacted = keys.compact().await;
    proxy.heal();
    past(replica, compacted).await;
    let after = replica.metric("headwater_source_loads_total").await;
    assert_eq!(after - loads, 1.0, "one compaction, one reload");
    compacted
}

/// Transfers begun and bytes sent to nodes so far.
pub async fn sent(replica: &Replica) -> (f64, f64) {
    let transfers = replica.metric("headwater_distribution_transfers_total").await;
    (transfers, replica.metric("headwater_distribution_sent_bytes_total").await)
}

/// Transfers that came to a node on its present stream, out of its status.
///
/// # Panics
/// When the status is none.
#[must_use]
pub fn transfers(status: &Value) -> u64 {
    status["stream"]["transfers"].as_u64().expect("a node counts its transfers")
}

async fn past(replica: &Replica, revision: u64) {
    eventually("the replica is past the compaction", LIMIT, || async {
        let status = replica.status().await.map_err(|error| format!("{error:#}"))?;
        let seen = status["version"]["revision"].as_u64();
        if seen >= Some(revision) && status["degraded"].is_null() { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
}
