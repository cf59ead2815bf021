//! Opening: replay up to the last whole group, and what becomes of the rest.

use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::sync::Arc;

use crate::aside;
use crate::disk::Disk;
use crate::error::{Error, Fault};
use crate::frame::{Format, WrongHeader};
use crate::lock::{Lock, beside};
use crate::log::{Judgement, Log, Opened, Writing};
use crate::scan::{Cut, CutReason, Next, Place, Scanner};
use crate::seal::{FileSeal, Keys};

/// Larger than most records, so that replay reads in few calls.
const READ_BYTES: usize = 256 << 10;

/// What a file holds.
enum Scan {
    /// There is none, or one that never held a group.
    Nothing,
    /// It is of no use: one word, and the reason.
    Useless(&'static str, String),
    /// It holds whole groups up to `end`.
    Groups { end: Place, cut: Option<Cut>, seal: Option<FileSeal> },
}

/// Called once per process and file, and again when a reader takes the lock over.
pub(super) fn open(
    disk: Arc<dyn Disk>,
    path: &Path,
    format: Format,
    keys: &Keys,
    lock: io::Result<Option<Lock>>,
    visit: &mut dyn FnMut(&[Vec<u8>]) -> Judgement,
) -> Result<Opened, Error> {
    let mut faults = Vec::new();
    let lock = match lock {
        Ok(Some(lock)) => lock,
        other => {
            let why = other.map_or_else(
                |error| format!("its lock cannot be taken: {error}"),
                |_| "another process holds its lock".to_owned(),
            );
            read_only(path, format, keys, visit, &mut faults)?;
            faults.push(Fault::ReadOnly { path: path.to_owned(), why });
            return Ok(Opened { log: None, faults });
        }
    };
    // A rewrite that a crash interrupted: it never had the name, so it never counted.
    let _ = fs::remove_file(beside(path, "new"));
    loop {
        match scan(path, format, keys, visit)? {
            Scan::Nothing => {
                let log = new_log(disk, path, format, keys, lock);
                return Ok(Opened { log: Some(log), faults });
            }
            Scan::Useless(reason, why) => {
                if !set_aside(path, reason, why, &mut faults) {
                    return Ok(Opened { log: None, faults });
                }
                if fs::rename(beside(path, "previous"), path).is_ok() {
                    faults.push(Fault::Previous { path: path.to_owned() });
                }
            }
            Scan::Groups { end, cut, seal } => {
                let medium = match disk.open(path) {
                    Ok(medium) => medium,
                    Err(error) => {
                        faults.push(Fault::ReadOnly { path: path.to_owned(), why: error.to_string() });
                        return Ok(Opened { log: None, faults });
                    }
                };
                let mut file = Writing { medium, seal, end, synced: 0, tail: cut.is_some() };
                cut_off(path, cut, &mut file, &mut faults);
                let log = Log { file: Some(file), ..new_log(disk, path, format, keys, lock) };
                if !log.is_outdated() {
                    retire_previous(path, format, keys);
                }
                return Ok(Opened { log: Some(log), faults });
            }
        }
    }
}

fn new_log(disk: Arc<dyn Disk>, path: &Path, format: Format, keys: &Keys, lock: Lock) -> Log {
    Log { disk, path: path.to_owned(), format, keys: keys.clone(), file: None, suspect: false, _lock: lock }
}

/// Removes the file from before the last rewrite when there are keys and it is not under the first one: while it lay
/// there, plain text would outlive its encryption, and what an older key protects would outlive that key.
pub(super) fn retire_previous(path: &Path, format: Format, keys: &Keys) {
    let previous = beside(path, "previous");
    let Some(first) = keys.first() else { return };
    let is_current = |mut file| matches!(format.read(&mut file), Ok(Ok(header)) if header.key == Some(first));
    if File::open(&previous).is_ok_and(is_current) {
        return;
    }
    match fs::remove_file(&previous) {
        Ok(()) => tracing::info!(path = %previous.display(), "removed: it was not under the first key"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => {
            let path = previous.display();
            tracing::warn!(%path, %error, "not under the first key, and cannot be removed: remove it by hand");
        }
    }
}

fn read_only(
    path: &Path,
    format: Format,
    keys: &Keys,
    visit: &mut dyn FnMut(&[Vec<u8>]) -> Judgement,
    faults: &mut Vec<Fault>,
) -> Result<(), Error> {
    match scan(path, format, keys, visit)? {
        Scan::Useless(_, why) => faults.push(Fault::SetAside { path: path.to_owned(), to: None, why }),
        Scan::Groups { cut: Some(cut), .. } if cut.why.is_damage() => {
            faults.push(Fault::Cut { path: path.to_owned(), cut, kept: None });
        }
        Scan::Nothing | Scan::Groups { .. } => {}
    }
    Ok(())
}

fn set_aside(path: &Path, reason: &str, why: String, faults: &mut Vec<Fault>) -> bool {
    let (to, why) = match aside::move_whole(path, reason) {
        Ok(to) => (Some(to), why),
        Err(error) => (None, format!("{why}; it cannot be moved: {error}")),
    };
    let moved = to.is_some();
    faults.push(Fault::SetAside { path: path.to_owned(), to, why });
    moved
}

fn cut_off(path: &Path, cut: Option<Cut>, file: &mut Writing, faults: &mut Vec<Fault>) {
    let Some(cut) = cut else { return };
    let kept = if cut.why.is_damage() { aside::copy_tail(path, cut.at, "damaged").ok() } else { None };
    faults.push(Fault::Cut { path: path.to_owned(), cut, kept });
    // Tried again before the next append if it fails now.
    let _ = file.cut_tail();
}

fn scan(
    path: &Path,
    format: Format,
    keys: &Keys,
    visit: &mut dyn FnMut(&[Vec<u8>]) -> Judgement,
) -> Result<Scan, Error> {
    let failed = |error| Error::io("read", path)(error);
    let (file, bytes) = match File::open(path).and_then(|file| file.metadata().map(|about| (file, about))) {
        Ok((file, about)) if about.is_file() => (file, about.len()),
        Ok(_) => return Ok(Scan::Useless("foreign", "it is not a file".to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Scan::Nothing),
        Err(error) => return Ok(Scan::Useless("unreadable", error.to_string())),
    };
    let mut reader = BufReader::with_capacity(READ_BYTES, file);
    let header = match format.read(&mut reader).map_err(failed)? {
        Ok(header) => header,
        Err(_) if bytes == 0 => return Ok(Scan::Useless("empty", "it is empty".to_owned())),
        Err(WrongHeader::Damaged) => {
            return Ok(Scan::Useless("damaged", "its header is damaged".to_owned()));
        }
        Err(WrongHeader::Foreign(why)) => return Ok(Scan::Useless("foreign", why)),
        Err(WrongHeader::OtherVersion(why)) => return Ok(Scan::Useless("other-format", why)),
    };
    let seal = match keys.seal_of(&header) {
        Ok(seal) => seal,
        Err(key) => {
            let why = format!(
                "it is encrypted under key {key}, which is not among the keys given: add that key and move the file \
                 back to its name to have it again"
            );
            return Ok(Scan::Useless("other-key", why));
        }
    };
    let start = Place::after(&header);
    groups(Scanner::new(reader, start, bytes, seal.clone()), start, bytes, seal, visit).map_err(failed)
}

fn groups(
    mut scanner: Scanner<impl Read>,
    start: Place,
    bytes: u64,
    seal: Option<FileSeal>,
    visit: &mut dyn FnMut(&[Vec<u8>]) -> Judgement,
) -> io::Result<Scan> {
    let mut end = start;
    let cut = loop {
        let group = match scanner.next()? {
            Next::Group(group) => group,
            Next::End(cut) => break cut,
        };
        match visit(&group.records) {
            Judgement::Take => end = group.end,
            Judgement::SetAside { reason, why } if end == start => return Ok(Scan::Useless(reason, why)),
            Judgement::Refuse(why) | Judgement::SetAside { why, .. } => {
                let rest = bytes.saturating_sub(end.offset);
                break Some(Cut { at: end.offset, bytes: rest, why: CutReason::Refused(why) });
            }
        }
    };
    Ok(match cut {
        // A file gets its name with its first group in it, so this is never a write that was not finished.
        Some(cut) if end == start => Scan::Useless("damaged", cut.why.to_string()),
        None if end == start => Scan::Nothing,
        cut => Scan::Groups { end, cut, seal },
    })
}
