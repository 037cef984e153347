//! Why there is no switch box.

use crate::xdp::{XdpError, chain};
use std::io;
use std::path::PathBuf;

/// Why there is no switch box.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SwitchError {
    /// The library was built where the program could not be compiled.
    #[error("the switch's program was left out of this build: install clang and libbpf-dev, and build again")]
    NotCompiled,
    /// The compiled program is not what is expected.
    #[error("the switch's compiled program has no '{0}' in it")]
    Object(&'static str),
    /// The kernel refused the program or its maps.
    #[error("loading the switch's program: {}; it needs root and Linux 5.18", chain(.0))]
    Load(Box<aya::EbpfError>),
    /// The kernel refused the program.
    #[error("{doing} the switch's program: {}; it needs root and Linux 5.18", chain(source))]
    Program {
        /// What was tried.
        doing: &'static str,
        /// What the kernel or the library said.
        source: Box<aya::programs::ProgramError>,
    },
    /// The program has changed a frame that it was tried with.
    #[error("the switch's program changes frames")]
    Altered,
    /// The kernel refused something of a map.
    #[error("the switch's program, {doing}: {}", chain(source))]
    Map {
        /// What was tried.
        doing: &'static str,
        /// What the kernel or the library said.
        source: Box<aya::maps::MapError>,
    },
    /// The kernel did not pin a map.
    #[error("pinning {path}: {}", chain(source))]
    Pin {
        /// Where.
        path: PathBuf,
        /// What the kernel or the library said.
        source: Box<aya::pin::PinError>,
    },
    /// Attaching the program to NICs, or what is pinned.
    #[error(transparent)]
    Xdp(#[from] XdpError),
    /// The kernel did not attach the program, or the NIC does not let out what it sends.
    #[error(
        "attaching the switch's program to {nic} ({hook}): {reason}; without --hook it goes where it can"
    )]
    Refused {
        /// The NIC.
        nic: String,
        /// Where the program was to get frames.
        hook: super::Hook,
        /// What the kernel or the library said.
        reason: String,
    },
    /// The kernel was asked over netlink.
    #[error("{doing} {nic}: {source}")]
    Netlink {
        /// What was tried.
        doing: &'static str,
        /// With which NIC or bridge.
        nic: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// No NICs were named, and there is no box that any could be added to.
    #[error("a switch needs NICs: name those that are to be its ports")]
    NoPorts,
    /// More NICs than a box has ports.
    #[error("{0} NICs: a switch has at most {max} ports", max = super::PORTS_MAX)]
    TooManyPorts(usize),
    /// What was named is no NIC that Ethernet frames can be sent by.
    #[error("{0} carries no Ethernet frames, so it can be no port of a switch")]
    NoEthernet(String),
    /// The NIC has an address, which would be lost.
    #[error(
        "{nic} has the address {address}, by which this host would not be reached any more; a port of a switch has none: move it to \
         the bridge, or `ip addr flush dev {nic}`"
    )]
    HasAddress {
        /// The NIC.
        nic: String,
        /// Its address.
        address: std::net::IpAddr,
    },
    /// More bridges than a box has networks.
    #[error("{0} bridges: a switch box has at most {max}", max = super::NETWORKS_MAX)]
    TooManyBridges(usize),
    /// The NICs are ports of several bridges.
    #[error(
        "which bridge {0} is to be a port of cannot be guessed, for there are several: say it with --bridge"
    )]
    WhichBridge(String),
    /// The NIC is a port of another bridge.
    #[error(
        "{nic} is a port of {bridge} already; without --bridge it stays one, and `ip link set {nic} nomaster` takes it out"
    )]
    OfAnother {
        /// The NIC.
        nic: String,
        /// Its bridge.
        bridge: String,
    },
    /// The NIC belongs to something that is no bridge.
    #[error(
        "{nic} is a part of {controller}, which is no bridge; name that, or take it out: `ip link set {nic} nomaster`"
    )]
    Controlled {
        /// The NIC.
        nic: String,
        /// What it belongs to.
        controller: String,
    },
    /// A bridge or a port is set to do more than the program can.
    #[error(
        "{nic} is set to '{setting}', which the program knows nothing of: frames that it forwards would pass it by; leave the \
         kernel's bridge alone here, or change the setting"
    )]
    Exception {
        /// The bridge or its port.
        nic: String,
        /// The setting, as `ip -d link` and `bridge -d link` name it.
        setting: &'static str,
    },
    /// The name of the bridge is another's.
    #[error("{0} is there and is no bridge: name another with --bridge")]
    NoBridge(String),
    /// The NIC is no port of the box.
    #[error("{0} is no port of the switch; `tsumugi switch status` shows which are")]
    NotAPort(String),
}
