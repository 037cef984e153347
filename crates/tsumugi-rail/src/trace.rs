//! A wrapper that writes down what passes, in a file that Wireshark and tshark open.
//!
//! The file is a pcap file with times in nanoseconds and packets that begin with their IP header.
//! IP and UDP headers are made up from the addresses, since a socket never shows the real ones. The
//! container is 24 bytes and 16 a packet, so that a crate for it would be more to read than this.

use crate::{Deliver, Packet, Rail, RailError, family};
use etherparse::PacketBuilder;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use tsumugi_wire::time::SECOND_NS;
use tsumugi_wire::{Header, Instant};

/// Magic number of a pcap file with times in nanoseconds.
const MAGIC_NS: u32 = 0xa1b2_3c4d;
/// LINKTYPE_RAW: packets begin with an IPv4 or IPv6 header.
const LINKTYPE_RAW: u32 = 101;
/// Longest packet, bytes.
const SNAP_BYTES: u32 = 0xffff;
/// Time to live (hop limit) that made-up headers show.
const HOPS: u8 = 64;

/// A rail whose traffic is written to `W`. Give it a [`std::io::BufWriter`] when that is a file.
///
/// A trace that cannot be written does not stop the rail: it ends there, and [`Traced::finish`] says why.
#[derive(Debug)]
pub struct Traced<R, W> {
    inner: R,
    trace: Trace<W>,
}

#[derive(Debug)]
struct Trace<W> {
    writer: W,
    /// Time of day at [`Instant`] 0, ns since 1970.
    origin_ns: u64,
    packets: u64,
    failed: Option<io::Error>,
    scratch: Vec<u8>,
}

impl<R: Rail, W: Write> Traced<R, W> {
    /// Traces `inner` into `writer`. `origin_ns` is the time of day at [`Instant`] 0, in ns since 1970;
    /// 0 will do in simulated time.
    ///
    /// # Errors
    /// The file's header cannot be written.
    pub fn new(inner: R, mut writer: W, origin_ns: u64) -> io::Result<Traced<R, W>> {
        let mut header = Vec::with_capacity(24);
        header.extend_from_slice(&MAGIC_NS.to_le_bytes());
        header.extend_from_slice(&2u16.to_le_bytes()); // version 2.4
        header.extend_from_slice(&4u16.to_le_bytes());
        header.extend_from_slice(&[0; 8]); // time zone and accuracy: nobody uses them
        header.extend_from_slice(&SNAP_BYTES.to_le_bytes());
        header.extend_from_slice(&LINKTYPE_RAW.to_le_bytes());
        writer.write_all(&header)?;
        Ok(Traced {
            inner,
            trace: Trace { writer, origin_ns, packets: 0, failed: None, scratch: Vec::new() },
        })
    }

    /// Packets written so far.
    pub const fn packets(&self) -> u64 {
        self.trace.packets
    }

    /// The rail inside.
    pub const fn inner(&self) -> &R {
        &self.inner
    }

    /// Ends the trace, and gives back the rail and the writer.
    ///
    /// # Errors
    /// Why the trace is not complete.
    pub fn finish(self) -> (R, io::Result<W>) {
        let Traced { inner, trace: Trace { mut writer, failed, .. } } = self;
        let written = failed.map_or_else(|| writer.flush(), Err);
        (inner, written.map(|()| writer))
    }
}

impl<W: Write> Trace<W> {
    /// Writes one datagram, given in pieces.
    fn write(&mut self, now: Instant, from: SocketAddr, to: SocketAddr, pieces: [&[u8]; 2]) {
        if self.failed.is_none() {
            self.failed = self.try_write(now, from, to, pieces).err();
        }
    }

    fn try_write(
        &mut self,
        now: Instant,
        from: SocketAddr,
        to: SocketAddr,
        pieces: [&[u8]; 2],
    ) -> io::Result<()> {
        // An endpoint for both families has an address in each.
        let (from, to) = (family::local(from, to), family::local(to, from));
        let addresses = match (from, to) {
            (SocketAddr::V4(from), SocketAddr::V4(to)) => {
                PacketBuilder::ipv4(from.ip().octets(), to.ip().octets(), HOPS)
            }
            (SocketAddr::V6(from), SocketAddr::V6(to)) => {
                PacketBuilder::ipv6(from.ip().octets(), to.ip().octets(), HOPS)
            }
            _ => return Ok(()), // no such packet can exist
        };
        let builder = addresses.udp(from.port(), to.port());
        let time_ns = self.origin_ns.saturating_add(now.0);
        let length = builder.size(pieces[0].len() + pieces[1].len());
        if length > SNAP_BYTES as usize {
            return Ok(()); // nor can this one: its send was refused
        }
        self.scratch.clear();
        for word in [time_ns / SECOND_NS, time_ns % SECOND_NS, length as u64, length as u64] {
            self.scratch.extend_from_slice(&(word as u32).to_le_bytes());
        }
        let payload = pieces.concat();
        builder.write(&mut self.scratch, &payload).map_err(io::Error::other)?;
        self.writer.write_all(&self.scratch)?;
        self.packets += 1;
        Ok(())
    }

    /// Writes what was received: one packet, or several that the kernel coalesced.
    fn write_coalesced(&mut self, now: Instant, from: SocketAddr, to: SocketAddr, mut bytes: &[u8]) {
        loop {
            let rest = Header::decode(bytes).map_or(&[][..], |(_, _, rest)| rest);
            let (packet, _) = bytes.split_at(bytes.len() - rest.len());
            self.write(now, from, to, [packet, &[]]);
            if rest.is_empty() {
                return;
            }
            bytes = rest;
        }
    }
}

impl<R: Rail, W: Write> Rail for Traced<R, W> {
    fn address(&self) -> SocketAddr {
        self.inner.address()
    }

    fn datagram_bytes(&self) -> usize {
        self.inner.datagram_bytes()
    }

    fn send(&mut self, now: Instant, to: SocketAddr, burst: &[Packet<'_>]) -> Result<usize, RailError> {
        let taken = self.inner.send(now, to, burst)?;
        let from = self.inner.address();
        for packet in &burst[..taken] {
            self.trace.write(now, from, to, [packet.head, packet.body]);
        }
        Ok(taken)
    }

    fn receive(&mut self, now: Instant, deliver: &mut Deliver<'_>) -> Result<usize, RailError> {
        let Traced { inner, trace } = self;
        let to = inner.address();
        inner.receive(now, &mut |from, bytes| {
            trace.write_coalesced(now, from, to, bytes);
            deliver(from, bytes);
        })
    }

    fn wake_at(&self) -> Instant {
        self.inner.wake_at()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.descriptor()
    }

    fn watch(&mut self, on: bool) -> Result<(), RailError> {
        self.inner.watch(on)
    }

    fn connect(&mut self, peer: SocketAddr) {
        self.inner.connect(peer);
    }

    fn disconnect(&mut self, peer: SocketAddr) {
        self.inner.disconnect(peer);
    }

    fn busy_poll(&mut self, on: bool) -> Result<(), RailError> {
        self.inner.busy_poll(on)
    }

    fn send_path(&self) -> &'static str {
        self.inner.send_path()
    }

    fn uses_xdp(&self) -> bool {
        self.inner.uses_xdp()
    }

    fn report(&self) -> crate::RailReport {
        self.inner.report()
    }

    fn nics(&mut self, now: Instant) -> Option<Vec<crate::NicAddress>> {
        self.inner.nics(now)
    }

    fn listens(&self) -> bool {
        self.inner.listens()
    }

    fn inquire(
        &mut self,
        now: Instant,
        since: Instant,
        peer: SocketAddr,
        question: crate::Question,
    ) -> crate::Evidence {
        self.inner.inquire(now, since, peer, question)
    }

    fn link_down(&mut self, now: Instant, peer: SocketAddr) -> Option<crate::NicName> {
        self.inner.link_down(now, peer)
    }

    fn path_bytes(&mut self, peer: SocketAddr) -> Option<usize> {
        self.inner.path_bytes(peer)
    }

    fn too_long(&mut self) -> Option<SocketAddr> {
        self.inner.too_long()
    }

    fn quiesce(&mut self) {
        self.inner.quiesce();
    }
}
