//! One message to several peers, each packet of which leaves once.
//!
//! Where a switch box (`tsumugi switch`) lies between a sender and its receivers, it makes a packet for each receiver out of one. Where
//! none does, or it has gone, and to those whom it does not reach, the sender sends as to anybody else. What a receiver gets are messages
//! of a [`Channel`] like others, from the same peer, in the order in which they were accepted for it, and the
//! [tickets](Sender::post) tell who has them.
//!
//! All members join with the same [`MulticastGroup`]: the sender as member 0 by [`Endpoint::multicast_to`], the others by
//! [`Endpoint::hear_multicast`]. There is one sender in a group. Members renew their leases in whatever calls they make; a box forgets
//! those of which it has heard nothing for a minute, when it needs their place.
//!
//! A box reaches one endpoint behind each of its ports, or, attached to tc, any number. Whoever is on the sender's own host is best left
//! out, for no box lies on the way; [`crate::collective`] sees to all that by itself.

use crate::endpoint::core::Core;
pub use crate::endpoint::core::multicast::MulticastGroup;
use crate::endpoint::multicast::MulticastId;
use crate::endpoint::shared::Shared;
use crate::error::SendError;
use crate::ticket::Ticket;
use crate::{Channel, Endpoint, PeerId};
use std::fmt;
use std::rc::Rc;
use std::time::Duration;
use tsumugi_proto::group::lease::Standing;
use tsumugi_rail::RailError;
pub use tsumugi_wire::multicast::RECEIVERS_MAX;

/// What cannot be a multicast group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MulticastError {
    /// Its size is not that of the receivers and a sender, or they are too many.
    #[error(
        "a group of {size} with {receivers} receivers: there are 1 to {RECEIVERS_MAX}, and the sender is one more"
    )]
    Size {
        /// Members, as the group says.
        size: u16,
        /// Receivers that were named.
        receivers: usize,
    },
    /// There is no such peer.
    #[error("there is no {0}")]
    NoSuchPeer(PeerId),
    /// A peer is named twice.
    #[error("{0} is named twice among the receivers")]
    Twice(PeerId),
    /// A receiver has no such number.
    #[error("a receiver is member 1 to {last}, not {member}: member 0 sends", last = .size.saturating_sub(1))]
    NoReceiver {
        /// The number that was given.
        member: u16,
        /// Members, as the group says.
        size: u16,
    },
}

/// A membership, left when it is dropped.
struct Membership {
    shared: Rc<Shared>,
    id: MulticastId,
}

impl Membership {
    fn is_joined(&self) -> bool {
        let standing = self.shared.inner.borrow().core.multicast_standing(self.id);
        standing == Some(Standing::Joined)
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.shared.inner.borrow_mut().core.leave_multicast(self.id);
        // If the NIC is broken, nobody can be told.
        let _ = self.shared.transmit(self.shared.now());
    }
}

/// The sender's hold on a multicast group.
pub struct Sender(Membership);

/// A receiver's.
pub struct Receiver(Membership);

impl Endpoint {
    /// Joins a group as its sender. `receivers` are members 1, 2 and so on.
    ///
    /// # Errors
    /// There are none, too many, not as many as the group has, or one of them is no peer.
    pub fn multicast_to(
        &self,
        group: MulticastGroup,
        receivers: &[PeerId],
    ) -> Result<Sender, MulticastError> {
        let shared = &self.shared;
        let count = receivers.len();
        if !(1..=RECEIVERS_MAX).contains(&count) || usize::from(group.size) != count + 1 {
            return Err(MulticastError::Size { size: group.size, receivers: count });
        }
        let core = &mut shared.inner.borrow_mut().core;
        if let Some(peer) = receivers.iter().find(|peer| !core.has_peer(**peer)) {
            return Err(MulticastError::NoSuchPeer(*peer));
        }
        let all: Vec<PeerId> = receivers.iter().map(|peer| core.canonical(*peer)).collect();
        if let Some(at) = (1..all.len()).find(|at| all[..*at].contains(&all[*at])) {
            return Err(MulticastError::Twice(receivers[at]));
        }
        let id = core.send_multicasts(shared.now(), group, receivers);
        Ok(Sender(Membership { shared: Rc::clone(shared), id }))
    }

    /// Joins a group as member `member`, to which `sender` sends.
    ///
    /// # Errors
    /// There is no such member, or no such peer.
    pub fn hear_multicast(
        &self,
        group: MulticastGroup,
        member: u16,
        sender: PeerId,
    ) -> Result<Receiver, MulticastError> {
        let shared = &self.shared;
        if !(2..=RECEIVERS_MAX + 1).contains(&usize::from(group.size)) {
            return Err(MulticastError::Size {
                size: group.size,
                receivers: usize::from(group.size).saturating_sub(1),
            });
        }
        if member == 0 || member >= group.size {
            return Err(MulticastError::NoReceiver { member, size: group.size });
        }
        let core = &mut shared.inner.borrow_mut().core;
        if !core.has_peer(sender) {
            return Err(MulticastError::NoSuchPeer(sender));
        }
        let id = core.receive_multicasts(shared.now(), group, member, sender);
        Ok(Receiver(Membership { shared: Rc::clone(shared), id }))
    }
}

impl Sender {
    /// Accepts a copy of `data` for the same channel of all receivers, or of none, without waiting, as [`Channel::post`] does. Returns a
    /// ticket for each receiver, in their order.
    ///
    /// # Errors
    /// As [`Channel::post`], of the first receiver that does not take it.
    pub fn post(&self, channel: &Channel, data: &[u8]) -> Result<Vec<Ticket>, SendError> {
        channel.post_multicast(self.0.id, [data, &[]]).map_err(|(_, error)| error)
    }

    /// Sends a copy of `data` to the same channel of all receivers; returns when all of it has been handed to the NIC, for all of them.
    ///
    /// # Errors
    /// As [`Channel::send`], of the first receiver that it cannot be sent to.
    pub fn send(&self, channel: &Channel, data: &[u8]) -> Result<Vec<Ticket>, SendError> {
        let shared = &self.0.shared;
        let peers = shared.inner.borrow().core.multicast_receivers(self.0.id);
        for peer in &peers {
            shared.wait_for_room(*peer, data.len())?;
        }
        let tickets = self.post(channel, data)?;
        for peer in &peers {
            shared.hand_over(*peer)?;
        }
        Ok(tickets)
    }

    /// Waits until a box makes one packet for each receiver out of one, but no longer than `timeout`. Returns whether one does. Without
    /// one everything is sent all the same.
    ///
    /// # Errors
    /// The NIC is broken.
    pub fn wait_for_box(&self, timeout: Duration) -> Result<bool, RailError> {
        let shared = &self.0.shared;
        shared.transmit(shared.now())?;
        let deadline = shared.deadline(timeout);
        let settled = |core: &mut Core| match core.multicast_standing(self.0.id) {
            Some(Standing::Joining) => None,
            standing => Some(standing == Some(Standing::Joined)),
        };
        Ok(shared.wait_until(deadline, settled)?.unwrap_or(false))
    }

    /// Whether a box does, as far as is known.
    #[must_use]
    pub fn is_by_box(&self) -> bool {
        self.0.is_joined()
    }

    /// Packets that have left once for several receivers, and how many of theirs a box was to make of them. What receivers were sent by
    /// themselves is in neither.
    #[must_use]
    pub fn packets(&self) -> (u64, u64) {
        self.0.shared.inner.borrow().core.multicast_packets(self.0.id)
    }
}

impl Receiver {
    /// Whether a box knows all members, as far as is known.
    #[must_use]
    pub fn is_by_box(&self) -> bool {
        self.0.is_joined()
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("id", &self.0.id).finish_non_exhaustive()
    }
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("id", &self.0.id).finish_non_exhaustive()
    }
}
