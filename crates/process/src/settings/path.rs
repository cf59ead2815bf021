//! The way to one value in a settings tree.

use std::fmt;

/// One step into a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Into a section.
    Key(String),
    /// Into a list, from 0.
    Index(usize),
}

/// Steps from the root.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct KeyPath(pub(super) Vec<Step>);

// === impl KeyPath ===

impl KeyPath {
    /// From parts as a person writes them; a number may turn out to be an index.
    pub(super) fn from_parts<'a>(parts: impl Iterator<Item = &'a str>) -> Self {
        Self(parts.map(|part| Step::Key(part.to_owned())).collect())
    }

    /// The same with one step more.
    pub(super) fn join(&self, step: Step) -> Self {
        let mut steps = self.0.clone();
        steps.push(step);
        Self(steps)
    }

    /// Whether this is `other` or leads into it. `[0]` and a key `0` are the same here: assignments write both so.
    pub(super) fn leads_to(&self, other: &Self) -> bool {
        self.0.len() <= other.0.len() && self.0.iter().zip(&other.0).all(|(own, theirs)| own.same(theirs))
    }
}

impl From<&serde_path_to_error::Path> for KeyPath {
    fn from(path: &serde_path_to_error::Path) -> Self {
        use serde_path_to_error::Segment;
        let steps = path.iter().map_while(|segment| match segment {
            Segment::Seq { index } => Some(Step::Index(*index)),
            Segment::Map { key } | Segment::Enum { variant: key } => Some(Step::Key(key.clone())),
            Segment::Unknown => None,
        });
        Self(steps.collect())
    }
}

impl From<&serde_ignored::Path<'_>> for KeyPath {
    fn from(path: &serde_ignored::Path<'_>) -> Self {
        use serde_ignored::Path;
        match path {
            Path::Root => Self::default(),
            Path::Seq { parent, index } => Self::from(*parent).join(Step::Index(*index)),
            Path::Map { parent, key } => Self::from(*parent).join(Step::Key(key.clone())),
            Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => {
                Self::from(*parent)
            }
        }
    }
}

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, step) in self.0.iter().enumerate() {
            match step {
                Step::Key(key) if position == 0 => f.write_str(key)?,
                Step::Key(key) => write!(f, ".{key}")?,
                Step::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

// === impl Step ===

impl Step {
    fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Key(key), Self::Index(index)) | (Self::Index(index), Self::Key(key)) => {
                key.parse() == Ok(*index)
            }
            (own, theirs) => own == theirs,
        }
    }
}
