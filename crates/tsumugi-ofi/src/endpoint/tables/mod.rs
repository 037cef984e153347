//! The functions of an endpoint: those that open it and set it up, `fi_endpoint(3)`.
//!
//! Those that begin operations are in `msg`, `tagged`, `rma` and `atomic`, which are called like the fields of
//! [`fid_ep`] that lead to them.

mod atomic;
mod msg;
mod rma;
mod tagged;

use super::{Bound, Endpoint};
use crate::abi::*;
use crate::addresses::Addresses;
use crate::counter::Counter;
use crate::domain::{self, Domain};
use crate::error::negative;
use crate::events::Events;
use crate::limits::OPERATIONS;
use crate::lock::enter;
use crate::object::{Table, functions, give, head, unsupported};
use crate::queue::Queue;
use crate::sockaddr;
use std::ffi::{c_int, c_void};
use std::rc::Rc;

static FUNCTIONS: Table<fi_ops> = functions(close, Some(bind), Some(control));
static ENDPOINT: Table<fi_ops_ep> = Table::new(fi_ops_ep {
    size: size_of::<fi_ops_ep>(),
    cancel: Some(cancel),
    getopt: Some(getopt),
    setopt: Some(setopt),
    tx_ctx: unsupported!(),
    rx_ctx: unsupported!(),
    rx_size_left: unsupported!(),
    tx_size_left: unsupported!(),
});
static NAMES: Table<fi_ops_cm> = Table::new(fi_ops_cm {
    size: size_of::<fi_ops_cm>(),
    setname: unsupported!(),
    getname: Some(getname),
    getpeer: unsupported!(),
    connect: unsupported!(),
    listen: unsupported!(),
    accept: unsupported!(),
    reject: unsupported!(),
    shutdown: unsupported!(),
    join: unsupported!(),
});
static COLLECTIVES: Table<fi_ops_collective> = Table::new(fi_ops_collective {
    size: size_of::<fi_ops_collective>(),
    barrier: unsupported!(),
    broadcast: unsupported!(),
    alltoall: unsupported!(),
    allreduce: unsupported!(),
    allgather: unsupported!(),
    reduce_scatter: unsupported!(),
    reduce: unsupported!(),
    scatter: unsupported!(),
    gather: unsupported!(),
    msg: unsupported!(),
    barrier2: unsupported!(),
});

/// `fi_endpoint`.
pub(crate) unsafe extern "C" fn open(
    domain: *mut fid_domain,
    info: *mut fi_info,
    endpoint: *mut *mut fid_ep,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the host's call.
    let domain = unsafe { enter::<Domain, _>(domain) };
    let fid = fid_ep {
        fid: head(FI_CLASS_EP, context, &FUNCTIONS),
        ops: ENDPOINT.get(),
        cm: NAMES.get(),
        msg: msg::MSG.get(),
        rma: rma::RMA.get(),
        tagged: tagged::TAGGED.get(),
        atomic: atomic::ATOMIC.get(),
        collective: COLLECTIVES.get(),
    };
    // SAFETY: the host's call; what an info points to is whole.
    match unsafe { Endpoint::new(&domain, &*info, fid) } {
        Ok(made) => {
            // SAFETY: the caller wants it there.
            unsafe { give(endpoint, Rc::into_raw(made)) };
            FI_SUCCESS
        }
        Err(code) => -code,
    }
}

/// `fi_endpoint2`: the flags ask for what is not offered.
pub(crate) unsafe extern "C" fn open2(
    domain: *mut fid_domain,
    info: *mut fi_info,
    endpoint: *mut *mut fid_ep,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    if flags != 0 {
        return -FI_EBADFLAGS;
    }
    // SAFETY: the host's call.
    unsafe { open(domain, info, endpoint, context) }
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: the host's call.
    unsafe { domain::close::<Endpoint>(fid, |endpoint| endpoint.domain.endpoints.remove(endpoint)) }
}

unsafe extern "C" fn bind(fid: *mut fid, to: *mut fid, flags: u64) -> c_int {
    // SAFETY: the host's call.
    let endpoint = unsafe { enter::<Endpoint, _>(fid) };
    if endpoint.running.get().is_some() {
        return -FI_EOPBADSTATE;
    }
    let mut bound = endpoint.bound.borrow_mut();
    // SAFETY: the host's call.
    match unsafe { bound.bind(&endpoint.domain, to, flags) } {
        Ok(true) => FI_SUCCESS,
        Ok(false) => -FI_EINVAL,
        Err(code) => -code,
    }
}

impl Bound {
    /// `false`: something is bound already that there may be one of only, and nothing is changed.
    ///
    /// # Safety
    /// The pointer is to an open object, and the endpoint's domain, which this is, is held.
    unsafe fn bind(&mut self, domain: &Domain, to: *mut fid, flags: u64) -> Result<bool, i32> {
        // SAFETY: as the caller promises; an object is of the class that it says.
        unsafe {
            match (*to).fclass {
                FI_CLASS_AV => Ok(self.bind_addresses(domain::shared::<Addresses>(domain, to)?)),
                FI_CLASS_CQ => {
                    if flags & !(FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION) != 0 {
                        return Err(FI_EBADFLAGS);
                    }
                    Ok(self.reports.bind_queue(&domain::shared::<Queue>(domain, to)?, flags))
                }
                FI_CLASS_CNTR => {
                    if flags & (FI_REMOTE_READ | FI_REMOTE_WRITE) != 0 {
                        return Err(FI_ENOSYS);
                    }
                    Ok(self.reports.bind_counter(&domain::shared::<Counter>(domain, to)?, flags))
                }
                FI_CLASS_EQ => {
                    self.events = Some(Events::shared(to));
                    Ok(true)
                }
                FI_CLASS_SRX_CTX | FI_CLASS_STX_CTX => Err(FI_ENOSYS),
                _ => Err(FI_EINVAL),
            }
        }
    }
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: the host's call.
    let endpoint = unsafe { enter::<Endpoint, _>(fid) };
    match command {
        FI_ENABLE => endpoint.enable().map_or_else(|code| -code, |()| FI_SUCCESS),
        FI_GETOPSFLAG | FI_SETOPSFLAG => {
            // SAFETY: the command's argument.
            let flags = unsafe { &mut *arg.cast::<u64>() };
            let of = match *flags & (FI_TRANSMIT | FI_RECV) {
                FI_TRANSMIT => &endpoint.send_flags,
                FI_RECV => &endpoint.receive_flags,
                _ => return -FI_EINVAL,
            };
            if command == FI_GETOPSFLAG {
                *flags = of.get();
            } else {
                of.set(*flags & !(FI_TRANSMIT | FI_RECV));
            }
            FI_SUCCESS
        }
        _ => -FI_ENOSYS,
    }
}

unsafe extern "C" fn cancel(fid: fid_t, context: *mut c_void) -> isize {
    // SAFETY: the host's call.
    unsafe { enter::<Endpoint, _>(fid) }.cancel(context).map_or_else(negative, |()| 0)
}

unsafe extern "C" fn getname(fid: fid_t, place: *mut c_void, length: *mut usize) -> c_int {
    // SAFETY: the host's call.
    let endpoint = unsafe { enter::<Endpoint, _>(fid) };
    match endpoint.name() {
        // SAFETY: the host's call.
        Ok(name) => unsafe { sockaddr::write(name, place, length) },
        Err(code) => -code,
    }
}

/// The values that can be asked for, all of them sizes.
fn option(endpoint: &Endpoint, name: c_int) -> Option<usize> {
    match name {
        FI_OPT_MIN_MULTI_RECV => Some(endpoint.multi_receive_bytes.get()),
        FI_OPT_TX_SIZE | FI_OPT_RX_SIZE => Some(OPERATIONS),
        _ => None,
    }
}

unsafe extern "C" fn getopt(
    fid: fid_t,
    level: c_int,
    name: c_int,
    place: *mut c_void,
    length: *mut usize,
) -> c_int {
    // SAFETY: the host's call.
    let endpoint = unsafe { enter::<Endpoint, _>(fid) };
    let Some(value) = option(&endpoint, name).filter(|_| level == FI_OPT_ENDPOINT) else {
        return -FI_ENOPROTOOPT;
    };
    // SAFETY: the host's call.
    unsafe {
        let room = length.replace(size_of::<usize>());
        if room < size_of::<usize>() {
            return -FI_ETOOSMALL;
        }
        place.cast::<usize>().write_unaligned(value);
    }
    FI_SUCCESS
}

unsafe extern "C" fn setopt(
    fid: fid_t,
    level: c_int,
    name: c_int,
    place: *const c_void,
    length: usize,
) -> c_int {
    // SAFETY: the host's call.
    let endpoint = unsafe { enter::<Endpoint, _>(fid) };
    match name {
        _ if level != FI_OPT_ENDPOINT => -FI_ENOPROTOOPT,
        FI_OPT_MIN_MULTI_RECV if length == size_of::<usize>() => {
            // SAFETY: the host's call.
            endpoint.multi_receive_bytes.set(unsafe { place.cast::<usize>().read_unaligned() });
            FI_SUCCESS
        }
        FI_OPT_MIN_MULTI_RECV => -FI_EINVAL,
        // There is no memory but the host's.
        FI_OPT_FI_HMEM_P2P => FI_SUCCESS,
        _ => -FI_ENOPROTOOPT,
    }
}
