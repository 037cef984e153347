//! What must hold between hosts with several NICs beside everything else.

use super::Subject;
use crate::addresses::AddressPlan;
use crate::ledger::Wrong;
use crate::world::{AWAY_NS, World};
use std::net::SocketAddr;
use tsumugi::internal::{Core, PeerView};
use tsumugi::{PathReport, PeerId, Policy, Repeat};
use tsumugi_wire::Instant;
use tsumugi_wire::limits::RAILS_MAX;
use tsumugi_wire::time::MILLISECOND_NS;

/// Longest time without an acknowledgement while something is outstanding and one network works, ns.
const STALL_NS_MAX: u64 = 40 * MILLISECOND_NS;
/// Longest time-out, in round trips of the slowest path: two and four times their variation.
const TIMEOUT_ROUND_TRIPS: u64 = 6;
/// Time after which every path works again, when all networks do and there is something to send, ns.
const REVIVAL_NS_MAX: u64 = 1000 * MILLISECOND_NS;
/// Time between two messages to a peer to whom a path is missing, ns: silent paths are probed while something is under way.
const ASK_EVERY_NS: u64 = MILLISECOND_NS;

/// Longest time in which a path may go on losing packets, ns; and in its round trips: what was overtaken there is patiently
/// waited for, two of them and four times their variation, and a single answer that was very late makes that twice as long as
/// they are; all this after a time-out.
const FAILOVER_NS_MAX: u64 = 60 * MILLISECOND_NS;
const FAILOVER_ROUND_TRIPS_MAX: u64 = 12;
/// Packets that may be under way on a silent path: it was tried because all were silent.
const KEPT_MAX: u32 = 3;

/// What became of a path that nothing comes through.
#[derive(Clone, Copy, Debug)]
struct Dead {
    at: Instant,
    /// Packets lost on it so far, those included that were under way when it died.
    lost: u64,
    /// When the first was lost that was sent afterwards, and when the last.
    first_at: Option<Instant>,
    last_at: Instant,
    /// Packets that count as delivered by it.
    delivered: u64,
}

/// What is known of the paths to a peer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PathsKnown {
    /// Since when a network that works has joined both, and both could have answered.
    sound_since: Option<Instant>,
    /// Packets that had arrived when some arrived last, and when that was.
    delivered: u64,
    progress_at: Instant,
    /// Something was outstanding at the last look.
    waited: bool,
    /// Paths that are dead, by their numbers.
    dead: [Option<Dead>; RAILS_MAX],
    /// Since when paths have been missing though all networks work.
    missing_since: Option<Instant>,
    /// When something was last sent for want of a path.
    asked_at: Instant,
}

impl PathsKnown {
    /// Whether the peer would have been heard in the last `ns`.
    pub(crate) fn is_sound_for(&self, now: Instant, ns: u64) -> bool {
        self.sound_since.is_some_and(|since| now.since(since) > ns)
    }

    /// Looks at the paths to host `other`, peer `index`, after a call.
    pub(crate) fn look(
        &mut self,
        subject: &Subject,
        core: &Core,
        world: &World,
        now: Instant,
        (other, index): (usize, u32),
        view: &PeerView,
    ) -> Result<(), Wrong> {
        let paths = core.paths(index);
        if !is_joined(subject, world, now, other, view, &paths) {
            self.sound_since = None;
            return Ok(());
        }
        self.look_at_silent(subject, world, now, other, &paths)?;
        let since = *self.sound_since.get_or_insert(now);
        let delivered = paths.iter().map(|path| path.delivered).sum();
        let refused = world.wire.borrow().refuses(now, (view.remote_token, core.epoch()));
        let moves = view.outstanding == 0 || refused || delivered != self.delivered;
        if since == now || !self.waited || moves {
            self.delivered = delivered;
            self.progress_at = now;
        }
        self.waited = view.outstanding > 0;
        let stalled_ns = now.since(self.progress_at);
        // Time-outs, the last resort, are as long as the slowest path that was used needs, be it for the first time: its round trip
        // is then the handshake's.
        let used = paths.iter().filter(|path| path.delivered > 0 || path.in_flight > 0);
        let slowest_ns = used.map(|path| path.srtt_ns).max();
        let stall_ns_max = STALL_NS_MAX + TIMEOUT_ROUND_TRIPS * slowest_ns.unwrap_or(0);
        // Go-back-N forgets what arrived after a loss, and starts again as often as something is lost.
        if stalled_ns > stall_ns_max && subject.repeat == Repeat::Selective {
            return Err(format!(
                "host {} has had nothing acknowledged by host {other} for {stalled_ns} ns, though a network joins them: {} packets outstanding, paths {paths:?}",
                subject.index, view.outstanding
            ));
        }
        Ok(())
    }

    /// Whether silent paths to host `other` are left: nothing under way there, and nothing more lost.
    fn look_at_silent(
        &mut self,
        subject: &Subject,
        world: &World,
        now: Instant,
        other: usize,
        paths: &[PathReport],
    ) -> Result<(), Wrong> {
        let any = paths.iter().any(|path| path.is_usable);
        for (path, dead) in paths.iter().zip(&mut self.dead) {
            if any && !path.is_usable && path.in_flight > KEPT_MAX {
                return Err(format!("host {} waits for packets on a silent path: {path:?}", subject.index));
            }
            let died_at = AddressPlan::network_of(path.address)
                .and_then(|network| world.dead_since(subject.index, other, network));
            let Some(died_at) = died_at else {
                *dead = None;
                continue;
            };
            let under_way = path.lost + u64::from(path.in_flight);
            let fresh = Dead {
                at: died_at,
                lost: under_way,
                first_at: None,
                last_at: now,
                delivered: path.delivered,
            };
            let dead = dead.insert(dead.filter(|dead| dead.at == died_at).unwrap_or(fresh));
            if path.lost <= dead.lost {
                continue;
            }
            dead.lost = path.lost;
            // Whoever repeats what was said before the path fell silent makes it look as if it were not.
            let most_ns = FAILOVER_NS_MAX.max(FAILOVER_ROUND_TRIPS_MAX * path.srtt_ns);
            // A path that is seldom used is vouched for by an answer to what was sent there again, but came to be known only
            // then to have arrived over another.
            let repaired = path.delivered > dead.delivered && now.since(dead.last_at) > most_ns;
            // So do the copies that a broadcast sends over the others. When the policy changes, the path has yet to be left.
            let vouched = world.plan.forged_one_in > 0 || subject.policy == Some(Policy::Broadcast);
            if repaired || vouched {
                dead.first_at = None;
            }
            (dead.delivered, dead.last_at) = (path.delivered, now);
            if vouched {
                continue;
            }
            let first_at = *dead.first_at.get_or_insert(now);
            if path.is_usable && now.since(first_at) > most_ns {
                return Err(format!(
                    "host {} still uses a path to host {other} that is dead since {died_at:?}: {paths:?}",
                    subject.index
                ));
            }
        }
        Ok(())
    }

    /// Whether packets go to peer `index` over every network that they should go over, in a phase in which all networks
    /// work; and if they do not, whether it is time to send it something because of that. `Err`: for too long.
    pub(crate) fn look_at_missing(
        &mut self,
        subject: &Subject,
        core: &Core,
        world: &World,
        now: Instant,
        index: u32,
    ) -> Result<(bool, bool), Wrong> {
        let missing = missing(subject, core, world, index)?;
        if missing.is_empty() {
            self.missing_since = None;
            return Ok((true, false));
        }
        let asks = now >= self.asked_at.plus(ASK_EVERY_NS);
        if asks {
            self.asked_at = now;
        }
        let since = *self.missing_since.get_or_insert(now);
        if now.since(since) > REVIVAL_NS_MAX {
            let paths = core.paths(index);
            return Err(format!(
                "host {} does not use {missing:?} though all networks work: paths {paths:?}",
                subject.index
            ));
        }
        Ok((false, asks))
    }
}

/// Whether a network that works joins this host and another, both know, and both make calls.
fn is_joined(
    subject: &Subject,
    world: &World,
    now: Instant,
    other: usize,
    view: &PeerView,
    paths: &[PathReport],
) -> bool {
    let sound = world.plan.multirail.as_ref().and_then(|multirail| multirail.sound);
    let there = sound.and_then(|network| world.address_plan.address_on(other, network));
    let here = sound.and_then(|network| world.address_plan.address_on(subject.index, network));
    view.open
        && here.is_some()
        && there.is_some_and(|address| paths.iter().any(|path| path.address == address))
        && subject.away_ns <= AWAY_NS
        && world.hosts[other].present_since < now
        && world.hosts[other].epoch == view.epoch
        && world.hosts[other].doors.contains_key(&view.remote_token)
}

/// Addresses of a peer that packets should go to and do not.
fn missing(subject: &Subject, core: &Core, world: &World, index: u32) -> Result<Vec<SocketAddr>, Wrong> {
    let id = PeerId(index);
    let Some(multirail) = &world.plan.multirail else { return Ok(Vec::new()) };
    let Some(view) = core.view(id).filter(|view| view.open) else { return Ok(Vec::new()) };
    let address = core.address_of(id).ok_or("a peer without address")?;
    let other = world.address_plan.host_of(address)?;
    if world.hosts[other].epoch != view.epoch {
        return Ok(Vec::new());
    }
    let told = subject.policy.is_some() && world.address_plan.addresses(other).count() > 1;
    let told = told && multirail.hosts[other].policy.is_some();
    let paths = core.paths(index);
    let wanted = world.address_plan.common(subject.index, other).into_iter().map(|(_, _, there)| there);
    let wanted = wanted.filter(|there| told || *there == address);
    let used = |there: &SocketAddr| paths.iter().any(|path| path.address == *there && path.is_usable);
    Ok(wanted.filter(|there| !used(there)).collect())
}
