//! Bare one-sided writes: frames through a packet socket, whose payloads an XDP program copies into memory that the receiver has
//! mapped and looks at. It is what a round trip takes that the `packet` send path and the XDP receive path would make without a
//! protocol. Nothing is checked, acknowledged or repeated.
//!
//! A write takes the place of the one before. So there are round trips, in which each is read before the next is sent, and no
//! streams: without flow control nobody could say what of one arrives.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use tsumugi_rail::ether::Mac;
use tsumugi_rail::packet::FrameSocket;
use tsumugi_rail::xdp::{Mode, WriteFrame, WriteTarget};

use super::frames::{nic, payload_bytes_max, too_long};
use super::number::Role;
use super::watch::Patience;
use super::{Failure, LOST_AFTER, Peer, Stream, Streamed, Transport, Until, Watch};

/// Why nothing else is measured, and what to measure instead.
pub(crate) const ONLY_ROUND_TRIPS: &str = "raw-write makes round trips only: a bare write takes the place of the one before, \
     read or not; measure its latency, or for anything else --transport raw-xdp (bare frames) or --transport tsumugi \
     --model write (writes under flow control)";

/// Looks at the memory between two looks at anything else.
const LOOKS_PER_IDLE: u32 = 16;

/// One end of a link.
pub(crate) struct RawWrite {
    socket: FrameSocket,
    target: WriteTarget,
    frame: WriteFrame,
    mac: Mac,
    payload_bytes_max: usize,
    role: Role,
    /// Number of the latest question, of this side or of the other. An answer has that of its question, so that a late one is
    /// not taken for a fast one.
    sequence: u64,
}

impl RawWrite {
    /// Has the NIC towards the other side write what arrives.
    pub(crate) fn open(
        here: SocketAddr,
        there: SocketAddr,
        mode: Mode,
        role: Role,
    ) -> Result<RawWrite, Failure> {
        let nic = nic(here, there)?;
        let refused = |why: &dyn Error| Failure::Refused(format!("raw-write on {}: {why}", nic.name));
        Ok(RawWrite {
            target: WriteTarget::attach(nic.interface, mode).map_err(|error| refused(&error))?,
            socket: FrameSocket::open(nic.interface).map_err(|error| refused(&error))?,
            frame: WriteFrame::new(nic.mac, Mac::default()),
            mac: nic.mac,
            payload_bytes_max: payload_bytes_max(Transport::RawWrite, nic.mtu_bytes),
            role,
            sequence: 0,
        })
    }

    /// Hardware address of this side's NIC.
    pub(crate) const fn mac(&self) -> Mac {
        self.mac
    }

    /// Says who the other side is.
    pub(crate) fn connect(&mut self, there: Mac) {
        self.frame = WriteFrame::new(self.mac, there);
    }

    fn refuse<T>() -> Result<T, Failure> {
        Err(Failure::Refused(ONLY_ROUND_TRIPS.to_owned()))
    }
}

impl Peer for RawWrite {
    fn send(&mut self, message: &mut [u8], watch: &mut Watch<'_>) -> Result<(), Failure> {
        if message.len() > self.payload_bytes_max {
            return Err(too_long(message.len(), self.payload_bytes_max));
        }
        self.sequence += u64::from(self.role == Role::Asks);
        let frame = self.frame.fill(self.sequence, message);
        while !self.socket.send(frame).map_err(Failure::system("cannot send through the packet socket"))? {
            watch.idle()?;
        }
        Ok(())
    }

    fn receive(&mut self, _bytes: usize, watch: &mut Watch<'_>) -> Result<bool, Failure> {
        let mut patience = Patience::new(LOST_AFTER);
        let mut looks = 0_u32;
        loop {
            let latest = self.target.sequence();
            let is_new = match self.role {
                Role::Asks => latest == self.sequence,
                Role::Answers => latest != self.sequence,
            };
            if is_new {
                self.sequence = latest;
                watch.progress()?;
                return Ok(true);
            }
            looks += 1;
            if looks.is_multiple_of(LOOKS_PER_IDLE) {
                watch.idle()?;
                if patience.ended() {
                    return Ok(false);
                }
            }
        }
    }

    fn stream(&mut self, _: Stream, _: Until, _: &mut Watch<'_>) -> Result<Streamed, Failure> {
        RawWrite::refuse()
    }

    fn sink(&mut self, _: Stream, _: &mut Watch<'_>) -> Result<Streamed, Failure> {
        RawWrite::refuse()
    }

    fn idle(&mut self, _: Duration, _: &mut Watch<'_>) -> Result<(), Failure> {
        RawWrite::refuse()
    }
}
