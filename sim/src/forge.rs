//! Datagrams that nobody sent, or nobody sent now: noise, old ones again, and the right form with a wrong word.

use crate::random::Random;
use crate::wire::{Captured, Wire};
use crc_fast::{CrcAlgorithm, checksum};
use std::net::SocketAddr;
use tsumugi_wire::frame::encode_whole;
use tsumugi_wire::handshake::{Challenge, Offer, Repeat};
use tsumugi_wire::{Flags, Header, Kind, Psn};

/// An address that no host has.
pub(crate) fn stranger() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], 9))
}

/// CRC32C of a packet's body.
pub(crate) fn crc32c(body: &[u8]) -> u32 {
    if body.is_empty() { 0 } else { checksum(CrcAlgorithm::Crc32Iscsi, body) as u32 }
}

/// A packet with a right check and CRC.
fn packet(header: &Header, body: &[u8]) -> Vec<u8> {
    let mut header = *header;
    header.body_bytes = body.len() as u16;
    header.body_crc = crc32c(body);
    let mut packet = header.encode().to_vec();
    packet.extend_from_slice(body);
    packet
}

/// A datagram for `to` that appears to come from somewhere; `None` if there is nothing to make one of.
pub(crate) fn forge(
    random: &mut Random,
    wire: &Wire,
    to: SocketAddr,
    hosts: &[SocketAddr],
) -> Option<(SocketAddr, Vec<u8>)> {
    let somebody = random.pick(hosts);
    match random.below(8) {
        0 => {
            let mut noise = vec![0; random.below(200) as usize];
            random.fill(&mut noise);
            Some((somebody, noise))
        }
        1 | 2 => {
            let old = wire.captured(to, random.one_in(2));
            let Captured { from, bytes, .. } = old.get(random.below(old.len() as u64) as usize)?;
            Some((*from, bytes.clone()))
        }
        3 => {
            let old = wire.captured(to, random.one_in(2));
            let Captured { from, bytes, .. } = old.get(random.below(old.len() as u64) as usize)?;
            let mut bytes = bytes.clone();
            bytes.truncate(random.below(bytes.len() as u64) as usize);
            Some((*from, bytes))
        }
        4..=6 => wrong_word(random, wire, to),
        _ => Some((somebody, handshake(random))),
    }
}

/// A packet of a flow that is or was open, with one word changed that should give it away.
fn wrong_word(random: &mut Random, wire: &Wire, to: SocketAddr) -> Option<(SocketAddr, Vec<u8>)> {
    let Captured { from, bytes, .. } = wire.last_data.get(&to)?;
    let (mut header, ..) = Header::decode(bytes).ok()?;
    header.psn = header.psn.plus(random.below(3));
    header.flags = Flags(0);
    // Whoever knows the token could end the connection by provoking a RESET: those come from nobody's address.
    let from = match random.below(3) {
        0 => {
            header.token ^= 1 << random.below(64);
            *from
        }
        1 => {
            header.epoch = (header.epoch ^ 1 << random.below(32)).max(1);
            stranger()
        }
        _ => {
            header.flow ^= 1 << random.below(32);
            stranger()
        }
    };
    header.kind =
        random.pick(&[Kind::Data, Kind::Data, Kind::Data, Kind::Ack, Kind::Xoff, Kind::Bye, Kind::ByeAck]);
    if header.kind != Kind::Data {
        header.flags = Flags::HAS_ACK;
        header.ack = Psn(random.bits());
        header.body_bytes = 0;
        return Some((from, packet(&header, &[0; 16])));
    }
    let mut body = encode_whole(1, 24).to_vec();
    body.resize(32, 0xee);
    Some((from, packet(&header, &body)))
}

/// A packet of a handshake that nobody began.
fn handshake(random: &mut Random) -> Vec<u8> {
    let mut header = Header::new(Kind::Hello, random.below(1 << 32).max(1) as u32);
    let offer = Offer {
        job: 7,
        nonce: random.bits(),
        cookie: if random.one_in(2) { 0 } else { random.bits() },
        token: random.bits(),
        flow: random.below(4) as u32,
        repeat: Repeat::Selective,
        listens: false,
        trusts_wire: false,
        datagram_bytes: 1472,
        message_bytes_max: 1 << 20,
    };
    header.kind = random.pick(&[Kind::Hello, Kind::Welcome, Kind::Challenge, Kind::Reset]);
    match header.kind {
        Kind::Challenge => {
            packet(&header, &Challenge { nonce: random.bits(), cookie: random.bits() }.encode())
        }
        Kind::Reset => {
            header.token = random.bits();
            packet(&header, &[])
        }
        _ => packet(&header, &offer.encode()),
    }
}
