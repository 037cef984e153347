//! Why there is no XDP receive path.

use super::MEMORY_BYTES_MAX;
use crate::memory::MemoryError;
use std::path::{Path, PathBuf};

/// Why there is no XDP receive path.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum XdpError {
    /// The library was built where the program could not be compiled.
    #[error("the XDP program was left out of this build: install clang and libbpf-dev, and build again")]
    NotCompiled,
    /// The compiled program is not what is expected.
    #[error("the compiled XDP program: {0}")]
    Object(String),
    /// The geometry is impossible.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The geometry is too big for the XDP program.
    #[error(
        "receive memory of {0} bytes: the XDP program takes at most {MEMORY_BYTES_MAX}; take fewer flows or a smaller ring"
    )]
    MemoryBytes(usize),
    /// The kernel refused the program's maps.
    #[error("loading the XDP program: {}; it needs root and Linux 5.18", chain(.0))]
    Load(#[from] aya::EbpfError),
    /// The kernel refused the program.
    #[error("{doing} the XDP program: {}; it needs root and Linux 5.18", chain(source))]
    Program {
        /// What was tried.
        doing: &'static str,
        /// What the kernel or the library said.
        source: aya::programs::ProgramError,
    },
    /// The kernel refused a map.
    #[error("{doing} for UDP port {port}: {}", chain(source))]
    Map {
        /// What was tried.
        doing: &'static str,
        /// The endpoint's port.
        port: u16,
        /// What the kernel or the library said.
        source: aya::maps::MapError,
    },
    /// What is pinned may be opened, but `bpf(2)` is refused to this process.
    #[error(
        "bpf(2) is refused to this process, most likely by a container; start the container with a seccomp profile that permits bpf(2): see Tsumugi's docs/cluster.md"
    )]
    BpfRefused,
    /// The kernel did not map an endpoint's memory.
    #[error("mapping the receive memory of UDP port {port}: {source}{}", crate::remedy(source))]
    Mapping {
        /// The endpoint's port.
        port: u16,
        /// What the system said.
        source: std::io::Error,
    },
    /// Something in the BPF file system could not be made, read or removed.
    #[error("{doing} {path}: {source}{}", crate::remedy(source))]
    Pins {
        /// What was tried.
        doing: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A BPF file system is shut to this user.
    #[error(
        "{0} is shut to this user, whatever lies in it; as root: `tsumugi up NIC --owner USER`, after `tsumugi down` if it is attached, pins where USER can reach it"
    )]
    Shut(PathBuf),
    /// What is pinned already cannot be reached by those whom `up` is to serve.
    #[error(
        "what is attached here is pinned in {0}, which those who are to use it cannot reach; `tsumugi down` first, then `up` again, which pins it where they can"
    )]
    OutOfReach(PathBuf),
    /// A BPF file system that is mounted by this command would go with it.
    #[error(
        "the BPF file system cannot be mounted where other processes see it: this command runs in a mount namespace of its own (`ip netns exec` makes one), with which everything would vanish, and the machine's cannot be entered ({0}); run `nsenter --net=/run/netns/NAME tsumugi up NIC`, or mount a BPF file system on /sys/fs/bpf before"
    )]
    Hidden(std::io::Error),
    /// There is no such NIC in this network namespace.
    #[error("no NIC is called '{0}' here; `ip -br link` lists those there are")]
    NoSuchNic(String),
    /// Somebody else's program is attached to the NIC.
    #[error("{0}, which is left alone; {remedy}", remedy = .0.remedy())]
    NicTaken(Box<super::Stranger>),
    /// Something else is attached to the NIC, and what cannot be found out.
    #[error("{0} has, or had a moment ago, another XDP program attached, which is left alone; try again")]
    NicBusy(String),
    /// The kernel did not attach the program.
    #[error("attaching the XDP program to {nic} ({mode}): {reason}{}", remedy(*mode))]
    Attach {
        /// The NIC.
        nic: String,
        /// In which mode.
        mode: super::Mode,
        /// What the kernel said.
        reason: String,
    },
    /// The NIC's driver would lose long packets to the program.
    #[error(
        "{nic} has an MTU of {mtu}, and with the program in it, this kernel's driver drops packets of more than {max} bytes: `ip link set dev {nic} mtu {max}`",
        mtu = excess.mtu_bytes, max = excess.max_bytes
    )]
    Mtu {
        /// The NIC.
        nic: String,
        /// How much it is.
        excess: super::MtuExcess,
    },
    /// The NIC was not attached by us.
    #[error("the XDP receive path is not on {0}; `tsumugi status` shows where it is")]
    NotAttached(String),
    /// A pool with other sizes is there.
    #[error(
        "endpoint memories of another size or layout are there ({there}; asked for: {wanted}): `tsumugi down` first; endpoints that are open go on through their sockets"
    )]
    OtherPool {
        /// What there is.
        there: String,
        /// What was asked for.
        wanted: String,
    },
    /// The ports do not fit.
    #[error(
        "{count} endpoints from UDP port {first} on: take ports between 1024 and 65535, and at most {max} of them",
        max = super::ENDPOINTS_MAX
    )]
    Ports {
        /// First port.
        first: u16,
        /// Number of ports.
        count: u16,
    },
    /// The port's memory is another user's.
    #[error(
        "UDP port {0} is set aside for endpoints of another user (`tsumugi status`); take another port, or 0 for any"
    )]
    PortForbidden(u16),
    /// The NIC has no interrupts to spare.
    #[error(
        "{0} cannot be busy-polled: it is virtual and has no interrupts of its own, so that nothing would be spared; leave --busy-poll away"
    )]
    CannotBusyPoll(String),
    /// The kernel does not tell how long programs run.
    #[error("asking how long programs run: {0}; it needs root and Linux 5.8")]
    Runs(String),
    /// The XDP receive path was demanded, and no memory is free.
    #[error("no endpoint memory of the XDP receive path is free: {0}")]
    NoneFree(String),
}

const fn remedy(refused: super::Mode) -> &'static str {
    match refused {
        super::Mode::Native => "; without `--xdp native` it runs behind the driver (generic)",
        super::Mode::Generic => "",
    }
}

/// An error with what caused it: the library's own text leaves out what the kernel said.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// An error about a file of the BPF file system.
pub(super) fn failed(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> XdpError {
    let path = path.to_owned();
    move |source| XdpError::Pins { doing, path, source }
}
