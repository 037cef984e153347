//! Two nodes with NICs that wires join, and what root does in them.

use crate::process::Process;
use std::collections::BTreeMap;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;
use tsumugi_lab::testing::{Watched, as_root, copy_for_all};
use tsumugi_lab::{Lab, LabGuard, NODE_VARIABLE, Spec, Wire};

/// The first NIC of both nodes, mostly the only one.
pub(crate) const NIC: &str = "nic0";
/// The first port of a pool, unless another is asked for.
pub(crate) const PORT: u16 = 7411;

/// The nodes; they go with this, and with them their processes, programs and memories.
pub(crate) struct Cluster {
    lab: LabGuard,
    /// A copy of this program where every user may run it.
    public: Option<(TempDir, PathBuf)>,
    /// Looks at the kernel's log in the end.
    _watched: Watched,
}

/// What `status` finds in a node.
#[derive(Debug, Default)]
pub(crate) struct PortsAndNics {
    /// NICs with the program, and in which mode.
    pub(crate) nics: BTreeMap<String, String>,
    /// What there is to know about each port.
    pub(crate) ports: BTreeMap<u16, BTreeMap<String, u64>>,
}

impl Cluster {
    /// Makes the nodes. `None`, after saying so loudly, where the XDP receive path cannot be tried.
    pub(crate) fn new(test: &str) -> Option<Cluster> {
        Cluster::with_nics(test, 1)
    }

    /// Makes the nodes, with several NICs each.
    pub(crate) fn with_nics(test: &str, nics: u32) -> Option<Cluster> {
        let missing = "needs a build with the XDP program (clang and libbpf-dev)";
        let watched = as_root(test, (!tsumugi_rail::xdp::IS_COMPILED).then_some(missing))?;
        let lab = Lab::up(&Spec { nics, ..Spec::unique("e2e") }).expect("the lab is made").guarded();
        Some(Cluster { lab, public: None, _watched: watched })
    }

    /// Makes the nodes, each of whose NICs is joined to a port of a bridge.
    pub(crate) fn bridged(test: &str) -> Option<Cluster> {
        let missing = "needs a build with the XDP program (clang and libbpf-dev)";
        let watched = as_root(test, (!tsumugi_rail::xdp::IS_COMPILED).then_some(missing))?;
        let spec = Spec { wire: Some(Wire::Switch), ..Spec::unique("e2e") };
        let lab = Lab::up(&spec).expect("the lab is made").guarded();
        if lab.wire() != Wire::Switch {
            eprintln!("SKIPPED: {test}: this kernel has no bridge");
            return None;
        }
        Some(Cluster { lab, public: None, _watched: watched })
    }

    /// Makes the nodes and attaches the program in both.
    pub(crate) fn with_xdp(test: &str, options: &str) -> Option<Cluster> {
        Cluster::with_xdp_and_mtu(test, 1500, options)
    }

    /// The same with another MTU, bytes.
    pub(crate) fn with_xdp_and_mtu(test: &str, mtu: u64, options: &str) -> Option<Cluster> {
        let cluster = Cluster::new(test)?;
        for node in 0..2 {
            cluster.shell(node, &format!("ip link set {NIC} mtu {mtu}"));
        }
        let begun = [0, 1].map(|node| cluster.start(node, &format!("up {options}")));
        for mut up in begun {
            assert_eq!(up.hear(), "done");
        }
        Some(cluster)
    }

    /// Gives the NICs IPv6 addresses, which a lab's do not have, for the packets of a test to be the only ones.
    pub(crate) fn add_six(&self) {
        for node in 0..2 {
            let address = six(node, 0).ip();
            self.shell(
                node,
                &format!(
                    "cd /proc/sys/net/ipv6/conf/{NIC} && echo 0 > accept_ra && echo 0 > accept_dad && \
                     echo 0 > disable_ipv6 && ip addr add {address}/64 dev {NIC} nodad",
                ),
            );
        }
    }

    /// A command that runs in a node.
    pub(crate) fn command(&self, node: usize, program: &str) -> Command {
        self.lab.command(node, program).expect("the node can be entered")
    }

    /// What a shell line prints in a node.
    pub(crate) fn shell(&self, node: usize, line: &str) -> String {
        let output = self.command(node, "/bin/sh").args(["-c", line]).output().expect("the shell starts");
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "'{line}' in node {node}: {:?} {complaint}", output.status);
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Starts a role in a node.
    pub(crate) fn start(&self, node: usize, role: &str) -> Process {
        let program = std::env::current_exe().expect("this program");
        Process::start_by(self.lab.command(node, program).expect("the node can be entered"), role)
    }

    /// Starts a role in a node, as a user without any capability.
    pub(crate) fn start_as(&mut self, user: u32, node: usize, role: &str) -> Process {
        let own = || copy_for_all(&std::env::current_exe().expect("this program"));
        let program = self.public.get_or_insert_with(own).1.clone();
        let mut command = self.command(node, "setpriv");
        command.args([&format!("--reuid={user}"), &format!("--regid={user}"), "--clear-groups"]);
        command.args(["--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"]).arg(program);
        Process::start_by(command, role)
    }

    /// Does in a node what `tsumugi up` does; an error is told as its name and its text.
    pub(crate) fn up(&self, node: usize, options: &str) -> Result<(), String> {
        match self.start(node, &format!("up {options}")).hear() {
            done if done == "done" => Ok(()),
            refused => Err(refused),
        }
    }

    /// A process in a node, for what is asked for by processes.
    pub(crate) fn process(&self, node: usize) -> i32 {
        self.lab.processes(node)[0]
    }

    /// Detaches the program in a node and leaves everything pinned.
    pub(crate) fn detach(&self, node: usize) {
        assert_eq!(self.start(node, "detach").hear(), "done");
    }

    /// Does in a node what `tsumugi down` does.
    pub(crate) fn down(&self, node: usize) {
        assert_eq!(self.start(node, "down").hear(), "done");
    }

    /// What `tsumugi status` finds in a node.
    pub(crate) fn status(&self, node: usize) -> PortsAndNics {
        let mut role = self.start(node, "status");
        let mut status = PortsAndNics::default();
        loop {
            let line = role.hear();
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["nic", name, mode] => _ = status.nics.insert(name.to_owned(), mode.to_owned()),
                ["port", port, ref values @ ..] => {
                    let value = |pair: &&str| {
                        let (name, value) = pair.split_once('=').expect("a name and a value");
                        (name.to_owned(), value.parse().expect("a number"))
                    };
                    let port = port.parse().expect("a port");
                    status.ports.insert(port, values.iter().map(value).collect());
                }
                _ => return status,
            }
        }
    }

    /// What is left of the XDP receive path in a node.
    pub(crate) fn traces(&self, node: usize) -> String {
        // Some kernels put files of their own there.
        let pins = "find /sys/fs/bpf -mindepth 1 -not -name '*.debug'";
        self.shell(node, &format!("{pins}; ip -o link show | grep -o 'prog/xdp.*' || true"))
    }
}

/// A node's IPv4 address.
pub(crate) fn four(node: usize, port: u16) -> SocketAddr {
    SocketAddr::from(([10, 77, 0, node as u8 + 1], port))
}

/// A node's IPv6 address.
pub(crate) fn six(node: usize, port: u16) -> SocketAddr {
    SocketAddr::from((Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, node as u16 + 1), port))
}

/// The number of the node that this process is in.
pub(crate) fn own_node() -> u64 {
    let name = std::env::var(NODE_VARIABLE).expect("a process in a node");
    name.trim_start_matches('n').parse().expect("the node's name")
}

/// Tries until something is so, for a minute at most.
pub(crate) fn eventually<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    for _ in 0..12_000 {
        if let Some(done) = attempt() {
            return done;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("in vain: {what}")
}
