//! The bytes of a file: one header, then frames. Pure.
//!
//! ```text
//! header  magic 8 · framing u32 · kind 16 · version u32 · salt u64 · crc32c u32                     (44 bytes)
//! seal    key id 8 · random 16 · crc32c u32                        (28 bytes, in files of framing 2 alone)
//! frame   mark u8 · length u32 · head check u32 · payload · body check u32        (13 bytes and the payload)
//! ```
//!
//! Numbers are little-endian. `mark` is `R` for a record and `C` for a commit, which has no payload. Checks are crc32c
//! and chained: the head check goes on from the frame before it (the first one from the header, whose salt differs
//! from file to file), and the body check from the head check. So a whole frame in the wrong place, or left over from
//! an older file, does not count, and a length is trusted before its payload is there: a file that ends inside a
//! frame is told apart from a damaged one.
//!
//! Framing 1 is plain. In framing 2 ([`seal`](crate::seal)) each group begins with a frame `S` of 16 random bytes, the
//! payload of a record is sealed and ends with a tag of 16 bytes, and that of a commit is such a tag alone.

use std::io::{self, Read};

use crate::error::Error;
use crate::seal::{KEY_ID_BYTES, KeyId, SALT_BYTES, TAG_BYTES};

/// Starts every file of this crate.
pub const MAGIC: [u8; 8] = *b"headwtr\n";

/// The version of headers and frames of plain files.
pub const PLAIN: u32 = 1;

/// The version of headers and frames of sealed files.
pub const SEALED: u32 = 2;

/// The size of a plain file's header.
pub const HEADER_BYTES: usize = 44;

/// What the header of a sealed file has more.
pub const SEAL_BYTES: usize = KEY_ID_BYTES + SALT_BYTES + 4;

/// What a frame costs beside its payload.
pub const FRAME_BYTES: usize = 13;

/// The largest record in bytes. A group may hold any number of records.
pub const MAX_RECORD: usize = 64 << 20;

const KIND_BYTES: usize = 16;
const HEAD_BYTES: usize = 9;

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

/// A file's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// All of it.
    pub(crate) bytes: Vec<u8>,
    /// The chain after it.
    pub(crate) chain: Chain,
    /// The key of a sealed file.
    pub(crate) key: Option<KeyId>,
}

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// The beginning of a sealed group.
    Salt,
    /// A record.
    Record,
    /// The end of a group.
    Commit,
}

/// The head of a frame: what it is, and how many payload bytes follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) mark: Mark,
    pub(crate) length: usize,
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

    /// The header of a new file. `salt` should differ from file to file; a sealed file has its key and random bits.
    pub(crate) fn header(&self, salt: u64, seal: Option<(KeyId, [u8; SALT_BYTES])>) -> Header {
        let framing = if seal.is_some() { SEALED } else { PLAIN };
        let mut bytes = Vec::with_capacity(HEADER_BYTES + SEAL_BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&framing.to_le_bytes());
        bytes.extend_from_slice(&self.kind);
        bytes.extend_from_slice(&self.version.to_le_bytes());
        bytes.extend_from_slice(&salt.to_le_bytes());
        let mut check = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&check.to_le_bytes());
        if let Some((key, random)) = seal {
            bytes.extend_from_slice(&key.0);
            bytes.extend_from_slice(&random);
            check = crc32c::crc32c_append(check, &bytes[HEADER_BYTES..]);
            bytes.extend_from_slice(&check.to_le_bytes());
        }
        Header { bytes, chain: Chain(check), key: seal.map(|(key, _)| key) }
    }

    /// Reads and checks a header. Fails only when the operating system does.
    pub(crate) fn read(&self, reader: &mut impl Read) -> io::Result<Result<Header, WrongHeader>> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + SEAL_BYTES);
        reader.by_ref().take(HEADER_BYTES as u64).read_to_end(&mut bytes)?;
        let (framing, chain) = match self.check(&bytes) {
            Ok(checked) => checked,
            Err(wrong) => return Ok(Err(wrong)),
        };
        if framing == PLAIN {
            return Ok(Ok(Header { bytes, chain, key: None }));
        }
        reader.by_ref().take(SEAL_BYTES as u64).read_to_end(&mut bytes)?;
        let Some(seal) = bytes[HEADER_BYTES..].first_chunk::<SEAL_BYTES>() else {
            return Ok(Err(WrongHeader::Damaged));
        };
        let (named, stored) = seal.split_at(SEAL_BYTES - 4);
        let check = crc32c::crc32c_append(chain.0, named);
        if number(stored) != check {
            return Ok(Err(WrongHeader::Damaged));
        }
        let key = named.first_chunk().map(|id| KeyId(*id));
        Ok(Ok(Header { bytes, chain: Chain(check), key }))
    }

    /// Checks what headers of both framings begin with, and gives the framing. Magic and framing are looked at before
    /// the check, so that a later framing, whose header may be checked in another way, is named and not called
    /// damaged.
    fn check(&self, header: &[u8]) -> Result<(u32, Chain), WrongHeader> {
        if !header.starts_with(&MAGIC[..header.len().min(8)]) {
            return Err(WrongHeader::Foreign("it is not a file of this program".to_owned()));
        }
        let Some(header) = header.first_chunk::<HEADER_BYTES>() else {
            return Err(WrongHeader::Damaged);
        };
        let framing = number(&header[8..12]);
        let check = crc32c::crc32c(&header[..40]);
        let whole = number(&header[40..]) == check;
        let known = [PLAIN, SEALED].contains(&framing);
        if !known && (whole || framing > SEALED && framing < 1 << 16) {
            let message = format!("framing {framing}, known are {PLAIN} and {SEALED}");
            return Err(WrongHeader::OtherVersion(message));
        }
        if !whole || !known {
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
        Ok((framing, Chain(check)))
    }
}

// === impl Mark ===

impl Mark {
    const ALL: [Self; 3] = [Self::Salt, Self::Record, Self::Commit];

    pub(crate) const fn byte(self) -> u8 {
        match self {
            Self::Salt => b'S',
            Self::Record => b'R',
            Self::Commit => b'C',
        }
    }

    /// Whether such a frame may have a payload of so many bytes.
    const fn allows(self, length: usize, sealed: bool) -> bool {
        match (self, sealed) {
            (Self::Record, false) => length >= 1 && length <= MAX_RECORD,
            (Self::Record, true) => length > TAG_BYTES && length <= MAX_RECORD + TAG_BYTES,
            (Self::Commit, false) => length == 0,
            (Self::Commit, true) => length == TAG_BYTES,
            (Self::Salt, sealed) => sealed && length == SALT_BYTES,
        }
    }
}

// === impl Chain ===

impl Chain {
    /// Appends a frame and gives the chain after it.
    pub(crate) fn frame(self, mark: Mark, payload: &[u8], out: &mut Vec<u8>) -> Self {
        let length = u32::try_from(payload.len()).expect("a record is at most MAX_RECORD bytes and a tag");
        let start = out.len();
        out.push(mark.byte());
        out.extend_from_slice(&length.to_le_bytes());
        let head = crc32c::crc32c_append(self.0, &out[start..]);
        out.extend_from_slice(&head.to_le_bytes());
        out.extend_from_slice(payload);
        let body = crc32c::crc32c_append(head, payload);
        out.extend_from_slice(&body.to_le_bytes());
        Self(body)
    }

    /// Reads a frame's head and gives the chain between it and its payload; `None` when its check fails, or there is
    /// no such frame in files of this framing.
    pub(crate) fn read_head(self, sealed: bool, reader: &mut impl Read) -> io::Result<Option<(Head, Self)>> {
        let mut head = [0; HEAD_BYTES];
        reader.read_exact(&mut head)?;
        let check = crc32c::crc32c_append(self.0, &head[..5]);
        if number(&head[5..]) != check {
            return Ok(None);
        }
        let length = number(&head[1..5]) as usize;
        let mark = Mark::ALL.into_iter().find(|mark| mark.byte() == head[0]);
        let mark = mark.filter(|mark| mark.allows(length, sealed));
        Ok(mark.map(|mark| (Head { mark, length }, Self(check))))
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

/// Checks the size of a record before it is sealed.
pub(crate) const fn check_size(record: &[u8]) -> Result<(), Error> {
    match record.len() {
        1..=MAX_RECORD => Ok(()),
        bytes => Err(Error::RecordSize { bytes, max: MAX_RECORD }),
    }
}

fn number(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(format: Format, mut bytes: &[u8]) -> Result<Header, WrongHeader> {
        format.read(&mut bytes).unwrap()
    }

    #[test]
    fn headers_are_told_apart() {
        let format = Format::new("rows", 3);
        let sealed = Some((KeyId([9; KEY_ID_BYTES]), [4; SALT_BYTES]));
        for (seal, length) in [(None, HEADER_BYTES), (sealed, HEADER_BYTES + SEAL_BYTES)] {
            let header = format.header(7, seal);
            assert_eq!(header.bytes.len(), length);
            assert_eq!(read(format, &[&header.bytes[..], b"and frames"].concat()), Ok(header.clone()));
            assert_ne!(format.header(8, seal).chain, header.chain);
            for cut in [20, length - 1] {
                assert_eq!(read(format, &header.bytes[..cut]), Err(WrongHeader::Damaged));
            }
            let other = read(Format::new("other", 3), &header.bytes);
            assert!(matches!(other, Err(WrongHeader::Foreign(why)) if why.contains("rows")));
            let older = read(Format::new("rows", 2), &header.bytes);
            assert!(matches!(older, Err(WrongHeader::OtherVersion(why)) if why.contains('3')));
            for at in 8..length {
                let mut flipped = header.bytes.clone();
                flipped[at] ^= 0x40;
                assert!(read(format, &flipped).is_err(), "byte {at}");
            }
        }
        assert!(matches!(read(format, b"{\"json\": 1}"), Err(WrongHeader::Foreign(_))));
    }

    #[test]
    fn a_framing_from_the_future_is_named_whatever_its_header_looks_like() {
        let format = Format::new("rows", 3);
        let mut header = format.header(7, None).bytes;
        header[8] = 3;
        assert!(
            matches!(read(format, &header), Err(WrongHeader::OtherVersion(why)) if why.contains("framing 3"))
        );
    }

    #[test]
    fn the_size_of_a_record_is_bounded() {
        assert!(matches!(check_size(b""), Err(Error::RecordSize { bytes: 0, .. })));
        assert!(matches!(check_size(&vec![0; MAX_RECORD + 1]), Err(Error::RecordSize { .. })));
        assert!(check_size(&vec![0; MAX_RECORD]).is_ok());
        let (plain, sealed) = (Mark::Record.allows(MAX_RECORD + 1, false), Mark::Record.allows(16, true));
        assert!(!plain && !sealed && Mark::Record.allows(MAX_RECORD + TAG_BYTES, true));
    }
}
