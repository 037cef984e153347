//! Endpoints, `fi_endpoint(3)`: each has one of the library's, opened when it is enabled.
//!
//! | what the caller does | what carries it |
//! |---|---|
//! | messages | the [`Port`](tsumugi::message::Port) of channel [`MESSAGES`] |
//! | messages with tags | that of channel [`TAGGED`] |
//! | remote memory | the library's, [`Remote`](tsumugi::Remote) |
//! | atomics | requests and replies on channel [`SERVICE`] (`atomics`) |
//!
//! `messages`, `remote` and `atomics` begin operations; `operations` knows those that are under way, and `progress` says what
//! has become of them.

mod atomics;
mod messages;
mod operations;
mod peers;
mod progress;
mod remote;
mod user_buffer;

use crate::abi::*;
use crate::active::Active;
use crate::addresses::Addresses;
use crate::counter::Counter;
use crate::domain::{self, Child, Domain, OfDomain};
use crate::error::{self, Trouble};
use crate::host::say;
use crate::limits::OPERATIONS;
use crate::lock::{Lock, Object, enter};
use crate::object::{Head, Table, functions, give, head, unsupported};
use crate::queue::Queue;
use crate::registry::Registered;
use crate::sockaddr;
use operations::{Operations, Reports};
use peers::Peers;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::hash::{DefaultHasher, Hasher};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::rc::{Rc, Weak};
use tsumugi::message::{Claim, Port};
use tsumugi::remote::Registration;
use tsumugi::{Channel, Config, Remote};

/// Channels that the endpoints on both sides use.
const MESSAGES: u16 = 1;
const TAGGED: u16 = 2;
const SERVICE: u16 = 3;

/// Room that a receive for several messages has left, at least, unless its caller says another, bytes.
const MULTI_RECEIVE_BYTES: usize = 64;

/// An endpoint.
#[repr(C)]
pub(crate) struct Endpoint {
    fid: Head<fid_ep>,
    domain: OfDomain,
    itself: Weak<Endpoint>,
    /// Where peers reach it; the port is 0 until it is enabled, if any will do.
    source: SocketAddr,
    /// It is bound to that address, and no other NIC is used.
    exact: bool,
    /// Number of the job that the caller's key makes, if it has one.
    job: Option<u64>,
    caps: u64,
    send_flags: Cell<u64>,
    receive_flags: Cell<u64>,
    multi_receive_bytes: Cell<usize>,
    bound: RefCell<Bound>,
    running: OnceCell<Running>,
    /// How often in a row nothing had arrived.
    idle_looks: Cell<u32>,
}

/// What an endpoint was bound to before it was enabled.
#[derive(Default)]
struct Bound {
    addresses: Option<Rc<Addresses>>,
    reports: Reports,
}

/// An endpoint that is enabled.
struct Running {
    endpoint: tsumugi::Endpoint,
    messages: RefCell<Port>,
    tagged: RefCell<Port>,
    service: RefCell<Channel>,
    remote: Remote,
    peers: RefCell<Peers>,
    operations: RefCell<Operations>,
    reports: Reports,
    /// Messages that were looked at and kept for who comes back with the same context.
    claims: RefCell<Vec<(*mut c_void, Claim)>>,
    /// What peers may reach, by its key.
    exposed: RefCell<HashMap<u64, Registration>>,
    atomics: RefCell<atomics::Service>,
}

impl Object for Endpoint {
    fn lock(&self) -> &Lock {
        &self.domain.lock
    }
}

impl Child for Endpoint {
    fn domain(&self) -> &OfDomain {
        &self.domain
    }
}

impl Active for Endpoint {
    fn progress(&self) -> Result<(), Trouble> {
        self.make_progress()
    }

    fn descriptor(&self) -> Option<RawFd> {
        Some(self.running.get()?.endpoint.descriptor()?.as_raw_fd())
    }

    fn expose(&self, memory: &Registered) -> Result<(), i32> {
        let (Some(running), Some((region, rights))) = (self.running.get(), memory.exposed()) else {
            return Ok(());
        };
        match running.remote.register_as(&region.all(), rights, memory.target()) {
            Ok(registration) => {
                running.exposed.borrow_mut().insert(memory.key(), registration);
                Ok(())
            }
            Err(error) => {
                say!(FI_LOG_WARN, FI_LOG_MR, "{error}");
                Err(FI_ENOKEY)
            }
        }
    }

    fn hide(&self, key: u64) {
        if let Some(running) = self.running.get() {
            let hidden = running.exposed.borrow_mut().remove(&key);
            drop(hidden);
        }
    }
}

static FUNCTIONS: Table<fi_ops> = functions(close, Some(bind), Some(control));
static ENDPOINT: Table<fi_ops_ep> = Table::new(fi_ops_ep {
    size: size_of::<fi_ops_ep>(),
    cancel: Some(messages::cancel),
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
    // SAFETY: the host's call; what an info points to is whole.
    match unsafe { Endpoint::new(&domain, &*info, context) } {
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

impl Endpoint {
    /// # Safety
    /// What the info points to is there.
    unsafe fn new(domain: &Domain, info: &fi_info, context: *mut c_void) -> Result<Rc<Endpoint>, i32> {
        // SAFETY: as the caller promises.
        let (attr, sends, receives, of_domain, source) = unsafe {
            (
                info.ep_attr.as_ref(),
                info.tx_attr.as_ref(),
                info.rx_attr.as_ref(),
                info.domain_attr.as_ref(),
                sockaddr::read(info.src_addr, info.src_addrlen),
            )
        };
        if attr.is_some_and(|attr| !matches!(attr.r#type, FI_EP_UNSPEC | FI_EP_RDM)) {
            return Err(FI_ENOSYS);
        }
        let Some((source, _)) = source else {
            say!(
                FI_LOG_WARN,
                FI_LOG_EP_CTRL,
                "an endpoint needs the address of this side that fi_getinfo has given"
            );
            return Err(FI_EINVAL);
        };
        // SAFETY: as the caller promises.
        let name = of_domain.and_then(|attr| unsafe { sockaddr::text(attr.name) });
        let key = attr.filter(|attr| attr.auth_key_size > 0 && !attr.auth_key.is_null()).map(|attr| {
            // SAFETY: the key is as long as it says.
            let key = unsafe { std::slice::from_raw_parts(attr.auth_key, attr.auth_key_size) };
            let mut hasher = DefaultHasher::new();
            hasher.write(key);
            hasher.finish()
        });
        let fid = fid_ep {
            fid: head(FI_CLASS_EP, context, &FUNCTIONS),
            ops: ENDPOINT.get(),
            cm: NAMES.get(),
            msg: messages::MESSAGES.get(),
            rma: remote::REMOTE.get(),
            tagged: messages::TAGGED.get(),
            atomic: atomics::ATOMICS.get(),
            collective: COLLECTIVES.get(),
        };
        let made = Rc::new_cyclic(|itself| Endpoint {
            fid: Head::new(fid),
            domain: OfDomain::new(domain),
            itself: Weak::clone(itself),
            source,
            exact: name.is_none_or(|name| name != domain::ANY),
            job: key,
            caps: info.caps,
            send_flags: Cell::new(sends.map_or(0, |attr| attr.op_flags)),
            receive_flags: Cell::new(receives.map_or(0, |attr| attr.op_flags)),
            multi_receive_bytes: Cell::new(MULTI_RECEIVE_BYTES),
            bound: RefCell::default(),
            running: OnceCell::new(),
            idle_looks: Cell::new(0),
        });
        domain.endpoints.add(made.itself.clone());
        Ok(made)
    }

    /// What runs, if the endpoint is enabled.
    #[inline]
    fn running(&self) -> Result<&Running, i32> {
        self.running.get().ok_or(FI_EOPBADSTATE)
    }

    /// Opens the library's endpoint.
    fn enable(&self) -> Result<(), i32> {
        if self.running.get().is_some() {
            return Err(FI_EOPBADSTATE);
        }
        let bound = self.bound.borrow();
        let Some(addresses) = &bound.addresses else {
            say!(
                FI_LOG_WARN,
                FI_LOG_EP_CTRL,
                "an endpoint without an address vector: bind one before it is enabled"
            );
            return Err(FI_ENOAV);
        };
        if self.caps & (FI_MSG | FI_TAGGED) != 0 && !bound.reports.is_heard() {
            say!(
                FI_LOG_WARN,
                FI_LOG_EP_CTRL,
                "an endpoint without a completion queue: bind one before it is enabled"
            );
            return Err(FI_ENOCQ);
        }
        let running = self.run(Rc::clone(addresses), bound.reports.clone())?;
        drop(bound);
        if self.running.set(running).is_err() {
            return Err(FI_EOPBADSTATE);
        }
        for memory in self.domain.memory.all() {
            self.expose(&memory)?;
        }
        let itself: Rc<dyn Active> = self.itself.upgrade().ok_or(FI_EOPBADSTATE)?;
        self.running()?.reports.sources().try_for_each(|sources| sources.add(&itself))?;
        self.domain.assist(self)
    }

    fn run(&self, addresses: Rc<Addresses>, reports: Reports) -> Result<Running, i32> {
        let settings = &self.domain.settings;
        let usual = settings.config();
        let port = if self.source.port() == 0 { usual.port } else { self.source.port() };
        let config = Config {
            port,
            bind: if self.exact { self.source.ip() } else { usual.bind },
            job: self.job.unwrap_or(usual.job),
            ..usual
        };
        let fallback = (self.source.port() == 0 && port != 0).then(|| Config { port: 0, ..config.clone() });
        let mut opened = tsumugi::Endpoint::open(config);
        if let (Err(_), Some(config)) = (&opened, fallback) {
            // Whoever has the port that was set is another endpoint of the job, as a rule.
            opened = tsumugi::Endpoint::open(config);
        }
        let endpoint = opened.map_err(|error| {
            say!(FI_LOG_WARN, FI_LOG_EP_CTRL, "no endpoint on {}: {}", self.source, in_full(&error));
            error::of_open(&error)
        })?;
        say!(FI_LOG_INFO, FI_LOG_EP_CTRL, "{}", endpoint.report());
        let taken = "nobody else has channels of this endpoint";
        let running = Running {
            messages: RefCell::new(Port::open(&endpoint, MESSAGES).expect(taken)),
            tagged: RefCell::new(Port::open(&endpoint, TAGGED).expect(taken)),
            service: RefCell::new(endpoint.channel(SERVICE).expect(taken)),
            remote: endpoint.remote(),
            peers: RefCell::new(Peers::new(addresses)),
            operations: RefCell::default(),
            reports,
            claims: RefCell::default(),
            exposed: RefCell::default(),
            atomics: RefCell::default(),
            endpoint,
        };
        Ok(running)
    }

    /// Where peers reach it.
    fn name(&self) -> Result<SocketAddr, i32> {
        let port = match self.running.get() {
            Some(running) => running.endpoint.port(),
            None => self.source.port(),
        };
        if port == 0 {
            return Err(FI_EOPBADSTATE);
        }
        let mut name = self.source;
        name.set_port(port);
        Ok(name)
    }
}

/// An error with its causes.
fn in_full(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let further = error.to_string();
        if !text.contains(&further) {
            text = format!("{text}: {further}");
        }
        cause = error.source();
    }
    text
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
    // SAFETY: the host's call; an object is of the class that it says.
    unsafe {
        match (*to).fclass {
            FI_CLASS_AV => bound.addresses = Some(shared::<Addresses>(to)),
            FI_CLASS_CQ => {
                if flags & !(FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION) != 0 {
                    return -FI_EBADFLAGS;
                }
                let queue = shared::<Queue>(to);
                return if bound.reports.bind_queue(&queue, flags) { FI_SUCCESS } else { -FI_EINVAL };
            }
            FI_CLASS_CNTR => {
                if flags & (FI_REMOTE_READ | FI_REMOTE_WRITE) != 0 {
                    return -FI_ENOSYS;
                }
                bound.reports.bind_counter(&shared::<Counter>(to), flags);
            }
            // Nothing of an endpoint without connections is told of there.
            FI_CLASS_EQ => {}
            FI_CLASS_SRX_CTX | FI_CLASS_STX_CTX => return -FI_ENOSYS,
            _ => return -FI_EINVAL,
        }
    }
    FI_SUCCESS
}

/// Another hold on an object that the caller has a pointer to.
///
/// # Safety
/// The pointer is to an open object of this type, whose domain is held.
unsafe fn shared<T>(fid: *mut fid) -> Rc<T> {
    let object = fid.cast::<T>().cast_const();
    // SAFETY: as the caller promises; the caller's own hold stays.
    unsafe {
        Rc::increment_strong_count(object);
        Rc::from_raw(object)
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
