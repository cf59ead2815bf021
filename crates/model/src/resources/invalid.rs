//! Why a value cannot be used, in one sentence.

use std::fmt;

/// The field and the problem repeat what somebody wrote, so each is cut to this many characters.
const LONGEST: usize = 400;

/// The field that is wrong or cannot be honoured, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// The field as a dotted path, array items by index (`upstream.nodes.0.weight`); empty for the value as a whole.
    pub field: String,
    /// What is wrong and the cure, as the rest of a sentence that begins with the field.
    pub problem: String,
}

// === impl Invalid ===

impl Invalid {
    pub(super) fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: one_line(field.into()), problem: one_line(problem.into()) }
    }

    /// A field of the schema that nodes cannot honour yet.
    pub(super) fn not_yet(field: impl Into<String>, why: &str, cure: &str) -> Self {
        Self::new(field, format!("cannot be honoured yet: {why}; {cure}"))
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.field.is_empty() {
            write!(f, "the value {}", self.problem)
        } else {
            write!(f, "field `{}` {}", self.field, self.problem)
        }
    }
}

impl std::error::Error for Invalid {}

/// The text on one line and of bounded length, whatever was written into it.
fn one_line(text: String) -> String {
    if text.len() <= LONGEST && !text.contains(char::is_control) {
        return text;
    }
    let line = |character: char| if character.is_control() { ' ' } else { character };
    let mut cut: String = text.chars().take(LONGEST).map(line).collect();
    if text.chars().nth(LONGEST).is_some() {
        cut.push('…');
    }
    cut
}
