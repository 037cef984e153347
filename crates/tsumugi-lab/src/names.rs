//! What a lab's things are called and where they are. Everything can be found again by name alone, so that
//! removal needs no record of what was made.

use std::fs;
use std::path::{Path, PathBuf};

/// Where labs keep their state.
pub(crate) const ROOT: &str = "/run/tsumugi/lab";
/// Where iproute2 pins network namespaces.
pub(crate) const NETNS: &str = "/run/netns";
/// Where programs look host names up.
pub(crate) const HOSTS: &str = "/etc/hosts";
const PREFIX: &str = "tsu-";
/// The name of the node that joins the others.
pub(crate) const SWITCH: &str = "switch";

pub(crate) fn folder(lab: &str) -> PathBuf {
    Path::new(ROOT).join(lab)
}

pub(crate) fn node(index: u32) -> String {
    format!("n{index}")
}

pub(crate) fn nic(index: u32) -> String {
    format!("nic{index}")
}

/// The interface index of a node's NIC. It must differ from the index of its peer, [`far_index`]: where the
/// two are equal, the kernel takes the news that the carrier is there for less than urgent and delivers it
/// up to a second late (linkwatch_urgent_event in net/core/link_watch.c), and drops what is sent till then.
pub(crate) fn nic_index(nic: u32) -> u32 {
    10 + nic
}

/// The interface index at the other end of a NIC's veth pair.
pub(crate) fn far_index(node: u32, nic: u32) -> u32 {
    100 + node * crate::NICS_MAX + nic
}

/// The switch's port for a node's NIC; fits the 15 bytes of an interface name.
pub(crate) fn port(node: u32, nic: u32) -> String {
    format!("n{node}-nic{nic}")
}

pub(crate) fn bridge(nic: u32) -> String {
    format!("br{nic}")
}

pub(crate) fn address(node: u32, nic: u32) -> std::net::Ipv4Addr {
    // At most 64 nodes and 8 NICs, by Spec::check.
    std::net::Ipv4Addr::new(10, 77, nic as u8, node as u8 + 1)
}

pub(crate) fn netns(lab: &str, node: u32) -> String {
    netns_of_host(lab, &self::node(node))
}

pub(crate) fn switch_netns(lab: &str) -> String {
    netns_of_host(lab, SWITCH)
}

/// The namespace of a node, or of the switch, by its host name.
pub(crate) fn netns_of_host(lab: &str, host: &str) -> String {
    format!("{PREFIX}{lab}-{host}")
}

pub(crate) fn netns_path(netns: &str) -> PathBuf {
    Path::new(NETNS).join(netns)
}

/// The lab that a namespace belongs to, if it is one of ours.
pub(crate) fn lab_of_netns(netns: &str) -> Option<&str> {
    let (lab, part) = netns.strip_prefix(PREFIX)?.rsplit_once('-')?;
    let node = part.strip_prefix('n').is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
    ((node || part == SWITCH) && crate::spec::check_name(lab).is_ok()).then_some(lab)
}

/// The namespaces that are pinned now and carry this lab's name, sorted.
pub(crate) fn netns_of(lab: &str) -> Vec<String> {
    let mut found: Vec<_> =
        entries(NETNS).into_iter().filter(|name| lab_of_netns(name) == Some(lab)).collect();
    found.sort();
    found
}

/// Every lab of which there is anything, sorted: a folder, or a namespace.
pub(crate) fn labs() -> Vec<String> {
    let folders = entries(ROOT).into_iter().filter(|name| crate::spec::check_name(name).is_ok());
    let spaces = entries(NETNS).into_iter().filter_map(|name| lab_of_netns(&name).map(str::to_owned));
    let mut labs: Vec<_> = folders.chain(spaces).collect();
    labs.sort();
    labs.dedup();
    labs
}

/// Names in a folder; none where there is no folder.
fn entries(folder: &str) -> Vec<String> {
    let list = fs::read_dir(folder).into_iter().flatten().flatten();
    list.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_are_told_apart_by_lab() {
        assert_eq!(lab_of_netns("tsu-a-n0"), Some("a"));
        assert_eq!(lab_of_netns("tsu-a-switch"), Some("a"));
        assert_eq!(
            lab_of_netns("tsu-a-n0-n12"),
            Some("a-n0"),
            "a lab whose name looks like a node of another"
        );
        for other in ["a-n0", "tsu-a", "tsu-a-n", "tsu-a-nx", "tsu--n0", "tsu-n0", "tsu-a-m0", "docker0"] {
            assert_eq!(lab_of_netns(other), None, "{other}");
        }
    }

    #[test]
    fn port_names_fit_an_interface_name() {
        assert!(port(crate::NODES_MAX - 1, crate::NICS_MAX - 1).len() <= 15);
    }
}
