//! Where bytes are written: the operating system, or a test's disk that fails when told to.
//!
//! Only writing goes through here. Reading, renaming and locking are the operating system's.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Opens files for writing.
pub trait Disk: Send + Sync + std::fmt::Debug {
    /// Makes an empty file of mode 0600, over an older one if there is one.
    ///
    /// # Errors
    /// When the operating system refuses.
    fn create(&self, path: &Path) -> io::Result<Box<dyn Medium>>;

    /// Opens a file that exists and makes its mode 0600.
    ///
    /// # Errors
    /// When the operating system refuses.
    fn open(&self, path: &Path) -> io::Result<Box<dyn Medium>>;
}

/// A file that is open for writing.
pub trait Medium: Send + std::fmt::Debug {
    /// Writes all bytes at an offset.
    ///
    /// # Errors
    /// When the operating system refuses; any part of the bytes may have been written.
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Cuts the file off.
    ///
    /// # Errors
    /// When the operating system refuses.
    fn truncate(&mut self, bytes: u64) -> io::Result<()>;

    /// Brings data and size to the disk (`fdatasync`).
    ///
    /// # Errors
    /// When the operating system refuses. What was written since the last success may be lost, and asking again
    /// proves nothing.
    fn sync(&mut self) -> io::Result<()>;
}

/// The operating system's files.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemDisk;

// === impl SystemDisk ===

impl Disk for SystemDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn Medium>> {
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        private(&file)?;
        Ok(Box::new(file))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Medium>> {
        let file = OpenOptions::new().write(true).open(path)?;
        private(&file)?;
        Ok(Box::new(file))
    }
}

// === impl Medium for File ===

impl Medium for File {
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn truncate(&mut self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}

/// Takes a looser mode away, whoever gave it.
fn private(file: &File) -> io::Result<()> {
    let mode = file.metadata()?.permissions().mode() & 0o777;
    if mode == 0o600 { Ok(()) } else { file.set_permissions(PermissionsExt::from_mode(0o600)) }
}

#[cfg(test)]
pub(crate) mod tests;
