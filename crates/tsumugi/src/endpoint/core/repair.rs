//! Packets that arrive damaged through the XDP program, which acknowledges bodies that it does not check.
//!
//! That a packet is acknowledged says that it need not be sent again by itself. Its sender keeps it until the receiver has
//! compared it with its CRC, and says so (`tsumugi_proto::unchecked`). What turns out to be damaged the receiver asks for
//! (DAMAGED), and asks again until it comes: in PIECEs, which no XDP program takes, so that they are compared on
//! arrival. Meanwhile the packet's turn does not pass.

use super::deliver::BodyPlace;
use super::{Core, Ended};
use crate::endpoint::peer::Peer;
use crate::endpoint::peer::connection::Phase;
use crate::error::Reason;
use std::net::SocketAddr;
use tsumugi_proto::ReceiveMemory;
use tsumugi_proto::unchecked::UNCHECKED_MAX;
use tsumugi_rail::{Rail, RailError};
use tsumugi_wire::limits::DATAGRAM_BYTES_MIN;
use tsumugi_wire::memory::Counter;
use tsumugi_wire::time::MILLISECOND_NS;
use tsumugi_wire::{Flags, Instant, Kind, Psn};

impl Core {
    /// A packet in the receive queue is not what its CRC says.
    pub(super) fn on_damage(&mut self, index: u32, psn: Psn) -> Result<(), Ended> {
        let is_first = self.counted(Counter::Corrupt) == 0;
        self.memory.count(Counter::Corrupt, 1);
        let peer = &mut self.peers[index as usize];
        if is_first {
            let Peer { name, address, .. } = peer;
            tracing::warn!(
                peer = %name,
                %address,
                "a packet arrived damaged through the XDP receive path, and is asked for again; the counters corrupt and \
                 packets_repaired tell how many do: look for a bad cable, switch, NIC or tunnel between the two"
            );
        }
        if psn < peer.receive.reorder.next() || peer.receive.damaged.len() >= UNCHECKED_MAX {
            // No receive path takes a packet twice, or so many beyond the credit: garbage was written into our memory.
            return Err(self.violation(index, "packets that cannot have been deposited"));
        }
        peer.receive.damaged.add(psn);
        self.tell_held(index);
        self.schedule(index);
        Ok(())
    }

    /// Asks for packets that arrived damaged.
    pub(super) fn ask_for_damaged(&mut self, now: Instant, index: u32) {
        let peer = &mut self.peers[index as usize];
        let srtt_ns = peer.sender.paths().iter().map(|path| path.rtt.srtt_ns).max().unwrap_or(0);
        let patience_ns = 2 * srtt_ns + MILLISECOND_NS;
        let usual = peer.usual_address();
        let addresses: Vec<SocketAddr> = peer.paths.iter().map(|path| path.address).collect();
        for (psn, asks) in peer.receive.damaged.ask(now, patience_ns) {
            // First over a path that works, as far as is known; then over each.
            let address = addresses.get(asks as usize % addresses.len()).filter(|_| asks > 0);
            if let Some(packet) = self.flow_packet_about(index, Kind::Damaged, 0, psn) {
                self.reply(address.copied().unwrap_or(usual), packet.to_vec());
            }
        }
    }

    /// Takes a packet in that has come again, if it was wanted. It has been compared.
    #[inline]
    pub(super) fn repairs(&mut self, index: u32, psn: Psn, body: &[u8]) -> Result<bool, Ended> {
        let peer = &mut self.peers[index as usize];
        if peer.receive.damaged.is_empty() || !peer.receive.damaged.remove(psn) {
            return Ok(false);
        }
        peer.acks.demand(Kind::Ack, Psn(0));
        self.schedule(index);
        self.tally.packets_repaired += 1;
        self.take_in(index, psn, body, BodyPlace::Passing)?;
        self.tell_held(index);
        Ok(true)
    }

    /// A packet of ours has arrived damaged, and the peer wants it again.
    pub(super) fn on_wanted_again(&mut self, index: u32, psn: Psn) -> Result<(), Ended> {
        let peer = &mut self.peers[index as usize];
        if !matches!(peer.connection.phase, Phase::Open | Phase::Leaving(_)) {
            return Ok(());
        }
        if psn >= peer.sender.next() {
            self.memory.count(Counter::Violation, 1);
        } else if peer.sender.packet(psn).or_else(|| peer.repairs.unchecked.get(psn)).is_some() {
            if peer.repairs.want(psn) {
                self.schedule(index);
            }
        } else if psn >= peer.repairs.unchecked.checked() {
            // So much has been written to its memory since that this was given up. It must not wait for ever.
            let (address, local) = (peer.usual_address(), peer.connection.local);
            if let Some(local) = local {
                self.reset(address, local.token);
            }
            return Err(Ended(index, Reason::Violation("it asks for a packet that is not kept any more")));
        }
        // Otherwise it has got it: this is a copy, or late.
        Ok(())
    }

    /// Sends the packets again that the peer has asked for. `false` when the NIC did not take them all.
    pub(super) fn send_repairs<R: Rail + ?Sized>(
        &mut self,
        now: Instant,
        index: u32,
        rail: &mut R,
    ) -> Result<bool, RailError> {
        let wanted = self.peers[index as usize].repairs.take_wanted();
        for (at, &psn) in wanted.iter().enumerate() {
            let peer = &mut self.peers[index as usize];
            let Some(&key) = peer.sender.packet(psn).or_else(|| peer.repairs.unchecked.get(psn)) else {
                continue;
            };
            // In datagrams that every path carries, because nobody would find out that one carries less than it did.
            let usable: Vec<u8> = (0..)
                .zip(peer.sender.paths())
                .filter(|(_, path)| path.is_usable())
                .map(|(path, _)| path)
                .collect();
            let path = peer.repairs.next_path(&usable);
            self.tally.packets_resent += 1;
            self.tally.packets_asked_for += 1;
            if !self.send_pieces_of(now, index, path, DATAGRAM_BYTES_MIN, (psn, key, Flags::RESENT), rail)? {
                self.peers[index as usize].repairs.put_back(&wanted[at..]);
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::core::EndpointOptions;
    use crate::endpoint::core::channels::Delivery;
    use crate::{Context, PeerId};
    use tsumugi_proto::xdp::{self, Fate};
    use tsumugi_rail::Packet;
    use tsumugi_rail::memory::Memory;
    use tsumugi_rail::sim::{LinkOptions, Network, SimRail};
    use tsumugi_wire::handshake::Repeat;
    use tsumugi_wire::memory::Geometry;

    struct Host {
        core: Core,
        rail: SimRail,
    }

    fn fresh(number: u8) -> Core {
        let options = EndpointOptions {
            job: 0,
            accept_unknown: true,
            peers_max: 2,
            repeat: Repeat::Selective,
            peer_timeout_ns: 500 * MILLISECOND_NS,
            connect_timeout_ns: 500 * MILLISECOND_NS,
            listens: false,
            integrity: crate::Integrity::Crc32c,
            message_bytes_max: 1 << 20,
            receive_bytes: 1 << 20,
            send_bytes: 8 << 20,
            datagram_bytes: 1472,
            seed: Some(number.into()),
        };
        let geometry = Geometry { window_pages: 1, translations: 4, ..Geometry::plain(2, 256 << 10) };
        Core::new(options, Memory::new(geometry).unwrap())
    }

    fn address(number: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, number], 7411))
    }

    impl Host {
        /// The XDP program takes what has arrived, damaged or not.
        fn receive_by_xdp(&mut self, now: Instant, damages: bool) {
            let Host { core, rail } = self;
            let mut answers = Vec::new();
            rail.receive(now, &mut |from, bytes| {
                let mut bytes = bytes.to_vec();
                *bytes.last_mut().unwrap() ^= u8::from(damages);
                match xdp::receive(core.receive_memory(), &bytes, false, crate::checksum::crc32c).0 {
                    Fate::Pass => core.on_datagram(now, from, &bytes),
                    Fate::Drop => {}
                    Fate::Answer(answer) => answers.push((from, answer)),
                }
            })
            .unwrap();
            for (to, answer) in answers {
                rail.send(now, to, &[Packet { head: &answer, body: &[] }]).unwrap();
            }
        }

        fn call(&mut self, now: Instant) {
            self.receive_by_xdp(now, false);
            self.core.drain(now);
            self.core.tick(now);
            self.core.transmit(now, &mut self.rail).unwrap();
            self.core.audit_all(0).unwrap();
        }

        /// Another process goes on.
        fn suspend(&mut self, now: Instant, number: u8) {
            let bytes = self.core.save(now, address(number)).to_bytes();
            self.core = fresh(number);
            self.core.restore(&Context::from_bytes(&bytes).unwrap()).unwrap();
        }

        fn read(&mut self) -> Vec<Vec<u8>> {
            let mut messages = Vec::new();
            while let Some(Delivery::Message { payload, .. }) = self.core.take(1) {
                messages.push(self.core.bytes_of(&payload).to_vec());
                self.core.release_message(payload);
            }
            messages
        }
    }

    /// Two hosts, which exchange what they have to say for so many microseconds.
    fn exchange(here: &mut Host, there: &mut Host, now: &mut Instant, microseconds: u64) {
        for _ in 0..microseconds / 10 {
            here.call(*now);
            there.call(*now);
            *now = now.plus(10_000);
        }
    }

    /// Two connected hosts, of which the second has the XDP program.
    fn connected() -> (Host, Host, PeerId, Instant) {
        let network = Network::new(1, LinkOptions::default());
        let host = |number| Host { core: fresh(number), rail: network.rail(address(number), 1472) };
        let (mut here, mut there) = (host(1), host(2));
        assert!(there.core.open_channel(1));
        let id = here.core.add_peer("there", address(2)).unwrap();
        let mut now = Instant(0);
        here.core.post(now, id, 1, b"hello").unwrap();
        exchange(&mut here, &mut there, &mut now, 1000);
        assert_eq!(there.read(), [b"hello"]);
        (here, there, id, now)
    }

    #[test]
    fn processes_that_go_on_for_others_know_what_was_damaged_and_have_it() {
        let (mut here, mut there, id, mut now) = connected();
        let messages: Vec<Vec<u8>> = (0..20).map(|number| vec![number; 400 * usize::from(number)]).collect();
        for message in &messages {
            here.core.post(now, id, 1, message).unwrap();
        }
        here.core.transmit(now, &mut here.rail).unwrap();
        now = now.plus(MILLISECOND_NS);
        there.receive_by_xdp(now, true);
        here.call(now.plus(MILLISECOND_NS));
        assert!(here.core.is_flushed(), "the program has acknowledged all of it");
        there.core.drain(now);
        there.suspend(now, 2);
        here.suspend(now, 1);
        assert!(there.core.open_channel(1));
        exchange(&mut here, &mut there, &mut now, 20_000);
        assert_eq!(there.read(), messages);
        assert!(here.core.take_failure().is_none() && here.core.unchecked() == 0);
        assert_eq!(there.core.counters().get("packets_unrepaired"), 0);
    }

    /// What has the right credit may be sent before the WELCOME has come, and deposited, damaged.
    #[test]
    fn nobody_is_asked_before_the_handshake_is_over() {
        let network = Network::new(1, LinkOptions { latency_ns: 1000, ..LinkOptions::default() });
        let mut here = Host { core: fresh(1), rail: network.rail(address(1), 1472) };
        let id = here.core.add_peer("there", address(2)).unwrap();
        let mut now = Instant(0);
        here.core.post(now, id, 1, b"hello").unwrap();
        here.call(now);
        here.core.peers[id.0 as usize].receive.damaged.add(Psn(0));
        here.core.arm(now, id.0);
        for _ in 0..3 {
            now = now.plus(MILLISECOND_NS);
            here.call(now);
            assert!(here.core.deadline() > now, "a timer is due, and nothing can be done");
        }
    }

    /// So much was written to the window behind a damaged packet that its sender has given it up.
    #[test]
    fn nobody_waits_for_what_its_sender_does_not_have() {
        let (mut here, mut there, id, mut now) = connected();
        for number in 0..2 {
            here.core.post(now, id, 1, &[number; 1000]).unwrap();
        }
        here.core.transmit(now, &mut here.rail).unwrap();
        now = now.plus(MILLISECOND_NS);
        there.receive_by_xdp(now, true);
        now = now.plus(MILLISECOND_NS);
        here.call(now);
        assert_eq!(here.core.unchecked(), 2);
        let keys: Vec<_> = here.core.peers[id.0 as usize].repairs.unchecked.drain().collect();
        keys.into_iter().for_each(|key| here.core.release_packet(key));
        exchange(&mut here, &mut there, &mut now, 20_000);
        let reasons = [&mut here, &mut there].map(|host| host.core.take_failure().unwrap().reason);
        assert_eq!(
            reasons,
            [Reason::Violation("it asks for a packet that is not kept any more"), Reason::Restarted]
        );
        assert_eq!(there.core.counters().get("packets_unrepaired"), 2);
    }
}
