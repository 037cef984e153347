//! Trunks: several paths to a peer used as one, and the policies that pick the path for a packet.
//!
//! A policy sees what the sender knows of each path ([`Path`]: round trip, rate, what is under way, room) and says
//! over which one the next packets go. It is asked for new packets and for what is sent again alike. A path that has
//! gone silent is not [usable](Path::is_usable): no policy picks it.

mod adaptive;
mod plain;
mod tlb;

use crate::sender::Path;
pub use adaptive::Adaptive;
use alloc::boxed::Box;
use core::fmt;
use core::str::FromStr;
pub use plain::{ActiveBackup, Broadcast, Hash, RoundRobin};
pub use tlb::Tlb;
use tsumugi_wire::Instant;

/// Where the next packets of a flow go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pick {
    /// The path.
    pub path: u8,
    /// How many packets at most, before the policy is asked again.
    pub packets: u32,
}

/// Picks paths for the packets of all flows of an endpoint.
pub trait Policy {
    /// The path for the next packets of `flow`, of which `waiting` wait; `None`: let them wait until something on the
    /// way has arrived. There is at least one path.
    fn pick(&mut self, now: Instant, flow: u32, paths: &[Path], waiting: u32) -> Option<Pick>;

    /// So many packets of `flow`, of so many bytes in all, were handed to the NIC of `path`.
    fn on_sent(&mut self, flow: u32, path: u8, packets: u32, bytes: u64) {
        let _ = (flow, path, packets, bytes);
    }

    /// Whether what is sent over the picked path goes over all other usable ones as well.
    fn is_copied(&self) -> bool {
        false
    }
}

/// The policies by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PolicyChoice {
    /// Where the next packet is expected to arrive first, by what each path has been measured to do.
    #[default]
    Adaptive,
    /// One path after the other (bonding's balance-rr).
    RoundRobin,
    /// Each flow tied to the path with the most headroom by the load of the last ten seconds (bonding's balance-tlb).
    Tlb,
    /// The first path that works; the others wait for it to fail.
    ActiveBackup,
    /// Each flow over one path by its number.
    Hash,
    /// Every packet over every path.
    Broadcast,
}

impl PolicyChoice {
    /// All of them with the names that users give.
    pub const ALL: [(PolicyChoice, &'static str); 6] = [
        (PolicyChoice::Adaptive, "adaptive"),
        (PolicyChoice::RoundRobin, "round-robin"),
        (PolicyChoice::Tlb, "tlb"),
        (PolicyChoice::ActiveBackup, "active-backup"),
        (PolicyChoice::Hash, "hash"),
        (PolicyChoice::Broadcast, "broadcast"),
    ];

    /// A policy of this kind that has seen nothing yet.
    #[must_use]
    pub fn policy(self) -> Box<dyn Policy> {
        match self {
            PolicyChoice::Adaptive => Box::new(Adaptive),
            PolicyChoice::RoundRobin => Box::new(RoundRobin::default()),
            PolicyChoice::Tlb => Box::new(Tlb::default()),
            PolicyChoice::ActiveBackup => Box::new(ActiveBackup),
            PolicyChoice::Hash => Box::new(Hash),
            PolicyChoice::Broadcast => Box::new(Broadcast),
        }
    }
}

impl fmt::Display for PolicyChoice {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = Self::ALL.iter().find(|(choice, _)| choice == self);
        to.write_str(named.map_or("", |(_, name)| name))
    }
}

/// A word that names no policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no such trunk policy; choose adaptive, round-robin, tlb, active-backup, hash or broadcast")]
pub struct UnknownPolicy;

impl FromStr for PolicyChoice {
    type Err = UnknownPolicy;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Self::ALL.iter().find(|(_, name)| *name == word).map(|(choice, _)| *choice).ok_or(UnknownPolicy)
    }
}

/// The usable paths with their numbers.
fn usable(paths: &[Path]) -> impl DoubleEndedIterator<Item = (u8, &Path)> + Clone {
    paths.iter().enumerate().map(|(number, path)| (number as u8, path)).filter(|(_, path)| path.is_usable())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn policies_have_names_that_come_back() {
        for (choice, name) in PolicyChoice::ALL {
            assert_eq!((choice.to_string().as_str(), name.parse()), (name, Ok(choice)));
        }
        assert!("fastest".parse::<PolicyChoice>().is_err());
    }

    #[test]
    fn no_policy_picks_a_silent_path_or_one_without_room() {
        for (choice, name) in PolicyChoice::ALL {
            let mut policy = choice.policy();
            let mut paths = [Path::default(), Path::default(), Path::default()];
            paths[0].suspend(Instant(0));
            let picked = policy.pick(Instant(0), 7, &paths, 5).expect(name);
            assert!(picked.path != 0 && picked.packets > 0, "{name}: {picked:?}");
            paths[usize::from(picked.path)].suspend(Instant(0));
            let last = 3 - picked.path;
            assert_eq!(policy.pick(Instant(1), 7, &paths, 5).map(|it| it.path), Some(last), "{name}");
            paths[usize::from(last)].in_flight = paths[usize::from(last)].cwnd_packets;
            assert_eq!(policy.pick(Instant(2), 7, &paths, 5), None, "{name}");
            paths[usize::from(last)].suspend(Instant(0));
            assert_eq!(policy.pick(Instant(3), 7, &paths, 5), None, "{name}");
        }
    }
}
