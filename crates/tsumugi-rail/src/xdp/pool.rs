//! The pool of endpoint memories, and what root does: `up`, `down`, `status`.

use super::access::Access;
use super::busy_poll::can_busy_poll;
use super::error::failed;
use super::maps::{self, failed as map_failed};
use super::mode::Mode;
use super::nic::{self, Attached};
use super::pins::{self, Pins, PoolFolder, remove};
use super::program::{self, BELLS, ENDPOINTS, Program};
use super::standing::{self, Standing};
use super::stranger::Stranger;
use super::{ENDPOINTS_MAX, XdpError, bpf_fs};
use crate::sys::{self, Own};
use aya::maps::{MapData, MapError};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::sync::atomic::Ordering;
use tsumugi_wire::limits::{DEFAULT_PORT, VERSION};
use tsumugi_wire::memory::{Control, Counter, Geometry, PAGE_BYTES};

/// What to make.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    /// UDP port of the first endpoint; the others have the ports behind it.
    pub first_port: u16,
    /// Number of endpoints.
    pub endpoints: u16,
    /// Sizes of their memories; `None`: as of those that are there, or [`PoolOptions::GEOMETRY`].
    pub geometry: Option<Geometry>,
    /// Who may use them.
    pub access: Access,
    /// Where the program is to run; `None`: natively if the NIC's driver can.
    pub mode: Option<Mode>,
    /// Whether to set the NICs for busy polling ([`Deferral`](super::Deferral)).
    pub busy_poll: bool,
}

impl PoolOptions {
    /// Sizes of an endpoint's memory when none are asked for: room for a message of 1 MiB to arrive while nobody
    /// looks, and small enough for a cache; and a window that takes a message of 1 MiB and a word behind it, all of which
    /// can be translated. Kernels of Linux 6.1's age take elements of up to 4 MiB.
    pub const GEOMETRY: Geometry =
        Geometry { flows: 1024, ring_bytes: 2 << 20, window_pages: 320, translations: 320 };
}

impl Default for PoolOptions {
    fn default() -> PoolOptions {
        PoolOptions {
            first_port: DEFAULT_PORT,
            endpoints: 16,
            geometry: None,
            access: Access { owner: None, group: None, mode: 0o600 },
            mode: None,
            busy_poll: false,
        }
    }
}

/// One endpoint of the pool.
#[derive(Clone, Debug)]
pub struct PortStatus {
    /// Its UDP port.
    pub port: u16,
    /// Who may use it.
    pub access: Access,
    /// Whether a process has it now.
    pub claimed: bool,
    /// Epoch of the process that has it, or had it last and was killed; 0: none.
    pub epoch: u32,
    /// Names and values of its counters. Empty when the caller may not look.
    pub counters: Vec<(&'static str, u64)>,
}

impl PortStatus {
    /// Whether the calling user may have it, and nobody has it now: tried by opening its memory.
    #[must_use]
    pub const fn is_free_for_us(&self) -> bool {
        !self.claimed && !self.counters.is_empty()
    }
}

/// What there is in this network namespace.
#[derive(Clone, Debug, Default)]
pub struct PoolStatus {
    /// The NICs that the program was attached to, and what became of that.
    pub nics: Vec<Attached>,
    /// Other programs on this namespace's NICs, which keep ours from them.
    pub strangers: Vec<Stranger>,
    /// Sizes of the endpoint memories; `None`: there is no pool.
    pub geometry: Option<Geometry>,
    /// The endpoints.
    pub ports: Vec<PortStatus>,
}

/// Attaches the program to NICs and makes endpoint memories. What is there already stays; a program that is
/// attached is replaced by this library's, without a packet being lost, while processes use it.
///
/// # Errors
/// Says what failed; what this call has made is removed then.
pub fn up(pins: &Pins, nics: &[String], options: &PoolOptions) -> Result<Vec<Attached>, XdpError> {
    let ports = options.ports()?;
    let nics = &first_names(nics);
    for nic in nics {
        nic::index_of(nic)?;
        if options.busy_poll && !can_busy_poll(nic) {
            return Err(XdpError::CannotBusyPoll(nic.clone()));
        }
    }
    bury(pins);
    let made = pins.make(options.access).and_then(|(pins, _lock)| up_there(&pins, nics, ports, options));
    if made.is_err() {
        bpf_fs::clear();
    }
    made
}

/// As the kernel names them, whose alternative names are in no list of ours.
fn first_names(nics: &[String]) -> Vec<String> {
    nics.iter().map(|nic| nic::first_name(nic)).collect()
}

/// Removes what is pinned for network namespaces that are gone, as far as possible: leftovers harm nobody.
fn bury(pins: &Pins) {
    for dead in pins.of_the_dead() {
        let _ = down_there(&dead, &[]);
    }
}

fn up_there(
    pins: &Pins,
    nics: &[String],
    ports: std::ops::RangeInclusive<u16>,
    options: &PoolOptions,
) -> Result<Vec<Attached>, XdpError> {
    let mut there = pins.find_pool()?;
    if let Some(pool) = &there
        && !nic::list(pins)?.iter().any(Attached::is_attached)
        && (pool.layout != VERSION || options.geometry.is_some_and(|geometry| geometry != pool.geometry))
        && !is_in_use(pool)?
    {
        // Nobody would miss it: nothing is deposited there any more, and nobody waits for that.
        for attached in nic::list(pins)? {
            nic::detach(&attached)?;
        }
        clear_pool(pool)?;
        there = None;
    }
    let fresh = there.is_none();
    let wanted = options.geometry.or(there.as_ref().map(|pool| pool.geometry));
    let pool = pins.pool(wanted.unwrap_or(PoolOptions::GEOMETRY));
    let made = match there {
        Some(there) if there.path != pool.path => {
            Err(XdpError::OtherPool { there: there.describe(), wanted: pool.describe() })
        }
        _ => make(pins, &pool, ports, nics, options),
    };
    if made.is_err() && fresh {
        clear(pins, &pool)?;
    }
    made
}

fn make(
    pins: &Pins,
    pool: &PoolFolder,
    ports: std::ops::RangeInclusive<u16>,
    nics: &[String],
    options: &PoolOptions,
) -> Result<Vec<Attached>, XdpError> {
    program::check(pool.geometry)?;
    pins::make_folder(&pool.ports())?;
    let mut program = Program::load(pool.geometry, Some(&pool.path))?;
    for port in ports {
        make_endpoint(&mut program, pool, port, options.access)?;
    }
    // Before it is attached anywhere: who asks the kernel knows it for ours.
    pins.remember_program(program.id()?)?;
    let mut before = nic::list(pins)?;
    // Those that stand for nothing any more; the NIC may get the program anew.
    for dead in before.extract_if(.., |attached| !attached.is_attached()) {
        nic::detach(&dead)?;
    }
    for attached in &before {
        nic::replace(program.xdp()?, attached)?;
    }
    pins.forget_programs(&[program.id()?])?;
    let mut new: Vec<Attached> = Vec::new();
    for name in nics {
        if before.iter().chain(&new).any(|attached| attached.nic.as_deref() == Some(name)) {
            continue;
        }
        match nic::attach(program.xdp()?, pins, name, options.mode) {
            Ok(attached) => new.push(attached),
            Err(error) => {
                for attached in &new {
                    nic::detach(attached)?;
                }
                return Err(error);
            }
        }
    }
    if options.busy_poll {
        let named = |attached: &&Attached| attached.nic.as_ref().is_some_and(|nic| nics.contains(nic));
        for attached in nic::list(pins)?.iter().filter(named) {
            nic::set_for_busy_polling(pins, attached)?;
        }
    }
    let mut all = nic::list(pins)?;
    for attached in &mut all {
        if let Some(new) = new.iter().find(|new| new.index == attached.index) {
            attached.native_refused.clone_from(&new.native_refused);
            attached.answers_dropped.clone_from(&new.answers_dropped);
        }
    }
    Ok(all)
}

/// Makes the memory and the doorbell of an endpoint where they are not there, and has the program know them.
///
/// Who has ever had a memory mapped reads what comes there. So a memory never passes to others: they get a new one, and one
/// that a process has stays what it is.
fn make_endpoint(
    program: &mut Program,
    pool: &PoolFolder,
    port: u16,
    mut access: Access,
) -> Result<(), XdpError> {
    let folder = pool.port(port);
    if let Some(former) = access_of(&folder)?.filter(|former| !former.is_same(access)) {
        match sys::lock_folder(&folder, false) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => access = former,
            locked => {
                let _lock = locked.map_err(failed("locking", &folder))?;
                clear_endpoint(&folder)?;
            }
        }
    }
    // Nobody has it before it is whole.
    match fs::DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(failed("making", &folder)(error));
        }
        _ => {}
    }
    let _lock = sys::lock_folder(&folder, false);
    let memory = pinned(&folder.join("memory"), port, access, || maps::make_memory(port, pool.geometry))?;
    let bell = pinned(&folder.join("bell"), port, access, || maps::make_bell(port))?;
    program.enter(port, &memory, &bell)?;
    // Who may use what is in the folder may look into it.
    permit(&folder, access, access.mode & 0o666 | (access.mode & 0o444) >> 2)
}

/// What is pinned at `pin`, made when nothing is.
fn pinned(
    pin: &Path,
    port: u16,
    access: Access,
    make: impl FnOnce() -> Result<MapData, XdpError>,
) -> Result<MapData, XdpError> {
    let map = if pin.exists() {
        MapData::from_pin(pin).map_err(map_failed("opening what is pinned", port))?
    } else {
        let map = make()?;
        let refused = |error| map_failed("pinning", port)(MapError::PinError { name: None, error });
        map.pin(pin).map_err(refused)?;
        map
    };
    permit(pin, access, access.mode)?;
    Ok(map)
}

fn permit(path: &Path, access: Access, mode: u32) -> Result<(), XdpError> {
    chown(path, Some(access.owner.unwrap_or(0)), Some(access.group.unwrap_or(0)))
        .map_err(failed("changing the owner of", path))?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .map_err(failed("changing the permissions of", path))
}

impl PoolOptions {
    fn ports(&self) -> Result<std::ops::RangeInclusive<u16>, XdpError> {
        let wrong = XdpError::Ports { first: self.first_port, count: self.endpoints };
        let last = self.first_port.checked_add(self.endpoints.saturating_sub(1));
        match last {
            Some(last) if self.first_port >= 1024 && (1..=ENDPOINTS_MAX).contains(&self.endpoints) => {
                Ok(self.first_port..=last)
            }
            _ => Err(wrong),
        }
    }
}

/// Detaches the program from the NICs named, or from all; with the last one everything is removed. Endpoints
/// that are open continue through their sockets. Returns what it has detached.
///
/// # Errors
/// The program is not on a NIC that is named, or something could not be removed.
pub fn down(pins: &Pins, nics: &[String]) -> Result<Vec<Attached>, XdpError> {
    bury(pins);
    let gone = down_there(pins, nics);
    // What is open there keeps a file system mounted, such as the lock.
    bpf_fs::clear();
    gone
}

fn down_there(pins: &Pins, nics: &[String]) -> Result<Vec<Attached>, XdpError> {
    let Some(_lock) = pins.lock()? else {
        return match nics.first() {
            Some(nic) => Err(XdpError::NotAttached(nic.clone())),
            None => Ok(Vec::new()),
        };
    };
    let nics = &first_names(nics);
    let mut all = nic::list(pins)?;
    // A NIC that is gone may have had any name.
    let any = all.iter().any(|attached| attached.standing == Standing::NicGone);
    if let Some(stranger) =
        nics.iter().find(|nic| !any && !all.iter().any(|attached| attached.nic.as_ref() == Some(nic)))
    {
        return Err(XdpError::NotAttached(stranger.clone()));
    }
    let goes = |attached: &Attached| {
        !attached.is_attached()
            || attached.nic.as_ref().is_none_or(|nic| nics.is_empty() || nics.contains(nic))
    };
    let gone: Vec<Attached> = all.extract_if(.., |attached| goes(attached)).collect();
    for attached in &gone {
        nic::detach(attached)?;
    }
    if all.is_empty() {
        while let Some(pool) = pins.find_pool()? {
            clear(pins, &pool)?;
        }
        pins.clear()?;
    }
    Ok(gone)
}

/// Removes a pool and, when the program is nowhere attached, the folder of this namespace.
fn clear(pins: &Pins, pool: &PoolFolder) -> Result<(), XdpError> {
    clear_pool(pool)?;
    if nic::list(pins)?.is_empty() { pins.clear() } else { Ok(()) }
}

/// Whether a process has an endpoint of a pool.
fn is_in_use(pool: &PoolFolder) -> Result<bool, XdpError> {
    let held =
        |port| File::open(pool.port(port)).map(Own::new).is_ok_and(|folder| sys::lock_is_held(&folder));
    Ok(pool.list()?.into_iter().any(held))
}

fn clear_pool(pool: &PoolFolder) -> Result<(), XdpError> {
    for port in pool.list()? {
        clear_endpoint(&pool.port(port))?;
    }
    for name in [ENDPOINTS, BELLS] {
        remove(&pool.path.join(name))?;
    }
    remove(&pool.ports())?;
    remove(&pool.path)
}

fn clear_endpoint(folder: &Path) -> Result<(), XdpError> {
    for name in ["memory", "bell"] {
        remove(&folder.join(name))?;
    }
    remove(folder)
}

/// Who may use the endpoint whose folder this is; `None`: there is none.
fn access_of(folder: &Path) -> Result<Option<Access>, XdpError> {
    match fs::metadata(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        found => {
            let found = found.map_err(failed("looking at", folder))?;
            let mode = found.mode() & 0o666;
            Ok(Some(Access { owner: Some(found.uid()), group: Some(found.gid()), mode }))
        }
    }
}

/// What there is.
///
/// # Errors
/// The BPF file system cannot be read.
pub fn status(pins: &Pins) -> Result<PoolStatus, XdpError> {
    let mut nics = nic::list(pins)?;
    for attached in &mut nics {
        if let Standing::Replaced(stranger) = &mut attached.standing {
            *stranger = stranger.clone().identified();
        }
    }
    let strangers = standing::strangers(&pins.known_programs()?);
    let Some(pool) = pins.find_pool()? else {
        return Ok(PoolStatus { nics, strangers, ..PoolStatus::default() });
    };
    Ok(PoolStatus { nics, strangers, geometry: Some(pool.geometry), ports: ports_of(&pool)? })
}

/// The endpoints of the pool with what they have counted, which the program goes on with while their processes make no call. None
/// where there is no pool.
///
/// # Errors
/// The BPF file system cannot be read.
pub fn ports(pins: &Pins) -> Result<Vec<PortStatus>, XdpError> {
    pins.find_pool()?.map_or_else(|| Ok(Vec::new()), |pool| ports_of(&pool))
}

fn ports_of(pool: &PoolFolder) -> Result<Vec<PortStatus>, XdpError> {
    pool.list()?.into_iter().filter_map(|port| port_status(pool, port).transpose()).collect()
}

/// `None`: it is just being removed, or made anew for others.
fn port_status(pool: &PoolFolder, port: u16) -> Result<Option<PortStatus>, XdpError> {
    let folder = pool.port(port);
    let Some(access) = access_of(&folder)? else { return Ok(None) };
    // Tried and given back at once: a process that claims at this very moment tries the next port.
    let claimed = File::open(&folder).is_ok_and(|folder| sys::lock_is_held(&Own::new(folder)));
    let mut status = PortStatus { port, access, claimed, epoch: 0, counters: Vec::new() };
    if let Ok(memory) = MapData::from_pin(folder.join("memory")) {
        let page = maps::map(&memory, port, PAGE_BYTES)?;
        // SAFETY: the page is the control page, which consists of atomics only; it is mapped while `page` lives.
        let control = unsafe { page.start().cast::<Control>().as_ref() };
        status.epoch = control.epoch.load(Ordering::Relaxed);
        let value = |counter| control.counters.0[counter as usize].load(Ordering::Relaxed);
        status.counters = Counter::ALL.iter().map(|(counter, name)| (*name, value(*counter))).collect();
    }
    Ok(Some(status))
}
