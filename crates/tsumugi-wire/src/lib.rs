//! What two hosts, and the two sides of one host, agree on: packet formats and the layout of
//! receive memory. Nothing here acts; nothing here knows a clock, a socket or a map.
//!
//! # On the wire
//!
//! A Tsumugi packet is the payload of one UDP datagram. All integers are little-endian.
//!
//! ```text
//! Ethernet 14 | IPv4 20 or IPv6 40 | UDP 8 | header 48 | body …
//! ```
//!
//! | kind      | body                                                   | module        |
//! |-----------|--------------------------------------------------------|---------------|
//! | DATA      | one or more frames: messages, remote memory            | [`frame`], [`remote`] |
//! | ACK, NAK, XOFF, XON | what arrived beyond `ack`, as a bitmap       | [`ack`]       |
//! | PROBE     | none; asks for an ACK                                  |               |
//! | HELLO, CHALLENGE, WELCOME | epochs, flow index and token, cookie   | [`handshake`] |
//! | BYE, BYE_ACK, RESET | none                                         |               |
//! | PIECE     | a piece of a DATA packet that is too long for its path | [`piece`]     |
//! | SIZE_PROBE, SIZE_ACK | padding; none                               |               |
//! | DAMAGED   | none; asks for a DATA packet again                     |               |
//! | JOIN, ARRIVE, LEAVE, NOTICE, RELEASE | 88 bytes, of members of groups and switch boxes | [`group`] |
//! | MULTICAST, RELAY | frames, and a table of their receivers, for switch boxes | [`multicast`] |
//!
//! The budget at MTU 1500 over IPv4: 1500 − 20 − 8 = 1472 bytes of datagram; 48 of header leave
//! 1424 of body; a fragment's frame header of 24 leaves 1400 bytes of a long message, 95 % of the
//! datagram. A lone 8 B message is 48 + 8 + 8 = 64 bytes of datagram.
//!
//! # In memory
//!
//! [`memory`] lays out an endpoint's receive memory, shared between the process that owns it and
//! the receive path, which deposits into it: the library itself or the XDP program.
#![no_std]
#![forbid(unsafe_code)]

pub mod ack;
pub mod defect;
pub mod frame;
pub mod group;
pub mod handshake;
pub mod header;
pub mod limits;
pub mod memory;
pub mod multicast;
mod numbered;
pub mod piece;
pub mod psn;
pub mod rails;
pub mod remote;
pub mod time;

pub use header::{Flags, Header, Kind, MalformedHeader};
pub use psn::Psn;
pub use time::Instant;

/// Atomics that `loom` can take over, so that its model checker runs the code that ships.
pub mod atomic {
    #[cfg(not(loom))]
    pub use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
    #[cfg(loom)]
    pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}
