//! `nodes`.

use headwater_proto::admin::{ForgetRequest, ListNodesRequest, Node, RejectedKey};
use serde_json::{Value, json};

use super::Asked;
use crate::exit::{Error, Exit};
use crate::output::{Answer, note, span, table, version, version_document};
use crate::progress;

pub(crate) async fn list(asked: &Asked, rejects: bool) -> Result<Exit, Error> {
    let mut client = asked.replica.fleet();
    let request = ListNodesRequest { environment: asked.environment.clone() };
    let answer = progress::during("reading", client.list(request)).await?.into_inner();
    let (nodes, now) = (answer.nodes, answer.now_unix);
    for node in nodes.iter().filter(|node| node.duplicate) {
        note(&format!(
            "two processes are live under the node id {} (instance {})",
            node.node_id, node.instance
        ));
    }
    let mut text = if nodes.is_empty() {
        note(&format!("no node is known to the replica {}", answer.replica));
        String::new()
    } else {
        let headings = [
            "NODE",
            "INSTANCE",
            "ENVIRONMENT",
            "STATE",
            "APPLIED",
            "DURABLE",
            "REJECTS",
            "HEARD",
            "PEER",
            "NOTE",
        ];
        table(&headings, nodes.iter().map(|node| row(node, now)))
    };
    if rejects {
        text += &rejects_text(&nodes, now);
    }
    let document = Value::Array(nodes.iter().map(document).collect());
    Answer { document, text }.print(asked.format)?;
    Ok(Exit::Done)
}

pub(crate) async fn forget(asked: &Asked, node_id: String, instance: String) -> Result<Exit, Error> {
    let request = ForgetRequest { node_id: node_id.clone(), instance };
    let answer = asked.replica.fleet().forget(request).await?.into_inner();
    let text = answer
        .forgotten_instances
        .iter()
        .map(|instance| format!("{node_id} {instance} forgotten\n"))
        .collect();
    let document = json!({"node_id": node_id, "forgotten_instances": answer.forgotten_instances});
    Answer { document, text }.print(asked.format)?;
    Ok(Exit::Done)
}

fn row(node: &Node, now: u64) -> Vec<String> {
    let rejects = match (node.rejects_known, node.rejects.len()) {
        (false, _) => "?".into(),
        (true, count) => count.to_string(),
    };
    vec![
        node.node_id.clone(),
        node.instance.chars().take(8).collect(),
        node.environment.clone(),
        node.state.clone(),
        version(node.applied.as_ref()),
        version(node.durable.as_ref()),
        rejects,
        format!("{} ago", span(now.saturating_sub(node.heard_unix))),
        node.peer.clone(),
        remark(node),
    ]
}

/// What is not as it should be, or under way.
fn remark(node: &Node) -> String {
    let mut parts = Vec::new();
    if !node.reason.is_empty() {
        parts.push(node.reason.clone());
    }
    if let Some(target) = &node.in_flight {
        parts.push(format!("{} to {}", node.in_flight_reason, version(Some(target))));
    }
    if let Some(refused) = &node.refused {
        parts.push(format!("{}: {}", refused.why, refused.detail));
    }
    if node.held_ahead {
        parts.push("ahead of this replica".into());
    }
    if node.degraded {
        parts.push("served without proof of life of the source".into());
    }
    if node.duplicate {
        parts.push("second process under this id".into());
    }
    parts.join("; ")
}

fn rejects_text(nodes: &[Node], now: u64) -> String {
    let rejected = |node: &Node, reject: &RejectedKey| {
        let served = reject.served_mod_revision.map_or_else(|| "nothing".into(), |served| served.to_string());
        vec![
            node.node_id.clone(),
            reject.key.clone(),
            reject.mod_revision.to_string(),
            served,
            span(now.saturating_sub(reject.since_unix)),
            reject.reason.clone(),
        ]
    };
    let rows: Vec<Vec<String>> =
        nodes.iter().flat_map(|node| node.rejects.iter().map(|reject| rejected(node, reject))).collect();
    if rows.is_empty() {
        return "no node rejects anything\n".into();
    }
    format!("\n{}", table(&["NODE", "REJECTED KEY", "MOD REVISION", "SERVED", "FOR", "REASON"], rows))
}

fn document(node: &Node) -> Value {
    let rejects: Vec<Value> = node
        .rejects
        .iter()
        .map(|reject| {
            json!({
                "key": reject.key,
                "mod_revision": reject.mod_revision,
                "reason": reject.reason,
                "served_mod_revision": reject.served_mod_revision,
                "since_unix": reject.since_unix,
                "governs": reject.governs,
            })
        })
        .collect();
    let refused = node.refused.as_ref().map(|refused| {
        json!({
            "why": refused.why,
            "detail": refused.detail,
            "target": version_document(refused.target.as_ref()),
            "held": version_document(refused.held.as_ref()),
            "held_resources": refused.held_resources,
            "removed_resources": refused.removed_resources,
        })
    });
    let labels: serde_json::Map<String, Value> =
        node.labels.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect();
    json!({
        "node_id": node.node_id,
        "instance": node.instance,
        "environment": node.environment,
        "identity": node.identity,
        "labels": labels,
        "build": node.build,
        "peer": node.peer,
        "replica": node.replica,
        "connection": node.connection,
        "state": node.state,
        "reason": node.reason,
        "joined_unix": node.joined_unix,
        "heard_unix": node.heard_unix,
        "applied": version_document(node.applied.as_ref()),
        "durable": version_document(node.durable.as_ref()),
        "in_flight": version_document(node.in_flight.as_ref()),
        "in_flight_reason": node.in_flight_reason,
        "rejects": rejects,
        "rejects_known": node.rejects_known,
        "refused": refused,
        "held_ahead": node.held_ahead,
        "degraded": node.degraded,
        "duplicate": node.duplicate,
    })
}
