//! Addresses of IPv6, between real namespaces: the only ones, those of a link, and those that are of IPv4 in truth.

use crate::real::{Hosts, PORT, ask, nobody_lost, talk, until_paths};

/// Gives NICs addresses of IPv6: `fd77::NODE:1` and, for its link, `fe80::NODE:7`.
pub(crate) fn give(hosts: &Hosts, nics: u32) {
    for node in 0..hosts.nodes() {
        for nic in 0..nics {
            hosts.shell(
                node,
                &format!(
                    "cd /proc/sys/net/ipv6/conf/nic{nic} && echo 0 > accept_dad && echo 0 > disable_ipv6 && \
                     ip addr add fd77:{nic}::{node}:1/64 dev nic{nic} nodad && \
                     ip addr add fe80::{node}:7/64 dev nic{nic} nodad"
                ),
            );
        }
    }
}

#[test]
fn a_host_that_has_ipv6_only_needs_no_setting() {
    let Some(hosts) = Hosts::up("a_host_that_has_ipv6_only_needs_no_setting", 2) else { return };
    give(&hosts, 2);
    for node in 0..2 {
        hosts.shell(node, "ip -4 addr flush dev nic0; ip -4 addr flush dev nic1");
    }
    let mut there = hosts.open(1, &format!("port={PORT}"));
    let mut here = hosts.open(0, "");
    let peer = ask(&mut here, &format!("add [fd77:0::1:1]:{PORT}"));
    talk(&mut here, &peer, &mut there);
    // Both NICs are used.
    until_paths(&mut here, &peer, &mut there, "fd77:1::1:1 fd77::1:1");
    nobody_lost([&mut here, &mut there]);
}

#[test]
fn an_address_of_a_link_is_said_with_the_nic() {
    let Some(hosts) = Hosts::up("an_address_of_a_link_is_said_with_the_nic", 2) else { return };
    give(&hosts, 2);
    for (bind, own) in [("::", "::"), ("fe80::1:7", "::"), ("fe80::1:7", "fe80::0:7")] {
        // Bound to an address that two NICs have, it takes the first.
        let mut there = hosts.open(1, &format!("port={PORT} bind={bind}"));
        let mut here = hosts.open(0, &format!("bind={own}"));
        let peer = ask(&mut here, &format!("add [fe80::1:7%nic0]:{PORT}"));
        talk(&mut here, &peer, &mut there);
        nobody_lost([&mut here, &mut there]);
    }
}

#[test]
fn an_address_of_ipv4_may_be_written_as_one_of_ipv6() {
    let Some(hosts) = Hosts::up("an_address_of_ipv4_may_be_written_as_one_of_ipv6", 1) else { return };
    let mut there = hosts.open(1, &format!("port={PORT}"));
    let mut here = hosts.open(0, "bind=::ffff:10.77.0.1");
    assert_eq!(ask(&mut here, "address"), "10.77.0.1");
    let peer = ask(&mut here, &format!("add [::ffff:10.77.0.2]:{PORT}"));
    talk(&mut here, &peer, &mut there);
}
