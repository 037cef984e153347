//! What one sleeps on until any of several descriptors is readable, or somebody rings.

use crate::abi::{FI_LOG_CORE, FI_LOG_WARN};
use crate::host::say;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use tsumugi_rail::RailError;

/// An epoll descriptor that watches other descriptors and a bell of its own.
pub(crate) struct WaitSet {
    epoll: OwnedFd,
    bell: OwnedFd,
}

impl WaitSet {
    /// A set for the `user` of it, who is told in the log if there can be none.
    pub(crate) fn new(user: &str) -> Result<WaitSet, i32> {
        WaitSet::open().map_err(|error| {
            let (doing, on) = ("opening descriptors to sleep", user.to_owned());
            say!(FI_LOG_WARN, FI_LOG_CORE, "{}", RailError::System { doing, on, source: error.into() });
            error.raw_os_error()
        })
    }

    fn open() -> rustix::io::Result<WaitSet> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let set = WaitSet { epoll, bell };
        set.watch(set.bell.as_fd())?;
        Ok(set)
    }

    /// Watches a descriptor, if it does not yet. Who closes that takes it out.
    pub(crate) fn add(&self, descriptor: BorrowedFd<'_>) -> Result<(), i32> {
        self.watch(descriptor).map_err(Errno::raw_os_error)
    }

    fn watch(&self, descriptor: BorrowedFd<'_>) -> rustix::io::Result<()> {
        match epoll::add(&self.epoll, descriptor, EventData::new_u64(0), EventFlags::IN) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Wakes whoever sleeps, now or the next time.
    pub(crate) fn ring(&self) {
        // A counter that is full is rung.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// Takes back what [`ring`](WaitSet::ring) did.
    pub(crate) fn quieten(&self) {
        // That there is nothing to read does not matter.
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
    }

    /// Sleeps until a descriptor is readable, somebody has rung, or a signal has come.
    pub(crate) fn sleep(&self) {
        // Whoever wakes up looks, whatever woke it.
        let _ = epoll::wait(&self.epoll, &mut [const { std::mem::MaybeUninit::uninit() }; 1], None);
    }
}

impl AsFd for WaitSet {
    /// Readable when [`sleep`](WaitSet::sleep) would return.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
