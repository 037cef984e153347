//! Registered memory, `fi_mr(3)`.
//!
//! A region is registered with every endpoint of its domain, under one key. Peers name places in it by offsets from its
//! beginning; under `FI_MR_BASIC` by the region's own addresses, and the key is chosen here and cannot be guessed.

use crate::abi::*;
use crate::domain::{self, Child, Domain, OfDomain};
use crate::lock::{Lock, Object, enter};
use crate::object::{Head, Table, functions, give, head};
use crate::registry::Registered;
use libc::iovec;
use std::ffi::{c_int, c_void};
use std::rc::Rc;
use tsumugi::Target;

/// A registered region.
#[repr(C)]
pub(crate) struct Memory {
    fid: Head<fid_mr>,
    domain: OfDomain,
    registered: Rc<Registered>,
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
        let registered = domain.memory.register(place, bytes, access, key)?;
        domain.endpoints.expose(&registered).inspect_err(|_| domain.memory.remove(&registered))?;
        let fid = fid_mr {
            fid: head(FI_CLASS_MR, context, &FUNCTIONS),
            mem_desc: std::ptr::null_mut(),
            key: registered.key(),
        };
        let made = Rc::new(Memory { fid: Head::new(fid), domain: OfDomain::new(domain), registered });
        // SAFETY: nobody else has it yet.
        unsafe { (*made.fid.get()).mem_desc = Rc::as_ptr(&made).cast_mut().cast() };
        Ok(made)
    }
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: the host's call.
    unsafe {
        domain::close::<Memory>(fid, |memory| {
            memory.domain.memory.remove(&memory.registered);
            memory.domain.endpoints.hide(memory.registered.key());
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
                let Target { key, address } = memory.registered.target();
                wanted.base_addr.write(address);
                wanted.raw_key.cast::<u64>().write_unaligned(key);
            }
            FI_SUCCESS
        }
        _ => -FI_ENOSYS,
    }
}
