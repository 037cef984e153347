//! Frames: the Ethernet, IP and UDP headers that the kernel's socket layer would put in front of a packet.
//!
//! Nearly all of it is the same for every packet to one peer. A [`Template`] holds those bytes and what they
//! contribute to the checksums; only the lengths and the sums are filled in per packet.

use crate::Packet;
use std::net::{IpAddr, SocketAddr};

/// A NIC's hardware address.
pub type Mac = [u8; 6];

/// Bytes of an Ethernet header without a VLAN tag: VLANs are NICs of their own, which tag by themselves.
pub const ETHERNET_BYTES: usize = 14;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const UDP_BYTES: usize = 8;
/// Place of the checksum in a UDP header.
pub const UDP_CHECKSUM_OFFSET: usize = 6;
/// Most bytes of headers that a template writes.
pub const HEADER_BYTES_MAX: usize = ETHERNET_BYTES + IPV6_BYTES + UDP_BYTES;

/// EtherType of IPv4 and IPv6 (IEEE 802 numbers).
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
/// IP's number of UDP.
const PROTOCOL_UDP: u8 = 17;
/// Time to live (hop limit), as the kernel's default.
const HOPS: u8 = 64;
/// IPv4's "don't fragment". With it, no identification is needed (RFC 6864, section 4.1).
const DONT_FRAGMENT: u16 = 0x4000;

/// Where a frame goes out, and through whose hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Index of the NIC that sends.
    pub interface: u32,
    /// That NIC's hardware address.
    pub source: Mac,
    /// Hardware address of the next hop.
    pub destination: Mac,
    /// Longest IP packet that passes, bytes: the smaller of the NIC's and the route's MTU.
    pub mtu_bytes: usize,
}

/// Headers to one peer, ready but for lengths and checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Template {
    header: [u8; HEADER_BYTES_MAX],
    /// How many of them count.
    header_bytes: usize,
    /// Sum of what never changes under the checksum: IPv4's header, or IPv6's pseudo-header and UDP's ports.
    sum: u32,
    /// Sum of the pseudo-header without the length: addresses and protocol.
    pseudo_sum: u32,
    interface: u32,
    datagram_bytes: usize,
}

impl Template {
    /// Headers of a datagram from `from` to `to` over `hop`; `None` when the addresses are of two families
    /// or the MTU does not even hold the headers.
    #[must_use]
    pub fn new(hop: &Hop, from: SocketAddr, to: SocketAddr) -> Option<Template> {
        let mut header = [0; HEADER_BYTES_MAX];
        let (ethernet, ip) = header.split_at_mut(ETHERNET_BYTES);
        ethernet[..6].copy_from_slice(&hop.destination);
        ethernet[6..12].copy_from_slice(&hop.source);
        let (ip_bytes, ethertype) = match (from.ip(), to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                ip[0] = 0x45; // version 4, five words
                ip[6..8].copy_from_slice(&DONT_FRAGMENT.to_be_bytes());
                ip[8] = HOPS;
                ip[9] = PROTOCOL_UDP;
                ip[12..16].copy_from_slice(&from.octets());
                ip[16..20].copy_from_slice(&to.octets());
                (IPV4_BYTES, ETHERTYPE_IPV4)
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                ip[0] = 0x60; // version 6, no traffic class, no flow label
                ip[6] = PROTOCOL_UDP;
                ip[7] = HOPS;
                ip[8..24].copy_from_slice(&from.octets());
                ip[24..40].copy_from_slice(&to.octets());
                (IPV6_BYTES, ETHERTYPE_IPV6)
            }
            _ => return None,
        };
        ethernet[12..].copy_from_slice(&ethertype.to_be_bytes());
        ip[ip_bytes..ip_bytes + 2].copy_from_slice(&from.port().to_be_bytes());
        ip[ip_bytes + 2..ip_bytes + 4].copy_from_slice(&to.port().to_be_bytes());
        let addresses = if ip_bytes == IPV4_BYTES { &ip[12..ip_bytes] } else { &ip[8..ip_bytes] };
        let pseudo_sum = sum(addresses) + u32::from(u16::from(PROTOCOL_UDP).to_be());
        let sum = if ip_bytes == IPV4_BYTES {
            sum(&ip[..IPV4_BYTES])
        } else {
            // RFC 8200, section 8.1: addresses, length, protocol; then the UDP header. The length is added twice,
            // for it stands in both.
            pseudo_sum + sum(&ip[ip_bytes..ip_bytes + 4])
        };
        Some(Template {
            header,
            header_bytes: ETHERNET_BYTES + ip_bytes + UDP_BYTES,
            sum,
            pseudo_sum,
            interface: hop.interface,
            datagram_bytes: hop.mtu_bytes.min(usize::from(u16::MAX)).checked_sub(ip_bytes + UDP_BYTES)?,
        })
    }

    /// Index of the NIC that these frames leave through.
    #[must_use]
    pub const fn interface(&self) -> u32 {
        self.interface
    }

    /// Bytes of headers in front of a packet.
    #[must_use]
    pub const fn header_bytes(&self) -> usize {
        self.header_bytes
    }

    /// Longest packet that passes, bytes.
    #[must_use]
    pub const fn datagram_bytes(&self) -> usize {
        self.datagram_bytes
    }

    /// Longest run of packets that [`Template::write_uncut`] takes, bytes. The kernel has NICs segment frames of less
    /// than 64 KiB, headers included (`GSO_LEGACY_MAX_SIZE`, include/linux/netdevice.h).
    #[must_use]
    pub const fn run_bytes_max(&self) -> usize {
        u16::MAX as usize - self.header_bytes
    }

    /// Writes the frame of `packet` to the beginning of `into` and returns its length in bytes; `None`,
    /// and nothing is written, when the packet is too long for the route or for `into`.
    pub fn write(&self, packet: &Packet<'_>, into: &mut [u8]) -> Option<usize> {
        let datagram_bytes = packet.bytes();
        let frame_bytes = self.header_bytes + datagram_bytes;
        if datagram_bytes > self.datagram_bytes || frame_bytes > into.len() {
            return None;
        }
        let (header, payload) = into[..frame_bytes].split_at_mut(self.header_bytes);
        let (head, body) = payload.split_at_mut(packet.head.len());
        head.copy_from_slice(packet.head);
        body.copy_from_slice(packet.body);
        let udp_bytes = self.write_headers(datagram_bytes, header);
        // Over IPv4, UDP's checksum stays 0, "none" (RFC 768): header and body carry checks that are better.
        if self.is_ipv6() {
            let fixed = u64::from(self.sum) + 2 * u64::from(udp_bytes);
            let checksum = match !fold(fixed + u64::from(sum(payload))) {
                0 => 0xffff, // 0 would mean "none", which IPv6 does not allow
                checksum => checksum,
            };
            header[self.checksum_offset()..][..2].copy_from_slice(&checksum.to_ne_bytes());
        }
        Some(frame_bytes)
    }

    /// Writes the headers in front of a run of packets, `run_bytes` long together, to the beginning of `into` and
    /// returns their length in bytes; `None`, and nothing is written, when the run is too long or `into` too short.
    ///
    /// Whoever cuts the run into frames puts their lengths in place of the whole's, and completes the
    /// checksum of each: in place of UDP's stands the sum of the pseudo-header, as
    /// for any checksum that is left to others (`CHECKSUM_PARTIAL`, include/linux/skbuff.h).
    pub fn write_uncut(&self, run_bytes: usize, into: &mut [u8]) -> Option<usize> {
        if run_bytes > self.run_bytes_max() {
            return None;
        }
        let header = into.get_mut(..self.header_bytes)?;
        let udp_bytes = self.write_headers(run_bytes, header);
        let partial = fold(u64::from(self.pseudo_sum) + u64::from(udp_bytes));
        header[self.checksum_offset()..].copy_from_slice(&partial.to_ne_bytes());
        Some(self.header_bytes)
    }

    /// Place of the UDP header in a frame.
    #[must_use]
    pub const fn udp_offset(&self) -> usize {
        self.header_bytes - UDP_BYTES
    }

    const fn checksum_offset(&self) -> usize {
        self.udp_offset() + UDP_CHECKSUM_OFFSET
    }

    const fn is_ipv6(&self) -> bool {
        self.header_bytes == ETHERNET_BYTES + IPV6_BYTES + UDP_BYTES
    }

    /// Fills `header`, which is as long as the headers are, but for UDP's checksum. Returns the UDP length
    /// as it stands there. With it, and `payload_bytes` of payload, IP's length must fit 16 bits.
    fn write_headers(&self, payload_bytes: usize, header: &mut [u8]) -> u16 {
        header.copy_from_slice(&self.header[..self.header_bytes]);
        let udp_bytes = ((UDP_BYTES + payload_bytes) as u16).to_be();
        let (ip, udp) = header[ETHERNET_BYTES..].split_at_mut(self.udp_offset() - ETHERNET_BYTES);
        udp[4..6].copy_from_slice(&udp_bytes.to_ne_bytes());
        if ip.len() == IPV4_BYTES {
            let total_bytes = ((IPV4_BYTES + UDP_BYTES + payload_bytes) as u16).to_be();
            ip[2..4].copy_from_slice(&total_bytes.to_ne_bytes());
            let checksum = !fold(u64::from(self.sum) + u64::from(total_bytes));
            ip[10..12].copy_from_slice(&checksum.to_ne_bytes());
        } else {
            ip[4..6].copy_from_slice(&udp_bytes.to_ne_bytes());
        }
        udp_bytes
    }
}

/// One's complement sum of 16-bit words, not yet folded, in the byte order that they have in memory: the
/// order of the bytes does not matter as long as it is kept (RFC 1071, section 2). A last odd byte counts as
/// if a 0 followed.
fn sum(bytes: &[u8]) -> u32 {
    let mut words = bytes.chunks_exact(4);
    let mut total: u64 = 0;
    for word in &mut words {
        total += u64::from(u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
    }
    let mut last = [0; 4];
    last[..words.remainder().len()].copy_from_slice(words.remainder());
    total += u64::from(u32::from_ne_bytes(last));
    u32::from(fold(total))
}

/// A one's complement sum of 16-bit words, brought down to one word.
const fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{NetSlice, SlicedPacket, TransportSlice};
    use proptest::prelude::*;

    const SOURCE: Mac = [2, 0, 0, 0, 0, 1];
    const DESTINATION: Mac = [2, 0, 0, 0, 0, 2];

    fn hop(mtu_bytes: usize) -> Hop {
        Hop { interface: 7, source: SOURCE, destination: DESTINATION, mtu_bytes }
    }

    fn addresses() -> impl Strategy<Value = (SocketAddr, SocketAddr)> {
        prop_oneof![
            any::<([u8; 4], [u8; 4], u16, u16)>()
                .prop_map(|(a, b, c, d)| (SocketAddr::from((a, c)), SocketAddr::from((b, d)))),
            any::<([u8; 16], [u8; 16], u16, u16)>()
                .prop_map(|(a, b, c, d)| (SocketAddr::from((a, c)), SocketAddr::from((b, d)))),
        ]
    }

    /// Reads a frame with somebody else's parser: addresses and payload. Fails on wrong checksums; IPv4 has
    /// one for UDP only where that is `checked`.
    fn parse(frame: &[u8], checked: bool) -> (SocketAddr, SocketAddr, Vec<u8>) {
        let sliced = SlicedPacket::from_ethernet(frame).unwrap();
        let Some(etherparse::LinkSlice::Ethernet2(ethernet)) = &sliced.link else { panic!("{sliced:?}") };
        assert_eq!((ethernet.source(), ethernet.destination()), (SOURCE, DESTINATION));
        let Some(TransportSlice::Udp(udp)) = &sliced.transport else { panic!("{sliced:?}") };
        let (from, to): (IpAddr, IpAddr) = match &sliced.net {
            Some(NetSlice::Ipv4(ipv4)) => {
                let header = ipv4.header();
                assert_eq!(header.header_checksum(), header.to_header().calc_header_checksum());
                assert!(header.dont_fragment() && !header.more_fragments());
                assert_eq!((header.ttl(), header.identification()), (64, 0));
                assert_eq!(usize::from(header.total_len()), frame.len() - 14);
                let checksum =
                    udp.to_header().calc_checksum_ipv4(&header.to_header(), udp.payload()).unwrap();
                assert_eq!(udp.checksum(), if checked { checksum } else { 0 });
                (header.source_addr().into(), header.destination_addr().into())
            }
            Some(NetSlice::Ipv6(ipv6)) => {
                let header = ipv6.header();
                let checksum =
                    udp.to_header().calc_checksum_ipv6(&header.to_header(), udp.payload()).unwrap();
                assert_eq!(udp.checksum(), checksum);
                assert_ne!(checksum, 0);
                assert_eq!(header.hop_limit(), 64);
                assert_eq!(usize::from(header.payload_length()), frame.len() - 14 - 40);
                (header.source_addr().into(), header.destination_addr().into())
            }
            other => panic!("{other:?}"),
        };
        let sockets = (SocketAddr::new(from, udp.source_port()), SocketAddr::new(to, udp.destination_port()));
        (sockets.0, sockets.1, udp.payload().to_vec())
    }

    proptest! {
        #[test]
        fn another_parser_reads_what_was_written(
            (from, to) in addresses(),
            bytes in proptest::collection::vec(prop_oneof![any::<u8>(), Just(0), Just(0xff)], 0..2000),
            cut in any::<prop::sample::Index>(),
            room in 0usize..100,
        ) {
            let (head, body) = bytes.split_at(cut.index(bytes.len() + 1));
            let template = Template::new(&hop(9000), from, to).unwrap();
            let mut into = vec![0xaa; template.header_bytes() + bytes.len() + room];
            let written = template.write(&Packet { head, body }, &mut into).unwrap();
            prop_assert_eq!(written, template.header_bytes() + bytes.len());
            prop_assert_eq!(parse(&into[..written], false), (from, to, bytes));
            prop_assert!(into[written..].iter().all(|byte| *byte == 0xaa));
        }

        #[test]
        fn a_run_has_headers_that_a_cutter_can_complete(
            (from, to) in addresses(),
            run_bytes in 1usize..66_000,
        ) {
            let template = Template::new(&hop(1500), from, to).unwrap();
            let mut into = vec![0xaa; 200 + run_bytes];
            let Some(written) = template.write_uncut(run_bytes, &mut into) else {
                prop_assert!(run_bytes + template.header_bytes() > 65_535);
                prop_assert!(into.iter().all(|byte| *byte == 0xaa));
                return Ok(());
            };
            prop_assert_eq!(written, template.header_bytes());
            prop_assert!(into[written..].iter().all(|byte| *byte == 0xaa));
            prop_assert_eq!(template.write_uncut(run_bytes, &mut into[..written - 1]), None);
            // What a NIC does: it sums from the UDP header on, the partial sum included.
            let udp = template.udp_offset();
            let checksum = (!fold(u64::from(sum(&into[udp..written + run_bytes])))).to_ne_bytes();
            let checksum = if checksum == [0, 0] { [0xff, 0xff] } else { checksum };
            let frame = &mut into[..written + run_bytes];
            frame[udp + UDP_CHECKSUM_OFFSET..][..2].copy_from_slice(&checksum);
            prop_assert_eq!(parse(frame, true), (from, to, frame[written..].to_vec()));
        }

        #[test]
        fn what_is_too_long_is_not_written(
            (from, to) in addresses(),
            mtu_bytes in 0usize..70_000,
            length in 0usize..70_000,
            room in 0usize..70_000,
        ) {
            let headers = if from.is_ipv4() { 28 } else { 48 };
            let Some(template) = Template::new(&hop(mtu_bytes), from, to) else {
                prop_assert!(mtu_bytes < headers);
                return Ok(());
            };
            prop_assert_eq!(template.datagram_bytes(), mtu_bytes.min(65_535) - headers);
            let body = vec![1; length];
            let mut into = vec![0; room];
            let fits = length + headers <= mtu_bytes.min(65_535) && length + headers + 14 <= room;
            prop_assert_eq!(template.write(&Packet { head: &[], body: &body }, &mut into).is_some(), fits);
            prop_assert!(fits || into.iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn a_checksum_of_zero_is_sent_as_all_ones() {
        let template =
            Template::new(&hop(1500), "[::1]:1".parse().unwrap(), "[::2]:2".parse().unwrap()).unwrap();
        let mut into = [0; 100];
        // A first word that makes the whole sum 0xffff: what is left of it without that word.
        template.write(&Packet { head: &[0, 0], body: &[] }, &mut into).unwrap();
        let word = [into[60], into[61]];
        template.write(&Packet { head: &word, body: &[] }, &mut into).unwrap();
        assert_eq!(into[60..62], [0xff, 0xff]);
        parse(&into[..64], false);
    }

    #[test]
    fn addresses_of_two_families_have_no_headers() {
        let (four, six) = ("127.0.0.1:1".parse().unwrap(), "[::1]:1".parse().unwrap());
        assert_eq!(Template::new(&hop(1500), four, six), None);
        assert_eq!(Template::new(&hop(1500), six, four), None);
    }
}
