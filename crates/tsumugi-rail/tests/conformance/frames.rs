//! Ethernet frames around Tsumugi packets.

use etherparse::{IpHeaders, Ipv4Header, Ipv6FlowLabel, Ipv6Header, PacketBuilder, VlanId};

/// UDP port of the endpoint.
pub(crate) const PORT: u16 = 7411;
/// UDP port of the peer.
const PEER_PORT: u16 = 40_000;
const MAC: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

/// What goes around a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wrapping {
    /// A VLAN tag.
    pub(crate) vlan: bool,
    /// IPv6.
    pub(crate) six: bool,
    /// Bytes behind the packet that belong to the frame only.
    pub(crate) trailer: usize,
}

impl Wrapping {
    /// Plain IPv4.
    pub(crate) const PLAIN: Wrapping = Wrapping { vlan: false, six: false, trailer: 0 };

    /// Bytes before the UDP payload.
    pub(crate) const fn bytes(self) -> usize {
        14 + if self.vlan { 4 } else { 0 } + if self.six { 40 } else { 20 } + 8
    }

    /// The frame that brings a packet to the endpoint.
    pub(crate) fn question(self, packet: &[u8]) -> Vec<u8> {
        let mut frame = self.frame(packet, false);
        frame.resize(frame.len() + self.trailer, 0xa5);
        frame
    }

    /// The frame that takes the answer back.
    pub(crate) fn answer(self, packet: &[u8]) -> Vec<u8> {
        let mut frame = self.frame(packet, true);
        if !self.six {
            // No checksum: the packet has its own, and IPv4 allows it (RFC 768).
            let at = self.bytes() - 2;
            frame[at..at + 2].fill(0);
        }
        frame
    }

    fn frame(self, packet: &[u8], back: bool) -> Vec<u8> {
        let (from, to) = if back { (1, 0) } else { (0, 1) };
        let ports = if back { (PORT, PEER_PORT) } else { (PEER_PORT, PORT) };
        let builder = PacketBuilder::ethernet2(MAC[from], MAC[to]);
        let ip = if self.six {
            let address = |host| [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host as u8 + 1];
            IpHeaders::Ipv6(
                Ipv6Header {
                    flow_label: Ipv6FlowLabel::try_new(0x12345).expect("20 bits"),
                    hop_limit: if back { 64 } else { 3 },
                    source: address(from),
                    destination: address(to),
                    ..Ipv6Header::default()
                },
                Default::default(),
            )
        } else {
            let address = |host| [10, 0, 0, host as u8 + 1];
            let (ttl, protocol) = (if back { 64 } else { 3 }, etherparse::IpNumber::UDP);
            let mut ip =
                Ipv4Header::new(0, ttl, protocol, address(from), address(to)).expect("a short header");
            ip.dont_fragment = back;
            ip.identification = if back { 0 } else { 77 };
            IpHeaders::Ipv4(ip, Default::default())
        };
        let tag = VlanId::try_new(5).expect("12 bits");
        let mut frame = Vec::new();
        let written = if self.vlan {
            builder.single_vlan(tag).ip(ip).udp(ports.0, ports.1).write(&mut frame, packet)
        } else {
            builder.ip(ip).udp(ports.0, ports.1).write(&mut frame, packet)
        };
        written.expect("a frame that is not too long");
        frame
    }
}
