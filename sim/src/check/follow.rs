//! Whether packets take the paths that the policy says.

use crate::ledger::Wrong;
use crate::wire::{Sent, Spy};
use std::collections::HashMap;
use tsumugi::internal::Core;
use tsumugi::{PathReport, PeerId, Policy};
use tsumugi_wire::Instant;
use tsumugi_wire::time::SECOND_NS;

/// Packets that round robin sends over one path in a row, at most.
const TURN_PACKETS: u32 = 16;
/// How long ties of tlb last, ns.
const TIE_NS: u64 = 10 * SECOND_NS;

/// What was sent to a peer last.
#[derive(Debug, Default)]
struct Follow {
    usable: Vec<bool>,
    /// The last path, how many new packets took it in a row, and when the first did.
    last: Option<(usize, u32, Instant)>,
}

/// Follows the packets of a process.
#[derive(Debug)]
pub(crate) struct Follower {
    /// Its NICs take every burst as a whole.
    whole_bursts: bool,
    /// What was sent to each peer last.
    peers: HashMap<u32, Follow>,
}

impl Follower {
    pub(crate) fn new(whole_bursts: bool) -> Follower {
        Follower { whole_bursts, peers: HashMap::new() }
    }

    /// Another policy holds from now on: what was sent before says nothing of it.
    pub(crate) fn forget(&mut self) {
        self.peers.clear();
    }

    /// Looks where the packets went that were sent just now.
    pub(crate) fn look(
        &mut self,
        now: Instant,
        policy: Option<Policy>,
        core: &Core,
        spy: &mut Spy,
    ) -> Result<(), Wrong> {
        let Some(sent) = &mut spy.sent else { return Ok(()) };
        let sent = std::mem::take(sent);
        let peers = 0..core.peers();
        let spread = peers.clone().filter(|index| core.paths(*index).len() > 1).count();
        for index in peers {
            let Some(view) = core.view(PeerId(index)).filter(|view| view.remote_token != 0) else {
                continue;
            };
            let paths = core.paths(index);
            let follow = self.peers.entry(index).or_default();
            let usable: Vec<bool> = paths.iter().map(|path| path.is_usable).collect();
            // Another flow may have changed what this one is tied to, or whose turn it is.
            let lost = |(before, now): &(&bool, &bool)| **before && !**now;
            spy.wire.borrow_mut().left += follow.usable.iter().zip(&usable).filter(lost).count() as u64;
            if follow.usable != usable || spread != 1 {
                *follow = Follow { usable, last: None };
            }
            for sent in sent.iter().filter(|sent| sent.token == view.remote_token) {
                spy.wire.borrow_mut().followed += u64::from(paths.len() > 1);
                let judged = judge(follow, now, index, &paths, sent, policy, spread == 1);
                judged.map_err(|wrong| format!("{wrong}: {sent:?} by {policy:?}, paths {paths:?}"))?;
            }
            if policy == Some(Policy::Broadcast) && self.whole_bursts && paths.len() > 1 {
                all_copied(&sent, view.remote_token, &paths)?;
            }
        }
        Ok(())
    }
}

/// Whether a packet took a path that it may take. `alone`: it is the only flow that is spread.
fn judge(
    follow: &mut Follow,
    now: Instant,
    flow: u32,
    paths: &[PathReport],
    sent: &Sent,
    policy: Option<Policy>,
    alone: bool,
) -> Result<(), Wrong> {
    let Some(at) = paths.iter().position(|path| path.address == sent.to) else {
        return Err("a packet went where no path leads".to_owned());
    };
    let usable: Vec<usize> = (0..paths.len()).filter(|path| paths[*path].is_usable).collect();
    if !paths[at].is_usable && !usable.is_empty() {
        return Err("a packet went over a silent path".to_owned());
    }
    if usize::from(sent.path) != at {
        let copied = policy == Some(Policy::Broadcast);
        return if copied { Ok(()) } else { Err("a packet went over two paths".to_owned()) };
    }
    // What is sent again may be nobody's turn: a time-out takes the path after the one that lost it.
    let counts = u32::from(!sent.again);
    let (run, since, before) = match follow.last {
        Some((last, run, since)) if last == at => (run + counts, since, None),
        Some((last, _, since)) => (counts, now, Some((last, since))),
        None => (counts, now, None),
    };
    if policy == Some(Policy::RoundRobin) && alone && !sent.again && usable.len() > 1 && run > TURN_PACKETS {
        return Err(format!("{run} packets in a row took one path"));
    }
    let turns = policy == Some(Policy::RoundRobin);
    if sent.again && !turns {
        return Ok(());
    }
    follow.last = Some((at, run, since));
    if sent.again || usable.is_empty() || paths.len() < 2 {
        return Ok(());
    }
    let expected = match policy {
        None => Some(0),
        Some(Policy::ActiveBackup | Policy::Broadcast) => usable.first().copied(),
        Some(Policy::Hash) => Some(usable[flow as usize % usable.len()]),
        // Others may have the ties dissolved.
        Some(Policy::Tlb) if !alone => None,
        Some(Policy::Tlb) => before.filter(|(_, since)| now.since(*since) < TIE_NS).map(|(last, _)| last),
        Some(Policy::RoundRobin | Policy::Adaptive) => None,
    };
    match expected {
        Some(expected) if expected != at => Err(format!("a packet took path {at} and not {expected}")),
        _ => Ok(()),
    }
}

/// Everything went over every usable path.
fn all_copied(sent: &[Sent], token: u64, paths: &[PathReport]) -> Result<(), Wrong> {
    let usable = paths.iter().filter(|path| path.is_usable).count();
    for one in sent.iter().filter(|sent| sent.token == token) {
        let copies = sent.iter().filter(|other| (other.token, other.psn) == (token, one.psn)).count();
        if copies < usable {
            return Err(format!("PSN {} was broadcast over {copies} of {usable} paths", one.psn));
        }
    }
    Ok(())
}
