//! The driver depositor: a program in the NIC's driver that deposits into receive memory.
//!
//! [`Receiver`] loads `bpf/receive.bpf.c`, compiled by `cargo xtask bpf`, for one [`Geometry`], and makes endpoint
//! memories: each is the single element of a mapped array that the program finds by its UDP port. Needs root.

mod object;

use crate::memory::{Memory, MemoryError};
use crate::sys;
use aya::maps::{HashOfMaps, MapData};
use aya::programs::{TestRun, TestRunOptions, Xdp};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tsumugi_wire::memory::Geometry;

/// Largest endpoint memory, bytes: what the program's type information can express.
pub const MEMORY_BYTES_MAX: usize = (1 << 30) - 1;

/// `BPF_MAP_TYPE_ARRAY` of linux/bpf.h.
const ARRAY: u32 = 2;
/// `BPF_MAP_TYPE_RINGBUF` of linux/bpf.h.
const RING_BUFFER: u32 = 27;
/// `BPF_F_MMAPABLE` of linux/bpf.h.
const MMAPABLE: u32 = 1 << 10;
/// Bytes of a doorbell: one page, the least there is.
const BELL_BYTES: u32 = 4096;

/// Why there is no driver depositor.
#[derive(Debug, thiserror::Error)]
pub enum XdpError {
    /// The compiled program is not there.
    #[error(
        "reading the driver program {path}: {source}; `cargo xtask bpf` compiles it (needs clang and libbpf-dev)"
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is not the driver program.
    #[error("the driver program's object file: {0}; compile it anew with `cargo xtask bpf`")]
    Object(String),
    /// The geometry is impossible.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The geometry is too big for the driver.
    #[error(
        "receive memory of {0} bytes: the driver takes at most {MEMORY_BYTES_MAX}; take fewer flows or a smaller ring"
    )]
    MemoryBytes(usize),
    /// The kernel refused the program or its maps.
    #[error("loading the driver program: {}; it needs root and Linux 5.18", chain(.0))]
    Load(#[from] aya::EbpfError),
    /// The kernel refused the program.
    #[error("{doing} the driver program: {}; it needs root and Linux 5.18", chain(source))]
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
    /// The kernel did not map an endpoint's memory.
    #[error("mapping the receive memory of UDP port {port}: {source}")]
    Mapping {
        /// The endpoint's port.
        port: u16,
        /// What the system said.
        source: std::io::Error,
    },
}

/// What the program did with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// `XDP_ABORTED`: a fault in the program.
    Aborted,
    /// `XDP_DROP`: done with it.
    Drop,
    /// `XDP_PASS`: the kernel's.
    Pass,
    /// `XDP_TX`: sent back.
    Transmit,
    /// A number that the program never returns.
    Unknown(u32),
}

/// A run of the program on a frame.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// What it did with the frame.
    pub action: Action,
    /// Bytes of the frame that it left.
    pub frame_bytes: usize,
    /// Time that it took: the mean of the repetitions.
    pub duration: Duration,
}

/// Receive memory that the program deposits into, and the doorbell that wakes its owner.
#[derive(Debug)]
pub struct Endpoint {
    /// The receive memory.
    pub memory: Memory,
    bell: MapData,
}

impl Endpoint {
    /// Becomes readable when the program has rung because [`sleeping`] was set.
    ///
    /// [`sleeping`]: tsumugi_wire::memory::Control::sleeping
    #[must_use]
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.fd().as_fd()
    }
}

/// The loaded program.
#[derive(Debug)]
pub struct Receiver {
    program: aya::Ebpf,
    geometry: Geometry,
}

/// Name of the program.
const PROGRAM: &str = "receive";
/// Name of the map from UDP ports to receive memories.
const ENDPOINTS: &str = "endpoints";
/// Name of the map from UDP ports to doorbells.
const BELLS: &str = "bells";

impl Receiver {
    /// Loads the program from an object file, for endpoint memories of one geometry.
    ///
    /// # Errors
    /// Says what is missing.
    pub fn load(path: &Path, geometry: Geometry) -> Result<Receiver, XdpError> {
        let mut file =
            std::fs::read(path).map_err(|source| XdpError::Read { path: path.to_owned(), source })?;
        Memory::check(geometry)?;
        let bytes = geometry.bytes();
        if bytes > MEMORY_BYTES_MAX {
            return Err(XdpError::MemoryBytes(bytes));
        }
        object::set_memory_bytes(&mut file, bytes as u32)?;
        let crc_table = object::crc_table();
        let mut program = aya::EbpfLoader::new()
            .override_global("flows", &geometry.flows, true)
            .override_global("ring_bytes", &geometry.ring_bytes, true)
            .override_global("crc_table", &crc_table[..], true)
            .load(&file)?;
        let failed = |doing| move |source| XdpError::Program { doing, source };
        let receive = program.program_mut(PROGRAM).ok_or_else(|| absent(PROGRAM))?;
        let receive: &mut Xdp = receive.try_into().map_err(failed("recognising"))?;
        receive.load().map_err(failed("loading"))?;
        Ok(Receiver { program, geometry })
    }

    /// Makes the receive memory of an endpoint and tells the program of it. Its epoch is 0: until it has one, the
    /// program leaves its packets to the kernel.
    ///
    /// # Errors
    /// The kernel has no memory, or no room for another endpoint.
    pub fn endpoint(&mut self, port: u16) -> Result<Endpoint, XdpError> {
        let failed = |doing| move |source| XdpError::Map { doing, port, source };
        let bytes = self.geometry.bytes();
        let memory = aya_obj::Map::new_from_params(ARRAY, 4, bytes as u32, 1, MMAPABLE);
        let memory =
            MapData::create(memory, "tsumugi_memory", None).map_err(failed("making receive memory"))?;
        let mapping = sys::Mapping::of_map(memory.fd().as_fd(), bytes)
            .map_err(|source| XdpError::Mapping { port, source })?;
        let bell = aya_obj::Map::new_from_params(RING_BUFFER, 0, 0, BELL_BYTES, 0);
        let bell = MapData::create(bell, "tsumugi_bell", None).map_err(failed("making a doorbell"))?;
        self.insert(BELLS, port, &bell)?;
        self.insert(ENDPOINTS, port, &memory)?;
        Ok(Endpoint { memory: Memory::lay_out(mapping, self.geometry), bell })
    }

    fn insert(&mut self, name: &'static str, port: u16, inner: &MapData) -> Result<(), XdpError> {
        let failed = |source| XdpError::Map { doing: "entering it", port, source };
        let map = self.program.map_mut(name).ok_or_else(|| absent(name))?;
        let mut map: HashOfMaps<_, u32, MapData> = map.try_into().map_err(failed)?;
        map.insert(u32::from(port), inner, 0).map_err(failed)
    }

    /// Runs the program on a frame `repeat` times, without a NIC (`BPF_PROG_TEST_RUN`). `out` takes the frame as
    /// the program left it and must be long enough.
    ///
    /// # Errors
    /// The kernel refused: the frame is shorter than an Ethernet header, or `out` too short.
    pub fn run(&self, frame: &[u8], out: &mut [u8], repeat: u32) -> Result<Run, XdpError> {
        let failed = |doing| move |source| XdpError::Program { doing, source };
        let receive = self.program.program(PROGRAM).ok_or_else(|| absent(PROGRAM))?;
        let receive: &Xdp = receive.try_into().map_err(failed("recognising"))?;
        let options =
            TestRunOptions { data_in: Some(frame), data_out: Some(out), repeat, ..TestRunOptions::new() };
        let run = receive.test_run(options).map_err(failed("trying"))?;
        let action = match run.return_value {
            0 => Action::Aborted,
            1 => Action::Drop,
            2 => Action::Pass,
            3 => Action::Transmit,
            other => Action::Unknown(other),
        };
        Ok(Run { action, frame_bytes: run.data_size_out as usize, duration: run.duration })
    }
}

/// An error with what caused it: the library's own text leaves out what the kernel said.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

fn absent(name: &str) -> XdpError {
    XdpError::Object(format!("there is no '{name}' in it"))
}
