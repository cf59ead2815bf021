//! The framing of an HTTP/1.1 request stream, followed byte by byte beside the HTTP library. Pure.
//!
//! The library accepts, and repairs, messages that carry both `Content-Length` and `Transfer-Encoding`, or the same
//! `Content-Length` twice. Such a message is how requests are smuggled past a gateway whose upstream reads it in another way,
//! so the gateway refuses it. The library drops the evidence before anybody can look; hence this second reading of the stream.
//! It must never know sockets or the library. Invariant: where it cannot follow, it refuses the next request.

/// Why a request is refused before anybody reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Ambiguity {
    /// Both `Content-Length` and `Transfer-Encoding`.
    #[error("the request carries both Content-Length and Transfer-Encoding")]
    LengthAndEncoding,
    /// `Content-Length` more than once, or a list in it.
    #[error("the request carries Content-Length more than once")]
    LengthTwice,
    /// `Transfer-Encoding` more than once, or something other than `chunked`.
    #[error("the request carries a Transfer-Encoding other than chunked")]
    Encoding,
    /// A `Content-Length` that is no number, or a body that is not framed as announced.
    #[error("the length of the request's body is unclear")]
    Length,
}

/// The first refused request of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    /// Its number in the stream, from 0.
    pub request: u64,
    /// Why.
    pub why: Ambiguity,
}

/// Follows one connection's request stream.
#[derive(Debug)]
pub struct Framing {
    state: State,
    /// Heads completed so far: the number of the request whose head comes next.
    request: u64,
    line: Vec<u8>,
    head: Head,
    max_line: usize,
}

#[derive(Debug)]
enum State {
    Start,
    Header,
    Body(u64),
    ChunkSize,
    Chunk(u64),
    ChunkEnd,
    Trailer,
    /// Nothing more is looked at: HTTP/2, or a refusal was made.
    Off,
}

#[derive(Debug, Default)]
struct Head {
    length: Option<u64>,
    lengths: u32,
    bad_length: bool,
    encodings: u32,
    not_chunked: bool,
}

impl Framing {
    /// A stream at its beginning. A line longer than `max_line` bytes is for the library to refuse; it is cut here.
    pub fn new(max_line: usize) -> Self {
        Self { state: State::Start, request: 0, line: Vec::new(), head: Head::default(), max_line }
    }

    /// Looks at the next bytes of the stream; the first refusal ends the looking.
    pub fn observe(&mut self, mut bytes: &[u8]) -> Option<Refused> {
        while !bytes.is_empty() {
            match self.state {
                State::Off => return None,
                State::Body(left) => bytes = self.skip(bytes, left, State::Start, State::Body),
                State::Chunk(left) => bytes = self.skip(bytes, left, State::ChunkEnd, State::Chunk),
                _ => {
                    let (line, rest) = self.take_line(bytes);
                    bytes = rest;
                    if let Some(refused) = line.and_then(|line| self.on_line(&line)) {
                        self.state = State::Off;
                        return Some(refused);
                    }
                }
            }
        }
        None
    }

    fn skip<'a>(&mut self, bytes: &'a [u8], left: u64, done: State, more: fn(u64) -> State) -> &'a [u8] {
        let here = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        let left = left - here as u64;
        self.state = if left == 0 { done } else { more(left) };
        &bytes[here..]
    }

    fn take_line<'a>(&mut self, bytes: &'a [u8]) -> (Option<Vec<u8>>, &'a [u8]) {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let part = &bytes[..end.unwrap_or(bytes.len())];
        let room = self.max_line.saturating_sub(self.line.len());
        self.line.extend_from_slice(&part[..part.len().min(room)]);
        let Some(end) = end else {
            return (None, &[]);
        };
        let mut line = std::mem::take(&mut self.line);
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        (Some(line), &bytes[end + 1..])
    }

    fn on_line(&mut self, line: &[u8]) -> Option<Refused> {
        match self.state {
            State::Start => {
                self.on_request_line(line);
                None
            }
            State::Header if line.is_empty() => self.on_head_end(),
            State::Header => {
                self.head.note(line);
                None
            }
            State::ChunkSize => match chunk_size(line) {
                Some(0) => {
                    self.state = State::Trailer;
                    None
                }
                Some(size) => {
                    self.state = State::Chunk(size);
                    None
                }
                None => self.lost(),
            },
            State::ChunkEnd if line.is_empty() => {
                self.state = State::ChunkSize;
                None
            }
            State::ChunkEnd => self.lost(),
            State::Trailer => {
                if line.is_empty() {
                    self.state = State::Start;
                }
                None
            }
            State::Body(_) | State::Chunk(_) | State::Off => None,
        }
    }

    fn on_request_line(&mut self, line: &[u8]) {
        // Empty lines before a request are skipped by the library too.
        if line.is_empty() {
            return;
        }
        let http2 = self.request == 0 && line == b"PRI * HTTP/2.0";
        self.head = Head::default();
        self.state = if http2 { State::Off } else { State::Header };
    }

    fn on_head_end(&mut self) -> Option<Refused> {
        let request = self.request;
        self.request += 1;
        match self.head.framing() {
            Ok(state) => {
                self.state = state;
                None
            }
            Err(why) => Some(Refused { request, why }),
        }
    }

    /// The body is not framed as announced; the library fails on the body itself, and a request behind it is refused here.
    fn lost(&self) -> Option<Refused> {
        Some(Refused { request: self.request, why: Ambiguity::Length })
    }
}

impl Head {
    fn note(&mut self, line: &[u8]) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            return;
        };
        let value = line[colon + 1..].trim_ascii();
        if line[..colon].eq_ignore_ascii_case(b"content-length") {
            self.lengths += 1;
            match decimal(value) {
                Some(length) => self.length = Some(length),
                None => self.bad_length = true,
            }
        } else if line[..colon].eq_ignore_ascii_case(b"transfer-encoding") {
            self.encodings += 1;
            self.not_chunked |= !value.eq_ignore_ascii_case(b"chunked");
        }
    }

    fn framing(&self) -> Result<State, Ambiguity> {
        if self.lengths > 0 && self.encodings > 0 {
            return Err(Ambiguity::LengthAndEncoding);
        }
        if self.lengths > 1 {
            return Err(Ambiguity::LengthTwice);
        }
        if self.encodings > 1 || self.not_chunked {
            return Err(Ambiguity::Encoding);
        }
        if self.bad_length {
            return Err(Ambiguity::Length);
        }
        Ok(match self.length {
            Some(length) if length > 0 => State::Body(length),
            _ if self.encodings == 1 => State::ChunkSize,
            _ => State::Start,
        })
    }
}

fn decimal(digits: &[u8]) -> Option<u64> {
    // `parse` alone would take a sign.
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn chunk_size(line: &[u8]) -> Option<u64> {
    let digits = line.split(|byte| *byte == b';').next()?.trim_ascii_end();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests;
