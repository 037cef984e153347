//! An open endpoint, without socket or clock: strangers, and a peer that knows every token and says anything.
//!
//! The input is a list of steps: what to do, how many bytes it takes, the bytes.
#![no_main]

#[path = "../../crates/tsumugi-wire/tests/common/exercise.rs"]
#[allow(dead_code, reason = "each target uses its own part")]
mod exercise;

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use tsumugi::internal::{Core, EndpointOptions};
use tsumugi::{PeerId, Repeat};
use tsumugi_rail::{Memory, Packet, Rail, RailError};
use tsumugi_wire::handshake::{Challenge, OFFER_BYTES, Offer};
use tsumugi_wire::header::HEADER_BYTES;
use tsumugi_wire::memory::Geometry;
use tsumugi_wire::time::MILLISECOND_NS;
use tsumugi_wire::{Flags, Header, Instant, Kind, group, multicast};

const PEERS_MAX: u32 = 4;
const DATAGRAM_BYTES: usize = 1472;
/// Epoch of the peer.
const EPOCH: u32 = 7;

/// What the peer has heard: all it needs to go on.
#[derive(Default)]
struct Heard {
    nonce: u64,
    cookie: u64,
    token: u64,
    flow: u32,
}

impl Rail for Heard {
    fn address(&self) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], 1))
    }
    fn datagram_bytes(&self) -> usize {
        DATAGRAM_BYTES
    }
    fn send(&mut self, _: Instant, _: SocketAddr, burst: &[Packet<'_>]) -> Result<usize, RailError> {
        for packet in burst {
            let bytes = [packet.head, packet.body].concat();
            assert!(bytes.len() <= DATAGRAM_BYTES, "a datagram of {} bytes", bytes.len());
            let (header, body, rest) = Header::decode(&bytes).expect("what an endpoint sends is a packet");
            assert!(rest.is_empty());
            match header.kind {
                Kind::Hello | Kind::Welcome => {
                    let offer = Offer::decode(body).expect("an offer");
                    self.nonce = offer.nonce;
                    if offer.token != 0 {
                        (self.token, self.flow) = (offer.token, offer.flow);
                    }
                }
                Kind::Challenge => {
                    let challenge = Challenge::decode(body).expect("a challenge");
                    (self.nonce, self.cookie) = (challenge.nonce, challenge.cookie);
                }
                _ => {}
            }
        }
        Ok(burst.len())
    }
    fn receive(&mut self, _: Instant, _: &mut tsumugi_rail::Deliver<'_>) -> Result<usize, RailError> {
        Ok(0)
    }
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// What `body_crc` is, if the flag MIXED means something.
fn mix(header: &[u8], body: &[u8]) -> Option<u32> {
    if !Flags(header[2]).has(Flags::MIXED) {
        return None;
    }
    if let Some(Kind::Multicast | Kind::Relay) = Kind::from_number(header[1]) {
        let (_, table) = multicast::split(u16::from_le_bytes([header[40], header[41]]), body).ok()?;
        return Some(multicast::check(table));
    }
    group::mix(body)
}

/// Makes length, CRC or mix, and check of a packet right.
fn finish(packet: &mut [u8]) {
    let Some((header, body)) = packet.split_at_mut_checked(HEADER_BYTES) else { return };
    header[0] = 1;
    header[42..44].copy_from_slice(&(body.len() as u16).to_le_bytes());
    let crc = mix(header, body)
        .unwrap_or_else(|| crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, body) as u32);
    header[44..48].copy_from_slice(&crc.to_le_bytes());
    exercise::seal(packet);
}

/// A packet of the peer: kind and the rest of the header as the input has it, but nothing to be refused for.
fn insider(bytes: &[u8], heard: &Heard) -> Vec<u8> {
    let mut packet = bytes.to_vec();
    packet.resize(packet.len().max(HEADER_BYTES), 0);
    packet[1] = packet[1] % Kind::ALL.len() as u8 + 1;
    packet[8..16].copy_from_slice(&heard.token.to_le_bytes());
    packet[16..20].copy_from_slice(&heard.flow.to_le_bytes());
    packet[20..24].copy_from_slice(&EPOCH.to_le_bytes());
    finish(&mut packet);
    packet
}

/// An offer of the peer with the right nonce and cookie, job 0, and the rest as the input has it.
fn offer(kind: Kind, bytes: &[u8], heard: &Heard) -> Vec<u8> {
    let mut packet = Header::new(kind, EPOCH).encode().to_vec();
    let mut body = [0; OFFER_BYTES];
    let given = bytes.len().min(OFFER_BYTES);
    body[..given].copy_from_slice(&bytes[..given]);
    body[..8].fill(0);
    body[8..16].copy_from_slice(&heard.nonce.to_le_bytes());
    body[16..24].copy_from_slice(&heard.cookie.to_le_bytes());
    body[36] &= 1;
    packet.extend_from_slice(&body);
    finish(&mut packet);
    packet
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let options = EndpointOptions {
        job: 0,
        accept_unknown: true,
        peers_max: PEERS_MAX,
        repeat: Repeat::Selective,
        peer_timeout_ns: 5000 * MILLISECOND_NS,
        connect_timeout_ns: 5000 * MILLISECOND_NS,
        listens: false,
        integrity: tsumugi::Integrity::Crc32c,
        message_bytes_max: 1 << 20,
        receive_bytes: 1 << 21,
        send_bytes: 1 << 16,
        datagram_bytes: DATAGRAM_BYTES,
        seed: Some(1),
    };
    let memory = Memory::new(Geometry::plain(2, 1 << 14)).expect("a small memory");
    let mut core = Core::new(options, memory);
    let mut heard = Heard::default();
    let mut now = Instant(0);
    let peer_address = SocketAddr::from(([10, 0, 0, 2], 2));
    core.open_channel(7);
    let peer = core.add_peer("peer", peer_address).expect("the first peer");
    let mut rest = input;
    while let Some(([step, low, high], bytes)) =
        rest.split_first_chunk::<3>().map(|(head, tail)| (*head, tail))
    {
        let length = usize::from(u16::from_le_bytes([low, high])).min(bytes.len()).min(DATAGRAM_BYTES);
        let (bytes, tail) = bytes.split_at(length);
        rest = tail;
        let stranger = SocketAddr::from(([10, 0, 1, step], 3));
        match step % 8 {
            0 => core.on_datagram(now, stranger, bytes),
            1 => {
                let mut packet = bytes.to_vec();
                finish(&mut packet);
                core.on_datagram(now, stranger, &packet);
            }
            2 | 3 => core.on_datagram(now, peer_address, &insider(bytes, &heard)),
            4 => {
                let _ = core.post(now, peer, 7, bytes);
            }
            5 => core.on_datagram(now, peer_address, &offer(Kind::Hello, bytes, &heard)),
            6 => core.on_datagram(now, peer_address, &offer(Kind::Welcome, bytes, &heard)),
            _ => {
                let challenge = Challenge { nonce: heard.nonce, cookie: u64::from(high) + 1 };
                let mut packet = Header::new(Kind::Challenge, EPOCH).encode().to_vec();
                packet.extend_from_slice(&challenge.encode());
                finish(&mut packet);
                core.on_datagram(now, peer_address, &packet);
            }
        }
        now = now.plus(u64::from(high) * MILLISECOND_NS);
        core.drain(now);
        core.tick(now);
        core.transmit(now, &mut heard).expect("this rail takes everything");
        while core.take_failure().is_some() {}
        core.reset_peer(peer.0);
        assert!(core.peers() <= PEERS_MAX && peer == PeerId(0));
    }
});
