//! What can go wrong, and what was found wrong and dealt with.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::scan::Cut;

/// An operation failed. The log stays usable: what was committed before is still there.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused; a full disk comes here too (see [`Error::is_full`]).
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// A verb phrase: `append to`.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// A record is empty or above [`frame::MAX_RECORD`](crate::frame::MAX_RECORD).
    #[error("a record of {bytes} bytes is outside of 1 to {max} bytes")]
    RecordSize {
        /// The size of the refused record.
        bytes: usize,
        /// The largest allowed one.
        max: usize,
    },
    /// A sync failed before, so the operating system may have dropped pages of this file. Only
    /// [`Log::rewrite`](crate::Log::rewrite), which writes a new file, makes it trusted again.
    #[error("{path} is not trusted since a sync failed: it must be rewritten")]
    Suspect {
        /// The file.
        path: PathBuf,
    },
    /// The file is not under the first of the keys, so that nothing may be added to it. Only
    /// [`Log::rewrite`](crate::Log::rewrite) brings it under that key.
    #[error("{path} is not under the first key: it must be rewritten")]
    Outdated {
        /// The file.
        path: PathBuf,
    },
    /// Another process holds the lock: this one only reads.
    #[error("{path} belongs to another process: its lock is held")]
    ReadOnly {
        /// The file.
        path: PathBuf,
    },
}

/// Something was wrong with a file at its opening and was dealt with; what is left is usable.
#[derive(Debug)]
pub enum Fault {
    /// The file was of no use and was moved to another name, whole.
    SetAside {
        /// Where it was.
        path: PathBuf,
        /// Where it is now; nothing when it could not be moved or this process may not move it.
        to: Option<PathBuf>,
        /// Why, in words.
        why: String,
    },
    /// The end of the file was cut off after its last whole group.
    Cut {
        /// The file.
        path: PathBuf,
        /// What was cut and why.
        cut: Cut,
        /// Where the bytes that were cut are kept; nothing for a write that was merely not finished.
        kept: Option<PathBuf>,
    },
    /// The file is opened for reading only.
    ReadOnly {
        /// The file.
        path: PathBuf,
        /// Why it cannot be written.
        why: String,
    },
    /// The file is not under the first of the keys, and could not be rewritten under it now.
    Outdated {
        /// The file.
        path: PathBuf,
        /// Why it could not be rewritten.
        why: String,
    },
    /// The file was of no use, and the one from before its last rewrite took its place.
    Previous {
        /// The file.
        path: PathBuf,
    },
}

// === impl Error ===

impl Error {
    /// Whether the disk, or this user's share of it, is full.
    #[must_use]
    pub fn is_full(&self) -> bool {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        match self {
            Self::Io { source, .. } => matches!(source.kind(), StorageFull | QuotaExceeded | FileTooLarge),
            _ => false,
        }
    }

    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_owned(), source }
    }
}

// === impl Fault ===

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SetAside { path, to: Some(to), why } => {
                write!(f, "{} is of no use ({why}) and is now {}", path.display(), to.display())
            }
            Self::SetAside { path, to: None, why } => {
                write!(f, "{} is of no use ({why}) and stays where it is", path.display())
            }
            Self::Cut { path, cut, kept } => {
                write!(f, "the last {} bytes of {} are of no use ({})", cut.bytes, path.display(), cut.why)?;
                match kept {
                    Some(kept) => write!(f, "; they are kept as {}", kept.display()),
                    None => Ok(()),
                }
            }
            Self::ReadOnly { path, why } => write!(f, "{} is only read: {why}", path.display()),
            Self::Outdated { path, why } => {
                let path = path.display();
                write!(f, "{path} is not under the first key yet ({why}): keep the older keys until it is")
            }
            Self::Previous { path } => {
                write!(f, "{} was replaced by the file from before its last rewrite", path.display())
            }
        }
    }
}
