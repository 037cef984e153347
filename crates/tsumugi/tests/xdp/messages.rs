//! What is sent: numbered, so that what is lost, doubled, out of order or altered is noticed.

use std::net::IpAddr;

/// Lengths of the messages of a stream, in turn, bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lengths {
    /// From a word to a mebibyte.
    All,
    /// Those that fit a packet.
    Short,
}

impl Lengths {
    pub(crate) fn of(self, number: u64) -> usize {
        match self {
            Lengths::All => [8, 64, 700, 1424, 9000, 70_000, 1 << 20][number as usize % 7],
            Lengths::Short => [8, 1000, 64, 1400][number as usize % 4],
        }
    }
}

/// The payload of message `number` of `sender`. Any byte out of place shows.
pub(crate) fn payload(sender: u64, number: u64, bytes: usize) -> Vec<u8> {
    let salt = sender.wrapping_mul(0xc2b2_ae35) ^ number.wrapping_mul(0x9e37_79b9);
    (0..bytes as u64).map(|at| (at.wrapping_mul(31) ^ salt >> (at & 31) ^ (at >> 8)) as u8).collect()
}

/// Which node an address of a lab belongs to.
pub(crate) fn node_of(address: IpAddr) -> u64 {
    let last = match address {
        IpAddr::V4(four) => u64::from(four.octets()[3]),
        IpAddr::V6(six) => u64::from(six.octets()[15]),
    };
    last - 1
}
