//! Multirail: several paths to a peer used as one, and the policies that pick the path for a packet.
//!
//! A policy sees what the sender knows of each path ([`Path`]: round trip, rate, what is under way, room) and says
//! over which one the next packets go. It is asked for new packets and for what is sent again alike. A path that has
//! gone silent is not [usable](Path::is_usable): no policy picks it.

mod adaptive;
mod plain;
mod tlb;

use crate::sender::{Path, Sender};
pub use adaptive::Adaptive;
use alloc::boxed::Box;
pub use plain::{ActiveBackup, Broadcast, Hash, RoundRobin};
use strum::VariantNames as _;
pub use tlb::Tlb;
use tsumugi_wire::Instant;
use tsumugi_wire::defect;
use tsumugi_wire::handshake::Repeat;

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
    /// The path for the next packets of `flow`, of which `waiting` wait; `None`: let them wait until something under
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
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    strum::Display,
    strum::EnumMessage,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
    strum::VariantNames,
)]
#[strum(serialize_all = "kebab-case", parse_err_ty = UnknownPolicy, parse_err_fn = UnknownPolicy::of)]
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
    /// All of them.
    pub const ALL: &[PolicyChoice] = <PolicyChoice as strum::VariantArray>::VARIANTS;

    /// The policy that is followed where what is lost is repeated so. Go-back-N takes what is overtaken for lost, and sends all
    /// that came behind it again: packets that take paths of different delays in turns would keep each other from arriving,
    /// so a flow's packets take one path.
    #[must_use]
    pub fn under(self, repeat: Repeat) -> PolicyChoice {
        match (repeat, self) {
            (Repeat::GoBackN, PolicyChoice::Adaptive | PolicyChoice::RoundRobin) => {
                PolicyChoice::ActiveBackup
            }
            _ => self,
        }
    }

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

/// A word that names no policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no such path policy; choose from {all}", all = PolicyChoice::VARIANTS.join(", "))]
pub struct UnknownPolicy;

impl UnknownPolicy {
    fn of(_: &str) -> UnknownPolicy {
        UnknownPolicy
    }
}

/// The path for the next packets of a flow, as `policy` says, except after a time-out: what that sends again goes out
/// whatever the congestion windows say, and not where it was lost, unless that path has answered since. The policy's choice might be that very path, which
/// nobody knows to be silent until another delivers.
pub fn pick<P>(
    policy: &mut dyn Policy,
    now: Instant,
    flow: u32,
    sender: &Sender<P>,
    waiting: u32,
) -> Option<Pick> {
    let paths = sender.paths();
    if !sender.is_urgent() {
        return policy.pick(now, flow, paths, waiting);
    }
    match sender.lost_on() {
        Some(lost_on) if sender.tries_again() || defect!(ResentWhereLost) => {
            Some(Pick { path: lost_on, packets: 1 })
        }
        Some(lost_on) => Some(Pick { path: after(lost_on, paths), packets: 1 }),
        None => policy.pick(now, flow, paths, waiting).or(Some(Pick { path: 0, packets: 1 })),
    }
}

/// The usable path that comes after path number `last`, in a circle; any path if none is usable.
fn after(last: u8, paths: &[Path]) -> u8 {
    let next = usable(paths).find(|(number, _)| *number > last).or_else(|| usable(paths).next());
    next.map_or_else(|| ((usize::from(last) + 1) % paths.len()) as u8, |(number, _)| number)
}

/// The usable paths with their numbers.
fn usable(paths: &[Path]) -> impl DoubleEndedIterator<Item = (u8, &Path)> + Clone {
    paths
        .iter()
        .enumerate()
        .map(|(number, path)| (number as u8, path))
        .filter(|(number, path)| path.is_usable() || (*number == 0 && defect!(SilentPathPicked)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec::Vec;

    #[test]
    fn policies_have_names_that_come_back() {
        for choice in PolicyChoice::ALL {
            assert_eq!(choice.to_string().parse(), Ok(*choice));
        }
        let error = "fastest".parse::<PolicyChoice>().expect_err("no policy").to_string();
        assert!(error.ends_with("adaptive, round-robin, tlb, active-backup, hash, broadcast"), "{error}");
    }

    #[test]
    fn what_timed_out_goes_over_the_path_after_the_one_that_lost_it() {
        let mut sender = Sender::new(Repeat::Selective, 3, 100);
        let mut picked = Vec::new();
        sender.send(Instant(0), 0, ());
        for _ in 0..4 {
            let now = sender.timeout();
            sender.on_timeout(now);
            let pick = pick(&mut ActiveBackup, now, 0, &sender, 1).unwrap();
            sender.resend(now, pick.path).unwrap();
            picked.push(pick.path);
        }
        assert_eq!(picked, [1, 2, 0, 1]);
        (0..3).for_each(|path| sender.suspend(Instant(0), path));
        sender.on_timeout(sender.timeout());
        assert_eq!(pick(&mut ActiveBackup, Instant(0), 0, &sender, 1).map(|pick| pick.path), Some(2));
    }

    #[test]
    fn what_is_lost_on_a_path_that_answers_goes_there_again_once_a_time_out() {
        let mut sender = Sender::new(Repeat::Selective, 3, 100);
        sender.send(Instant(0), 0, ());
        let mut picked = Vec::new();
        let mut send = |sender: &mut Sender<()>, now| {
            let pick = pick(&mut ActiveBackup, now, 0, sender, 1).unwrap();
            sender.resend(now, pick.path).unwrap();
            picked.push(pick.path);
        };
        for _ in 0..2 {
            let now = sender.timeout();
            sender.on_timeout(now);
            send(&mut sender, now);
            let last = sender.lost_on();
            assert_eq!(last, None, "nothing is lost any more");
        }
        let (tried, later) = (2, sender.timeout());
        let soon = Instant(later.0 - 1);
        assert!(!sender.lose_tried(soon, 1), "it was tried elsewhere since");
        assert!(sender.lose_tried(soon, tried));
        send(&mut sender, soon);
        assert!(!sender.lose_tried(later, tried), "once is enough");
        sender.on_timeout(sender.timeout());
        let now = sender.timeout();
        send(&mut sender, now);
        assert_eq!(picked, [1, 2, 2, 0]);
        assert!(!sender.lose_tried(now, 0), "no answer can be here so soon");
    }

    #[test]
    fn a_path_whose_nic_took_nothing_still_has_its_turn() {
        let mut sender = Sender::new(Repeat::Selective, 3, 100);
        sender.send(Instant(0), 0, ());
        let mut picked = Vec::new();
        for taken in [true, false, false, true] {
            let now = sender.timeout();
            if !sender.is_urgent() {
                sender.on_timeout(now);
            }
            let pick = pick(&mut ActiveBackup, now, 0, &sender, 1).unwrap();
            let (psn, ()) = sender.resend(now, pick.path).unwrap();
            if !taken {
                sender.not_taken(psn);
                assert!(sender.is_urgent(), "nothing is sent before the next time-out");
            }
            picked.push(pick.path);
        }
        assert_eq!(picked, [1, 2, 2, 2]);
    }

    #[test]
    fn no_policy_picks_a_silent_path_or_one_without_room() {
        for choice in PolicyChoice::ALL {
            let name: &str = choice.into();
            let mut policy = choice.policy();
            let mut paths = [Path::default(), Path::default(), Path::default()];
            paths[0].suspend(Instant(0));
            let picked = policy.pick(Instant(0), 7, &paths, 5).expect(name);
            assert!(picked.path != 0 && picked.packets > 0, "{name}: {picked:?}");
            paths[usize::from(picked.path)].suspend(Instant(0));
            let last = 3 - picked.path;
            assert_eq!(policy.pick(Instant(1), 7, &paths, 5).map(|it| it.path), Some(last), "{name}");
            paths[usize::from(last)].in_flight = paths[usize::from(last)].congestion.cwnd_packets;
            assert_eq!(policy.pick(Instant(2), 7, &paths, 5), None, "{name}");
            paths[usize::from(last)].suspend(Instant(0));
            assert_eq!(policy.pick(Instant(3), 7, &paths, 5), None, "{name}");
        }
    }
}
