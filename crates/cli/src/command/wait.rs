//! `wait`, and waiting after a write.

use std::time::Duration;

use headwater_proto::admin::{Done, StatusRequest, Version, WaitAnswer, WaitKey, WaitNode, WaitRequest};
use serde_json::{Value, json};

use super::Asked;
use crate::arguments::WaitLimits;
use crate::exit::{Error, Exit};
use crate::output::{Answer, note, table, version, version_document};
use crate::progress::Progress;

/// A wait that changes nothing is shown all the same, once it has lasted long enough.
const SAID_AGAIN: Duration = Duration::from_millis(500);

/// What is waited for.
pub(crate) struct Question {
    pub(crate) version: Version,
    pub(crate) keys: Vec<(String, Done)>,
}

pub(crate) async fn run(
    asked: &Asked,
    version: Option<String>,
    puts: Vec<String>,
    deletes: Vec<String>,
    limits: WaitLimits,
) -> Result<Exit, Error> {
    let mut question = match version {
        Some(text) => Question { version: parse(&text)?, keys: vec![] },
        None => newest(asked).await?,
    };
    let puts = puts.into_iter().map(|key| (key, Done::Replaced));
    question.keys.extend(puts.chain(deletes.into_iter().map(|key| (key, Done::Deleted))));
    let told = ask(asked, question, limits).await?;
    answer(&told).print(asked.format)?;
    Ok(Exit::of_wait(&told.outcome))
}

/// What the replica holds now.
pub(crate) async fn newest(asked: &Asked) -> Result<Question, Error> {
    let status = asked.replica.source().status(StatusRequest {}).await?.into_inner();
    let only = status.environments.len() == 1 && asked.environment.is_empty();
    let found = status.environments.into_iter().find(|it| only || it.name == asked.environment);
    let version = found.and_then(|environment| environment.version).ok_or_else(|| {
        Error::Usage(
            "which environment is not said, or the replica does not serve it: give --environment".into(),
        )
    })?;
    Ok(Question { version, keys: vec![] })
}

/// Waits, showing how it stands, for the last answer.
pub(crate) async fn ask(asked: &Asked, question: Question, limits: WaitLimits) -> Result<WaitAnswer, Error> {
    let request = WaitRequest {
        environment: asked.environment.clone(),
        version: Some(question.version),
        keys: question.keys.into_iter().map(|(key, done)| WaitKey { key, done: done.into() }).collect(),
        durable: limits.durable,
        timeout_ms: u64::try_from(limits.timeout.as_millis()).unwrap_or(u64::MAX).max(1),
    };
    let mut answers = asked.replica.fleet().wait(request).await?.into_inner();
    let mut progress = Progress::new();
    let mut sentence = String::from("waiting");
    loop {
        let told = tokio::select! {
            told = answers.message() => told?,
            () = tokio::time::sleep(SAID_AGAIN) => {
                progress.say(&sentence);
                continue;
            }
        };
        match told {
            Some(told) if told.r#final => {
                drop(progress);
                told.notes.iter().for_each(|text| note(text));
                return Ok(told);
            }
            Some(told) => sentence = told.sentence,
            None => break,
        }
        progress.say(&sentence);
    }
    Err(Error::Answer("the replica ended the wait without a last answer: it is shutting down".into()))
}

/// `generation.revision`.
fn parse(text: &str) -> Result<Version, Error> {
    let parts = text
        .split_once('.')
        .and_then(|(generation, revision)| Some((generation.parse().ok()?, revision.parse().ok()?)));
    let (generation, revision) = parts.ok_or_else(|| {
        Error::Usage(format!(
            "{text:?} is no version: write generation.revision, as writes print it, such as 0.1234"
        ))
    })?;
    Ok(Version { cluster_id: 0, prefix: String::new(), generation, revision, digest: String::new() })
}

/// The last answer, to be printed.
pub(crate) fn answer(told: &WaitAnswer) -> Answer {
    let nodes: Vec<Value> = told
        .nodes
        .iter()
        .map(|node| {
            json!({
                "node_id": node.node_id,
                "instance": node.instance,
                "duplicate": node.duplicate,
                "standing": node.standing,
                "key": node.key,
                "reason": node.reason,
                "applied": version_document(node.applied.as_ref()),
            })
        })
        .collect();
    let document = json!({
        "outcome": told.outcome,
        "sentence": told.sentence,
        "expected": told.expected,
        "applied": told.applied,
        "nodes": nodes,
        "notes": told.notes,
        "replicas": told.replicas,
    });
    let open: Vec<&WaitNode> = told.nodes.iter().filter(|node| node.standing != "applied").collect();
    let mut text = format!("{}\n", told.sentence);
    if !open.is_empty() {
        let row = |node: &&WaitNode| {
            let why = format!("{} {}", node.key, node.reason);
            vec![
                node.node_id.clone(),
                node.instance.clone(),
                node.standing.clone(),
                version(node.applied.as_ref()),
                why.trim().to_owned(),
            ]
        };
        text += &table(&["NODE", "INSTANCE", "STANDING", "APPLIED", "WHY"], open.iter().map(row));
    }
    Answer { document, text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_generation_and_revision() {
        let version = parse("2.1234").unwrap();
        assert_eq!((version.generation, version.revision), (2, 1234));
        for wrong in ["1234", "a.b", "1.", ""] {
            assert_eq!(parse(wrong).unwrap_err().exit(), Exit::Usage, "{wrong}");
        }
    }
}
