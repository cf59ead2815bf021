//! One file of groups: opened with replay, appended to, synced, rewritten.
//!
//! A `Log` exists only in the process that holds the file's lock. Invariant: the file starts with `end.offset` bytes
//! of whole groups, and what may follow them is cut off before the next group is written.
//!
//! A file appears by rename only, with its first group synced: a crash never leaves half a file behind. The file from
//! before a rewrite is kept beside it as `<file>.previous`, and takes its place when the newer one is of no use.

mod open;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::disk::{Disk, Medium, SystemDisk};
use crate::error::{Error, Fault};
use crate::frame::{Format, Mark, check_size};
use crate::lock::{Lock, beside};
use crate::scan::Place;
use crate::seal::{self, FileSeal, GroupSeal, Keys};

/// How much of a group is collected before it is written.
const WRITE_BYTES: usize = 1 << 20;

/// A file that this process may write.
#[derive(Debug)]
pub struct Log {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    format: Format,
    keys: Keys,
    file: Option<Writing>,
    suspect: bool,
    /// Last, so that the files are closed before the lock is released.
    _lock: Lock,
}

/// What opening a file gives.
#[derive(Debug)]
pub struct Opened {
    /// The log; nothing when the file can only be read, for a reason that is among the faults.
    pub log: Option<Log>,
    /// What was wrong, in the order it was found.
    pub faults: Vec<Fault>,
}

/// What the caller thinks of a group whose checksums hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// It counts.
    Take,
    /// It does not count, nor does anything after it.
    Refuse(String),
    /// The whole file is not the caller's: it is moved to a name with `reason` in it. After a group that was taken
    /// it is the same as `Refuse`.
    SetAside {
        /// One word for the file's name.
        reason: &'static str,
        /// The reason in words.
        why: String,
    },
}

/// Takes the records of one group.
#[derive(Debug)]
pub struct GroupWriter<'a> {
    medium: &'a mut dyn Medium,
    path: &'a Path,
    at: Place,
    flushed: u64,
    buffer: Vec<u8>,
    records: u64,
    file: Option<&'a FileSeal>,
    /// From the first record on, in a sealed file.
    seal: Option<GroupSeal>,
}

#[derive(Debug)]
struct Writing {
    medium: Box<dyn Medium>,
    seal: Option<FileSeal>,
    end: Place,
    synced: u64,
    /// Whether bytes that do not count may follow `end`.
    tail: bool,
}

// === impl Log ===

impl Log {
    /// Opens a file and shows its whole groups, in order, to `visit`.
    ///
    /// Takes the lock if it is free. Only then is anything changed: a file that is of no use is set aside, an end that
    /// is of no use is cut off (and kept beside the file if it tells of damage). Without the lock the file is read as
    /// it is, and a write in progress is not called a fault.
    ///
    /// With keys, what is written is sealed under the first of them; a file under any of them is read, and a plain one
    /// too (see [`Log::is_outdated`]). A file under another key is set aside as `other-key`.
    ///
    /// # Errors
    /// When the file is there and cannot be read for a fault of the device. Everything else is among the faults.
    pub fn open(
        path: &Path,
        format: Format,
        keys: &Keys,
        visit: &mut dyn FnMut(&[Vec<u8>]) -> Judgement,
    ) -> Result<Opened, Error> {
        Self::open_on(Arc::new(SystemDisk), path, format, keys, visit)
    }

    /// [`Log::open`] with a disk of the caller's choice.
    ///
    /// # Errors
    /// As [`Log::open`].
    pub fn open_on(
        disk: Arc<dyn Disk>,
        path: &Path,
        format: Format,
        keys: &Keys,
        visit: &mut dyn FnMut(&[Vec<u8>]) -> Judgement,
    ) -> Result<Opened, Error> {
        if let Some(directory) = path.parent() {
            // A failure shows at the lock, whose file is in the same directory.
            let _ = fs::create_dir_all(directory);
        }
        let lock = Lock::take(path);
        open::open(disk, path, format, keys, lock, visit)
    }

    /// Opens with a lock that was taken before.
    pub(crate) fn open_locked(
        disk: Arc<dyn Disk>,
        path: &Path,
        format: Format,
        keys: &Keys,
        lock: Lock,
        visit: &mut dyn FnMut(&[Vec<u8>]) -> Judgement,
    ) -> Result<Opened, Error> {
        open::open(disk, path, format, keys, Ok(Some(lock)), visit)
    }

    /// Whether no group was written yet.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.file.is_none()
    }

    /// The size of the file's whole groups and its header, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.file.as_ref().map_or(0, |file| file.end.offset)
    }

    /// Whether a sync failed since the file was made; see [`Error::Suspect`].
    #[must_use]
    pub const fn is_suspect(&self) -> bool {
        self.suspect
    }

    /// Whether the file is not under the key that is written with now; see [`Error::Outdated`].
    #[must_use]
    pub fn is_outdated(&self) -> bool {
        self.file.as_ref().is_some_and(|file| file.seal.as_ref().map(FileSeal::key) != self.keys.first())
    }

    /// Appends a group. Nothing is written when `write` gives no record. The first group makes the file, and is
    /// synced; any other is on the disk after the next [`Log::sync`].
    ///
    /// # Errors
    /// When it cannot be written, or `write` fails. Then the group does not count, and the log is as before.
    pub fn append(
        &mut self,
        write: impl FnOnce(&mut GroupWriter<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if self.suspect {
            return Err(Error::Suspect { path: self.path.clone() });
        }
        if self.is_outdated() {
            return Err(Error::Outdated { path: self.path.clone() });
        }
        let Some(file) = &mut self.file else {
            return self.rewrite(write);
        };
        file.cut_tail().map_err(Error::io("cut off the end of", &self.path))?;
        file.tail = true;
        let mut group = GroupWriter::new(&mut *file.medium, &self.path, file.end, file.seal.as_ref());
        match write(&mut group).and_then(|()| group.finish()) {
            Ok(end) => {
                file.end = end;
                file.tail = false;
                Ok(())
            }
            Err(error) => {
                // Space that the half-written group takes is given back at once; if even that fails, later.
                let _ = file.cut_tail();
                Err(error)
            }
        }
    }

    /// Brings everything appended so far to the disk (`fdatasync`). Costs nothing when it is there already.
    ///
    /// # Errors
    /// When the operating system refuses. What was appended since the last success is then in doubt for good, and
    /// only [`Log::rewrite`] makes the log usable again.
    pub fn sync(&mut self) -> Result<(), Error> {
        if self.suspect {
            return Err(Error::Suspect { path: self.path.clone() });
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        if file.synced == file.end.offset {
            return Ok(());
        }
        match file.medium.sync() {
            Ok(()) => {
                file.synced = file.end.offset;
                Ok(())
            }
            Err(error) => {
                self.suspect = true;
                Err(Error::io("sync", &self.path)(error))
            }
        }
    }

    /// Replaces the file by one that holds a single group. The new file is complete and on the disk before it takes
    /// the name; the old one stays as `<file>.previous`, unless it was outdated.
    ///
    /// # Errors
    /// When it cannot be written. Then the old file is in place and in use, as before.
    pub fn rewrite(
        &mut self,
        write: impl FnOnce(&mut GroupWriter<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let new = beside(&self.path, "new");
        let outdated = self.is_outdated();
        let written = self.write_new(&new, write).and_then(|file| {
            if file.is_some() {
                self.keep_previous();
                fs::rename(&new, &self.path).map_err(Error::io("rename a rewritten file to", &self.path))?;
            }
            Ok(file)
        });
        match written {
            Ok(Some(file)) => {
                self.file = Some(file);
                // Without this a power cut may bring the old name's file back, under appends made to the new one.
                let synced = sync_directory(&self.path);
                self.suspect = synced.is_err();
                synced.map_err(Error::io("sync the directory of", &self.path))?;
                if outdated {
                    open::retire_previous(&self.path, self.format, &self.keys);
                }
                Ok(())
            }
            Ok(None) => Ok(()),
            Err(error) => {
                let _ = fs::remove_file(&new);
                Err(error)
            }
        }
    }

    /// Writes a whole new file; nothing when there is no record for it.
    fn write_new(
        &self,
        path: &Path,
        write: impl FnOnce(&mut GroupWriter<'_>) -> Result<(), Error>,
    ) -> Result<Option<Writing>, Error> {
        let mut medium = self.disk.create(path).map_err(Error::io("create", path))?;
        let sealed = match self.keys.first() {
            Some(key) => Some((key, seal::random().map_err(Error::io("seal", path))?)),
            None => None,
        };
        let header = self.format.header(salt(), sealed);
        medium.write_at(&header.bytes, 0).map_err(Error::io("write", path))?;
        let start = Place::after(&header);
        let seal = self.keys.seal_of(&header).expect("its key is the first of these");
        let mut group = GroupWriter::new(&mut *medium, path, start, seal.as_ref());
        write(&mut group)?;
        let end = group.finish()?;
        if end == start {
            let _ = fs::remove_file(path);
            return Ok(None);
        }
        medium.sync().map_err(Error::io("sync", path))?;
        Ok(Some(Writing { medium, seal, end, synced: end.offset, tail: false }))
    }

    fn keep_previous(&self) {
        if self.file.is_none() {
            return;
        }
        let previous = beside(&self.path, "previous");
        let _ = fs::remove_file(&previous);
        if let Err(error) = fs::hard_link(&self.path, &previous) {
            tracing::debug!(path = %previous.display(), %error, "the file from before a rewrite is not kept");
        }
    }
}

// === impl Writing ===

impl Writing {
    fn cut_tail(&mut self) -> io::Result<()> {
        if self.tail {
            self.medium.truncate(self.end.offset)?;
            self.tail = false;
        }
        Ok(())
    }
}

// === impl GroupWriter ===

impl<'a> GroupWriter<'a> {
    fn new(medium: &'a mut dyn Medium, path: &'a Path, start: Place, file: Option<&'a FileSeal>) -> Self {
        let (flushed, buffer) = (start.offset, Vec::new());
        Self { medium, path, at: start, flushed, buffer, records: 0, file, seal: None }
    }

    /// Adds a record of 1 to [`MAX_RECORD`](crate::frame::MAX_RECORD) bytes.
    ///
    /// # Errors
    /// When its size is outside of the bounds, or it cannot be written. Pass the error on: the group cannot count any
    /// more.
    pub fn record(&mut self, payload: &[u8]) -> Result<(), Error> {
        check_size(payload)?;
        if self.records == 0 {
            self.begin()?;
        }
        self.frame(Mark::Record, payload);
        self.records += 1;
        if self.buffer.len() >= WRITE_BYTES { self.flush() } else { Ok(()) }
    }

    fn begin(&mut self) -> Result<(), Error> {
        if let Some(file) = self.file {
            let salt = seal::random().map_err(Error::io("seal", self.path))?;
            self.at.chain = self.at.chain.frame(Mark::Salt, &salt, &mut self.buffer);
            self.seal = Some(file.group(&salt, self.at.before));
        }
        Ok(())
    }

    fn frame(&mut self, mark: Mark, payload: &[u8]) {
        let sealed = self.seal.as_mut().map(|seal| seal.seal(mark, payload));
        self.at.chain = self.at.chain.frame(mark, sealed.as_deref().unwrap_or(payload), &mut self.buffer);
    }

    fn finish(mut self) -> Result<Place, Error> {
        if self.records > 0 {
            self.frame(Mark::Commit, &[]);
            self.at.before = self.seal.as_ref().map_or(self.at.before, GroupSeal::last);
            self.flush()?;
        }
        self.at.offset = self.flushed;
        Ok(self.at)
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.medium.write_at(&self.buffer, self.flushed).map_err(Error::io("append to", self.path))?;
        self.flushed += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    File::open(directory.unwrap_or_else(|| Path::new(".")))?.sync_all()
}

/// Differs from file to file; it need not be unpredictable.
fn salt() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (now.as_nanos() as u64) ^ (u64::from(std::process::id()) << 32)
}

#[cfg(test)]
pub(crate) mod tests;
