//! Where gRPC messages begin in the bytes of a stream, and how long each is: a byte, a length of four, the message.

/// Looks at a stream from its first byte on.
#[derive(Debug, Default)]
pub(super) struct Messages {
    /// Of the frame's head, what has come.
    head: Vec<u8>,
    /// Of the present message, what is to come.
    rest: u64,
}

// === impl Messages ===

impl Messages {
    /// Takes the next bytes; answers the length of the longest message that begins in them.
    pub(super) fn take(&mut self, bytes: &[u8]) -> u64 {
        let mut longest = 0;
        let mut at = bytes;
        while !at.is_empty() {
            if self.rest > 0 {
                let here = usize::try_from(self.rest).unwrap_or(usize::MAX).min(at.len());
                at = &at[here..];
                self.rest -= here as u64;
                continue;
            }
            self.head.push(at[0]);
            at = &at[1..];
            if let [_, length @ ..] = self.head.as_slice()
                && let Ok(length) = <[u8; 4]>::try_from(length)
            {
                self.rest = u64::from(u32::from_be_bytes(length));
                longest = longest.max(self.rest);
                self.head.clear();
            }
        }
        longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_found_however_the_bytes_are_cut() {
        let mut bytes = Vec::new();
        for length in [0_u32, 3, 70_000, 1] {
            bytes.push(0);
            bytes.extend(length.to_be_bytes());
            bytes.extend(vec![0xff; length as usize]);
        }
        for cut in [1, 2, 7, 4_096, bytes.len()] {
            let mut messages = Messages::default();
            let found: Vec<u64> = bytes.chunks(cut).map(|part| messages.take(part)).collect();
            assert_eq!(found.iter().max(), Some(&70_000), "cut into {cut}");
            assert_eq!((messages.rest, messages.head.len()), (0, 0), "cut into {cut}");
        }
    }
}
