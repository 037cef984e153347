//! Two nodes with a NIC each, for tests that send over a network rather than loopback. Needs root.

#![allow(dead_code, reason = "every test program uses its own part")]

pub(crate) mod pair;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;
use tsumugi_lab::testing::{Watched, as_root};
use tsumugi_lab::{Lab, LabGuard, Spec};
use tsumugi_rail::ether::Mac;

/// The NIC of both nodes.
pub(crate) const NIC: &str = "nic0";

/// The nodes; they go with this, and then the kernel's log is looked at.
pub(crate) struct Nodes(LabGuard, Watched);

impl Nodes {
    /// Makes them, with IPv4 and IPv6 addresses. `None`, after saying so loudly, without root.
    pub(crate) fn up(test: &str) -> Option<Nodes> {
        Nodes::up_with_mtu(test, 1500)
    }

    /// The same with another MTU, bytes.
    pub(crate) fn up_with_mtu(test: &str, mtu: u32) -> Option<Nodes> {
        let watched = as_root(test, None)?;
        let spec = Spec { mtu, ..Spec::unique("rail") };
        let nodes = Nodes(Lab::up(&spec).expect("the lab is made").guarded(), watched);
        for node in 0..2 {
            let address = six(node, 0).ip();
            nodes.shell(
                node,
                &format!(
                    "cd /proc/sys/net/ipv6/conf/{NIC} && echo 1 > keep_addr_on_down && echo 0 > accept_ra && \
                     echo 0 > accept_dad && echo 0 > disable_ipv6 && ip addr add {address}/64 dev {NIC} nodad",
                ),
            );
        }
        Some(nodes)
    }

    /// What a shell line prints in a node.
    pub(crate) fn shell(&self, node: usize, line: &str) -> String {
        let mut command = self.0.command(node, "/bin/sh").expect("the node can be entered");
        let output = command.args(["-c", line]).output().expect("the shell starts");
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "'{line}' in node {node}: {:?} {complaint}", output.status);
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// What `ip netns` calls a node's namespace.
    pub(crate) fn namespace(&self, node: usize) -> String {
        format!("tsu-{}-n{node}", self.0.name())
    }

    /// Runs `work` in a node's network: sockets that it opens stay there.
    pub(crate) fn inside<T: Send>(&self, node: usize, work: impl FnOnce() -> T + Send) -> T {
        let path = format!("/run/netns/{}", self.namespace(node));
        let namespace = File::open(path).expect("the namespace is there");
        std::thread::scope(|scope| {
            let entered = scope.spawn(|| {
                move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
                    .expect("root may enter it");
                work()
            });
            entered.join().expect("the work is done")
        })
    }

    /// The hardware address of a node's NIC.
    pub(crate) fn mac(&self, node: usize) -> Mac {
        let text = self.shell(node, &format!("cat /sys/class/net/{NIC}/address"));
        let bytes: Vec<u8> =
            text.split(':').map(|byte| u8::from_str_radix(byte, 16).expect("a byte")).collect();
        Mac::try_from(bytes).expect("six bytes")
    }
}

/// A node's IPv4 address.
pub(crate) fn four(node: usize, port: u16) -> SocketAddr {
    SocketAddr::from(([10, 77, 0, node as u8 + 1], port))
}

/// A node's IPv6 address.
pub(crate) fn six(node: usize, port: u16) -> SocketAddr {
    SocketAddr::from(([0xfd77, 0, 0, 0, 0, 0, 0, node as u16 + 1], port))
}

/// Tries until something is so, for ten seconds at most.
pub(crate) fn eventually<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    for _ in 0..5000 {
        if let Some(done) = attempt() {
            return done;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    panic!("in vain: {what}")
}
