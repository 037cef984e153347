//! Addresses in C's layout, and names that become addresses.

use crate::abi::*;
use std::ffi::{CStr, c_char, c_void};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, ToSocketAddrs};
use std::ptr;

/// Room for the longest address, bytes.
pub(crate) const ADDRESS_BYTES_MAX: usize = size_of::<libc::sockaddr_in6>();

/// An address in C's layout.
pub(crate) struct Sockaddr {
    bytes: [u8; ADDRESS_BYTES_MAX],
    used: usize,
}

impl Sockaddr {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.used]
    }

    fn of<T>(value: T) -> Sockaddr {
        let mut bytes = [0; ADDRESS_BYTES_MAX];
        // SAFETY: an address of either family fits, is plain numbers, and may lie anywhere.
        unsafe { bytes.as_mut_ptr().cast::<T>().write_unaligned(value) };
        Sockaddr { bytes, used: size_of::<T>() }
    }
}

impl From<SocketAddr> for Sockaddr {
    fn from(address: SocketAddr) -> Sockaddr {
        match address {
            SocketAddr::V4(four) => Sockaddr::of(libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: four.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(four.ip().octets()) },
                sin_zero: [0; 8],
            }),
            SocketAddr::V6(six) => Sockaddr::of(libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: six.port().to_be(),
                sin6_flowinfo: six.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: six.ip().octets() },
                sin6_scope_id: six.scope_id(),
            }),
        }
    }
}

/// Length of an address of the family that it says it is of, bytes; `None` of any other family.
fn length_of(family: i32) -> Option<usize> {
    match family {
        libc::AF_INET => Some(size_of::<libc::sockaddr_in>()),
        libc::AF_INET6 => Some(size_of::<libc::sockaddr_in6>()),
        _ => None,
    }
}

/// The address at a place, and its length there; `None` if it is of another family than IP's, or does not fit into `room`.
///
/// # Safety
/// There are `room` bytes, or as many as an address has of the family that the first two say.
pub(crate) unsafe fn read(place: *const c_void, room: usize) -> Option<(SocketAddr, usize)> {
    if place.is_null() || room < size_of::<libc::sa_family_t>() {
        return None;
    }
    // SAFETY: so many bytes are there.
    let family = unsafe { place.cast::<libc::sa_family_t>().read_unaligned() };
    let length = length_of(i32::from(family)).filter(|length| *length <= room)?;
    let address = if i32::from(family) == libc::AF_INET {
        // SAFETY: an address of this family is there.
        let four = unsafe { place.cast::<libc::sockaddr_in>().read_unaligned() };
        let ip = Ipv4Addr::from(four.sin_addr.s_addr.to_ne_bytes());
        SocketAddrV4::new(ip, u16::from_be(four.sin_port)).into()
    } else {
        // SAFETY: an address of this family is there.
        let six = unsafe { place.cast::<libc::sockaddr_in6>().read_unaligned() };
        let ip = Ipv6Addr::from(six.sin6_addr.s6_addr);
        SocketAddrV6::new(ip, u16::from_be(six.sin6_port), six.sin6_flowinfo, six.sin6_scope_id).into()
    };
    Some((address, length))
}

/// Copies an address to where the caller wants it; `length` is the room on input, and the length on output.
///
/// # Safety
/// There is so much room, and `length` can be read and written.
pub(crate) unsafe fn write(address: SocketAddr, place: *mut c_void, length: *mut usize) -> i32 {
    let address = Sockaddr::from(address);
    let bytes = address.bytes();
    // SAFETY: as the caller promises.
    unsafe {
        let room = length.replace(bytes.len());
        if !place.is_null() {
            ptr::copy_nonoverlapping(bytes.as_ptr(), place.cast(), bytes.len().min(room));
        }
        if place.is_null() || room < bytes.len() { -FI_ETOOSMALL } else { FI_SUCCESS }
    }
}

/// A copy in memory that the host may free.
pub(crate) fn allocated(address: SocketAddr) -> (*mut c_void, usize) {
    let address = Sockaddr::from(address);
    let bytes = address.bytes();
    // SAFETY: there is room for the copy, if there is any.
    unsafe {
        let place = libc::malloc(bytes.len());
        if place.is_null() {
            return (place, 0);
        }
        ptr::copy_nonoverlapping(bytes.as_ptr(), place.cast(), bytes.len());
        (place, bytes.len())
    }
}

/// The format of an address.
pub(crate) fn format_of(address: SocketAddr) -> u32 {
    if address.is_ipv4() { FI_SOCKADDR_IN } else { FI_SOCKADDR_IN6 }
}

/// Whether an address is of a format that somebody asks for.
pub(crate) fn is_of(address: SocketAddr, format: u32) -> bool {
    format == FI_FORMAT_UNSPEC || format == FI_SOCKADDR || format == format_of(address)
}

/// C's text; `None` of null or of what is not UTF-8.
///
/// # Safety
/// Null, or a string that ends with a zero.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Option<&'a str> {
    if text.is_null() {
        return None;
    }
    // SAFETY: as the caller promises.
    unsafe { CStr::from_ptr(text) }.to_str().ok()
}

/// The addresses of a host and a port, either of which may be missing.
pub(crate) fn resolve(
    node: Option<&str>,
    service: Option<&str>,
    numeric: bool,
) -> Result<Vec<SocketAddr>, String> {
    let port: u16 = match service {
        None | Some("") => 0,
        Some(service) => {
            service.parse().map_err(|_| format!("'{service}' is no port: write a number up to 65535"))?
        }
    };
    let Some(node) = node else {
        return Ok(vec![(Ipv4Addr::UNSPECIFIED, port).into(), (Ipv6Addr::UNSPECIFIED, port).into()]);
    };
    if let Ok(ip) = node.parse::<IpAddr>() {
        return Ok(vec![(ip, port).into()]);
    }
    if numeric && !node.contains('%') {
        return Err(format!("'{node}' is no address"));
    }
    let found = (node, port).to_socket_addrs().map_err(|error| {
        format!("'{node}' has no address: {error}; check the spelling, /etc/hosts and DNS")
    })?;
    Ok(found.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_and_others_are_refused() {
        for text in ["10.1.2.3:7411", "[fe80::1%3]:1", "[2001:db8::7]:65535"] {
            let address: SocketAddr = text.parse().unwrap();
            let raw = Sockaddr::from(address);
            // SAFETY: the bytes are there.
            let (back, length) = unsafe { read(raw.bytes().as_ptr().cast(), raw.bytes().len()) }.unwrap();
            assert_eq!((back, length), (address, raw.bytes().len()));
            // SAFETY: the bytes are there.
            assert!(unsafe { read(raw.bytes().as_ptr().cast(), length - 1) }.is_none());
        }
        let unix = [1u8, 0, 0, 0];
        // SAFETY: the bytes are there.
        assert!(unsafe { read(unix.as_ptr().cast(), unix.len()) }.is_none());
    }

    #[test]
    fn too_little_room_is_told_with_the_length_that_it_takes() {
        let address: SocketAddr = "10.1.2.3:7411".parse().unwrap();
        let (mut place, mut length) = ([0u8; 4], 4);
        // SAFETY: there is so much room.
        assert_eq!(unsafe { write(address, place.as_mut_ptr().cast(), &raw mut length) }, -FI_ETOOSMALL);
        assert_eq!(length, 16);
    }

    #[test]
    fn names_and_ports_are_read() {
        let numeric = |node, service| resolve(Some(node), Some(service), true);
        assert_eq!(numeric("10.0.0.1", "7411").unwrap(), ["10.0.0.1:7411".parse().unwrap()]);
        assert!(numeric("host", "7411").unwrap_err().contains("no address"));
        assert!(numeric("10.0.0.1", "http").unwrap_err().contains("no port"));
        assert_eq!(resolve(None, Some("5"), false).unwrap().len(), 2);
    }
}
