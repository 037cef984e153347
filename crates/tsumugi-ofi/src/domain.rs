//! Domains: what endpoints, queues and memory belong to that use the same NICs.
//!
//! Each endpoint is an endpoint of the library's, with a port and receive memory of its own, not a channel of one that the domain
//! has: so endpoints that different threads use with domains of their own (an MPI's virtual interfaces) run beside each other,
//! and a peer's endpoint is an address, as libfabric has it. The price is that memory is registered with each endpoint.

use crate::abi::*;
use crate::active::Endpoints;
use crate::assistant::Assistant;
use crate::events::Events;
use crate::fabric::OfFabric;
use crate::host;
use crate::lock::{Guard, Lock, Object, enter};
use crate::object::{Head, Table, functions, head};
use crate::registry::Registry;
use crate::settings::{Progress, Settings};
use std::cell::{Cell, OnceCell, RefCell};
use std::ffi::{c_int, c_void};
use std::ops::Deref;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::rc::Rc;
use std::sync::Arc;

/// The domain of endpoints that use every NIC. The others are called so, a colon, and an address.
pub(crate) const ANY: &str = "tsumugi";

/// A domain.
#[repr(C)]
pub(crate) struct Domain {
    fid: Head<fid_domain>,
    pub(crate) lock: Lock,
    pub(crate) fabric: OfFabric,
    pub(crate) settings: Settings,
    /// A thread makes progress, too, once there is an endpoint.
    auto: bool,
    assistant: OnceCell<Assistant>,
    /// Objects that are open.
    children: Cell<usize>,
    pub(crate) endpoints: Endpoints,
    pub(crate) memory: Registry,
    /// What it is bound to, if that is anything.
    events: RefCell<Option<Arc<Events>>>,
}

static FUNCTIONS: Table<fi_ops> = functions(close_domain, Some(bind), None);

impl Domain {
    /// A domain, whose objects are opened by the first functions, and its memory registered by the others.
    pub(crate) fn new(
        ops: &'static Table<fi_ops_domain>,
        mr: &'static Table<fi_ops_mr>,
        fabric: OfFabric,
        attributes: Option<&fi_domain_attr>,
        context: *mut c_void,
    ) -> Box<Domain> {
        let threading = attributes.map_or(FI_THREAD_SAFE, |it| it.threading);
        let auto = attributes.is_some_and(|it| it.data_progress == FI_PROGRESS_AUTO);
        let settings = Settings::read(host::host());
        let auto = auto || settings.progress == Some(Progress::Auto);
        let fid =
            fid_domain { fid: head(FI_CLASS_DOMAIN, context, &FUNCTIONS), ops: ops.get(), mr: mr.get() };
        let basic = attributes.is_some_and(|it| it.mr_mode & FI_MR_BASIC != 0);
        Box::new(Domain {
            fid: Head::new(fid),
            // With a thread of our own there, the caller's promise is not enough.
            lock: Lock::new(threading == FI_THREAD_DOMAIN && !auto),
            fabric,
            settings,
            auto,
            assistant: OnceCell::new(),
            children: Cell::new(0),
            endpoints: Endpoints::default(),
            memory: Registry::new(basic),
            events: RefCell::default(),
        })
    }

    /// An endpoint begins to run. Its descriptor is asked for if a thread makes progress.
    pub(crate) fn assist<'a>(&self, descriptor: impl Fn() -> Option<BorrowedFd<'a>>) -> Result<(), i32> {
        if !self.auto {
            return Ok(());
        }
        if self.assistant.get().is_none() {
            // SAFETY: the domain lies in a box, and takes its fields with it, the assistant first, when it is closed.
            let _ = self.assistant.set(unsafe { Assistant::start(&self.lock, &self.endpoints)? });
        }
        match (self.assistant.get(), descriptor()) {
            (Some(assistant), Some(descriptor)) => assistant.watch(descriptor),
            _ => Ok(()),
        }
    }
}

impl Object for Domain {
    fn lock(&self) -> &Lock {
        &self.lock
    }
}

/// What belongs to a domain: it is open as long as this lives. Made and dropped while the domain is held.
pub(crate) struct OfDomain(NonNull<Domain>);

impl OfDomain {
    pub(crate) fn new(domain: &Domain) -> OfDomain {
        domain.children.set(domain.children.get() + 1);
        OfDomain(NonNull::from(domain))
    }

    /// The domain, for as long as it is open.
    ///
    /// # Safety
    /// It stays open: somebody else belongs to it, or its owner does not close it meanwhile.
    unsafe fn get<'a>(&self) -> &'a Domain {
        // SAFETY: as the caller promises.
        unsafe { self.0.as_ref() }
    }
}

impl Deref for OfDomain {
    type Target = Domain;

    fn deref(&self) -> &Domain {
        // SAFETY: it is open as long as it has children.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for OfDomain {
    fn drop(&mut self) {
        self.children.set(self.children.get() - 1);
    }
}

/// An object of a domain that the caller closes.
pub(crate) trait Child: Object {
    fn domain(&self) -> &OfDomain;
}

/// Closes an object that the caller has a pointer to, if nobody else needs it.
///
/// # Safety
/// The pointer is to an open object of this type, which nobody uses any more.
pub(crate) unsafe fn close<T: Child>(fid: *mut fid, prepare: impl FnOnce(&T)) -> c_int {
    let object = fid.cast::<T>().cast_const();
    // SAFETY: as the caller promises; and its owner closes the domain after it.
    let domain = unsafe { (*object).domain().get() };
    let guard: Guard<'_> = domain.lock.hold();
    // SAFETY: it was given to the caller as this pointer, which is given back.
    let object = unsafe { Rc::from_raw(object) };
    if Rc::strong_count(&object) > 1 {
        // The caller keeps it.
        let _ = Rc::into_raw(object);
        return -FI_EBUSY;
    }
    prepare(&object);
    drop(object);
    drop(guard);
    FI_SUCCESS
}

/// Another hold on an object that the caller has a pointer to. An error code if it is of another domain than this one.
///
/// # Safety
/// The pointer is to an open object of this type, and this domain is held.
pub(crate) unsafe fn shared<T: Child>(domain: &Domain, fid: *mut fid) -> Result<Rc<T>, i32> {
    let object = fid.cast::<T>().cast_const();
    // SAFETY: as the caller promises. An object's domain never changes, so it can be asked for without being held.
    if !ptr::eq(unsafe { (*object).domain().0.as_ptr() }, domain) {
        return Err(FI_EDOMAIN);
    }
    // SAFETY: as the caller promises; the caller's own hold stays.
    unsafe {
        Rc::increment_strong_count(object);
        Ok(Rc::from_raw(object))
    }
}

unsafe extern "C" fn close_domain(fid: *mut fid) -> c_int {
    let domain = fid.cast::<Domain>();
    // SAFETY: the caller closes an open one, and nobody uses it any more.
    unsafe {
        let busy = {
            let _guard = (*domain).lock.hold();
            (*domain).children.get() > 0
        };
        if busy {
            return -FI_EBUSY;
        }
        // Its thread uses it until it has ended.
        drop((*domain).assistant.take());
        drop(Box::from_raw(domain));
    }
    FI_SUCCESS
}

/// Event queues of a domain are told of registrations, which are done at once: there is nothing to tell.
unsafe extern "C" fn bind(fid: *mut fid, to: *mut fid, flags: u64) -> c_int {
    // SAFETY: the host's call.
    if unsafe { (*to).fclass } != FI_CLASS_EQ {
        return -FI_EINVAL;
    }
    if flags & FI_REG_MR != 0 {
        return -FI_EOPNOTSUPP;
    }
    // SAFETY: the host's call.
    let domain = unsafe { enter::<Domain, _>(fid) };
    // SAFETY: the host's call; an object is of the class that it says.
    domain.events.replace(Some(unsafe { Events::shared(to) }));
    FI_SUCCESS
}
