//! Approvals as they are stored: one JSON object below `data_plane/headwater/approvals/`, so that every replica of
//! the environment sees what an operator allowed. Pure.

use bytes::Bytes;
use headwater_model::{Generation, Lineage, Revision};
use headwater_proto::config::Approval;
use serde::{Deserialize, Serialize};

/// The directory of approvals, relative to `<prefix>/`.
pub const DIRECTORY: &str = "data_plane/headwater/approvals/";

/// How long an approval covers by default: 30 days, so that a node that was away for a holiday follows too.
pub const RETENTION_SECONDS: u64 = 30 * 24 * 3600;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    from: StoredLineage,
    base_at_most: u64,
    to: StoredLineage,
    expires_unix: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredLineage {
    /// Hexadecimal: JSON numbers lose the lower digits of a cluster id in many readers.
    cluster_id: String,
    prefix: String,
    generation: u64,
}

/// A stored value that is no approval. It lets nothing pass.
#[derive(Debug, thiserror::Error)]
#[error("the approval under {key} cannot be read and lets nothing pass: {reason}")]
pub struct Unreadable {
    key: String,
    reason: String,
}

/// The key of an approval, relative to `<prefix>/`.
#[must_use]
pub fn key(id: &str) -> Bytes {
    format!("{DIRECTORY}{id}").into()
}

/// The id of the approval under a key, if it is one's.
#[must_use]
pub fn id(key: &[u8]) -> Option<&str> {
    let id = std::str::from_utf8(key).ok()?.strip_prefix(DIRECTORY)?;
    (!id.is_empty() && !id.contains('/')).then_some(id)
}

/// The stored value of an approval.
#[must_use]
pub fn encode(approval: &Approval) -> Bytes {
    let stored = Stored {
        from: StoredLineage::of(&approval.from),
        base_at_most: approval.base_at_most.0,
        to: StoredLineage::of(&approval.to),
        expires_unix: approval.expires_unix,
    };
    serde_json::to_vec(&stored).expect("strings and numbers are always JSON").into()
}

/// Reads a stored approval.
///
/// # Errors
/// When the value is none.
pub fn decode(id: &str, value: &[u8]) -> Result<Approval, Unreadable> {
    let unreadable = |reason: String| Unreadable { key: format!("{DIRECTORY}{id}"), reason };
    let stored: Stored = serde_json::from_slice(value).map_err(|error| unreadable(error.to_string()))?;
    Ok(Approval {
        id: id.into(),
        from: stored.from.read().map_err(unreadable)?,
        base_at_most: Revision(stored.base_at_most),
        to: stored.to.read().map_err(unreadable)?,
        expires_unix: stored.expires_unix,
    })
}

// === impl StoredLineage ===

impl StoredLineage {
    fn of(lineage: &Lineage) -> Self {
        Self {
            cluster_id: format!("{:x}", lineage.cluster_id),
            prefix: lineage.prefix.to_string(),
            generation: lineage.generation.0,
        }
    }

    fn read(self) -> Result<Lineage, String> {
        let cluster_id = u64::from_str_radix(&self.cluster_id, 16)
            .map_err(|_| format!("cluster_id {:?} is no hexadecimal number", self.cluster_id))?;
        Ok(Lineage { cluster_id, prefix: self.prefix.into(), generation: Generation(self.generation) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn approval() -> Approval {
        let lineage = |generation| Lineage {
            cluster_id: 0xfedc_ba98_7654_3210,
            prefix: "/apisix".into(),
            generation: Generation(generation),
        };
        Approval {
            id: "a1".into(),
            from: lineage(0),
            base_at_most: Revision(90),
            to: lineage(1),
            expires_unix: 5,
        }
    }

    #[test]
    fn what_is_stored_is_read_back() {
        assert_eq!(decode("a1", &encode(&approval())).unwrap(), approval());
        assert_eq!(id(&key("a1")), Some("a1"));
    }

    #[test]
    fn what_is_no_approval_is_refused_with_the_key() {
        assert_eq!(id(b"data_plane/headwater/approvals/"), None);
        assert_eq!(id(b"data_plane/headwater/other/a1"), None);
        let truncated = &encode(&approval())[..20];
        for value in [&b"{}"[..], b"1", truncated, br#"{"from":{"cluster_id":"z","prefix":"","generation":0},"base_at_most":1,"to":{"cluster_id":"1","prefix":"","generation":0},"expires_unix":1}"#] {
            let error = decode("a1", value).unwrap_err().to_string();
            assert!(error.contains("approvals/a1"), "{error}");
        }
    }
}
