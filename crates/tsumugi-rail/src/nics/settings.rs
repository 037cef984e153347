//! What figures depend on of NICs: how they are set.

use crate::sys::{Interface, driver, interfaces, offloads};
use std::net::IpAddr;

/// A NIC, and how it is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NicSettings {
    /// Its name.
    pub name: String,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// Whether it is the loopback.
    pub is_loopback: bool,
    /// Its driver, where it says so.
    pub driver: Option<String>,
    /// Speed that it says it has, megabits a second; 0: it does not say.
    pub speed_mbits: u32,
    /// Its MTU, bytes.
    pub mtu_bytes: usize,
    /// What it does for the kernel's network stack: of `tso`, `gso`, `gro`, and `tx` and `rx` (checksums), as `ethtool -K` calls
    /// them, those that are on.
    pub offloads: Vec<&'static str>,
}

/// Every NIC that is on, with the loopback. Nobody has to be root for that.
#[must_use]
pub fn settings() -> Vec<NicSettings> {
    let mut found: Vec<NicSettings> = Vec::new();
    let all = interfaces().list.into_iter().filter(|interface| interface.up);
    for Interface { name, address, loopback, mtu_bytes, speed_mbits, .. } in all {
        match found.iter_mut().find(|nic| nic.name == name) {
            Some(nic) => nic.addresses.extend(address),
            None => found.push(NicSettings {
                addresses: address.into_iter().collect(),
                is_loopback: loopback,
                driver: driver(&name).ok().filter(|driver| !driver.is_empty()),
                offloads: offloads(&name),
                name,
                speed_mbits,
                mtu_bytes,
            }),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn the_loopback_is_among_them_and_segments() {
        let all = settings();
        let lo = all.iter().find(|nic| nic.is_loopback).expect("a loopback");
        assert_eq!(lo.name, "lo");
        assert!(lo.addresses.contains(&Ipv4Addr::LOCALHOST.into()) && lo.mtu_bytes >= 1500, "{lo:?}");
        assert!(lo.offloads.contains(&"tso") && lo.offloads.contains(&"gso"), "{lo:?}");
    }
}
