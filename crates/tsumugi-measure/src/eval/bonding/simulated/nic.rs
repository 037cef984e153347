//! NICs that send at a rate, shared by everything that leaves through them.
//!
//! The links of [`Network`](tsumugi_rail::sim::Network) are each a pair of addresses, so flows from one NIC to several
//! hosts would each have the NIC's rate. Here they wait for each other.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use tsumugi_rail::sim::{FRAMING_BYTES, SimNic, SimRail};
use tsumugi_rail::{Deliver, NicAddress, Packet, Rail, RailError};
use tsumugi_wire::Instant;

/// Bytes to one destination that wait for a NIC at most: about what the send buffer of a socket holds, of which an
/// endpoint has one for each. More is not taken.
const SEND_BUFFER_BYTES: u64 = 128 << 10;

/// A datagram that waits for its NIC.
struct Waiting {
    /// When its last bit has left.
    leaves: Instant,
    to: SocketAddr,
    bytes: Vec<u8>,
}

/// The queue of a NIC.
#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    /// Bytes that wait, by destination.
    buffered: HashMap<SocketAddr, u64>,
    free_at: Instant,
}

/// A host's rail whose NICs send at a rate.
pub(super) struct Limited {
    rail: SimRail,
    nics: Vec<SimNic>,
    bits_per_s: u64,
    queues: Vec<Queue>,
    /// Buffers to use again.
    free: Vec<Vec<u8>>,
}

impl Limited {
    pub(super) fn new(rail: SimRail, nics: &[SimNic], bits_per_s: u64) -> Limited {
        let queues = nics.iter().map(|_| Queue::default()).collect();
        Limited { rail, nics: nics.to_vec(), bits_per_s, queues, free: Vec::new() }
    }

    /// When the next datagram leaves.
    pub(super) fn next_departure(&self) -> Instant {
        let first = self.queues.iter().filter_map(|queue| queue.waiting.front());
        first.map(|waiting| waiting.leaves).min().unwrap_or(Instant::NEVER)
    }

    /// Sends the next datagram, at its time.
    pub(super) fn depart(&mut self) -> Result<(), RailError> {
        let next = self.queues.iter_mut().filter(|queue| !queue.waiting.is_empty());
        let Some(queue) = next.min_by_key(|queue| queue.waiting[0].leaves) else { return Ok(()) };
        let Some(Waiting { leaves, to, bytes }) = queue.waiting.pop_front() else { return Ok(()) };
        if let Some(buffered) = queue.buffered.get_mut(&to) {
            *buffered -= bytes.len() as u64;
        }
        self.rail.send(leaves, to, &[Packet { head: &[], body: &bytes }])?;
        self.free.push(bytes);
        Ok(())
    }
}

impl Rail for Limited {
    fn address(&self) -> SocketAddr {
        self.rail.address()
    }

    fn datagram_bytes(&self) -> usize {
        self.rail.datagram_bytes()
    }

    fn send(&mut self, now: Instant, to: SocketAddr, burst: &[Packet<'_>]) -> Result<usize, RailError> {
        let source = self.rail.source(to.ip());
        let nic = self.nics.iter().position(|nic| Some(nic.address) == source);
        let Some(queue) = nic.map(|nic| &mut self.queues[nic]) else {
            return self.rail.send(now, to, burst); // which counts it as having no route
        };
        let buffered = queue.buffered.entry(to).or_default();
        for (taken, packet) in burst.iter().enumerate() {
            let bytes = packet.bytes() as u64;
            if *buffered + bytes > SEND_BUFFER_BYTES {
                return Ok(taken);
            }
            let time_ns = 8 * (bytes + FRAMING_BYTES) * 1_000_000_000 / self.bits_per_s;
            queue.free_at = queue.free_at.max(now).plus(time_ns);
            *buffered += bytes;
            let mut copy = self.free.pop().unwrap_or_default();
            copy.clear();
            copy.extend_from_slice(packet.head);
            copy.extend_from_slice(packet.body);
            queue.waiting.push_back(Waiting { leaves: queue.free_at, to, bytes: copy });
        }
        Ok(burst.len())
    }

    fn receive(&mut self, now: Instant, deliver: &mut Deliver<'_>) -> Result<usize, RailError> {
        self.rail.receive(now, deliver)
    }

    fn wake_at(&self) -> Instant {
        self.rail.wake_at()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn nics(&mut self, now: Instant) -> Option<Vec<NicAddress>> {
        self.rail.nics(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tsumugi_rail::sim::{LinkOptions, Network};

    fn nic(network: u8, host: u8) -> SimNic {
        SimNic::new(SocketAddr::from(([10, network, 0, host], 7411)), 24)
    }

    #[test]
    fn what_leaves_through_a_nic_waits_for_what_left_before() {
        let network = Network::new(1, LinkOptions { latency_ns: 0, ..LinkOptions::default() });
        let nics = [nic(0, 1), nic(1, 1)];
        let mut rail = Limited::new(network.rail_of(&nics, 1472), &nics, 100_000_000);
        let mut others = [2, 3].map(|host| network.rail_of(&[nic(0, host), nic(1, host)], 1472));
        let body = [0; 1184];
        let packet = [Packet { head: &[], body: &body }];
        // Two hosts by one NIC, and one of them by the other: 1,250 B on the wire are 100 µs.
        for to in [nic(0, 2), nic(0, 3), nic(1, 2)] {
            assert_eq!(rail.send(Instant(0), to.address, &packet).expect("taken"), 1);
        }
        let mut left = Vec::new();
        while rail.next_departure() != Instant::NEVER {
            left.push(rail.next_departure().0);
            rail.depart().expect("sent");
        }
        assert_eq!(left, [100_000, 100_000, 200_000]);
        let mut count = |at: usize| others[at].receive(Instant(200_000), &mut |_, _| ()).expect("received");
        assert_eq!((count(0), count(1)), (2, 1));
    }

    #[test]
    fn a_destination_fills_its_own_buffer_only() {
        let network = Network::new(1, LinkOptions::default());
        let nics = [nic(0, 1)];
        let mut rail = Limited::new(network.rail_of(&nics, 1472), &nics, 100_000_000);
        let body = [0; 1024];
        let burst = vec![Packet { head: &[], body: &body }; 200];
        let send = |rail: &mut Limited, to| rail.send(Instant(0), nic(0, to).address, &burst).expect("taken");
        assert_eq!([2, 2, 3].map(|to| send(&mut rail, to)), [128, 0, 128]);
        rail.depart().expect("sent");
        assert_eq!([2, 3].map(|to| send(&mut rail, to)), [1, 0]);
    }
}
