//! Registered memory, `fi_mr(3)`.
//!
//! A region is registered with every endpoint of its domain, under one key. Peers name places in it by offsets from its
//! beginning; under `FI_MR_BASIC` by the region's own addresses, and the key is chosen here and cannot be guessed.

use crate::abi::*;
use crate::domain::{self, Child, Domain, OfDomain};
use crate::host::say;
use crate::lock::{Lock, Object, enter};
use crate::object::{Head, Table, functions, give, head};
use libc::iovec;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::hash::{BuildHasher, RandomState};
use std::ptr::NonNull;
use std::rc::{Rc, Weak};
use tsumugi::remote::Refused;
use tsumugi::{Region, Rights, Target};

/// A region longer than this is no memory but a range of addresses: an MPI's dynamic window, to which memory is
/// attached and detached.
const RANGE_BYTES_MIN: usize = 1 << 46;

/// A domain's regions by their keys.
pub(crate) struct Registry {
    basic: bool,
    regions: RefCell<HashMap<u64, Weak<Memory>>>,
}

impl Registry {
    pub(crate) fn new(basic: bool) -> Registry {
        Registry { basic, regions: RefCell::default() }
    }

    fn get(&self, key: u64) -> Option<Rc<Memory>> {
        self.regions.borrow().get(&key)?.upgrade()
    }

    /// Every region that peers may reach.
    pub(crate) fn all(&self) -> Vec<Rc<Memory>> {
        self.regions
            .borrow()
            .values()
            .filter_map(Weak::upgrade)
            .filter(|memory| memory.region.is_some())
            .collect()
    }

    /// The region under a key, and the place in it of `bytes` at an address, if the rights are there.
    pub(crate) fn find(
        &self,
        target: Target,
        bytes: usize,
        rights: Rights,
    ) -> Result<(Region, usize), Refused> {
        let memory = self.get(target.key).ok_or(Refused::NoSuchKey)?;
        let region = memory.region.clone().ok_or(Refused::NotPermitted)?;
        if !memory.rights.is_some_and(|given| given.has(rights)) {
            return Err(Refused::NotPermitted);
        }
        let ahead = target.address.checked_sub(memory.base).ok_or(Refused::OutOfBounds)?;
        match usize::try_from(ahead) {
            Ok(at) if bytes <= region.bytes() && at <= region.bytes() - bytes => Ok((region, at)),
            _ => Err(Refused::OutOfBounds),
        }
    }

    /// A key that nobody has and nobody can guess.
    fn new_key(&self) -> u64 {
        loop {
            let key = RandomState::new().hash_one(0u8);
            if key != FI_KEY_NOTAVAIL && !self.regions.borrow().contains_key(&key) {
                return key;
            }
        }
    }
}

/// A registered region.
#[repr(C)]
pub(crate) struct Memory {
    fid: Head<fid_mr>,
    domain: OfDomain,
    key: u64,
    /// What peers call its first byte.
    base: u64,
    rights: Option<Rights>,
    /// The memory, if peers may reach any.
    region: Option<Region>,
}

impl Object for Memory {
    fn lock(&self) -> &Lock {
        &self.domain.lock
    }
}

impl Child for Memory {
    fn domain(&self) -> &OfDomain {
        &self.domain
    }
}

static FUNCTIONS: Table<fi_ops> = functions(close, Some(bind), Some(control));
/// How a domain registers memory.
pub(crate) static TABLE: Table<fi_ops_mr> = Table::new(fi_ops_mr {
    size: size_of::<fi_ops_mr>(),
    reg: Some(register),
    regv: Some(register_pieces),
    regattr: Some(register_described),
});

unsafe extern "C" fn register(
    domain: *mut fid,
    place: *const c_void,
    bytes: usize,
    access: u64,
    offset: u64,
    key: u64,
    _: u64,
    memory: *mut *mut fid_mr,
    context: *mut c_void,
) -> c_int {
    if offset != 0 {
        return -FI_EINVAL;
    }
    // SAFETY: the host's call.
    let domain = unsafe { enter::<Domain, _>(domain) };
    match Memory::register(&domain, place, bytes, access, key, context) {
        Ok(made) => {
            // SAFETY: the caller wants it there.
            unsafe { give(memory, Rc::into_raw(made)) };
            FI_SUCCESS
        }
        Err(code) => -code,
    }
}

unsafe extern "C" fn register_pieces(
    domain: *mut fid,
    pieces: *const iovec,
    count: usize,
    access: u64,
    offset: u64,
    key: u64,
    flags: u64,
    memory: *mut *mut fid_mr,
    context: *mut c_void,
) -> c_int {
    if count != 1 {
        return -FI_EINVAL;
    }
    // SAFETY: there is one.
    unsafe {
        let piece = &*pieces;
        register(domain, piece.iov_base, piece.iov_len, access, offset, key, flags, memory, context)
    }
}

unsafe extern "C" fn register_described(
    domain: *mut fid,
    attr: *const fi_mr_attr,
    flags: u64,
    memory: *mut *mut fid_mr,
) -> c_int {
    // SAFETY: the host's call. Only what every version has is read; whose memory it is says who has asked for FI_HMEM,
    // which is not offered.
    unsafe {
        let attr = &*attr;
        let (pieces, count) = (attr.mr_iov, attr.iov_count);
        let (access, offset, key) = (attr.access, attr.offset, attr.requested_key);
        register_pieces(domain, pieces, count, access, offset, key, flags, memory, attr.context)
    }
}

impl Memory {
    fn register(
        domain: &Domain,
        place: *const c_void,
        bytes: usize,
        access: u64,
        key: u64,
        context: *mut c_void,
    ) -> Result<Rc<Memory>, i32> {
        let registry = &domain.memory;
        let key = if registry.basic { registry.new_key() } else { key };
        if registry.get(key).is_some() {
            say!(FI_LOG_INFO, FI_LOG_MR, "key {key:#x} is in use: regions of a domain have different keys");
            return Err(FI_ENOKEY);
        }
        let reads = (access & FI_REMOTE_READ != 0).then_some(Rights::READ);
        let writes = (access & FI_REMOTE_WRITE != 0).then_some(Rights::WRITE);
        let rights = reads.into_iter().chain(writes).reduce(Rights::and);
        // Nobody has anything at address 0, so a range of addresses begins behind it.
        let start = place.cast::<u8>().cast_mut();
        let skipped = usize::from(start.is_null() && bytes > 0);
        let region =
            NonNull::new(start.wrapping_add(skipped)).filter(|_| rights.is_some() && bytes > skipped);
        let region = region.map(|start| {
            let bytes = bytes - skipped;
            if bytes >= RANGE_BYTES_MIN {
                // SAFETY: as below, but that the memory may not be there, which is asked for each time.
                unsafe { Region::from_raw_checked(start, bytes) }
            } else {
                // SAFETY: the caller promises that the memory is there as long as it is registered.
                unsafe { Region::from_raw(start, bytes) }
            }
        });
        let base = if registry.basic { start.addr() as u64 } else { 0 } + skipped as u64;
        let fid = fid_mr { fid: head(FI_CLASS_MR, context, &FUNCTIONS), mem_desc: std::ptr::null_mut(), key };
        let domain = OfDomain::new(domain);
        let made = Rc::new(Memory { fid: Head::new(fid), domain, key, base, rights, region });
        // SAFETY: nobody else has it yet.
        unsafe { (*made.fid.get()).mem_desc = Rc::as_ptr(&made).cast_mut().cast() };
        made.domain.memory.regions.borrow_mut().insert(key, Rc::downgrade(&made));
        let endpoints: Vec<_> = made.domain.endpoints.borrow().iter().filter_map(Weak::upgrade).collect();
        for endpoint in endpoints {
            endpoint.expose(&made)?;
        }
        Ok(made)
    }

    pub(crate) fn key(&self) -> u64 {
        self.key
    }

    /// What peers say to reach its first byte.
    pub(crate) fn target(&self) -> Target {
        Target { key: self.key, address: self.base }
    }

    /// The memory and what peers may do with it, if they may do anything.
    pub(crate) fn exposed(&self) -> Option<(&Region, Rights)> {
        self.region.as_ref().zip(self.rights)
    }
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: the host's call.
    unsafe {
        domain::close::<Memory>(fid, |memory| {
            memory.domain.memory.regions.borrow_mut().remove(&memory.key);
            for endpoint in memory.domain.endpoints.borrow().iter().filter_map(Weak::upgrade) {
                endpoint.hide(memory.key);
            }
        })
    }
}

/// A region is there for every endpoint of its domain, so one that it is bound to has it already. Accesses are not counted.
unsafe extern "C" fn bind(_: *mut fid, to: *mut fid, _: u64) -> c_int {
    // SAFETY: the host's call.
    if unsafe { (*to).fclass } == FI_CLASS_EP { FI_SUCCESS } else { -FI_ENOSYS }
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: the host's call.
    let memory = unsafe { enter::<Memory, _>(fid) };
    match command {
        // It is in force since it was registered, and what is mapped there is looked up when it is accessed.
        FI_ENABLE | FI_REFRESH => FI_SUCCESS,
        FI_GET_RAW_MR => {
            // SAFETY: the command's argument.
            unsafe {
                let wanted = &*arg.cast::<fi_mr_raw_attr>();
                let room = wanted.key_size.replace(size_of::<u64>());
                if room < size_of::<u64>() {
                    return -FI_ETOOSMALL;
                }
                wanted.base_addr.write(memory.base);
                wanted.raw_key.cast::<u64>().write_unaligned(memory.key);
            }
            FI_SUCCESS
        }
        _ => -FI_ENOSYS,
    }
}
