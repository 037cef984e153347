//! Multicasts of an endpoint: one message to several peers, each packet of it sent once where a switch box makes one for each out of it.
//!
//! What a receiver gets are ordinary packets of the ordinary flow from the sender to it. So a multicast is a matter of the sender's: it
//! cuts a message once for all receivers that *keep step*, which are those that have come as far in it as the others. Whatever is lost it
//! sends again to whom it is lost for, as always; whoever falls behind, or cannot be reached by a box, gets the rest of the message by
//! itself.

use crate::PeerId;
use tsumugi_proto::group::lease::{Lease, Standing};
use tsumugi_wire::group::{Answer, Notice};
use tsumugi_wire::time::MILLISECOND_NS;
use tsumugi_wire::{Header, Instant};

/// So long the others wait for one that does not keep step, ns.
pub(crate) const PATIENCE_NS: u64 = 5 * MILLISECOND_NS;
/// Whoever did not keep step gets what is sent in so long by itself, ns; twice as long each time, up to a limit.
const ASIDE_NS: u64 = 20 * MILLISECOND_NS;
const ASIDE_MAX_NS: u64 = 1_000 * MILLISECOND_NS;

/// Number of a multicast group among those of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MulticastId(pub(crate) u32);

/// One of those that a sender sends to.
#[derive(Clone, Debug)]
pub(crate) struct Receiver {
    pub(crate) peer: PeerId,
    /// Before this time it is sent to by itself.
    aside_until: Instant,
    aside_ns: u64,
}

impl Receiver {
    pub(crate) const fn new(peer: PeerId) -> Receiver {
        Receiver { peer, aside_until: Instant(0), aside_ns: ASIDE_NS }
    }

    /// Whether what is accepted for it now may go with what the others get.
    pub(crate) fn may_keep_step(&self, now: Instant) -> bool {
        now >= self.aside_until
    }

    /// It has not kept step.
    pub(crate) fn set_aside(&mut self, now: Instant) {
        self.aside_until = now.plus(self.aside_ns);
        self.aside_ns = (2 * self.aside_ns).min(ASIDE_MAX_NS);
    }

    /// It has, for a whole message.
    pub(crate) fn has_kept_step(&mut self) {
        self.aside_ns = ASIDE_NS;
    }
}

/// A message that is being sent.
#[derive(Clone, Debug)]
pub(crate) struct Transfer {
    /// Its key among the long messages.
    pub(crate) key: usize,
    /// Receivers that keep step, by their places.
    pub(crate) in_step: Vec<usize>,
    /// When it got on last.
    pub(crate) since: Instant,
}

/// What a member does.
#[derive(Debug)]
pub(crate) enum Role {
    /// Receives what a peer sends.
    Receiver(PeerId),
    /// Sends. Member `n` of the group is receiver `n` − 1.
    Sender { receivers: Vec<Receiver>, transfers: std::collections::VecDeque<Transfer> },
}

/// A multicast group that the endpoint is a member of.
#[derive(Debug)]
pub(crate) struct Multicast {
    pub(crate) lease: Lease,
    pub(crate) role: Role,
    /// Packets that were sent for several receivers at once, and parts that receivers were to get of them.
    pub(crate) packets: u64,
    pub(crate) parts: u64,
    /// Each packet is handed to the NIC by itself: the kernel was seen to pass on what it was to cut up to where the box is.
    pub(crate) is_apart: bool,
    /// Several have been handed over at once.
    pub(crate) sends_runs: bool,
}

impl Multicast {
    pub(crate) const fn new(lease: Lease, role: Role) -> Multicast {
        Multicast { lease, role, packets: 0, parts: 0, is_apart: false, sends_runs: false }
    }

    /// A box, or a member that no box has taken a packet from, says something.
    fn on_notice(&mut self, now: Instant, answer: &Answer) {
        if answer.notice == Notice::NoBox && self.sends_runs && !self.is_apart {
            // A virtual NIC may hand several over in one piece, and no box takes them so.
            self.is_apart = true;
            return;
        }
        let before = self.lease.standing();
        self.lease.on_notice(now, answer);
        if matches!(self.role, Role::Sender { .. }) {
            tell(before, self.lease.standing());
        }
    }
}

/// Tells whoever reads the log how a sender's packets go from now on.
fn tell(before: Standing, now: Standing) {
    match (before, now) {
        (Standing::Joining, Standing::Joined) => {
            tracing::info!("a switch box makes a packet for each receiver out of one");
        }
        (Standing::Joined, Standing::Joining) => {
            tracing::info!(
                "a switch box has forgotten a multicast group: each receiver is sent to by itself meanwhile"
            );
        }
        (Standing::Joining | Standing::Joined, Standing::Failed(why)) => {
            tracing::warn!(
                ?why,
                "no switch box makes packets for several receivers: each is sent to by itself"
            );
        }
        _ => {}
    }
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Multicasts {
    places: Vec<Option<Multicast>>,
    /// No lease and no transfer is due before this.
    deadline: Instant,
}

impl Default for Multicasts {
    fn default() -> Multicasts {
        Multicasts { places: Vec::new(), deadline: Instant::NEVER }
    }
}

impl Multicasts {
    pub(crate) fn put(&mut self, multicast: Multicast) -> MulticastId {
        self.deadline = Instant(0);
        let free = self.places.iter().position(Option::is_none).unwrap_or(self.places.len());
        if free == self.places.len() {
            self.places.push(None);
        }
        self.places[free] = Some(multicast);
        MulticastId(free as u32)
    }

    pub(crate) fn take(&mut self, id: MulticastId) -> Option<Multicast> {
        self.places.get_mut(id.0 as usize)?.take()
    }

    /// Puts back what was taken for a moment.
    pub(crate) fn give_back(&mut self, id: MulticastId, multicast: Multicast) {
        self.places[id.0 as usize] = Some(multicast);
    }

    pub(crate) fn get(&self, id: MulticastId) -> Option<&Multicast> {
        self.places.get(id.0 as usize)?.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: MulticastId) -> Option<&mut Multicast> {
        self.places.get_mut(id.0 as usize)?.as_mut()
    }

    /// All that there are.
    pub(crate) fn ids(&self) -> impl Iterator<Item = MulticastId> + use<> {
        (0..self.places.len() as u32).map(MulticastId)
    }

    /// Before this time there is nothing to do.
    #[inline]
    pub(crate) const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// There is something to do at this time.
    pub(crate) fn wake_at(&mut self, at: Instant) {
        self.deadline = self.deadline.min(at);
    }

    /// All that was due has been done.
    pub(crate) fn wake_when_due(&mut self) {
        let due = |multicast: &Multicast| {
            let transfer = match &multicast.role {
                Role::Sender { transfers, .. } => transfers.front(),
                Role::Receiver(_) => None,
            };
            let patience = transfer.map_or(Instant::NEVER, |transfer| transfer.since.plus(PATIENCE_NS));
            multicast.lease.deadline().min(patience)
        };
        self.deadline = self.places.iter().flatten().map(due).min().unwrap_or(Instant::NEVER);
    }

    /// A box, or a member that no box has taken a packet from, says something. Returns whether it was said to one of these.
    pub(crate) fn on_notice(&mut self, now: Instant, header: &Header, answer: &Answer) -> bool {
        let meant = self.places.iter_mut().flatten().find(|multicast| multicast.lease.is_for(header));
        let is_ours = meant.is_some();
        if let Some(multicast) = meant {
            multicast.on_notice(now, answer);
            self.deadline = Instant(0);
        }
        is_ours
    }
}
