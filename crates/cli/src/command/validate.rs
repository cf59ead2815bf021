//! `validate`.

use headwater_proto::admin::{ValidateRequest, Write};
use serde_json::{Value, json};

use super::Asked;
use crate::exit::{Error, Exit};
use crate::output::{Answer, version, version_document};
use crate::progress;

pub(crate) async fn run(asked: &Asked, writes: Vec<Write>, stored: bool) -> Result<Exit, Error> {
    let request = ValidateRequest { environment: asked.environment.clone(), writes, stored };
    let mut client = asked.replica.resources();
    let answer = progress::during("validating", client.validate(request)).await?.into_inner();
    let faults: Vec<Value> = answer
        .faults
        .iter()
        .map(|fault| json!({"key": fault.key, "field": fault.field, "message": fault.message}))
        .collect();
    let mut text: String = answer.faults.iter().map(|fault| format!("{}\n", fault.message)).collect();
    let (count, checked) = (answer.faults.len(), answer.checked);
    text += &match count {
        0 => format!("{checked} checked, all is well (at {})\n", version(answer.version.as_ref())),
        1 => format!("{checked} checked, 1 fault (at {})\n", version(answer.version.as_ref())),
        _ => format!("{checked} checked, {count} faults (at {})\n", version(answer.version.as_ref())),
    };
    let document =
        json!({"checked": checked, "faults": faults, "version": version_document(answer.version.as_ref())});
    Answer { document, text }.print(asked.format)?;
    Ok(if count == 0 { Exit::Done } else { Exit::Failed })
}
