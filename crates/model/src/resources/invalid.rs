//! Why a value cannot be used, in one sentence.

use std::fmt;

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
        Self { field: field.into(), problem: problem.into() }
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
