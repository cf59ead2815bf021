//! What contenders send: numbered messages of one size, each bearing the moment it was due.
//!
//! A contender has no etcd before it, so its server makes the messages itself, at the pace of the puts. The moment is
//! the one a message was *due*: a server that falls behind shows it.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};

use super::clock;

/// The bytes before the padding.
pub const HEAD: usize = 16;

/// The bytes of a reply; about what an acknowledgement of a node is.
pub const REPLY: usize = 40;

/// A series of messages.
#[derive(Debug, Clone, Copy)]
pub struct Beats {
    first: u64,
    began: u64,
    pace: u64,
}

// === impl Beats ===

impl Beats {
    /// Messages numbered from `first` on, one every `pace`, the first of them now.
    #[must_use]
    pub fn new(first: u64, pace: Duration) -> Self {
        let pace = u64::try_from(pace.as_nanos()).unwrap_or(u64::MAX);
        Self { first, began: clock::nanoseconds(), pace }
    }

    /// How long to wait until the message of this index is due.
    #[must_use]
    pub fn until(&self, index: u64) -> Duration {
        Duration::from_nanos(self.due(index).saturating_sub(clock::nanoseconds()))
    }

    /// The message of this index, so many bytes long.
    #[must_use]
    pub fn message(&self, index: u64, bytes: usize) -> Bytes {
        let mut message = BytesMut::with_capacity(bytes.max(HEAD));
        message.put_u64(self.first + index);
        message.put_u64(self.due(index));
        message.resize(bytes.max(HEAD), b'x');
        message.freeze()
    }

    fn due(&self, index: u64) -> u64 {
        self.began.saturating_add(self.pace.saturating_mul(index))
    }
}

/// The number of a message, and the moment it was due; zeros where it is too short.
#[must_use]
pub fn read(message: &[u8]) -> (u64, u64) {
    let word = |at: usize| message.get(at..at + 8).and_then(|word| word.try_into().ok());
    let number = |at: usize| word(at).map_or(0, u64::from_be_bytes);
    (number(0), number(8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_bears_its_number_and_the_moment_it_was_due_however_late_it_is() {
        let beats = Beats::new(7, Duration::from_secs(3600));
        let message = beats.message(2, 100);
        let (number, due) = read(&message);
        assert_eq!((message.len(), number), (100, 9));
        assert_eq!(due - beats.began, 7_200_000_000_000);
        assert_eq!(beats.until(0), Duration::ZERO);
        assert!(beats.until(1) > Duration::from_secs(3000));
        assert_eq!(read(b"short"), (0, 0));
    }
}
