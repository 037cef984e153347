//! What a process has of the XDP receive path: one endpoint of the pool, to itself.

use super::bell::Bell;
use super::nic::{self, Attached};
use super::pins::{Pins, PoolFolder};
use super::standing::Kernel;
use super::{XdpError, maps, program};
use crate::memory::Memory;
use crate::sys::{self, Mapping, Own, Owner};
use aya::maps::MapData;
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;
use tsumugi_wire::limits::VERSION;
use tsumugi_wire::memory::{ASLEEP, Control, PAGE_BYTES, RUNG};

/// Which endpoint of the pool is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Any that is free, the highest port first: low ones are asked for by number.
    Any,
    /// This one.
    Port(u16),
}

/// An endpoint of the pool, held exclusively until it is dropped or the process ends, however it ends.
#[derive(Debug)]
pub struct Claim {
    port: u16,
    /// Locked.
    folder: Own<File>,
    /// The first page of the memory.
    control: Mapping,
    memory: Own<MapData>,
    bell: Bell,
    pool: PoolFolder,
    owner: Owner,
    pins: Pins,
    kernel: Kernel,
}

impl Claim {
    /// Claims what is wanted and `usable` agrees to, for which it makes something of its own, such as a socket on
    /// the same port. `Ok(None)`: there is no pool, the program is on no NIC any more, or nothing of the pool is free.
    ///
    /// # Errors
    /// The memory is another user's, or of a layout that this library does not know; or `usable` failed for
    /// another reason than that the port is taken, which it says with `Ok(None)`.
    pub fn take<T, E: From<XdpError>>(
        pins: &Pins,
        wanted: Wanted,
        usable: impl FnMut(u16) -> Result<Option<T>, E>,
    ) -> Result<Option<(Claim, T)>, E> {
        // What is pinned may have lost its NICs.
        if !nic::list(pins)?.iter().any(Attached::is_attached) {
            return Ok(None);
        }
        Claim::take_memory(pins, wanted, usable)
    }

    fn take_memory<T, E: From<XdpError>>(
        pins: &Pins,
        wanted: Wanted,
        mut usable: impl FnMut(u16) -> Result<Option<T>, E>,
    ) -> Result<Option<(Claim, T)>, E> {
        let Some(pool) = pins.find_pool()? else { return Ok(None) };
        let mut ports = pool.list()?;
        if let Wanted::Port(wanted) = wanted {
            ports.retain(|port| *port == wanted);
        }
        for &port in ports.iter().rev() {
            let folder = match sys::lock_folder(&pool.port(port), false) {
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => match wanted {
                    Wanted::Port(port) => return Err(XdpError::PortForbidden(port).into()),
                    Wanted::Any => continue,
                },
                // Somebody has it, or it is just being removed.
                Err(_) | Ok(None) => continue,
                Ok(Some(folder)) => folder,
            };
            // From here on what lies in the folder is nobody else's.
            if let Some(made) = usable(port)? {
                return Ok(Some((Claim::open(pins.clone(), pool, port, folder)?, made)));
            }
        }
        Ok(None)
    }

    /// Has the program leave what comes for `port` to the kernel, if the endpoint is nobody's. A process that was
    /// killed leaves its memory as it was, and as soon as another has a socket on the port the program takes that
    /// for the owner's.
    ///
    /// # Errors
    /// The memory is another user's, or of a layout that this library does not know.
    pub fn disown_dead(pins: &Pins, port: u16) -> Result<(), XdpError> {
        // Given back at once, which leaves no epoch in it.
        Claim::take_memory(pins, Wanted::Port(port), |_| Ok(Some(()))).map(drop)
    }

    fn open(pins: Pins, pool: PoolFolder, port: u16, folder: Own<File>) -> Result<Claim, XdpError> {
        if pool.layout != VERSION {
            let wanted = format!("layout {VERSION}");
            return Err(XdpError::OtherPool { there: pool.describe(), wanted });
        }
        program::check(pool.geometry)?;
        let path = pool.port(port);
        let memory =
            maps::open(&path.join("memory")).map_err(maps::refused("opening receive memory", port))?;
        let size = memory.info().map_err(maps::failed("asking about receive memory", port))?.value_size();
        if size as usize != pool.geometry.bytes() {
            let there = format!("{size} bytes for UDP port {port}");
            return Err(XdpError::OtherPool { there, wanted: format!("{} bytes", pool.geometry.bytes()) });
        }
        let control = maps::map(&memory, port, PAGE_BYTES)?;
        let bell = Bell::open(&path.join("bell"), port)?;
        let (owner, kernel) = (Owner::this_process(), Kernel::here());
        Ok(Claim { port, folder, control, memory, bell, pool, owner, pins, kernel })
    }

    /// The UDP port that the program deposits for.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The receive memory as if nobody had ever used it. Its epoch is 0: until it has one, the program leaves
    /// packets to the kernel.
    ///
    /// # Errors
    /// The process has no room to map it.
    pub fn memory(&self) -> Result<Memory, XdpError> {
        self.quiesce();
        let mapping = maps::map(&self.memory, self.port, self.pool.geometry.bytes())?;
        mapping.zero();
        self.bell.silence();
        Ok(Memory::lay_out(mapping, self.pool.geometry))
    }

    /// Has the program leave packets to the kernel, and returns when no run of it that began before writes any more.
    pub fn quiesce(&self) {
        self.disown();
        sys::wait_for_softirqs();
    }

    fn disown(&self) {
        self.control().epoch.store(0, Ordering::Release);
    }

    /// The NICs that the program was attached to, and what became of that.
    ///
    /// # Errors
    /// The BPF file system cannot be read.
    pub fn attachments(&mut self) -> Result<Vec<Attached>, XdpError> {
        nic::list_by(&mut self.kernel, &self.pins)
    }

    /// A number that changes with each tick of the kernel's clock in which the program has found a packet of a flow.
    #[must_use]
    pub fn tick(&self) -> u32 {
        self.control().checked_tick.load(Ordering::Relaxed)
    }

    /// Says whether the program is to leave its answers to the owner.
    pub fn leave_answers(&self, on: bool) {
        self.control().answers_left.store(on.into(), Ordering::Relaxed);
    }

    /// Whether the pool is still there: after `down` the program deposits no more, and sockets must do.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        sys::is_linked(&self.folder).unwrap_or(false)
    }

    /// Becomes readable when the program has rung because [`Control::sleeping`] was set.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.bell.descriptor()
    }

    /// Says whether the program must ring: once, until it is said again. Whoever says yes looks into the memory once
    /// more before it sleeps.
    pub fn watch(&self, on: bool) {
        self.bell.silence();
        // Sequentially consistent: the look that follows must not be taken before. The program's own order is
        // "publish, then look whether somebody sleeps".
        self.control().sleeping.0.swap(if on { ASLEEP } else { 0 }, Ordering::SeqCst);
    }

    /// Takes the stroke off the bell, if there is one; the program rings again. A look into the memory follows.
    pub fn silence(&self) {
        if self.control().sleeping.0.load(Ordering::Relaxed) == RUNG {
            self.watch(true);
        }
    }

    const fn control(&self) -> &Control {
        // SAFETY: the mapping begins with the control page, which is page-aligned and consists of atomics only;
        // it lives as long as `self`.
        unsafe { self.control.start().cast::<Control>().as_ref() }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.owner.is_here() {
            self.disown();
        }
    }
}
