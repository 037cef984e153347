//! Messages whose every byte follows from who sent them to whom: a checker can tell what it has before it.

use crate::random::Random;

/// Bytes of the label at the start of messages that are long enough for one.
pub(crate) const LABEL_BYTES: usize = 16;

/// Names a message in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label {
    /// Number of its stretch: one connection of one incarnation with one peer. See [`crate::ledger`].
    pub(crate) stretch: u32,
    /// Channel that it is sent on.
    pub(crate) channel: u16,
    /// Number among the messages of its stretch on that channel.
    pub(crate) number: u32,
}

impl Label {
    /// The whole message, `bytes` long.
    pub(crate) fn message(self, bytes: usize) -> Vec<u8> {
        let Label { stretch, channel, number } = self;
        let mut message = vec![0; bytes];
        let stream = u64::from(stretch) << 32 | u64::from(number);
        Random::new(stream, u64::from(channel)).fill(&mut message);
        if bytes >= LABEL_BYTES {
            message[..4].copy_from_slice(&stretch.to_le_bytes());
            message[4..8].copy_from_slice(&number.to_le_bytes());
            message[8..12].copy_from_slice(&(bytes as u32).to_le_bytes());
            message[12..14].copy_from_slice(&channel.to_le_bytes());
        }
        message
    }

    /// The label that a received message shows; `None` if it is too short for one.
    pub(crate) fn read(message: &[u8]) -> Option<Label> {
        if message.len() < LABEL_BYTES {
            return None;
        }
        let word =
            |at: usize| u32::from_le_bytes([message[at], message[at + 1], message[at + 2], message[at + 3]]);
        Some(Label {
            stretch: word(0),
            number: word(4),
            channel: u16::from_le_bytes([message[12], message[13]]),
        })
    }
}
