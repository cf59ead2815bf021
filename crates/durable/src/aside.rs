//! Setting aside: what cannot be used is given a name that says why, and never overwrites anything.
//!
//! Names are `<file>.<reason>-<n>`. At most [`MAX_ASIDE`] exist per file and reason, so that a failing disk does not
//! fill itself with evidence; beyond that nothing more is kept.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::lock::beside;

/// How many files are set aside for one reason before evidence is no longer kept.
pub const MAX_ASIDE: u32 = 16;

/// Moves a whole file (or whatever has its name) aside.
///
/// # Errors
/// When it cannot be moved, or all names are taken.
pub fn move_whole(path: &Path, reason: &str) -> io::Result<PathBuf> {
    for to in names(path, reason) {
        // A link fails when the name is taken, a rename would overwrite; what cannot be linked (a directory, or a
        // file system without links) is renamed, after a look.
        match fs::hard_link(path, &to) {
            Ok(()) => return fs::remove_file(path).map(|()| to),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(_) if to.symlink_metadata().is_ok() => {}
            Err(_) => return fs::rename(path, &to).map(|()| to),
        }
    }
    Err(io::Error::new(io::ErrorKind::AlreadyExists, "too many files were set aside before"))
}

/// Copies what follows `offset` aside.
///
/// # Errors
/// When it cannot be read or written, or all names are taken. Nothing half-written is left.
pub fn copy_tail(path: &Path, offset: u64, reason: &str) -> io::Result<PathBuf> {
    let mut from = File::open(path)?;
    from.seek(SeekFrom::Start(offset))?;
    for to in names(path, reason) {
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&to) {
            Ok(mut file) => {
                return match io::copy(&mut from.by_ref(), &mut file).and_then(|_| file.sync_all()) {
                    Ok(()) => Ok(to),
                    Err(error) => fs::remove_file(&to).and(Err(error)),
                };
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::new(io::ErrorKind::AlreadyExists, "too many files were set aside before"))
}

fn names(path: &Path, reason: &str) -> impl Iterator<Item = PathBuf> {
    let name = move |n| beside(path, &format!("{reason}-{n}"));
    (1..=MAX_ASIDE).map(name)
}
