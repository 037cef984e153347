//! Where a connection stands, and what both sides have agreed on.

use crate::Integrity;
use crate::context::SavedConnection;
use crate::error::Reason;
use std::net::SocketAddr;
use tsumugi_proto::handshake::Handshake;
use tsumugi_wire::Instant;
use tsumugi_wire::header::HEADER_BYTES;
use tsumugi_wire::limits::{DATAGRAM_BYTES_MIN, IPV4_UDP_BYTES, IPV6_UDP_BYTES};

/// Where the connection stands.
#[derive(Clone, Debug)]
pub(crate) enum Phase {
    /// Its address is known; nobody has said anything.
    Strange,
    /// We are saying HELLO.
    Handshake(Handshake),
    /// Packets flow.
    Open,
    /// We have said BYE, last at this time.
    Leaving(Instant),
    /// It is gone. Stays so until it connects anew, or the application resets the peer.
    Gone(Reason),
}

/// What the peer offered: how to address it, what it takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Address {
    /// Index of our flow in its table.
    pub(crate) flow: u32,
    /// Token of our flow.
    pub(crate) token: u64,
    /// Longest packet body that both sides take, bytes, and whether it was agreed on over IPv6.
    pub(crate) body_bytes: usize,
    pub(crate) over_ipv6: bool,
    /// Its kernel tells whether its process is there.
    pub(crate) listens: bool,
    /// Neither side makes or compares CRCs of bodies.
    pub(crate) trusts_wire: bool,
}

/// Our entry in the flow table for what the peer sends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Local {
    pub(crate) index: u32,
    pub(crate) token: u64,
}

/// Where the connection stands, and what both sides have agreed on.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) phase: Phase,
    /// Number of the present connection with it: a ticket of an earlier one has another.
    pub(crate) number: u32,
    /// Epoch of the incarnation that we talk to; 0 while unknown.
    pub(crate) epoch: u32,
    pub(crate) remote: Option<Address>,
    pub(crate) local: Option<Local>,
    /// Longest message that it takes, bytes, as it said last; everything, before it has said so.
    pub(crate) message_bytes_max: u64,
    /// It cannot answer long packets where they arrive, and wants to be asked by PROBE.
    pub(crate) ask_by_probe: bool,
    /// Nonce of the HELLO that was accepted, and what its cookie was bound to.
    pub(crate) welcomed: Option<(u64, u32)>,
    /// How often WELCOME came too late for the peer.
    pub(crate) withdrawn: u32,
    /// Token of what was sent to it in the last connection that is over and in which anything was; 0: there was none.
    pub(crate) former_token: u64,
}

impl Default for Connection {
    fn default() -> Connection {
        Connection {
            phase: Phase::Strange,
            number: 0,
            epoch: 0,
            remote: None,
            local: None,
            message_bytes_max: u64::MAX,
            ask_by_probe: false,
            welcomed: None,
            withdrawn: 0,
            former_token: 0,
        }
    }
}

impl Connection {
    /// What is needed to go on, if packets flow.
    pub(crate) fn save(&self) -> Option<SavedConnection> {
        let (Phase::Open, Some(remote), Some(local)) = (&self.phase, self.remote, self.local) else {
            return None;
        };
        Some(SavedConnection {
            remote_flow: remote.flow,
            remote_token: remote.token,
            body_bytes: remote.body_bytes as u64,
            listens: remote.listens,
            trusts_wire: remote.trusts_wire,
            message_bytes_max: self.message_bytes_max,
            index: local.index,
            token: local.token,
        })
    }

    /// Packets flow, as when it was [saved](Connection::save).
    pub(crate) fn reopen(&mut self, saved: &SavedConnection, over_ipv6: bool) {
        self.phase = Phase::Open;
        self.remote = Some(Address {
            flow: saved.remote_flow,
            token: saved.remote_token,
            body_bytes: saved.body_bytes as usize,
            over_ipv6,
            listens: saved.listens,
            trusts_wire: saved.trusts_wire,
        });
        self.local = Some(Local { index: saved.index, token: saved.token });
        self.message_bytes_max = saved.message_bytes_max;
    }
}

impl Connection {
    /// Whether both sides have agreed to neither make nor compare CRCs of bodies.
    #[inline]
    pub(crate) fn trusts_wire(&self) -> bool {
        self.remote.as_ref().is_some_and(|remote| remote.trusts_wire)
    }

    /// Whether the peer may send bodies without a CRC. It knows what both want as soon as it has our HELLO, and its first packets
    /// may come before its WELCOME.
    #[inline]
    pub(crate) fn may_be_unchecked(&self, offered: Integrity) -> bool {
        self.remote.as_ref().map_or(offered == Integrity::Wire, |remote| remote.trusts_wire)
    }
}

/// Longest datagram over IPv6 where one over IPv4 has so many bytes.
pub(crate) const fn over_ipv6(bytes: usize) -> usize {
    let shorter = bytes.saturating_sub(IPV6_UDP_BYTES - IPV4_UDP_BYTES);
    if shorter < DATAGRAM_BYTES_MIN { DATAGRAM_BYTES_MIN } else { shorter }
}

impl Address {
    /// Longest datagram that both sides take, bytes.
    pub(crate) const fn datagram_bytes(&self) -> usize {
        self.body_bytes + HEADER_BYTES
    }

    /// The same at an address of the peer: what both have agreed on over IPv4 is too long for the same NICs over IPv6.
    pub(crate) fn datagram_bytes_at(&self, address: SocketAddr) -> usize {
        let is_shorter = address.is_ipv6() && !self.over_ipv6;
        let bytes = self.datagram_bytes();
        if is_shorter { over_ipv6(bytes) } else { bytes }
    }
}
