//! The bytes of a file: one header, then frames. Pure.
//!
//! ```text
//! header  magic 8 · framing u32 · kind 16 · version u32 · salt u64 · crc32c u32                     (44 bytes)
//! frame   mark u8 · length u32 · head check u32 · payload · body check u32        (13 bytes and the payload)
//! ```
//!
//! Numbers are little-endian. `mark` is `R` for a record and `C` for a commit, which has no payload. Checks are crc32c
//! and chained: the head check goes on from the frame before it (the first one from the header, whose salt differs
//! from file to file), and the body check from the head check. So a whole frame in the wrong place, or left over from
//! an older file, does not count, and a length is trusted before its payload is there: a file that ends inside a
//! frame is told apart from a damaged one.

use std::io::{self, Read};

use crate::error::Error;

/// Starts every file of this crate.
pub const MAGIC: [u8; 8] = *b"headwtr\n";

/// The version of headers and frames.
pub const FRAMING: u32 = 1;

/// The size of a header.
pub const HEADER_BYTES: usize = 44;

/// What a frame costs beside its payload.
pub const FRAME_BYTES: usize = 13;

/// The largest record in bytes. A group may hold any number of records.
pub const MAX_RECORD: usize = 64 << 20;

const KIND_BYTES: usize = 16;
const HEAD_BYTES: usize = 9;
const RECORD: u8 = b'R';
const COMMIT: u8 = b'C';

/// What a caller's files are called inside, and the version of what their records mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    kind: [u8; KIND_BYTES],
    version: u32,
}

/// A header that is not the expected one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WrongHeader {
    /// The file is shorter than a header, or the header's check fails.
    Damaged,
    /// The file is something else: other magic or another kind.
    Foreign(String),
    /// The framing or the records are of another version; the text names it.
    OtherVersion(String),
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Head {
    /// A record of so many payload bytes.
    Record(usize),
    /// The end of a group.
    Commit,
}

/// The running check of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chain(u32);

// === impl Format ===

impl Format {
    /// A format. `kind` is cut to 16 bytes; keep it shorter.
    #[must_use]
    pub fn new(kind: &str, version: u32) -> Self {
        let mut name = [0; KIND_BYTES];
        for (slot, byte) in name.iter_mut().zip(kind.bytes()) {
            *slot = byte;
        }
        Self { kind: name, version }
    }

    /// The header of a new file. `salt` should differ from file to file.
    pub(crate) fn header(&self, salt: u64) -> ([u8; HEADER_BYTES], Chain) {
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&MAGIC);
        header[8..12].copy_from_slice(&FRAMING.to_le_bytes());
        header[12..28].copy_from_slice(&self.kind);
        header[28..32].copy_from_slice(&self.version.to_le_bytes());
        header[32..40].copy_from_slice(&salt.to_le_bytes());
        let check = crc32c::crc32c(&header[..40]);
        header[40..].copy_from_slice(&check.to_le_bytes());
        (header, Chain(check))
    }

    /// Checks a header. Magic and framing are looked at before the check, so that a later framing, whose header may
    /// be checked in another way, is named and not called damaged.
    pub(crate) fn check(&self, header: &[u8]) -> Result<Chain, WrongHeader> {
        if !header.starts_with(&MAGIC[..header.len().min(8)]) {
            return Err(WrongHeader::Foreign("it is not a file of this program".to_owned()));
        }
        let Some(header) = header.first_chunk::<HEADER_BYTES>() else {
            return Err(WrongHeader::Damaged);
        };
        let framing = number(&header[8..12]);
        let check = crc32c::crc32c(&header[..40]);
        let whole = number(&header[40..]) == check;
        if framing != FRAMING && (whole || framing > FRAMING && framing < 1 << 16) {
            return Err(WrongHeader::OtherVersion(format!("framing {framing}, known is {FRAMING}")));
        }
        if !whole || framing != FRAMING {
            return Err(WrongHeader::Damaged);
        }
        if header[12..28] != self.kind {
            let kind = String::from_utf8_lossy(&header[12..28]);
            return Err(WrongHeader::Foreign(format!("it holds \"{}\"", kind.trim_end_matches('\0'))));
        }
        let version = number(&header[28..32]);
        if version != self.version {
            let known = self.version;
            return Err(WrongHeader::OtherVersion(format!("format {version}, known is {known}")));
        }
        Ok(Chain(check))
    }
}

// === impl Chain ===

impl Chain {
    /// Appends a record's frame and gives the chain after it.
    pub(crate) fn record(self, payload: &[u8], out: &mut Vec<u8>) -> Result<Self, Error> {
        let length = u32::try_from(payload.len()).ok().filter(|_| (1..=MAX_RECORD).contains(&payload.len()));
        let Some(length) = length else {
            return Err(Error::RecordSize { bytes: payload.len(), max: MAX_RECORD });
        };
        Ok(self.frame(RECORD, length, payload, out))
    }

    /// Appends a commit mark and gives the chain after it.
    pub(crate) fn commit(self, out: &mut Vec<u8>) -> Self {
        self.frame(COMMIT, 0, &[], out)
    }

    fn frame(self, mark: u8, length: u32, payload: &[u8], out: &mut Vec<u8>) -> Self {
        let start = out.len();
        out.push(mark);
        out.extend_from_slice(&length.to_le_bytes());
        let head = crc32c::crc32c_append(self.0, &out[start..]);
        out.extend_from_slice(&head.to_le_bytes());
        out.extend_from_slice(payload);
        let body = crc32c::crc32c_append(head, payload);
        out.extend_from_slice(&body.to_le_bytes());
        Self(body)
    }

    /// Reads a frame's head and gives the chain between it and its payload; `None` when its check fails.
    pub(crate) fn read_head(self, reader: &mut impl Read) -> io::Result<Option<(Head, Self)>> {
        let mut head = [0; HEAD_BYTES];
        reader.read_exact(&mut head)?;
        let check = crc32c::crc32c_append(self.0, &head[..5]);
        if number(&head[5..]) != check {
            return Ok(None);
        }
        let length = number(&head[1..5]) as usize;
        Ok(match (head[0], length) {
            (RECORD, 1..=MAX_RECORD) => Some((Head::Record(length), Self(check))),
            (COMMIT, 0) => Some((Head::Commit, Self(check))),
            _ => None,
        })
    }

    /// Reads what follows a head: `length` bytes and their check; `None` when it fails.
    pub(crate) fn read_body(
        self,
        length: usize,
        reader: &mut impl Read,
    ) -> io::Result<Option<(Vec<u8>, Self)>> {
        let mut payload = vec![0; length];
        reader.read_exact(&mut payload)?;
        let mut stored = [0; 4];
        reader.read_exact(&mut stored)?;
        let check = crc32c::crc32c_append(self.0, &payload);
        Ok((number(&stored) == check).then_some((payload, Self(check))))
    }
}

fn number(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_told_apart() {
        let format = Format::new("rows", 3);
        let (header, chain) = format.header(7);
        assert_eq!(format.check(&header), Ok(chain));
        assert_ne!(format.header(8).1, chain);
        assert_eq!(format.check(&header[..20]), Err(WrongHeader::Damaged));
        assert!(matches!(format.check(b"{\"json\": 1}"), Err(WrongHeader::Foreign(_))));
        assert!(
            matches!(Format::new("other", 3).check(&header), Err(WrongHeader::Foreign(why)) if why.contains("rows"))
        );
        assert!(
            matches!(Format::new("rows", 2).check(&header), Err(WrongHeader::OtherVersion(why)) if why.contains('3'))
        );
        for at in 8..HEADER_BYTES {
            let mut flipped = header;
            flipped[at] ^= 0x40;
            assert!(format.check(&flipped).is_err(), "byte {at}");
        }
    }

    #[test]
    fn a_framing_from_the_future_is_named_whatever_its_header_looks_like() {
        let format = Format::new("rows", 3);
        let mut header = format.header(7).0;
        header[8] = 2;
        assert!(
            matches!(format.check(&header), Err(WrongHeader::OtherVersion(why)) if why.contains("framing 2"))
        );
    }

    #[test]
    fn the_size_of_a_record_is_bounded() {
        let (_, chain) = Format::new("rows", 3).header(7);
        let mut out = Vec::new();
        assert!(matches!(chain.record(b"", &mut out), Err(Error::RecordSize { bytes: 0, .. })));
        assert!(matches!(chain.record(&vec![0; MAX_RECORD + 1], &mut out), Err(Error::RecordSize { .. })));
        assert!(out.is_empty());
    }
}
