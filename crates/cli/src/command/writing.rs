//! `put`, `delete` and `apply`, with the wait that may follow.

use headwater_proto::admin::{
    ApplyRequest, Committed, DeleteRequest, Done, PutRequest, Write, WriteResponse,
};
use serde_json::{Value, json};

use super::Asked;
use super::wait::{self, Question};
use crate::arguments::{AfterWrite, Format, WaitLimits};
use crate::exit::{Error, Exit};
use crate::output::{Answer, note, version, version_document};
use crate::progress;

/// A write that is ready to be sent.
pub(crate) struct Request {
    what: What,
    wait: AfterWrite,
}

enum What {
    Put { key: String, value: Vec<u8>, if_mod_revision: Option<u64> },
    Delete { key: String, if_mod_revision: Option<u64> },
    Apply { writes: Vec<Write>, batches: bool },
}

// === impl Request ===

impl Request {
    pub(crate) const fn put(
        key: String,
        value: Vec<u8>,
        if_mod_revision: Option<u64>,
        wait: AfterWrite,
    ) -> Self {
        Self { what: What::Put { key, value, if_mod_revision }, wait }
    }

    pub(crate) const fn delete(key: String, if_mod_revision: Option<u64>, wait: AfterWrite) -> Self {
        Self { what: What::Delete { key, if_mod_revision }, wait }
    }

    pub(crate) const fn apply(writes: Vec<Write>, batches: bool, wait: AfterWrite) -> Self {
        Self { what: What::Apply { writes, batches }, wait }
    }
}

pub(crate) async fn run(asked: &Asked, request: Request) -> Result<Exit, Error> {
    let Request { what, wait } = request;
    let written = progress::during("writing", send(asked, what)).await?;
    for text in written.notes.iter().chain([&written.held]) {
        note(text);
    }
    let answer = answer(&written);
    if !written.failed.is_empty() {
        answer.print(asked.format)?;
        eprintln!("error: a later batch failed, what is listed is written: {}", written.failed);
        return Ok(Exit::of_reason(&written.failed_reason));
    }
    if !wait.wait {
        answer.print(asked.format)?;
        return Ok(Exit::Done);
    }
    wait_for(asked, &written, answer, wait.limits).await
}

/// Waits for each transaction by its own version and keys, until one is not applied everywhere.
async fn wait_for(
    asked: &Asked,
    written: &WriteResponse,
    mut answer: Answer,
    limits: WaitLimits,
) -> Result<Exit, Error> {
    if asked.format == Format::Table {
        // What was written is worth knowing while one waits.
        std::mem::take(&mut answer).print(asked.format)?;
    }
    let mut questions: Vec<Question> = written.committed.iter().filter_map(question).collect();
    if questions.is_empty() {
        questions.push(wait::newest(asked).await?);
    }
    let mut exit = Exit::Done;
    for question in questions {
        let told = wait::ask(asked, question, limits).await?;
        let waited = wait::answer(&told);
        exit = Exit::of_wait(&told.outcome);
        answer.text = waited.text;
        answer.document["wait"] = waited.document;
        if exit != Exit::Done {
            break;
        }
    }
    answer.print(asked.format)?;
    Ok(exit)
}

async fn send(asked: &Asked, what: What) -> Result<WriteResponse, Error> {
    let mut client = asked.replica.resources();
    let environment = asked.environment.clone();
    let response = match what {
        What::Put { key, value, if_mod_revision } => {
            client.put(PutRequest { environment, key, value, if_mod_revision }).await?
        }
        What::Delete { key, if_mod_revision } => {
            client.delete(DeleteRequest { environment, key, if_mod_revision }).await?
        }
        What::Apply { writes, batches } => {
            client.apply(ApplyRequest { environment, writes, batches }).await?
        }
    };
    Ok(response.into_inner())
}

fn question(committed: &Committed) -> Option<Question> {
    let version = committed.version.clone()?;
    Some(Question { version, keys: committed.keys.iter().map(|key| (key.key.clone(), key.done())).collect() })
}

fn answer(written: &WriteResponse) -> Answer {
    let committed: Vec<Value> = written.committed.iter().map(document).collect();
    let mut text: String = written
        .committed
        .iter()
        .flat_map(|at| at.keys.iter().map(|key| (key, version(at.version.as_ref()))))
        .map(|(key, version)| format!("{} {} at {version}\n", key.key, word(key.done())))
        .collect();
    text.extend(written.unchanged.iter().map(|key| format!("{key} unchanged\n")));
    let document = json!({
        "committed": committed,
        "unchanged": written.unchanged,
        "failed": written.failed,
        "held": written.held,
    });
    Answer { document, text }
}

fn document(at: &Committed) -> Value {
    let keys: Vec<Value> =
        at.keys.iter().map(|key| json!({"key": key.key, "done": word(key.done())})).collect();
    json!({"version": version_document(at.version.as_ref()), "keys": keys})
}

const fn word(done: Done) -> &'static str {
    match done {
        Done::Created => "created",
        Done::Replaced => "replaced",
        Done::Deleted => "deleted",
        Done::Unspecified => "written",
    }
}
