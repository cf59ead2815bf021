//! `status`.

use std::collections::BTreeMap;
use std::fmt::Write;

use headwater_proto::admin::{EnvironmentStatus, RejectSummary, StatusRequest, StatusResponse};
use serde_json::{Value, json};

use super::Asked;
use crate::exit::{Error, Exit};
use crate::output::{Answer, span, table, version, version_document};
use crate::progress;

pub(crate) async fn run(asked: &Asked) -> Result<Exit, Error> {
    let mut client = asked.replica.source();
    let mut answer = progress::during("reading", client.status(StatusRequest {})).await?.into_inner();
    if !asked.environment.is_empty() {
        answer.environments.retain(|environment| environment.name == asked.environment);
        if answer.environments.is_empty() {
            return Err(Error::Usage(format!("the replica serves no environment {:?}", asked.environment)));
        }
    }
    let text = text(&answer);
    Answer { document: document(&answer), text }.print(asked.format)?;
    Ok(Exit::Done)
}

fn text(status: &StatusResponse) -> String {
    let up = span(status.now_unix.saturating_sub(status.started_unix));
    let mut text = format!("replica {} (headwater {}), up {up}\n", status.replica, status.build);
    if !status.peers.is_empty() {
        let _ = writeln!(text, "peers   {}", status.peers.join(", "));
    }
    for environment in &status.environments {
        text += &environment_text(environment, status.now_unix);
    }
    text
}

fn environment_text(environment: &EnvironmentStatus, now: u64) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        if !value.is_empty() {
            let _ = writeln!(text, "  {name:<10}{value}");
        }
    };
    let source = environment.source.clone().unwrap_or_default();
    let proof = source.proof_age_ms.map_or_else(
        || "never proven alive".into(),
        |age| format!("proven alive {}.{} s ago", age / 1000, age % 1000 / 100),
    );
    let release = if source.server_version.is_empty() {
        String::new()
    } else {
        format!(" ({})", source.server_version)
    };
    line("source", format!("{} {}{release}, {proof}", source.stage, source.member));
    line("note", source.note);
    let digest = environment.version.as_ref().map(|version| version.digest.as_str()).unwrap_or_default();
    let digest = if digest.is_empty() { String::new() } else { format!("  digest {digest}") };
    let loaded = if environment.complete { "" } else { "  NOT LOADED YET" };
    line("version", format!("{}{digest}{loaded}", version(environment.version.as_ref())));
    line("serving", version(environment.serving.as_ref()));
    let kinds: BTreeMap<&String, &u64> = environment.kinds.iter().collect();
    let kinds: Vec<String> = kinds.into_iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    let list = if kinds.is_empty() { String::new() } else { format!(": {}", kinds.join(", ")) };
    line("resources", format!("{} ({} bytes){list}", environment.resources, environment.value_bytes));
    line(
        "nodes",
        format!(
            "{} live, {} of them current, {} lost",
            environment.nodes_live, environment.nodes_current, environment.nodes_lost
        ),
    );
    line("HELD", environment.held.clone());
    line("DEGRADED", environment.degraded.clone());
    if !environment.rejects.is_empty() {
        let row = |reject: &RejectSummary| {
            vec![
                reject.key.clone(),
                reject.nodes.to_string(),
                reject.retained.to_string(),
                span(now.saturating_sub(reject.since_unix)),
                reject.reason.clone(),
            ]
        };
        text += &table(
            &["REJECTED KEY", "NODES", "SERVE AN OLDER ONE", "FOR", "REASON"],
            environment.rejects.iter().map(row),
        );
    }
    format!("\nenvironment {} ({})\n{text}", environment.name, environment.prefix)
}

fn document(status: &StatusResponse) -> Value {
    let environments: Vec<Value> = status.environments.iter().map(environment_document).collect();
    json!({
        "replica": status.replica,
        "build": status.build,
        "started_unix": status.started_unix,
        "now_unix": status.now_unix,
        "peers": status.peers,
        "environments": environments,
    })
}

fn environment_document(environment: &EnvironmentStatus) -> Value {
    let source = environment.source.clone().unwrap_or_default();
    let kinds: BTreeMap<&String, &u64> = environment.kinds.iter().collect();
    let ignored: BTreeMap<&String, &u64> = environment.ignored.iter().collect();
    let rejects: Vec<Value> = environment
        .rejects
        .iter()
        .map(|reject| {
            json!({
                "key": reject.key,
                "reason": reject.reason,
                "mod_revision": reject.mod_revision,
                "nodes": reject.nodes,
                "retained": reject.retained,
                "since_unix": reject.since_unix,
            })
        })
        .collect();
    json!({
        "name": environment.name,
        "prefix": environment.prefix,
        "complete": environment.complete,
        "version": version_document(environment.version.as_ref()),
        "serving": version_document(environment.serving.as_ref()),
        "source": {
            "stage": source.stage,
            "member": source.member,
            "server_version": source.server_version,
            "note": source.note,
            "proof_age_ms": source.proof_age_ms,
        },
        "resources": environment.resources,
        "value_bytes": environment.value_bytes,
        "kinds": kinds,
        "ignored": ignored,
        "deletions_known_since": environment.deletions_known_since,
        "unproven_at": environment.unproven_at,
        "held": environment.held,
        "degraded": environment.degraded,
        "nodes_live": environment.nodes_live,
        "nodes_lost": environment.nodes_lost,
        "nodes_current": environment.nodes_current,
        "rejects": rejects,
    })
}
