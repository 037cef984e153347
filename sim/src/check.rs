//! What must hold of a host beside what it sends: whom it calls gone and when, and which paths it uses.
//!
//! A check is given what it has to know of the host; it does not know the host itself, which calls it.

pub(crate) mod follow;
pub(crate) mod paths;
pub(crate) mod silence;

use tsumugi::{Policy, Repeat};

/// The host that is looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject {
    pub(crate) index: usize,
    pub(crate) timeout_ns: u64,
    pub(crate) repeat: Repeat,
    /// How long it had made no call before this one though it would have, ns.
    pub(crate) away_ns: u64,
    /// How it spreads packets over its NICs, if it knows of them.
    pub(crate) policy: Option<Policy>,
}
