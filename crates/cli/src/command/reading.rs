//! `get` and `list`.

use headwater_proto::admin::{GetRequest, ListRequest, Resource};
use serde_json::{Value, json};

use super::Asked;
use crate::exit::{Error, Exit};
use crate::output::{Answer, note, table};
use crate::progress;

pub(crate) async fn get(asked: &Asked, key: String) -> Result<Exit, Error> {
    let request = GetRequest { environment: asked.environment.clone(), key };
    let mut resources = asked.replica.resources();
    let answer = progress::during("reading", resources.get(request)).await?.into_inner();
    note(&answer.stale);
    note(&answer.held);
    let resource = answer.resource.ok_or_else(|| Error::Answer("it holds no resource".into()))?;
    let shown = document(&resource);
    let text = format!(
        "{} (created at {}, mod revision {})\n{:#}\n",
        resource.key, resource.create_revision, resource.mod_revision, shown["value"]
    );
    Answer { document: shown, text }.print(asked.format)?;
    Ok(Exit::Done)
}

pub(crate) async fn list(asked: &Asked, kind: String) -> Result<Exit, Error> {
    let resources = progress::during("reading", pages(asked, kind)).await?;
    let documents: Vec<Value> = resources.iter().map(document).collect();
    let rows = resources.iter().zip(&documents).map(|(resource, document)| {
        vec![resource.key.clone(), resource.mod_revision.to_string(), about(&document["value"])]
    });
    let text =
        if resources.is_empty() { String::new() } else { table(&["KEY", "MOD REVISION", "ABOUT"], rows) };
    if resources.is_empty() {
        note("nothing is stored here");
    }
    Answer { document: Value::Array(documents), text }.print(asked.format)?;
    Ok(Exit::Done)
}

async fn pages(asked: &Asked, kind: String) -> Result<Vec<Resource>, Error> {
    let mut client = asked.replica.resources();
    let mut all = Vec::new();
    let mut after = String::new();
    loop {
        let request =
            ListRequest { environment: asked.environment.clone(), kind: kind.clone(), after, limit: 0 };
        let answer = client.list(request).await?.into_inner();
        if all.is_empty() {
            note(&answer.stale);
            note(&answer.held);
        }
        all.extend(answer.resources);
        after = answer.next;
        if after.is_empty() {
            return Ok(all);
        }
    }
}

/// As `apply` takes it.
fn document(resource: &Resource) -> Value {
    // A value may be what somebody else stored: shown as text when it is no JSON.
    let value: Value = serde_json::from_slice(&resource.value)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&resource.value).into_owned()));
    let mut document = json!({
        "key": resource.key,
        "value": value,
        "create_revision": resource.create_revision,
        "mod_revision": resource.mod_revision,
    });
    if resource.redacted {
        document["redacted"] = true.into();
    }
    document
}

/// What a person looks for in a list: the name, and where it listens or leads.
fn about(value: &Value) -> String {
    let named = ["name", "desc", "host", "hosts", "uri", "uris", "snis", "sni", "upstream_id", "service_id"];
    let parts = named.iter().filter_map(|field| {
        let shown = match value.get(*field)? {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        Some(format!("{field}={shown}"))
    });
    let text = parts.collect::<Vec<_>>().join(" ");
    if text.chars().count() > 80 { text.chars().take(79).chain(['…']).collect() } else { text }
}
