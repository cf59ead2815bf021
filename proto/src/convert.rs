//! Between wire and domain. Nothing generated is seen outside this module.
//!
//! Decoding checks everything that a peer may get wrong (missing parts, wrong widths, keys that are not of content
//! shape, texts above the limits) and answers [`Invalid`]; it never panics.

mod node;
mod replica;
mod version;

use bytes::Bytes;
use headwater_model::Change;
use prost::Message;

use crate::frame::Framed;
use crate::wire::config as wire;

/// What a peer sent that is no message of the protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// The bytes are no encoded frame.
    #[error("the frame cannot be decoded: {0}")]
    Undecodable(String),
    /// The frame is empty, or of a kind this protocol number does not have.
    #[error("the frame holds no message that protocol {} knows", crate::limits::PROTOCOL)]
    Unknown,
    /// A required part is missing or out of range.
    #[error("{message}: {field} {problem}")]
    Field {
        /// The message.
        message: &'static str,
        /// The field.
        field: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
}

pub(crate) const fn bad(message: &'static str, field: &'static str, problem: &'static str) -> Invalid {
    Invalid::Field { message, field, problem }
}

/// One change as a piece of an encoded `TransferPart`, ready to be shared by every transfer that carries it.
#[must_use]
pub fn encode_change(change: &Change) -> Bytes {
    let part = wire::TransferPart { begin: None, changes: vec![version::change(change)], last: false };
    part.encode_to_vec().into()
}

/// A frame that carries one part of a transfer, put together from [`encode_change`]'s pieces.
#[must_use]
pub fn encode_part<'a>(
    begin: Option<&crate::config::Begin>,
    changes: impl Iterator<Item = &'a Bytes> + Clone,
    last: bool,
) -> Framed {
    let head = wire::TransferPart { begin: begin.map(replica::begin), changes: Vec::new(), last: false };
    let tail = wire::TransferPart { begin: None, changes: Vec::new(), last };
    let length = head.encoded_len() + tail.encoded_len() + changes.clone().map(Bytes::len).sum::<usize>();
    Framed::lay_out(length + KEY_AND_LENGTH, |buffer| {
        prost::encoding::encode_key(PART_TAG, prost::encoding::WireType::LengthDelimited, buffer);
        prost::encoding::encode_varint(length as u64, buffer);
        head.encode_raw(buffer);
        for change in changes {
            buffer.extend_from_slice(change);
        }
        tail.encode_raw(buffer);
    })
}

/// The most bytes that a field's key and length take before a part.
const KEY_AND_LENGTH: usize = 8;

/// The field number of `part` in `ReplicaFrame`.
const PART_TAG: u32 = 2;

#[cfg(test)]
mod tests;
