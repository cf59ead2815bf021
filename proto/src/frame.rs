//! Encoded frames and the codec that passes them through.

use bytes::{Buf, BufMut, Bytes};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// One encoded `NodeFrame` or `ReplicaFrame`. Cloning shares the bytes.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Frame(pub Bytes);

/// A [`Frame`] with gRPC's head before it, as it goes on the wire. Cloning shares the bytes, so that a transfer is laid
/// out once however many streams it goes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Framed(Bytes);

/// Passes frames through in both directions; decoding into domain types is the receiver's next step.
#[derive(Clone, Copy, Debug, Default)]
pub struct FrameCodec;

/// See [`FrameCodec`].
#[derive(Clone, Copy, Debug, Default)]
pub struct FrameEncoder;

/// See [`FrameCodec`].
#[derive(Clone, Copy, Debug, Default)]
pub struct FrameDecoder;

// === impl Framed ===

impl Framed {
    /// The bytes of gRPC's head: "not compressed", and the length.
    pub const HEAD: usize = 5;

    /// Lays out a message of `length` bytes that `write` appends.
    pub(crate) fn lay_out(length: usize, write: impl FnOnce(&mut Vec<u8>)) -> Self {
        let mut buffer = Vec::with_capacity(Self::HEAD + length);
        buffer.extend_from_slice(&[0; Self::HEAD]);
        write(&mut buffer);
        let length = u32::try_from(buffer.len() - Self::HEAD).expect("a message is far below 4 GiB");
        buffer[1..Self::HEAD].copy_from_slice(&length.to_be_bytes());
        Self(buffer.into())
    }

    /// The frame alone; shares the bytes.
    #[must_use]
    pub fn frame(&self) -> Frame {
        Frame(self.0.slice(Self::HEAD..))
    }

    /// How many bytes the frame has, without its head.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len() - Self::HEAD
    }

    /// Whether the frame has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Head and frame, for the transport.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        self.0
    }
}

impl From<Frame> for Framed {
    fn from(frame: Frame) -> Self {
        Self::lay_out(frame.0.len(), |buffer| buffer.extend_from_slice(&frame.0))
    }
}

impl Codec for FrameCodec {
    type Encode = Frame;
    type Decode = Frame;
    type Encoder = FrameEncoder;
    type Decoder = FrameDecoder;

    fn encoder(&mut self) -> Self::Encoder {
        FrameEncoder
    }

    fn decoder(&mut self) -> Self::Decoder {
        FrameDecoder
    }
}

impl Encoder for FrameEncoder {
    type Item = Frame;
    type Error = Status;

    fn encode(&mut self, frame: Frame, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(frame.0);
        Ok(())
    }
}

impl Decoder for FrameDecoder {
    type Item = Frame;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Frame>, Status> {
        let length = buffer.remaining();
        Ok(Some(Frame(buffer.copy_to_bytes(length))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_says_not_compressed_and_how_long() {
        let frame = Frame(Bytes::from(vec![7; 258]));
        let framed = Framed::from(frame.clone());
        assert_eq!((framed.len(), framed.frame()), (258, frame));
        let bytes = framed.into_bytes();
        assert_eq!((bytes.len(), &bytes[..6]), (263, [0, 0, 0, 1, 2, 7].as_slice()));
    }
}
