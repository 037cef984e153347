//! The context of a suspended endpoint, as bytes that another process can go on with.

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// First bytes of every context.
const MAGIC: [u8; 8] = *b"tsuctx\0\x08";

/// Everything that a suspended endpoint knew. See [`crate::Endpoint::suspend`].
///
/// It contains flow tokens and undelivered data: keep it as private as the communication itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    pub(crate) saved: Saved,
}

/// A context that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ContextError {
    /// Somebody still holds channels, messages or buffers of the endpoint.
    #[error(
        "{0} channels, messages or buffers of the endpoint are still held; detach the channels and release the messages first"
    )]
    InUse(usize),
    /// Peers could not be told that another process will go on.
    #[error("telling the peers that another process will go on: {0}")]
    Rail(String),
    /// Not a context.
    #[error("these bytes are not the context of an endpoint of this version")]
    NotAContext,
    /// The bytes end early or contradict themselves.
    #[error("the context is damaged: {0}")]
    Damaged(String),
    /// The system has no memory for what was being sent.
    #[error("{0} bytes of a long transfer need memory to go on from: {1}")]
    NoMemory(usize, String),
    /// The resumed endpoint's datagrams are shorter than those that are already cut.
    #[error(
        "the context has packets of {context} bytes, but this endpoint sends at most {here}; resume where the MTU is as large"
    )]
    Datagrams {
        /// Bytes of the context's longest packet.
        context: usize,
        /// Longest datagram here, bytes.
        here: usize,
    },
}

impl Context {
    /// The address that peers know, at which to resume.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.saved.address
    }

    pub(crate) fn peers_max(&self) -> u32 {
        self.saved.flows
    }

    /// The context as bytes, for a file or a pipe.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        // Serialising to memory cannot fail: every type in `Saved` has a form.
        postcard::to_extend(&self.saved, MAGIC.to_vec()).unwrap_or_default()
    }

    /// Reads what [`Context::to_bytes`] wrote.
    ///
    /// # Errors
    /// The bytes are something else, or damaged.
    pub fn from_bytes(bytes: &[u8]) -> Result<Context, ContextError> {
        let rest = bytes.strip_prefix(&MAGIC).ok_or(ContextError::NotAContext)?;
        let saved = postcard::from_bytes(rest).map_err(|error| ContextError::Damaged(error.to_string()))?;
        Ok(Context { saved })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Saved {
    pub(crate) address: SocketAddr,
    pub(crate) epoch: u32,
    pub(crate) job: u64,
    pub(crate) flows: u32,
    pub(crate) cookie_key: (u64, u64),
    pub(crate) peers: Vec<SavedPeer>,
    pub(crate) channels: Vec<SavedChannel>,
    pub(crate) merged: Vec<SavedMerged>,
}

/// How the messages of an entry that was merged with another are counted. Each is a peer and which connection with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedMerged {
    pub(crate) from: (u32, u32),
    pub(crate) into: (u32, u32),
    pub(crate) before: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedChannel {
    pub(crate) number: u16,
    /// Source and bytes of every message that was not taken.
    pub(crate) messages: Vec<(u32, Vec<u8>)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedPeer {
    pub(crate) number: u32,
    pub(crate) named: bool,
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
    /// Its further addresses.
    pub(crate) aliases: Vec<SocketAddr>,
    /// Whose second number this is.
    pub(crate) same_as: Option<u32>,
    pub(crate) epoch: u32,
    pub(crate) connection: u32,
    pub(crate) outbox: SavedOutbox,
    /// What there is besides when packets flow.
    pub(crate) open: Option<SavedFlow>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedOutbox {
    pub(crate) accepted: u64,
    pub(crate) delivered: u64,
    pub(crate) next_fragmented: u32,
    pub(crate) marks: Vec<(u64, u64)>,
    pub(crate) waiting: Vec<SavedOutgoing>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedFlow {
    pub(crate) connection: SavedConnection,
    pub(crate) sending: SavedSending,
    pub(crate) receive: SavedReceive,
    pub(crate) entry: SavedEntry,
    /// Highest PSN deposited, plus one.
    pub(crate) highest: u64,
}

/// How to address the peer, and how it addresses us.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedConnection {
    pub(crate) remote_flow: u32,
    pub(crate) remote_token: u64,
    pub(crate) body_bytes: u64,
    pub(crate) listens: bool,
    pub(crate) trusts_wire: bool,
    pub(crate) message_bytes_max: u64,
    pub(crate) index: u32,
    pub(crate) token: u64,
}

/// Packets that were sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedSending {
    pub(crate) repeat: u32,
    pub(crate) base: u64,
    pub(crate) limit: u64,
    /// Bodies of outstanding packets; `None` for one that is acknowledged beyond a hole.
    pub(crate) sent: Vec<Option<Vec<u8>>>,
    /// Everything before this PSN has been compared with its CRC, and bodies of packets that are acknowledged and have not.
    pub(crate) checked: u64,
    pub(crate) unchecked: Vec<(u64, Vec<u8>)>,
}

/// The entry of the flow table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedEntry {
    pub(crate) repeat: u32,
    pub(crate) base: u64,
    pub(crate) limit: u64,
    pub(crate) bitmap: Vec<u32>,
}

/// Packets and messages that are arriving.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedReceive {
    /// PSN of the packet whose turn is next.
    pub(crate) next: u64,
    pub(crate) held: Vec<(u64, SavedHeld)>,
    /// Packets that arrived damaged and have not come again.
    pub(crate) damaged: Vec<u64>,
    pub(crate) assemblies: Vec<SavedAssembly>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum SavedOutgoing {
    Packet {
        body: Vec<u8>,
        messages: u64,
    },
    /// A long message of which `offset` bytes have become packets.
    LongMessage {
        data: Vec<u8>,
        channel: u16,
        message: u32,
        offset: u64,
        messages: u64,
    },
    /// What has not become packets of a long write, or of the reply to a long read.
    BulkTransfer {
        opcode: u16,
        key: u64,
        address: u64,
        operation: u64,
        data: Vec<u8>,
        messages: u64,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum SavedHeld {
    Body(Vec<u8>),
    Placed { channel: u16, message: u32, offset: u64, total: u64, bytes: u64 },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedAssembly {
    pub(crate) message: u32,
    pub(crate) channel: u16,
    pub(crate) total: u64,
    pub(crate) in_order: u64,
    /// What is there of it; nothing when nobody wants it.
    pub(crate) buffer: Option<Vec<u8>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_bytes_are_refused() {
        assert_eq!(Context::from_bytes(b"not a context"), Err(ContextError::NotAContext));
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&[0xff; 9]);
        assert!(matches!(Context::from_bytes(&bytes), Err(ContextError::Damaged(_))));
    }
}
