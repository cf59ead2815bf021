//! `source recorder`.

use headwater_proto::admin::{RecorderRequest, RecorderResponse, WatchRecord};
use serde_json::{Value, json};

use super::Asked;
use crate::exit::{Error, Exit};
use crate::output::{Answer, note, table};
use crate::progress;

pub(crate) async fn run(asked: &Asked, last: u32) -> Result<Exit, Error> {
    let request = RecorderRequest { environment: asked.environment.clone(), last };
    let mut client = asked.replica.source();
    let answer = progress::during("reading", client.recorder(request)).await?.into_inner();
    if answer.records.is_empty() {
        note("nothing is recorded: the watch was never opened, or etcd.recorder_responses is 0");
    }
    Answer { document: document(&answer), text: text(&answer) }.print(asked.format)?;
    Ok(Exit::Done)
}

fn text(answer: &RecorderResponse) -> String {
    let rows = answer.records.iter().map(|record| {
        vec![
            record.number.to_string(),
            ago(answer.now_unix_ms.saturating_sub(record.unix_ms)),
            record.attempt.to_string(),
            record.kind.clone(),
            shown(record.header_revision),
            record.safe_revision.map_or_else(|| "-".into(), |safe| safe.to_string()),
            detail(record),
        ]
    });
    table(&["NO", "AGO", "ATTEMPT", "KIND", "HEADER", "SAFE", "DETAIL"], rows)
}

fn shown(revision: u64) -> String {
    if revision == 0 { "-".into() } else { revision.to_string() }
}

/// To the millisecond: what follows what within a heartbeat is the question here.
fn ago(milliseconds: u64) -> String {
    format!("{}.{:03}s", milliseconds / 1000, milliseconds % 1000)
}

fn detail(record: &WatchRecord) -> String {
    let WatchRecord { puts, deletes, bytes, .. } = record;
    match record.kind.as_str() {
        "opening" => format!("from revision {} as watcher {}", record.start_revision, record.watch_id),
        "events" => {
            let more = if record.fragment { ", more parts follow" } else { "" };
            let (first, last) = (record.first_revision, record.last_revision);
            format!("revisions {first} to {last}: {puts} put, {deletes} deleted, {bytes} bytes{more}")
        }
        "cancelled" if record.compact_revision > 0 => {
            format!("compacted up to {} {}", record.compact_revision, record.reason).trim_end().to_owned()
        }
        "cancelled" | "ended" => record.reason.clone(),
        _ => format!("member {:x}, term {}", record.member_id, record.raft_term),
    }
}

fn document(answer: &RecorderResponse) -> Value {
    let record = |record: &WatchRecord| {
        json!({
            "number": record.number,
            "unix_ms": record.unix_ms,
            "attempt": record.attempt,
            "kind": record.kind,
            "cluster_id": format!("{:x}", record.cluster_id),
            "member_id": format!("{:x}", record.member_id),
            "header_revision": record.header_revision,
            "raft_term": record.raft_term,
            "watch_id": record.watch_id,
            "start_revision": record.start_revision,
            "compact_revision": record.compact_revision,
            "first_revision": record.first_revision,
            "last_revision": record.last_revision,
            "puts": record.puts,
            "deletes": record.deletes,
            "bytes": record.bytes,
            "fragment": record.fragment,
            "reason": record.reason,
            "safe_revision": record.safe_revision,
        })
    };
    json!({
        "records": answer.records.iter().map(record).collect::<Vec<_>>(),
        "written": answer.written,
        "now_unix_ms": answer.now_unix_ms,
    })
}
