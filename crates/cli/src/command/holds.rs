//! `hold`.

use headwater_proto::admin::{
    Approval, ApproveHoldRequest, Hold, RejectHoldRequest, ShowHoldsRequest, ShowHoldsResponse,
};
use serde_json::{Value, json};

use super::Asked;
use crate::arguments::HoldCommand;
use crate::exit::{Error, Exit};
use crate::output::{Answer, note, table, version, version_document};

pub(crate) async fn run(asked: &Asked, command: HoldCommand) -> Result<Exit, Error> {
    let environment = asked.environment.clone();
    let mut client = asked.replica.holds();
    let answer = match command {
        HoldCommand::Show => {
            let held = client.show(ShowHoldsRequest { environment }).await?.into_inner();
            if held.holds.is_empty() {
                note("nothing is held");
            }
            Answer { document: shown_document(&held), text: shown_text(&held) }
        }
        HoldCommand::Approve { id, valid } => {
            let valid_seconds = valid.map_or(0, |valid| valid.as_secs().max(1));
            let request = ApproveHoldRequest { environment, id: id.clone(), valid_seconds };
            let answer = client.approve(request).await?.into_inner();
            let approval = answer.approval.unwrap_or_default();
            let at = answer.committed.as_ref();
            Answer {
                text: format!("{id} approved at {} (approval {})\n", version(at), approval.id),
                document: json!({
                    "approved": id,
                    "approval": approval_document(&approval),
                    "committed": version_document(at),
                }),
            }
        }
        HoldCommand::Reject { id } => {
            client.reject(RejectHoldRequest { environment, id: id.clone() }).await?;
            Answer { text: format!("{id} rejected: it stays held\n"), document: json!({"rejected": id}) }
        }
    };
    answer.print(asked.format)?;
    Ok(Exit::Done)
}

fn shown_text(held: &ShowHoldsResponse) -> String {
    let mut text = String::new();
    if !held.holds.is_empty() {
        let row = |hold: &Hold| {
            let by = match (hold.at_replica, hold.nodes.len()) {
                (true, 0) => "replica".into(),
                (true, nodes) => format!("replica, {nodes} nodes"),
                (false, nodes) => format!("{nodes} nodes"),
            };
            let rejected = if hold.rejected { " (rejected)" } else { "" };
            vec![
                hold.id.clone(),
                hold.environment.clone(),
                by,
                version(hold.from.as_ref()),
                version(hold.to.as_ref()),
                format!("{}{rejected}", hold.detail),
            ]
        };
        text += &table(&["ID", "ENVIRONMENT", "HELD BY", "FROM", "TO", "WHAT"], held.holds.iter().map(row));
    }
    if !held.approvals.is_empty() {
        let row = |approval: &Approval| {
            let to = approval.to.as_ref().map(|to| format!("{:x}.{}", to.cluster_id, to.generation));
            vec![
                approval.id.clone(),
                approval.environment.clone(),
                version(approval.from.as_ref()),
                to.unwrap_or_default(),
                approval.expires_unix.to_string(),
            ]
        };
        let headings = ["APPROVAL", "ENVIRONMENT", "FROM UP TO", "TO HISTORY", "EXPIRES (UNIX)"];
        text += &table(&headings, held.approvals.iter().map(row));
    }
    text
}

fn shown_document(held: &ShowHoldsResponse) -> Value {
    let holds: Vec<Value> = held
        .holds
        .iter()
        .map(|hold| {
            json!({
                "id": hold.id,
                "environment": hold.environment,
                "at_replica": hold.at_replica,
                "nodes": hold.nodes,
                "from": version_document(hold.from.as_ref()),
                "to": version_document(hold.to.as_ref()),
                "since_unix": hold.since_unix,
                "detail": hold.detail,
                "rejected": hold.rejected,
            })
        })
        .collect();
    let approvals: Vec<Value> = held.approvals.iter().map(approval_document).collect();
    json!({"holds": holds, "approvals": approvals})
}

fn approval_document(approval: &Approval) -> Value {
    json!({
        "id": approval.id,
        "environment": approval.environment,
        "from": version_document(approval.from.as_ref()),
        "to": version_document(approval.to.as_ref()),
        "expires_unix": approval.expires_unix,
    })
}
