//! A value kept in a log as the fold of its groups.
//!
//! The keeper remembers the value as it is in the file and writes only what leads from there to the value to be kept.
//! So whatever could not be written (a full disk), or was written by somebody else (before this process took the file
//! over), the next save brings the file to the right value: a group is never missing a base.
//!
//! A save costs the disk the size of the difference; when garbage outgrows the live size by [`MIN_GARBAGE`], the file
//! is rewritten. It is rewritten at its opening too when it is not under the first of the keys, so that after one start
//! with a new key the older one can be taken away.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::{Disk, SystemDisk};
use crate::error::{Error, Fault};
use crate::frame::Format;
use crate::lock::Lock;
use crate::log::{GroupWriter, Judgement, Log};
use crate::seal::Keys;

/// A file is not rewritten for less garbage than this, in bytes.
pub const MIN_GARBAGE: u64 = 4 << 20;

/// A value that can be kept. Law: applying what `write_full` wrote to any value gives `self`, and applying to `a` what
/// `a.write_difference(b)` wrote gives `b`.
pub trait Fold: Clone {
    /// Writes the whole value, with whatever says whose it is.
    ///
    /// # Errors
    /// Those of the group.
    fn write_full(&self, group: &mut GroupWriter<'_>) -> Result<(), Error>;

    /// Writes what leads from this value to another; no record when they are equal.
    ///
    /// # Errors
    /// Those of the group.
    fn write_difference(&self, to: &Self, group: &mut GroupWriter<'_>) -> Result<(), Error>;

    /// Applies a group. What it leaves behind when it refuses is thrown away.
    ///
    /// # Errors
    /// When the group leads to nothing valid, or is somebody else's.
    fn apply(&mut self, records: &[Vec<u8>]) -> Result<(), Refused>;

    /// About how many bytes `write_full` would write.
    fn live_bytes(&self) -> u64;
}

/// Why a group whose checksums hold does not count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It does not lead to what it says; it and what follows is cut off.
    Invalid(String),
    /// The file is somebody else's and is set aside; the first word goes into its name.
    Foreign(&'static str, String),
}

/// Keeps a value in a file.
#[derive(Debug)]
pub struct Kept<S> {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    format: Format,
    keys: Keys,
    log: Option<Log>,
    empty: S,
    written: S,
    rewritten_bytes: u64,
}

// === impl Kept ===

impl<S: Fold> Kept<S> {
    /// Opens a file; without any whole group in it the value is `empty`.
    ///
    /// # Errors
    /// When the file cannot be read for a fault of the device.
    pub fn open(path: &Path, format: Format, keys: &Keys, empty: S) -> Result<(Self, Vec<Fault>), Error> {
        Self::open_on(Arc::new(SystemDisk), path, format, keys, empty)
    }

    /// [`Kept::open`] with a disk of the caller's choice.
    ///
    /// # Errors
    /// As [`Kept::open`].
    pub fn open_on(
        disk: Arc<dyn Disk>,
        path: &Path,
        format: Format,
        keys: &Keys,
        empty: S,
    ) -> Result<(Self, Vec<Fault>), Error> {
        let mut written = empty.clone();
        let visit = &mut |records: &[Vec<u8>]| judge(&mut written, records);
        let opened = Log::open_on(disk.clone(), path, format, keys, visit)?;
        let (path, keys, log) = (path.to_owned(), keys.clone(), opened.log);
        let mut kept = Self { disk, path, format, keys, log, empty, written, rewritten_bytes: 0 };
        let mut faults = opened.faults;
        faults.extend(kept.update());
        Ok((kept, faults))
    }

    /// The value as it is in the file: of the last save that succeeded.
    #[must_use]
    pub const fn written(&self) -> &S {
        &self.written
    }

    /// Whether this process may write the file.
    #[must_use]
    pub const fn is_writer(&self) -> bool {
        self.log.is_some()
    }

    /// The size of the file in bytes; nothing for a reader.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        self.log.as_ref().map(Log::bytes)
    }

    /// Becomes the writer if the lock is free now, and says what was found in the file, which the process that held
    /// it has written meanwhile. `None` when nothing changed.
    ///
    /// # Errors
    /// When the lock's file cannot be opened or the file not be read.
    pub fn take_over(&mut self) -> Result<Option<Vec<Fault>>, Error> {
        if self.is_writer() {
            return Ok(None);
        }
        let lock = Lock::take(&self.path).map_err(Error::io("lock", &self.path))?;
        let Some(lock) = lock else { return Ok(None) };
        let mut written = self.empty.clone();
        let visit = &mut |records: &[Vec<u8>]| judge(&mut written, records);
        let opened = Log::open_locked(self.disk.clone(), &self.path, self.format, &self.keys, lock, visit)?;
        self.log = opened.log;
        self.written = written;
        let mut faults = opened.faults;
        faults.extend(self.update());
        Ok(Some(faults))
    }

    /// Brings the file to a value. It survives a power cut after the next [`Kept::sync`].
    ///
    /// # Errors
    /// When it cannot be written; the file is as before, and the next save makes up for it.
    pub fn save(&mut self, to: &S) -> Result<(), Error> {
        let Some(log) = &mut self.log else {
            return Err(Error::ReadOnly { path: self.path.clone() });
        };
        let garbage_allowed = self.rewritten_bytes.max(2 * to.live_bytes()) + MIN_GARBAGE;
        if log.is_empty() || log.is_suspect() || log.is_outdated() {
            log.rewrite(|group| to.write_full(group))?;
            self.rewritten_bytes = log.bytes();
        } else if log.bytes() > garbage_allowed {
            let rewritten = log.rewrite(|group| to.write_full(group));
            if let Err(error) = rewritten {
                // Nothing is lost: the old file goes on. Not tried again until it has grown further.
                tracing::warn!(path = %self.path.display(), %error, "garbage stays: the file cannot be rewritten");
                log.append(|group| self.written.write_difference(to, group))?;
            }
            self.rewritten_bytes = log.bytes();
        } else {
            log.append(|group| self.written.write_difference(to, group))?;
        }
        self.written = to.clone();
        Ok(())
    }

    /// Brings what was saved to the disk.
    ///
    /// # Errors
    /// When the operating system refuses; the next save rewrites the file.
    pub fn sync(&mut self) -> Result<(), Error> {
        match &mut self.log {
            Some(log) => log.sync(),
            None => Err(Error::ReadOnly { path: self.path.clone() }),
        }
    }

    /// Brings a file that was just opened under the first key. What fails here is tried again at each save.
    fn update(&mut self) -> Option<Fault> {
        let log = self.log.as_mut().filter(|log| log.is_outdated())?;
        let path = self.path.clone();
        match log.rewrite(|group| self.written.write_full(group)) {
            Ok(()) => {
                self.rewritten_bytes = log.bytes();
                tracing::info!(path = %path.display(), key = ?self.keys.first(), "rewritten under the first key");
                None
            }
            Err(error) => Some(Fault::Outdated { path, why: error.to_string() }),
        }
    }
}

fn judge<S: Fold>(value: &mut S, records: &[Vec<u8>]) -> Judgement {
    let mut next = value.clone();
    match next.apply(records) {
        Ok(()) => {
            *value = next;
            Judgement::Take
        }
        Err(Refused::Invalid(why)) => Judgement::Refuse(why),
        Err(Refused::Foreign(reason, why)) => Judgement::SetAside { reason, why },
    }
}

#[cfg(test)]
mod tests;
