//! What may be said of peers that are not heard where hosts have kernels, and by when it must be said.
//!
//! A process that stops is never dead, as long as its kernel can say that it is there. One that has ended is noticed as soon
//! as its kernel can say so. A host that is silent is dead after the time-out and not before. A link that is down here is
//! not the peer's fault, and is waited for ten times as long.

use super::Subject;
use crate::plan::Mute;
use crate::world::World;
use tsumugi::internal::PeerView;
use tsumugi::{Evidence, Reason};
use tsumugi_wire::Instant;
use tsumugi_wire::time::MILLISECOND_NS;

/// How many times as long as a silent host a link that is down here is waited for.
const LINK_DOWN_TIMES: u64 = 10;
/// What the last answer of a kernel that fell silent, or none from it, may take, beside a fifth of the time-out between two
/// questions: a SYN may be lost, and is sent again.
const ANSWER_NS: u64 = 150 * MILLISECOND_NS;
/// What two of them may take that never come.
const ANSWERS_NS: u64 = 2 * ANSWER_NS;
/// The same for a process that has ended: the pause before the first question, and one answer that is lost altogether.
const GONE_NS: u64 = 350 * MILLISECOND_NS;

/// Whether a peer on host `other` may be called gone for this reason.
pub(crate) fn has_evidence(
    subject: &Subject,
    world: &World,
    now: Instant,
    other: usize,
    view: Option<PeerView>,
    reason: Reason,
) -> bool {
    let timeout_ns = subject.timeout_ns;
    let patience_ns = timeout_ns - timeout_ns / 5 - ANSWER_NS.min(timeout_ns / 2);
    // A kernel is asked again after a fifth of the time-out: that long nobody sees that something passes again.
    let unseen_ns = timeout_ns / 5 + ANSWER_NS;
    let long_enough = |mute: &Mute, times: u64| {
        mute.from.plus(times * patience_ns) <= now && now <= mute.until.plus(unseen_ns)
    };
    let [own, its] = [subject.index, other].map(|host| &world.hosts[host].mutes);
    let has_ended = !world.has_process(other) || view.is_none_or(|it| it.epoch != world.hosts[other].epoch);
    match reason {
        Reason::Gone => has_ended,
        Reason::Silent(_, evidence) => {
            let silent = own.iter().filter(|mute| mute.carrier).chain(its);
            match evidence {
                Evidence::None => joined(silent, unseen_ns).iter().any(|mute| long_enough(mute, 1)),
                // ICMP errors alone are not believed at once, and the time-out may be over before.
                Evidence::PortUnreachable => has_ended,
                _ => false,
            }
        }
        Reason::LinkDown(..) => own.iter().any(|mute| !mute.carrier && long_enough(mute, LINK_DOWN_TIMES)),
        _ => false,
    }
}

/// When the application must have been told of a peer on host `other` that has been quiet since then.
pub(crate) fn told_by(
    subject: &Subject,
    world: &World,
    now: Instant,
    other: usize,
    view: &PeerView,
    quiet_since: Instant,
) -> Instant {
    let timeout_ns = subject.timeout_ns;
    if !world.plan.has_kernels || !view.open {
        return quiet_since.plus(timeout_ns + 10 * MILLISECOND_NS);
    }
    let is_now = |mute: &&Mute| mute.from <= now && now < mute.until;
    let [own, its] = [subject.index, other].map(|host| &world.hosts[host].mutes);
    if let Some(mute) = own.iter().find(is_now).filter(|mute| !mute.carrier) {
        return quiet_since.max(mute.from).plus((LINK_DOWN_TIMES + 1) * timeout_ns + ANSWERS_NS);
    }
    // It counts anew when the link is back.
    let link_back = own.iter().filter(|mute| !mute.carrier && mute.until <= now).map(|mute| mute.until).max();
    let quiet_since = quiet_since.max(link_back.unwrap_or_default());
    if let Some(mute) = own.iter().chain(its).find(is_now) {
        return quiet_since.max(mute.from).plus(timeout_ns + ANSWERS_NS);
    }
    let has_ended = world.hosts[other].ended.filter(|(_, epoch)| *epoch == view.epoch);
    let Some((ended_at, _)) = has_ended else { return Instant::NEVER };
    let back = own.iter().chain(its).filter(|mute| mute.until <= now).map(|mute| mute.until).max();
    let since = quiet_since.max(ended_at).max(back.unwrap_or_default());
    // The next process has the port, so that its kernel says nothing; it says so itself when it runs.
    let successor_runs =
        world.hosts[other].pauses.iter().filter(|pause| pause.from <= now).map(|pause| pause.until).max();
    let since = since.max(successor_runs.unwrap_or_default());
    since.plus(timeout_ns / 4 + GONE_NS)
}

/// The same where shorter pauses between them are not seen.
fn joined<'a>(mutes: impl Iterator<Item = &'a Mute>, unseen_ns: u64) -> Vec<Mute> {
    let mut mutes: Vec<Mute> = mutes.copied().collect();
    mutes.sort_by_key(|mute| mute.from);
    let mut joined: Vec<Mute> = Vec::new();
    for mute in mutes {
        match joined.last_mut() {
            Some(last) if mute.from <= last.until.plus(unseen_ns) => last.until = last.until.max(mute.until),
            _ => joined.push(mute),
        }
    }
    joined
}
