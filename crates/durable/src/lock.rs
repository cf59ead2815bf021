//! One writer a file: a lock on a file beside it.
//!
//! The lock is not on the data file itself because a rewrite replaces that one. The operating system releases it when
//! its holder ends, however it ends; the file stays, and its presence means nothing.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Held for as long as it lives.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

// === impl Lock ===

impl Lock {
    /// The lock's file of a data file: `<path>.lock`.
    #[must_use]
    pub fn path_of(path: &Path) -> PathBuf {
        beside(path, "lock")
    }

    /// Takes the lock of `path`, or answers `None` at once when somebody holds it.
    ///
    /// # Errors
    /// When the lock's file cannot be made or opened.
    pub fn take(path: &Path) -> io::Result<Option<Self>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(Self::path_of(path))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

/// `<path>.<suffix>`.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    name.into()
}
