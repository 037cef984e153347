//! What an endpoint with several NICs tells its peers: the addresses that it can be reached by.
//!
//! The list is a message of the flow like any other, on a channel that no application opens. A later list replaces an
//! earlier one.

use crate::limits::{RAIL_BYTES, RAILS_MAX};
use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Channel of messages between endpoints themselves.
pub const CONTROL_CHANNEL: u16 = u16::MAX;
/// Longest list, bytes.
pub const RAILS_BYTES_MAX: usize = RAILS_MAX * RAIL_BYTES;

/// An address of one NIC of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RailAddress {
    /// Where it is reached.
    pub address: SocketAddr,
    /// Which NIC it is: addresses with the same number are of one; 0: not said.
    pub nic: u16,
    /// Speed that the NIC says it has, megabits a second; 0: it does not say.
    pub speed_mbits: u32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct RailLayout {
    /// IPv4 addresses are mapped (RFC 4291, 2.5.5.2).
    ip: [u8; 16],
    port: U16,
    nic: U16,
    speed_mbits: U32,
}

const _: () = assert!(size_of::<RailLayout>() == RAIL_BYTES);

/// A list that does not parse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} bytes are no list of at most {RAILS_MAX} rails")]
pub struct MalformedRails(usize);

/// Writes a list of at most [`RAILS_MAX`] rails, more are left out, and returns what was written.
pub fn encode<'b>(rails: &[RailAddress], buffer: &'b mut [u8; RAILS_BYTES_MAX]) -> &'b [u8] {
    let count = rails.len().min(RAILS_MAX);
    for (rail, bytes) in rails.iter().zip(buffer.chunks_exact_mut(RAIL_BYTES)) {
        let ip = match rail.address.ip() {
            IpAddr::V4(four) => four.to_ipv6_mapped(),
            IpAddr::V6(six) => six,
        };
        bytes.copy_from_slice(
            RailLayout {
                ip: ip.octets(),
                port: U16::new(rail.address.port()),
                nic: U16::new(rail.nic),
                speed_mbits: U32::new(rail.speed_mbits),
            }
            .as_bytes(),
        );
    }
    &buffer[..count * RAIL_BYTES]
}

/// Reads a list.
///
/// # Errors
/// It is no list.
pub fn decode(bytes: &[u8]) -> Result<impl Iterator<Item = RailAddress>, MalformedRails> {
    let malformed = MalformedRails(bytes.len());
    if bytes.len() > RAILS_BYTES_MAX {
        return Err(malformed);
    }
    let rails = <[RailLayout]>::ref_from_bytes(bytes).map_err(|_| malformed)?;
    Ok(rails.iter().map(|rail| {
        let ip = Ipv6Addr::from(rail.ip).to_canonical();
        RailAddress {
            address: SocketAddr::new(ip, rail.port.get()),
            nic: rail.nic.get(),
            speed_mbits: rail.speed_mbits.get(),
        }
    }))
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    /// As docs/wire.md draws it: both addresses of the second NIC, which does not say how fast it is.
    #[test]
    fn a_list_has_these_bytes() {
        let rail = |address: &str, nic, speed_mbits| RailAddress {
            address: address.parse().unwrap(),
            nic,
            speed_mbits,
        };
        let rails =
            [rail("10.0.0.1:7411", 1, 25_000), rail("10.0.1.1:7411", 2, 0), rail("[fd00::2]:7411", 2, 0)];
        let mut buffer = [0; RAILS_BYTES_MAX];
        let four = |third| [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, third, 1];
        let six = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
        let bytes = [
            &four(0)[..],
            &[0xf3, 0x1c, 1, 0, 0xa8, 0x61, 0, 0],
            &four(1),
            &[0xf3, 0x1c, 2, 0, 0, 0, 0, 0],
            &six,
            &[0xf3, 0x1c, 2, 0, 0, 0, 0, 0],
        ]
        .concat();
        assert_eq!(encode(&rails, &mut buffer), bytes);
        assert_eq!(decode(&bytes).unwrap().collect::<Vec<_>>(), rails);
    }

    proptest! {
        #[test]
        fn lists_come_back(rails in proptest::collection::vec((any::<IpAddr>(), any::<u16>(), any::<u16>(), any::<u32>()), 0..=RAILS_MAX)) {
            let rails: Vec<_> = rails
                .into_iter()
                .map(|(ip, port, nic, speed_mbits)| RailAddress { address: SocketAddr::new(ip.to_canonical(), port), nic, speed_mbits })
                .collect();
            let mut buffer = [0; RAILS_BYTES_MAX];
            let decoded: Vec<_> = decode(encode(&rails, &mut buffer)).unwrap().collect();
            prop_assert_eq!(decoded, rails);
        }

        #[test]
        fn any_bytes_parse_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..RAILS_BYTES_MAX + 30)) {
            let whole = bytes.len() <= RAILS_BYTES_MAX && bytes.len() % RAIL_BYTES == 0;
            prop_assert_eq!(decode(&bytes).is_ok(), whole);
        }
    }
}
