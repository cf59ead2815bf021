//! Reading a file's groups in order, up to the last whole one.

use std::fmt;
use std::io::{self, Read};

use crate::frame::{Chain, FRAME_BYTES, HEADER_BYTES, Head};

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
    /// The caller refused a group whose checksums hold, for this reason.
    Refused(String),
}

/// One whole group.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) records: Vec<Vec<u8>>,
    /// Where it ends in the file, and the chain there.
    pub(crate) end: Place,
}

/// A place between two groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) offset: u64,
    pub(crate) chain: Chain,
}

/// Reads groups. After `Err` or a cut nothing more is read.
pub(crate) struct Scanner<R> {
    reader: R,
    at: Place,
    bytes: u64,
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
}

// === impl CutReason ===

impl CutReason {
    /// Whether it tells of damage, and not of a write that a crash interrupted.
    #[must_use]
    pub const fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged | Self::Refused(_))
    }
}

impl fmt::Display for CutReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unfinished => f.write_str("a write was not finished"),
            Self::Zeroes => f.write_str("zeroes in place of a record"),
            Self::Damaged => f.write_str("a checksum fails"),
            Self::Refused(why) => f.write_str(why),
        }
    }
}

// === impl Scanner ===

impl<R: Read> Scanner<R> {
    /// Goes on after a checked header. `bytes` is the size of the whole file: what it grows by meanwhile is not read.
    pub(crate) const fn new(reader: R, chain: Chain, bytes: u64) -> Self {
        Self { reader, at: Place { offset: HEADER_BYTES as u64, chain }, bytes }
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
                };
                Ok(Next::End(Some(Cut { at: self.at.offset, bytes: left, why })))
            }
        }
    }

    /// Reads frames up to a commit. A failure says whether the bytes of the frame in question began with zeroes.
    fn group(&mut self, mut left: u64) -> io::Result<Result<Group, (Stop, bool)>> {
        let mut records = Vec::new();
        let mut end = self.at;
        loop {
            if left < FRAME_BYTES as u64 {
                let zeroes = left > 0 && self.only_zeroes()?;
                return Ok(Err((Stop::Ended, zeroes)));
            }
            let mut seen = Seen { reader: &mut self.reader, zeroes: true };
            let Some((head, chain)) = end.chain.read_head(&mut seen)? else {
                return Ok(Err((Stop::Damaged, seen.zeroes)));
            };
            let length = match head {
                Head::Record(length) => length,
                Head::Commit => 0,
            };
            left -= FRAME_BYTES as u64;
            if left < length as u64 {
                return Ok(Err((Stop::Ended, false)));
            }
            left -= length as u64;
            let Some((payload, chain)) = chain.read_body(length, &mut self.reader)? else {
                return Ok(Err((Stop::Damaged, false)));
            };
            end = Place { offset: end.offset + (FRAME_BYTES + length) as u64, chain };
            match head {
                Head::Record(_) => records.push(payload),
                Head::Commit => return Ok(Ok(Group { records, end })),
            }
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
