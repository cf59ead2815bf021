//! Asks etcd what an inquiry wants to know.

use headwater_model::Generation;

use super::{Answer, Inquiry, Question, Step, digest};
use crate::backend::{ReadError, Reader};

/// Asks etcd until it is clear; `None` when nothing is proven.
pub async fn conduct(mut inquiry: Inquiry, reader: &dyn Reader) -> Option<(Generation, String)> {
    let mut step = inquiry.begin();
    loop {
        match step {
            Step::Ask(question, after) => {
                tokio::time::sleep(after).await;
                step = inquiry.answered(&ask(question, reader).await);
            }
            Step::Open => return None,
            Step::Take(generation, why) => return Some((generation, why)),
        }
    }
}

async fn ask(question: Question, reader: &dyn Reader) -> Answer {
    match question {
        Question::Heads => Answer::Heads(reader.heads().await),
        Question::DigestAt(revision) => match reader.state_at(revision).await {
            Ok(entries) => Answer::Digest(digest(entries)),
            Err(ReadError::Compacted { .. }) => Answer::Compacted,
            Err(ReadError::Future { .. }) => Answer::Future,
            Err(ReadError::Unavailable { .. } | ReadError::Refused(_)) => Answer::Nothing,
        },
    }
}
