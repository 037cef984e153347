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

/// One NIC of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RailAddress {
    /// Where it is reached.
    pub address: SocketAddr,
    /// Speed that the NIC says it has, megabits a second; 0: it does not say.
    pub speed_mbits: u32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct RailLayout {
    /// IPv4 addresses are mapped (RFC 4291, 2.5.5.2).
    ip: [u8; 16],
    port: U16,
    reserved: U16,
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
                reserved: U16::new(0),
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
        RailAddress { address: SocketAddr::new(ip, rail.port.get()), speed_mbits: rail.speed_mbits.get() }
    }))
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    proptest! {
        #[test]
        fn lists_come_back(rails in proptest::collection::vec((any::<IpAddr>(), any::<u16>(), any::<u32>()), 0..=RAILS_MAX)) {
            let rails: Vec<_> = rails
                .into_iter()
                .map(|(ip, port, speed_mbits)| RailAddress { address: SocketAddr::new(ip.to_canonical(), port), speed_mbits })
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
