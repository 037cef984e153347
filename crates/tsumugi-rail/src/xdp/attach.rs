//! Programs that a process has on a NIC for itself, nothing of which is pinned: they go with it.

use super::{Mode, attach_to, chain, is_taken};
use aya::programs::Xdp;

/// Why a program is not on a NIC.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// The library was built where the program could not be compiled.
    #[error("the {0} program was left out of this build: install clang and libbpf-dev, and build again")]
    NotCompiled(&'static str),
    /// The compiled program is not what is expected.
    #[error("the compiled {program} program has no '{absent}' in it")]
    Object {
        /// Name of the program.
        program: &'static str,
        /// What it lacks.
        absent: &'static str,
    },
    /// The kernel refused the program or its map.
    #[error("loading the {program} program: {}; it needs root and Linux 5.18", chain(source))]
    Load {
        /// Name of the program.
        program: &'static str,
        /// What the kernel or the library said.
        source: aya::EbpfError,
    },
    /// The NIC has a program already.
    #[error(
        "attaching the {program} program to NIC {nic}: it has another XDP program; detach that: `ip link set NIC xdp off`, or end its owner"
    )]
    Taken {
        /// Name of the program.
        program: &'static str,
        /// The NIC's index.
        nic: u32,
    },
    /// The kernel refused the program.
    #[error(
        "{doing} the {program} program, NIC {nic}: {}; it needs root, and a driver that has the mode",
        chain(source)
    )]
    Program {
        /// What was tried.
        doing: &'static str,
        /// Name of the program.
        program: &'static str,
        /// The NIC's index.
        nic: u32,
        /// What the kernel or the library said.
        source: Box<aya::programs::ProgramError>,
    },
}

/// Loads the program of this name from its object file, which is empty if this build left it out, and attaches it to the
/// NIC with index `nic` in this thread's network namespace. It is detached when what is returned is dropped.
pub(crate) fn attach(
    object: &[u8],
    program: &'static str,
    nic: u32,
    mode: Mode,
) -> Result<aya::Ebpf, AttachError> {
    if object.is_empty() {
        return Err(AttachError::NotCompiled(program));
    }
    let failed = |doing| move |source| AttachError::Program { doing, program, nic, source: Box::new(source) };
    let loaded = aya::EbpfLoader::new().load(object);
    let mut loaded = loaded.map_err(|source| AttachError::Load { program, source })?;
    let absent = AttachError::Object { program, absent: program };
    let xdp: &mut Xdp =
        loaded.program_mut(program).ok_or(absent)?.try_into().map_err(failed("recognising"))?;
    xdp.load().map_err(failed("loading"))?;
    match attach_to(xdp, nic, mode) {
        Err(error) if is_taken(&error) => Err(AttachError::Taken { program, nic }),
        attached => attached.map(|_| loaded).map_err(failed("attaching")),
    }
}
