//! Reading a file's groups in order, up to the last whole one.

use std::fmt;
use std::io::{self, Read};

use crate::frame::{Chain, FRAME_BYTES, Header, Mark};
use crate::seal::{FileSeal, GroupSeal, TAG_BYTES, Tag};

/// What follows the last whole group of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Where the last whole group ends.
    pub at: u64,
    /// How many bytes follow.
    pub bytes: u64,
    /// Why they are of no use.
    pub why: CutReason,
}

/// Why the end of a file is of no use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CutReason {
    /// The file ends inside a group: a write that was not finished.
    Unfinished,
    /// Zeroes, as a file system leaves them after a power cut.
    Zeroes,
    /// A checksum fails.
    Damaged,
    /// The checksums hold, but it was not sealed under the file's key for this place.
    Forged,
    /// The caller refused a group whose checksums hold, for this reason.
    Refused(String),
}

/// One whole group.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) records: Vec<Vec<u8>>,
    /// Where it ends.
    pub(crate) end: Place,
}

/// A place between two groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) offset: u64,
    pub(crate) chain: Chain,
    /// The tag of the commit mark that ends here; zeroes at the start, and everywhere in a plain file.
    pub(crate) before: Tag,
}

/// Reads groups. After `Err` or a cut nothing more is read.
pub(crate) struct Scanner<R> {
    reader: R,
    at: Place,
    bytes: u64,
    seal: Option<FileSeal>,
}

/// What comes next in a file.
#[derive(Debug)]
pub(crate) enum Next {
    Group(Group),
    /// The file ends; with what is left over, if anything is.
    End(Option<Cut>),
}

enum Stop {
    Ended,
    Damaged,
    Forged,
}

// === impl Place ===

impl Place {
    /// Where the frames of a file begin.
    pub(crate) const fn after(header: &Header) -> Self {
        Self { offset: header.bytes.len() as u64, chain: header.chain, before: [0; TAG_BYTES] }
    }
}

// === impl CutReason ===

impl CutReason {
    /// Whether it tells of damage, and not of a write that a crash interrupted.
    #[must_use]
    pub const fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged | Self::Forged | Self::Refused(_))
    }
}

impl fmt::Display for CutReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unfinished => f.write_str("a write was not finished"),
            Self::Zeroes => f.write_str("zeroes in place of a record"),
            Self::Damaged => f.write_str("a checksum fails"),
            Self::Forged => f.write_str("it was not written there under the file's key"),
            Self::Refused(why) => f.write_str(why),
        }
    }
}

// === impl Scanner ===

impl<R: Read> Scanner<R> {
    /// Goes on after a checked header. `bytes` is the size of the whole file: what it grows by meanwhile is not read.
    pub(crate) const fn new(reader: R, start: Place, bytes: u64, seal: Option<FileSeal>) -> Self {
        Self { reader, at: start, bytes, seal }
    }

    /// The next group, or the end. Fails only when the operating system does.
    pub(crate) fn next(&mut self) -> io::Result<Next> {
        let left = self.bytes.saturating_sub(self.at.offset);
        if left == 0 {
            return Ok(Next::End(None));
        }
        let read = match self.group(left) {
            // The file became shorter while it was read: its writer took a failed write back.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err((Stop::Ended, false)),
            other => other?,
        };
        match read {
            Ok(group) => {
                self.at = group.end;
                Ok(Next::Group(group))
            }
            Err((stop, zeroes)) => {
                let why = match stop {
                    _ if zeroes && self.only_zeroes()? => CutReason::Zeroes,
                    Stop::Ended => CutReason::Unfinished,
                    Stop::Damaged => CutReason::Damaged,
                    Stop::Forged => CutReason::Forged,
                };
                Ok(Next::End(Some(Cut { at: self.at.offset, bytes: left, why })))
            }
        }
    }

    /// Reads frames up to a commit. A failure says whether the bytes of the frame in question began with zeroes.
    fn group(&mut self, mut left: u64) -> io::Result<Result<Group, (Stop, bool)>> {
        let mut records = Vec::new();
        let mut end = self.at;
        let mut seal = None;
        loop {
            if left < FRAME_BYTES as u64 {
                let zeroes = left > 0 && self.only_zeroes()?;
                return Ok(Err((Stop::Ended, zeroes)));
            }
            let mut seen = Seen { reader: &mut self.reader, zeroes: true };
            let Some((head, chain)) = end.chain.read_head(self.seal.is_some(), &mut seen)? else {
                return Ok(Err((Stop::Damaged, seen.zeroes)));
            };
            left -= FRAME_BYTES as u64;
            if left < head.length as u64 {
                return Ok(Err((Stop::Ended, false)));
            }
            left -= head.length as u64;
            let Some((payload, chain)) = chain.read_body(head.length, &mut self.reader)? else {
                return Ok(Err((Stop::Damaged, false)));
            };
            end.offset += (FRAME_BYTES + head.length) as u64;
            end.chain = chain;
            let Some(payload) = self.unseal(head.mark, payload, &mut seal) else {
                return Ok(Err((Stop::Forged, false)));
            };
            match head.mark {
                Mark::Salt => {}
                Mark::Record => records.push(payload),
                Mark::Commit => {
                    end.before = seal.as_ref().map_or(end.before, GroupSeal::last);
                    return Ok(Ok(Group { records, end }));
                }
            }
        }
    }

    /// What a frame says under its seal; nothing when it is not sealed for its place.
    fn unseal(&self, mark: Mark, payload: Vec<u8>, group: &mut Option<GroupSeal>) -> Option<Vec<u8>> {
        let Some(file) = &self.seal else { return Some(payload) };
        match group {
            Some(group) if mark != Mark::Salt => group.open(mark, payload),
            None if mark == Mark::Salt => {
                *group = Some(file.group(payload.first_chunk()?, self.at.before));
                Some(Vec::new())
            }
            _ => None,
        }
    }

    fn only_zeroes(&mut self) -> io::Result<bool> {
        let mut chunk = [0; 4096];
        loop {
            let count = self.reader.read(&mut chunk)?;
            if count == 0 {
                return Ok(true);
            }
            if chunk[..count].iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
        }
    }
}

/// Notes whether all that was read is zero.
struct Seen<'a, R> {
    reader: &'a mut R,
    zeroes: bool,
}

impl<R: Read> Read for Seen<'_, R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buf)?;
        self.zeroes &= buf[..count].iter().all(|byte| *byte == 0);
        Ok(count)
    }
}
