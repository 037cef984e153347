//! Endpoints: each has one of the library's, opened when it is enabled.
//!
//! | what the caller does | what carries it |
//! |---|---|
//! | messages | the [`Port`](tsumugi::message::Port) of channel [`MESSAGES`] |
//! | messages with tags | that of channel [`TAGGED`] |
//! | remote memory | the library's, [`Remote`](tsumugi::Remote) |
//! | atomics | requests and replies on channel [`SERVICE`] (`atomics`) |
//!
//! `tables` has the functions that the caller has of an endpoint. `messages`, `remote` and `atomics` begin operations for them;
//! `operations` knows those that are under way, and `progress` says what has become of them.

mod atomics;
mod messages;
mod operations;
mod peers;
mod progress;
mod remote;
pub(crate) mod tables;
mod user_buffer;

use crate::abi::*;
use crate::active::Active;
use crate::addresses::Addresses;
use crate::domain::{self, Child, Domain, OfDomain};
use crate::error::{self, Trouble, negative};
use crate::events::Events;
use crate::host::say;
use crate::lock::{Lock, Object};
use crate::object::Head;
use crate::registry::Registered;
use crate::sockaddr;
use operations::{Operations, Reports};
use peers::Peers;
use siphasher::sip::SipHasher13;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::ffi::c_void;
use std::hash::Hasher;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use tsumugi::message::{Claim, Port};
use tsumugi::remote::Registration;
use tsumugi::{Channel, Remote};

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
    /// Nothing of an endpoint without connections is told of there.
    events: Option<Arc<Events>>,
}

impl Bound {
    /// `false`: there is an address vector already, and nothing is changed.
    fn bind_addresses(&mut self, addresses: Rc<Addresses>) -> bool {
        let is_first = self.addresses.is_none();
        self.addresses.get_or_insert(addresses);
        is_first
    }
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

    fn expose(&self, memory: &Registered) -> Result<(), i32> {
        self.running.get().map_or(Ok(()), |running| running.expose(memory))
    }

    fn hide(&self, key: u64) {
        if let Some(running) = self.running.get() {
            let hidden = running.exposed.borrow_mut().remove(&key);
            drop(hidden);
        }
    }
}

impl Endpoint {
    /// # Safety
    /// What the info points to is there.
    unsafe fn new(domain: &Domain, info: &fi_info, fid: fid_ep) -> Result<Rc<Endpoint>, i32> {
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
        let job = attr.filter(|attr| attr.auth_key_size > 0 && !attr.auth_key.is_null()).map(|attr| {
            // SAFETY: the key is as long as it says.
            job_of(unsafe { std::slice::from_raw_parts(attr.auth_key, attr.auth_key_size) })
        });
        let made = Rc::new_cyclic(|itself| Endpoint {
            fid: Head::new(fid),
            domain: OfDomain::new(domain),
            itself: Weak::clone(itself),
            source,
            exact: name.is_none_or(|name| name != domain::ANY),
            job,
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

    /// Does something, and makes progress when there is no room for it.
    #[inline]
    fn attempt(&self, attempt: impl FnOnce(&Running) -> Result<(), i32>) -> isize {
        match self.running().and_then(attempt) {
            Ok(()) => 0,
            Err(code) => {
                if code == FI_EAGAIN {
                    // Who only tries again makes progress by that. What is wrong is said by the queue.
                    let _ = self.make_progress();
                }
                negative(code)
            }
        }
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
        for memory in self.domain.memory.all() {
            running.expose(&memory)?;
        }
        let itself: Rc<dyn Active> = self.itself.upgrade().ok_or(FI_EOPBADSTATE)?;
        let descriptor = || running.descriptor();
        running.reports.sources().try_for_each(|sources| sources.add(&itself, descriptor))?;
        self.domain.assist(descriptor)?;
        // Last, when nothing can fail any more: an endpoint that is not enabled does not run.
        self.running.set(running).map_err(|_| FI_EOPBADSTATE)
    }

    fn run(&self, addresses: Rc<Addresses>, reports: Reports) -> Result<Running, i32> {
        let settings = &self.domain.settings;
        let mut config = settings.config();
        if self.source.port() != 0 {
            config.port = self.source.port();
        }
        if self.exact {
            config.bind = self.source.ip();
        }
        config.job = self.job.unwrap_or(config.job);
        let fallback = (self.source.port() == 0 && config.port != 0).then(|| config.clone().port(0));
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

impl Running {
    /// Readable when there is progress to make. An endpoint whose descriptor was asked for sets a timer with each call.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.endpoint.descriptor()
    }

    /// Lets peers reach memory.
    fn expose(&self, memory: &Registered) -> Result<(), i32> {
        let Some((region, rights)) = memory.exposed() else { return Ok(()) };
        match self.remote.register_as(&region.all(), rights, memory.target()) {
            Ok(registration) => {
                self.exposed.borrow_mut().insert(memory.key(), registration);
                Ok(())
            }
            Err(error) => {
                say!(FI_LOG_WARN, FI_LOG_MR, "{error}");
                Err(FI_ENOKEY)
            }
        }
    }
}

/// Number of the job that a key makes: SipHash-1-3 of its bytes. Hosts whose providers were built by different compilers must agree
/// on it, so it is none of the standard library's hashes, which may change.
fn job_of(key: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(key);
    hasher.finish()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_makes_the_same_job_in_every_build() {
        assert_eq!(job_of(b"a key of the job's"), 6_829_699_811_165_630_785);
    }
}
