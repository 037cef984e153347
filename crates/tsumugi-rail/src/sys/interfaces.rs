//! Network interfaces: their addresses, MTUs and speeds.

mod by_ioctl;

use super::{any_socket, checked};
use rustix::net::netdevice;
use std::ffi::CStr;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};

/// A network interface, once per address.
#[derive(Clone, Debug)]
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) address: Option<IpAddr>,
    /// Bits of the address that everybody on the same link has.
    pub(crate) prefix_bits: u8,
    pub(crate) up: bool,
    /// Whether it has a carrier.
    pub(crate) running: bool,
    pub(crate) loopback: bool,
    /// It has no link layer with many hosts on it: a tunnel.
    pub(crate) tunnel: bool,
    pub(crate) mtu_bytes: usize,
    /// Speed that it says it has, megabits a second; 0: it does not say.
    pub(crate) speed_mbits: u32,
}

/// What is known of the interfaces of this network namespace.
#[derive(Debug, Default)]
pub(crate) struct Interfaces {
    /// Those that were found; without netlink only those with addresses.
    pub(crate) list: Vec<Interface>,
    /// Why the kernel could not be asked as it should be: netlink is forbidden, perhaps.
    pub(crate) lacking: Option<io::Error>,
}

/// Every interface of this network namespace, or as many as can be found out. Never fails: who is told nothing goes on
/// with nothing.
///
/// getifaddrs(3) asks over netlink, which may be forbidden where a socket is not (`RestrictAddressFamilies=` of systemd);
/// then older calls are asked. `/sys/class/net` would be simpler, but shows the namespace of whoever mounted it.
pub(crate) fn interfaces() -> Interfaces {
    let any = match any_socket() {
        Ok(any) => any,
        Err(error) => return Interfaces { list: Vec::new(), lacking: Some(error) },
    };
    match by_netlink(&any) {
        Ok(list) => Interfaces { list, lacking: None },
        Err(error) => Interfaces { list: by_ioctl::list(&any), lacking: Some(error) },
    }
}

fn by_netlink(any: &OwnedFd) -> io::Result<Vec<Interface>> {
    let mut list = std::ptr::null_mut();
    // SAFETY: `list` outlives the call, which stores a list that is freed below.
    checked(unsafe { libc::getifaddrs(&raw mut list) })?;
    let mut interfaces = Vec::new();
    let mut next = list;
    // SAFETY: entries of the list, their names and addresses are valid until it is freed; each
    // pointer that may be null is asked first.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        // SAFETY: as above; the name is a string that ends in 0.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) };
        let flag = |flag: i32| entry.ifa_flags & flag as u32 != 0;
        interfaces.push(Interface {
            name: name.to_string_lossy().into_owned(),
            // SAFETY: as above.
            address: unsafe { ip_address(entry.ifa_addr) },
            // SAFETY: as above.
            prefix_bits: unsafe { ip_address(entry.ifa_netmask) }.map_or(0, prefix_bits),
            up: flag(libc::IFF_UP),
            running: flag(libc::IFF_RUNNING),
            loopback: flag(libc::IFF_LOOPBACK),
            tunnel: flag(libc::IFF_POINTOPOINT) || flag(libc::IFF_NOARP),
            mtu_bytes: mtu_bytes(any, name).unwrap_or(0),
            speed_mbits: speed_mbits(any, name).unwrap_or(0),
        });
    }
    // SAFETY: the list that getifaddrs made; nothing borrows from it any more.
    unsafe { libc::freeifaddrs(list) };
    interfaces.retain(|interface| interface.mtu_bytes > 0); // 0: gone since the list was made
    Ok(interfaces)
}

/// Index of the interface called `name` in this network namespace.
pub(crate) fn interface_index(name: &str) -> Option<u32> {
    netdevice::name_to_index(any_socket().ok()?, name).ok()
}

/// Name of the interface with an index in this network namespace.
pub(crate) fn interface_name(index: u32) -> Option<String> {
    let name = netdevice::index_to_name_inlined(any_socket().ok()?, index).ok()?;
    Some(String::from_utf8_lossy(name.as_bytes()).into_owned())
}

/// # Safety
/// `address` is null or points to a socket address as long as its family says.
unsafe fn ip_address(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: the caller's promise.
    unsafe {
        match i32::from(address.as_ref()?.sa_family) {
            libc::AF_INET => {
                let v4 = address.cast::<libc::sockaddr_in>().read_unaligned();
                Some(IpAddr::from(v4.sin_addr.s_addr.to_ne_bytes()))
            }
            libc::AF_INET6 => {
                let v6 = address.cast::<libc::sockaddr_in6>().read_unaligned();
                Some(IpAddr::from(v6.sin6_addr.s6_addr))
            }
            _ => None,
        }
    }
}

/// Length of the prefix that a network mask leaves, bits.
fn prefix_bits(mask: IpAddr) -> u8 {
    let ones = match mask {
        IpAddr::V4(four) => four.to_bits().leading_ones(),
        IpAddr::V6(six) => six.to_bits().leading_ones(),
    };
    ones as u8
}

/// A request about the interface called `name`.
pub(super) fn request(name: &CStr) -> io::Result<libc::ifreq> {
    let name = name.to_bytes();
    // SAFETY: all-zero is a valid `ifreq`: an empty name and a number of 0.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name) {
        *to = *from as libc::c_char;
    }
    Ok(request)
}

/// MTU of the interface called `name`, bytes.
fn mtu_bytes(any_socket: &OwnedFd, name: &CStr) -> io::Result<usize> {
    let mut request = request(name)?;
    // SAFETY: the call reads the name, which ends in 0, and writes the MTU into the union, which
    // outlives it; after success `ifru_mtu` is the member that was written.
    let mtu = unsafe {
        checked(libc::ioctl(any_socket.as_raw_fd(), libc::SIOCGIFMTU, &raw mut request))?;
        request.ifr_ifru.ifru_mtu
    };
    usize::try_from(mtu).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// `struct ethtool_cmd` of linux/ethtool.h.
#[repr(C)]
#[derive(Default)]
struct EthtoolSettings {
    command: u32,
    supported: u32,
    advertising: u32,
    speed: u16,
    duplex_port_address_transceiver_autonegotiation_mdio: [u8; 6],
    most_packets: [u32; 2],
    speed_high: u16,
    twisted_pair: [u8; 2],
    partner: u32,
    reserved: [u32; 2],
}

const _: () = assert!(size_of::<EthtoolSettings>() == 44);
/// `ETHTOOL_GSET`: unlike its successor it needs one call, and every kernel answers it.
const GET_SETTINGS: u32 = 1;

/// Speed of the interface called `name`, megabits a second; 0 when it has no link, or none with a speed.
fn speed_mbits(any_socket: &OwnedFd, name: &CStr) -> io::Result<u32> {
    let mut settings = EthtoolSettings { command: GET_SETTINGS, ..EthtoolSettings::default() };
    let mut request = request(name)?;
    request.ifr_ifru.ifru_data = (&raw mut settings).cast();
    // SAFETY: the call reads the name, which ends in 0, and the command, and writes no more than the settings, which
    // are as long as the kernel's and outlive it.
    checked(unsafe { libc::ioctl(any_socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) })?;
    let speed = u32::from(settings.speed_high) << 16 | u32::from(settings.speed);
    Ok(if speed == u32::MAX || speed == u32::from(u16::MAX) { 0 } else { speed })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_found_with_its_mtu() {
        let found = interfaces();
        assert!(found.lacking.is_none(), "{found:?}");
        let lo =
            found.list.iter().find(|interface| interface.loopback && interface.address.is_some()).unwrap();
        assert_eq!(lo.name, "lo");
        assert!(lo.up && lo.mtu_bytes >= 1500, "{lo:?}");
    }

    #[test]
    fn without_netlink_the_same_addresses_are_found() {
        let any = any_socket().unwrap();
        let known = |list: Vec<Interface>| {
            let known = list.into_iter().filter(|interface| interface.address.is_some());
            let mut known: Vec<String> = known.map(|interface| format!("{interface:?}")).collect();
            known.sort();
            known
        };
        assert_eq!(known(by_ioctl::list(&any)), known(by_netlink(&any).unwrap()));
    }
}
