//! Loading the program and trying it.

use super::{MEMORY_BYTES_MAX, PROGRAM, XdpError, maps, object};
use crate::memory::Memory;
use aya::maps::MapData;
use aya::programs::{TestRun, TestRunOptions, Xdp};
use std::path::Path;
use std::time::Duration;
use tsumugi_wire::memory::Geometry;

/// The compiled program; empty when this build left it out.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/receive.bpf.o"));

/// Whether this build contains the program.
pub const IS_COMPILED: bool = !OBJECT.is_empty();

/// Name of the map from UDP ports to receive memories.
pub(super) const ENDPOINTS: &str = "endpoints";
/// Name of the map from UDP ports to doorbells.
pub(super) const BELLS: &str = "bells";

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
    /// `XDP_REDIRECT`: sent by another NIC.
    Redirect,
    /// A number that the program never returns.
    Unknown(u32),
}

impl Action {
    /// What a program has returned (`enum xdp_action` of linux/bpf.h).
    pub(crate) const fn from_code(code: u32) -> Action {
        match code {
            0 => Action::Aborted,
            1 => Action::Drop,
            2 => Action::Pass,
            3 => Action::Transmit,
            4 => Action::Redirect,
            other => Action::Unknown(other),
        }
    }
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

/// The program, loaded for endpoint memories of one geometry.
#[derive(Debug)]
pub(super) struct Program(aya::Ebpf);

impl Program {
    /// Loads the program. With `pins`, its maps from ports are those pinned in that folder, which are made if they
    /// are not there.
    pub(super) fn load(geometry: Geometry, pins: Option<&Path>) -> Result<Program, XdpError> {
        if !IS_COMPILED {
            return Err(XdpError::NotCompiled);
        }
        check(geometry)?;
        let mut file = OBJECT.to_vec();
        object::set_memory_bytes(&mut file, geometry.bytes() as u32)?;
        let crc_table = object::crc_table();
        let translation_buckets = geometry.buckets() as u32;
        let mut loader = aya::EbpfLoader::new();
        loader
            .override_global("flows", &geometry.flows, true)
            .override_global("ring_bytes", &geometry.ring_bytes, true)
            .override_global("window_pages", &geometry.window_pages, true)
            .override_global("translation_buckets", &translation_buckets, true)
            .override_global("crc_table", &crc_table[..], true);
        if let Some(folder) = pins {
            for name in [ENDPOINTS, BELLS] {
                loader.map_pin_path(name, folder.join(name));
            }
        }
        let mut program = Program(loader.load(&file)?);
        program.xdp()?.load().map_err(|source| XdpError::Program { doing: "loading", source })?;
        Ok(program)
    }

    /// The program as what can be attached.
    pub(super) fn xdp(&mut self) -> Result<&mut Xdp, XdpError> {
        let program = self.0.program_mut(PROGRAM).ok_or_else(|| absent(PROGRAM))?;
        program.try_into().map_err(|source| XdpError::Program { doing: "recognising", source })
    }

    /// Its number in the kernel.
    pub(super) fn id(&mut self) -> Result<u32, XdpError> {
        let info =
            self.xdp()?.info().map_err(|source| XdpError::Program { doing: "asking about", source })?;
        Ok(info.id())
    }

    /// Enters an endpoint's memory and doorbell.
    pub(super) fn enter(&mut self, port: u16, memory: &MapData, bell: &MapData) -> Result<(), XdpError> {
        // The bell first: the program looks for it only when it has found the memory.
        for (name, object) in [(BELLS, bell), (ENDPOINTS, memory)] {
            maps::enter(self.0.map_mut(name).ok_or_else(|| absent(name))?, port, object)?;
        }
        Ok(())
    }

    /// See [`super::Receiver::run`].
    pub(super) fn run(&self, frame: &[u8], out: &mut [u8], repeat: u32) -> Result<Run, XdpError> {
        let failed = |doing| move |source| XdpError::Program { doing, source };
        let receive = self.0.program(PROGRAM).ok_or_else(|| absent(PROGRAM))?;
        let receive: &Xdp = receive.try_into().map_err(failed("recognising"))?;
        let options =
            TestRunOptions { data_in: Some(frame), data_out: Some(out), repeat, ..TestRunOptions::new() };
        let run = receive.test_run(options).map_err(failed("trying"))?;
        let action = Action::from_code(run.return_value);
        Ok(Run { action, frame_bytes: run.data_size_out as usize, duration: run.duration })
    }
}

/// Whether endpoint memories may have these sizes.
pub(super) fn check(geometry: Geometry) -> Result<(), XdpError> {
    Memory::check(geometry)?;
    let bytes = geometry.bytes();
    if bytes > MEMORY_BYTES_MAX { Err(XdpError::MemoryBytes(bytes)) } else { Ok(()) }
}

fn absent(name: &str) -> XdpError {
    XdpError::Object(format!("there is no '{name}' in it"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::object::{Object, ObjectSection, ObjectSymbol};
    use std::mem::offset_of;
    use tsumugi_wire::memory::{DirectWrites, Flow};

    /// Atomic instructions on 64 bits (`BPF_STX | BPF_ATOMIC | BPF_DW`), and what of their immediate says which.
    const ATOMIC: u8 = 0xdb;
    const FETCH: i32 = 0x01;
    const ADD_AND_FETCH: i32 = FETCH;

    /// Offsets and immediates of the atomic instructions of a function of the compiled program.
    fn atomics(function: &str) -> Vec<(usize, i32)> {
        let file = ::object::File::parse(OBJECT).unwrap();
        let symbol = file.symbols().find(|symbol| symbol.name() == Ok(function)).expect("the function");
        let section = file.section_by_index(symbol.section_index().expect("it is defined")).unwrap();
        let code = section.data_range(symbol.address(), symbol.size()).unwrap().expect("its code");
        let mut found = Vec::new();
        let mut instructions = code.chunks_exact(8);
        while let Some(&[opcode, _, low, high, ref immediate @ ..]) = instructions.next() {
            match opcode {
                ATOMIC => found.push((
                    usize::from(u16::from_le_bytes([low, high])),
                    i32::from_le_bytes(immediate.try_into().unwrap()),
                )),
                // The second half of a load of 64 bits is no instruction.
                0x18 => _ = instructions.next(),
                _ => {}
            }
        }
        found
    }

    #[test]
    fn direct_writes_are_counted_in_order_on_every_processor() {
        if !IS_COMPILED {
            eprintln!("SKIPPED: this build has left the program out");
            return;
        }
        let atomics = atomics("write_directly");
        for (field, additions) in
            [(offset_of!(DirectWrites, started), 2), (offset_of!(DirectWrites, done), 1)]
        {
            let offset = offset_of!(Flow, direct_writes) + field;
            let of_field: Vec<i32> =
                atomics.iter().filter(|(at, _)| *at == offset).map(|(_, which)| *which).collect();
            // Beside them, but on x86, an acquiring load is one, too: OR with FETCH.
            let ordered = of_field.iter().filter(|which| **which == ADD_AND_FETCH).count();
            assert!(ordered >= additions, "{offset}: {of_field:?} are not all of them");
            assert!(
                of_field.iter().all(|which| which & FETCH != 0),
                "{offset}: {of_field:?}: without FETCH nothing has an order on arm64"
            );
        }
    }
}
