//! Message frames: the body of a DATA packet.
//!
//! Small messages lie behind each other in one packet; a message too long for that is cut into
//! fragments, one to a packet, each naming its place, so that it is copied once however it arrives. What is done to
//! the other side's memory, and what comes back of it, lies among them ([`crate::remote`] has its meaning).
//!
//! ```text
//! whole     channel u16 | form u8 = 1 | 0 | bytes u32 | data, padded to 8
//! fragment  channel u16 | form u8 = 2 | 0 | message u32 | offset u64 | total u64 | data to the end
//! remote    opcode u16 | form u8 = 3 | 0 | bytes u32 | key u64 | address u64 | operation u64 | data, padded to 8
//! ```
//!
//! Whatever of a fragment lies beyond the end of its message is padding: all packets of a message may be of one
//! length, which segmentation offload wants, across messages too.

use crate::defect;
use crate::limits::MESSAGE_BYTES_MAX;
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes in front of a whole message.
pub const WHOLE_BYTES: usize = 8;
/// Bytes in front of a fragment.
pub const FRAGMENT_BYTES: usize = 24;
/// Bytes in front of what is done to remote memory.
pub const REMOTE_BYTES: usize = 32;

const FORM_WHOLE: u8 = 1;
const FORM_FRAGMENT: u8 = 2;
const FORM_REMOTE: u8 = 3;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct WholeLayout {
    channel: U16,
    form: u8,
    reserved: u8,
    bytes: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct FragmentLayout {
    channel: U16,
    form: u8,
    reserved: u8,
    message: U32,
    offset: U64,
    total: U64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct RemoteLayout {
    opcode: U16,
    form: u8,
    reserved: u8,
    bytes: U32,
    key: U64,
    address: U64,
    operation: U64,
}

const _: () = assert!(size_of::<RemoteLayout>() == REMOTE_BYTES);
const _: () = assert!(size_of::<WholeLayout>() == WHOLE_BYTES);
const _: () = assert!(size_of::<FragmentLayout>() == FRAGMENT_BYTES);

/// Where a fragment belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Channel the message is for.
    pub channel: u16,
    /// Number of the message among the fragmented messages of its flow, modulo 2³².
    pub message: u32,
    /// Place of this fragment's first byte in the message.
    pub offset: u64,
    /// Length of the whole message, bytes.
    pub total: u64,
}

impl Fragment {
    /// The frame header that goes before the fragment's data.
    #[must_use]
    pub fn encode(&self) -> [u8; FRAGMENT_BYTES] {
        zerocopy::transmute!(FragmentLayout {
            channel: U16::new(self.channel),
            form: FORM_FRAGMENT,
            reserved: 0,
            message: U32::new(self.message),
            offset: U64::new(self.offset),
            total: U64::new(self.total),
        })
    }
}

/// What is to be done to memory of the other side, or what came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteFrame {
    /// What is done: one of [`crate::remote::Opcode`], as a number.
    pub opcode: u16,
    /// Key of the memory. A reply: how it went, one of [`crate::remote::RemoteStatus`].
    pub key: u64,
    /// Address in the memory, as its owner's process counts. A reply: place of its data in what was asked for, bytes.
    pub address: u64,
    /// Number of the operation, given by the side that began it.
    pub operation: u64,
}

impl RemoteFrame {
    /// The frame header that goes before `bytes` of data.
    #[must_use]
    pub fn encode(&self, bytes: u32) -> [u8; REMOTE_BYTES] {
        zerocopy::transmute!(RemoteLayout {
            opcode: U16::new(self.opcode),
            form: FORM_REMOTE,
            reserved: 0,
            bytes: U32::new(bytes),
            key: U64::new(self.key),
            address: U64::new(self.address),
            operation: U64::new(self.operation),
        })
    }
}

/// Bytes that a remote operation with `bytes` of data takes up in a packet, header and padding included.
#[must_use]
pub const fn remote_frame_bytes(bytes: usize) -> usize {
    REMOTE_BYTES + bytes.next_multiple_of(8)
}

/// The frame header that goes before a whole message of `bytes` for `channel`.
#[must_use]
pub fn encode_whole(channel: u16, bytes: u32) -> [u8; WHOLE_BYTES] {
    zerocopy::transmute!(WholeLayout {
        channel: U16::new(channel),
        form: FORM_WHOLE,
        reserved: 0,
        bytes: U32::new(bytes),
    })
}

/// Bytes that a whole message of `bytes` takes up in a packet, header and padding included.
#[must_use]
pub const fn whole_frame_bytes(bytes: usize) -> usize {
    WHOLE_BYTES + bytes.next_multiple_of(8)
}

/// One frame of a DATA packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A message that fits its packet.
    Whole {
        /// Channel the message is for.
        channel: u16,
        /// Place of the data in the packet's body, bytes.
        at: usize,
        /// The message.
        data: &'a [u8],
    },
    /// A piece of a longer message.
    Fragment(Fragment, &'a [u8]),
    /// Something about remote memory, and its data.
    Remote(RemoteFrame, &'a [u8]),
}

/// A frame that makes no sense: its sender is broken, since the body's CRC was right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MalformedFrame {
    /// The frame announces more bytes than the packet holds.
    #[error("a frame at byte {at} runs past the packet's {body_bytes} bytes of body")]
    Truncated {
        /// Where the frame begins in the body.
        at: usize,
        /// Length of the body, bytes.
        body_bytes: usize,
    },
    /// None of the forms that there are.
    #[error("a frame of unknown form {0}")]
    Form(u8),
    /// A fragment that begins outside its message, is empty, or whose message is over the format's limit.
    #[error("a fragment at {offset} of a message of {total} bytes does not fit")]
    Range {
        /// Announced place, bytes.
        offset: u64,
        /// Announced length of the message, bytes.
        total: u64,
    },
}

/// Walks over the frames of a DATA packet's body; ends after the first malformed one.
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    body: &'a [u8],
    at: usize,
}

impl<'a> Frames<'a> {
    /// The frames of `body`.
    #[must_use]
    pub const fn new(body: &'a [u8]) -> Frames<'a> {
        Frames { body, at: 0 }
    }

    fn parse(&mut self) -> Result<Frame<'a>, MalformedFrame> {
        let at = self.at;
        let truncated = MalformedFrame::Truncated { at, body_bytes: self.body.len() };
        let rest = &self.body[at..];
        let (whole, data) = WholeLayout::ref_from_prefix(rest).map_err(|_| truncated)?;
        match whole.form {
            FORM_WHOLE => {
                let bytes = whole.bytes.get() as usize;
                let data = data.get(..bytes).ok_or(truncated)?;
                // The last frame's padding may be left off.
                self.at = (at + whole_frame_bytes(bytes)).min(self.body.len());
                Ok(Frame::Whole { channel: whole.channel.get(), at: at + WHOLE_BYTES, data })
            }
            FORM_FRAGMENT => {
                let (layout, data) = FragmentLayout::ref_from_prefix(rest).map_err(|_| truncated)?;
                self.at = self.body.len();
                let (offset, total) = (layout.offset.get(), layout.total.get());
                if data.is_empty() || total > MESSAGE_BYTES_MAX || offset >= total {
                    return Err(MalformedFrame::Range { offset, total });
                }
                let bytes = (data.len() as u64).min(total - offset) as usize;
                let data = &data[..bytes]; // the rest is padding
                let fragment =
                    Fragment { channel: layout.channel.get(), message: layout.message.get(), offset, total };
                Ok(Frame::Fragment(fragment, data))
            }
            FORM_REMOTE => {
                let (layout, data) = RemoteLayout::ref_from_prefix(rest).map_err(|_| truncated)?;
                let bytes = layout.bytes.get() as usize;
                let data = data.get(..bytes).ok_or(truncated)?;
                // As a whole message's, the last frame's padding may be left off.
                self.at = (at + remote_frame_bytes(bytes)).min(self.body.len());
                let remote = RemoteFrame {
                    opcode: layout.opcode.get(),
                    key: layout.key.get(),
                    address: layout.address.get(),
                    operation: layout.operation.get(),
                };
                Ok(Frame::Remote(remote, data))
            }
            form => Err(MalformedFrame::Form(form)),
        }
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, MalformedFrame>;

    fn next(&mut self) -> Option<Self::Item> {
        let cut = defect!(LastFrameLost) && self.at > 0 && self.at + WHOLE_BYTES >= self.body.len();
        if self.at >= self.body.len() || cut {
            return None;
        }
        let frame = self.parse();
        if frame.is_err() {
            self.at = self.body.len();
        }
        Some(frame)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    proptest! {
        #[test]
        fn whole_messages_come_back(messages in proptest::collection::vec((any::<u16>(), proptest::collection::vec(any::<u8>(), 0..100)), 0..20)) {
            let mut body = Vec::new();
            for (channel, data) in &messages {
                body.extend_from_slice(&encode_whole(*channel, data.len() as u32));
                body.extend_from_slice(data);
                body.resize(body.len().next_multiple_of(8), 0);
            }
            let read: Vec<(u16, Vec<u8>)> = Frames::new(&body).map(|frame| match frame.unwrap() {
                Frame::Whole { channel, at, data } => {
                    assert_eq!(&body[at..at + data.len()], data);
                    (channel, data.to_vec())
                }
                Frame::Fragment(..) | Frame::Remote(..) => unreachable!(),
            }).collect();
            prop_assert_eq!(read, messages);
        }

        #[test]
        fn a_fragment_comes_back(channel: u16, message: u32, offset in 0u64..1 << 39, data in proptest::collection::vec(any::<u8>(), 1..100), more in 0u64..1 << 39) {
            let fragment = Fragment { channel, message, offset, total: offset + data.len() as u64 + more };
            let mut body = fragment.encode().to_vec();
            body.extend_from_slice(&data);
            let frames: Vec<_> = Frames::new(&body).collect();
            prop_assert_eq!(frames, [Ok(Frame::Fragment(fragment, &data[..]))]);
        }

        #[test]
        fn operations_come_back(all in proptest::collection::vec((any::<[u64; 3]>(), any::<u16>(), proptest::collection::vec(any::<u8>(), 0..100)), 0..20)) {
            let mut body = Vec::new();
            let mut expected = Vec::new();
            for ([key, address, operation], opcode, data) in &all {
                let remote = RemoteFrame { opcode: *opcode, key: *key, address: *address, operation: *operation };
                body.extend_from_slice(&remote.encode(data.len() as u32));
                body.extend_from_slice(data);
                body.resize(body.len().next_multiple_of(8), 0);
                expected.push(Ok(Frame::Remote(remote, &data[..])));
            }
            prop_assert_eq!(Frames::new(&body).collect::<Vec<_>>(), expected);
        }

        #[test]
        fn any_bytes_end_and_stay_within_the_body(body in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut bytes = 0;
            for frame in Frames::new(&body) {
                match frame {
                    Ok(Frame::Whole { data, .. }) => bytes += data.len() + WHOLE_BYTES,
                    Ok(Frame::Fragment(fragment, data)) => {
                        prop_assert!(fragment.offset + data.len() as u64 <= fragment.total);
                        bytes += data.len() + FRAGMENT_BYTES;
                    }
                    Ok(Frame::Remote(_, data)) => bytes += data.len() + REMOTE_BYTES,
                    Err(_) => {}
                }
            }
            prop_assert!(bytes <= body.len());
        }
    }

    #[test]
    fn what_lies_beyond_the_end_of_a_message_is_padding_and_a_fragment_there_is_refused() {
        let body = |offset| {
            let mut body = Fragment { channel: 1, message: 1, offset, total: 10 }.encode().to_vec();
            body.extend_from_slice(b"abcd");
            body
        };
        let frame = |body: &[u8]| match Frames::new(body).next().unwrap() {
            Ok(Frame::Fragment(_, data)) => Ok(data.to_vec()),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error),
        };
        assert_eq!(frame(&body(6)), Ok(b"abcd".to_vec()));
        assert_eq!(frame(&body(7)), Ok(b"abc".to_vec()));
        for offset in [10, u64::MAX - 2] {
            assert_eq!(frame(&body(offset)), Err(MalformedFrame::Range { offset, total: 10 }));
        }
    }
}
