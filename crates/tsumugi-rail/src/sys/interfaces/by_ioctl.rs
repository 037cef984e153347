//! Interfaces without netlink: what netdevice(7) knows of IPv4, and what `/proc` says of IPv6.

use super::{Interface, ip_address, mtu_bytes, prefix_bits, request, speed_mbits};
use crate::sys::checked;
use std::ffi::{CStr, CString};
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd};

/// Most addresses that are asked for at a time; a machine with more shows so many.
const ADDRESSES_MAX: usize = 256;
/// Where the kernel lists IPv6 addresses of the network namespace.
const SIX: &str = "/proc/net/if_inet6";

/// The interfaces with addresses, once for each; empty where nothing can be asked.
pub(super) fn list(any_socket: &OwnedFd) -> Vec<Interface> {
    let mut list = fours(any_socket).unwrap_or_default();
    list.extend(std::fs::read_to_string(SIX).unwrap_or_default().lines().filter_map(|line| {
        let (name, address, prefix_bits) = parse_six(line)?;
        interface(any_socket, &name, address, prefix_bits)
    }));
    list
}

fn fours(any_socket: &OwnedFd) -> io::Result<Vec<Interface>> {
    // SAFETY: all-zero is a valid `ifreq`: an empty name and numbers of 0.
    let mut requests: Vec<libc::ifreq> = vec![unsafe { std::mem::zeroed() }; ADDRESSES_MAX];
    let mut asked = libc::ifconf {
        ifc_len: size_of_val(&requests[..]) as libc::c_int,
        ifc_ifcu: libc::__c_anonymous_ifc_ifcu { ifcu_req: requests.as_mut_ptr() },
    };
    // SAFETY: the call writes at most `ifc_len` bytes of requests, and how many it has written; all outlive it.
    checked(unsafe { libc::ioctl(any_socket.as_raw_fd(), libc::SIOCGIFCONF, &raw mut asked) })?;
    requests.truncate(asked.ifc_len as usize / size_of::<libc::ifreq>());
    let found = requests.iter().filter_map(|found| {
        // SAFETY: the kernel ends a name with a 0.
        let name = unsafe { CStr::from_ptr(found.ifr_name.as_ptr()) };
        // SAFETY: the call has written an IPv4 address into the union.
        let address = unsafe { ip_address(&raw const found.ifr_ifru.ifru_addr) }?;
        // An alias has its mask under its own name, and everything else under that of the NIC.
        let bits = mask(any_socket, name).map_or(32, prefix_bits);
        interface(any_socket, name, address, bits)
    });
    Ok(found.collect())
}

/// What a line of [`SIX`] says: address, index, length of the prefix, scope, flags (in hexadecimal) and name.
fn parse_six(line: &str) -> Option<(CString, IpAddr, u8)> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [address, _, prefix_bits, _, _, name] = fields[..] else { return None };
    let address = Ipv6Addr::from_bits(u128::from_str_radix(address, 16).ok()?);
    Some((CString::new(name).ok()?, address.into(), u8::from_str_radix(prefix_bits, 16).ok()?))
}

fn interface(any_socket: &OwnedFd, name: &CStr, address: IpAddr, prefix_bits: u8) -> Option<Interface> {
    let flags = flags(any_socket, name).ok()?;
    let flag = |flag: i32| flags & flag != 0;
    Some(Interface {
        name: name.to_string_lossy().into_owned(),
        address: Some(address),
        prefix_bits,
        up: flag(libc::IFF_UP),
        running: flag(libc::IFF_RUNNING),
        loopback: flag(libc::IFF_LOOPBACK),
        tunnel: flag(libc::IFF_POINTOPOINT) || flag(libc::IFF_NOARP),
        mtu_bytes: mtu_bytes(any_socket, name).ok()?,
        speed_mbits: speed_mbits(any_socket, name).unwrap_or(0),
    })
}

fn flags(any_socket: &OwnedFd, name: &CStr) -> io::Result<i32> {
    let mut request = request(name)?;
    // SAFETY: the call reads the name, which ends in 0, and writes the flags into the union, which outlives it; after
    // success `ifru_flags` is the member that was written.
    let flags = unsafe {
        checked(libc::ioctl(any_socket.as_raw_fd(), libc::SIOCGIFFLAGS, &raw mut request))?;
        request.ifr_ifru.ifru_flags
    };
    Ok(i32::from(flags))
}

fn mask(any_socket: &OwnedFd, name: &CStr) -> Option<IpAddr> {
    let mut request = request(name).ok()?;
    // SAFETY: as above, with an address.
    unsafe {
        checked(libc::ioctl(any_socket.as_raw_fd(), libc::SIOCGIFNETMASK, &raw mut request)).ok()?;
        ip_address(&raw const request.ifr_ifru.ifru_netmask)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_six_are_read() {
        let line = "fd00000000000000000000000000000a 02 40 00 80     eth0";
        let (name, address, bits) = parse_six(line).unwrap();
        assert_eq!((name.to_str().unwrap(), address.to_string().as_str(), bits), ("eth0", "fd00::a", 64));
        assert!(parse_six("fd00 02").is_none() && parse_six("").is_none());
    }
}
