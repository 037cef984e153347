//! What an endpoint shares with its channels, messages and buffers.

use super::bell::Bell;
use super::core::Core;
use super::showing::Showing;
use super::tasks::Tasks;
use crate::PeerId;
use crate::clock::Clock;
use crate::error::PeerError;
use crate::memory::Mapped;
use crate::report::Report;
use crate::wait::Waiter;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use tsumugi_rail::{Owner, Rail, family};
use tsumugi_wire::Instant;

/// What an endpoint shares with its channels, messages and buffers.
pub(crate) struct Shared {
    pub(crate) memory: Rc<Mapped>,
    /// The process that opened it.
    pub(super) owner: Owner,
    pub(super) clock: Clock,
    pub(super) tasks: Tasks,
    pub(crate) inner: RefCell<Inner>,
}

pub(crate) struct Inner {
    pub(crate) core: Core,
    pub(super) rail: Box<dyn Rail>,
    pub(super) waiter: Waiter,
    /// Whether NICs are used beside those by which connections were made, and when they are looked at next.
    pub(super) spreads: bool,
    pub(super) nics_at: Instant,
    /// When something was last looked for; a few looks out of date while nothing arrives.
    pub(super) looked_at: Instant,
    /// Looks since the last sleep.
    pub(super) spins: u32,
    /// Leave without BYE: another process will go on in our place.
    pub(super) silent: bool,
    /// The application has a descriptor of ours in an event loop of its own.
    pub(super) shown: bool,
    /// That descriptor, where it could be had: the rail's with a timer beside it.
    pub(super) bell: Option<Bell>,
    /// How long to go on after the last holder is gone, for what is not acknowledged, ns.
    pub(super) flush_ns: u64,
    pub(super) linger_ns: u64,
    /// What others see of it.
    pub(super) showing: Showing,
}

impl Inner {
    /// What it uses, and what it does without.
    pub(super) fn report(&self) -> Report {
        let Inner { rail, core, .. } = self;
        let mut report = Report::new(rail.address(), rail.uses_xdp(), rail.report(), core.turned_away());
        report.given_up.extend(core.short_paths());
        report
    }

    /// Adds a peer that goes by a name.
    pub(super) fn add_peer(&mut self, peer: &str, address: SocketAddr) -> Result<PeerId, PeerError> {
        let bound = self.rail.address();
        if !family::serves(bound.ip(), address.ip()) {
            return Err(PeerError::Family { address, bound });
        }
        if let Some(why) = self.core.networks().refusal(address.ip()) {
            return Err(PeerError::NotAllowed { address, why });
        }
        self.core.add_peer(peer, address)
    }
}
