//! A domain's registered memory by its keys: what peers may reach, and how they name it.

use crate::abi::*;
use crate::host::say;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::c_void;
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
    regions: RefCell<HashMap<u64, Weak<Registered>>>,
}

impl Registry {
    pub(crate) fn new(basic: bool) -> Registry {
        Registry { basic, regions: RefCell::default() }
    }

    fn get(&self, key: u64) -> Option<Rc<Registered>> {
        self.regions.borrow().get(&key)?.upgrade()
    }

    /// Every region that peers may reach.
    pub(crate) fn all(&self) -> Vec<Rc<Registered>> {
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

    /// Registers what is at a place, under a key that is the caller's choice unless it is made here.
    pub(crate) fn register(
        &self,
        place: *const c_void,
        bytes: usize,
        access: u64,
        key: u64,
    ) -> Result<Rc<Registered>, i32> {
        let key = if self.basic { self.new_key() } else { key };
        if self.get(key).is_some() {
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
        let base = if self.basic { start.addr() as u64 } else { 0 } + skipped as u64;
        let made = Rc::new(Registered { key, base, rights, region });
        self.regions.borrow_mut().insert(key, Rc::downgrade(&made));
        Ok(made)
    }

    /// Peers reach it no more.
    pub(crate) fn remove(&self, memory: &Registered) {
        self.regions.borrow_mut().remove(&memory.key);
    }
}

/// What was registered.
pub(crate) struct Registered {
    key: u64,
    /// What peers call its first byte.
    base: u64,
    rights: Option<Rights>,
    /// The memory, if peers may reach any.
    region: Option<Region>,
}

impl Registered {
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
