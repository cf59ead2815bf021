//! Encoded frames and the codec that passes them through.

use bytes::{Buf, BufMut, Bytes};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// One encoded `NodeFrame` or `ReplicaFrame`. Cloning shares the bytes.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Frame(pub Bytes);

/// Passes frames through in both directions; decoding into domain types is the receiver's next step.
#[derive(Clone, Copy, Debug, Default)]
pub struct FrameCodec;

/// See [`FrameCodec`].
#[derive(Clone, Copy, Debug, Default)]
pub struct FrameEncoder;

/// See [`FrameCodec`].
#[derive(Clone, Copy, Debug, Default)]
pub struct FrameDecoder;

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
