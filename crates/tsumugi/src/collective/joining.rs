//! Having a switch box count for a group.

use super::error::CollectiveError;
use super::group::Group;
use super::reduction::Reduction;
use super::switch_box::SwitchBox;
use crate::PeerId;
use crate::endpoint::core::Core;
use crate::endpoint::core::groups::Joining;
use crate::endpoint::groups::SeatId;
use crate::endpoint::multicast::MulticastId;
use crate::multicast::{MulticastGroup, RECEIVERS_MAX};
use std::collections::BTreeSet;
use std::rc::Rc;
use tsumugi_proto::group::lease::Standing;
use tsumugi_proto::group::member::State as Seat;
use tsumugi_rail::host_number;
use tsumugi_wire::group::MEMBERS_MAX;
use tsumugi_wire::time::MILLISECOND_NS;

/// After so long without all having joined there is no box that all can join, ns.
const PATIENCE_NS: u64 = 1_500 * MILLISECOND_NS;

impl Group {
    /// Has a switch box (`tsumugi switch`) that lies between the participants count barriers and small reductions from now on, if there is
    /// one that all of them can join. Returns whether there is; it is the same at all participants, who all call this, like any other
    /// operation.
    ///
    /// It counts [`Group::barrier`], and [`Group::allreduce`] of up to 8 integers, of the minimum and maximum of up to 8 floating-point
    /// numbers, and of anything else that is 8 numbers at most over all participants together, such as one sum of a `f64`
    /// among 8. Results are the same to the last bit as without it. Everything else goes by messages, and so does all when the box
    /// counts no more, from the operation that it does not complete on; [`Group::is_counted_by_a_box`] tells.
    ///
    /// Where each participant is on a host of its own, and they are no more than 64, the box also makes a packet for each of them out of what
    /// the root of a [`Group::broadcast`] sends, which then leaves once; [`Group::is_broadcast_by_a_box`] tells.
    ///
    /// There may be any number of boxes on the way, one behind the other: each counts for those that are behind it.
    ///
    /// # Errors
    /// The group is broken, or the NIC is.
    pub fn use_switch_box(&self) -> Result<bool, CollectiveError> {
        if self.state.borrow().switch_box.is_some() {
            // What the former box counts comes to its end first.
            self.barrier()?;
            self.state.borrow_mut().leave_box();
        }
        let (rank, size) = (self.rank(), self.size());
        if !(2..=MEMBERS_MAX).contains(&size) {
            return Ok(false);
        }
        let random = || u64::from(self.state.borrow().channel.shared.inner.borrow_mut().core.random_number());
        let word = || random() << 32 | random();
        // Of a host that does not say which it is nobody else seems to be.
        let own = [host_number().unwrap_or_else(word), word(), word()];
        let all = self.allgather(&own)?;
        let hosts: Vec<u64> = all.chunks_exact(own.len()).map(|of_one| of_one[0]).collect();
        // All send towards the first, and who is on its host towards the first that is not.
        let Some(away) = hosts.iter().position(|host| *host != hosts[0]) else { return Ok(false) };
        let to = if hosts[rank] == hosts[0] { away } else { 0 };
        let joining = Joining { key: all[1], group: all[2], size: size as u16, member: rank as u16 };
        let peer = self.state.borrow_mut().partner(to).map(|partner| partner.peer);
        let seat = peer.map(|peer| self.join(peer, joining)).transpose()?.flatten();
        let mut have_all = [u64::from(seat.is_some())];
        let agreed = self.allreduce(&mut have_all, &Reduction::min());
        match seat {
            Some(seat) if agreed.is_ok() && have_all[0] == 1 => {
                self.state.borrow_mut().switch_box = Some(SwitchBox::new(seat));
                let is_multicast = self.join_multicasts(&hosts, joining)?;
                tracing::info!(rank, size, is_multicast, "a switch box counts for a group");
                Ok(true)
            }
            Some(seat) => {
                self.leave(seat)?;
                agreed.map(|()| false)
            }
            None => agreed.map(|()| false),
        }
    }

    /// Whether a switch box counts for the group, as far as is known.
    #[must_use]
    pub fn is_counted_by_a_box(&self) -> bool {
        let state = self.state.borrow();
        state.broken.is_none() && state.switch_box.as_ref().is_some_and(|by_box| by_box.until == u64::MAX)
    }

    /// Whether what the root of a broadcast sends leaves once: a switch box makes a packet for each participant out of it, or has, as far as
    /// all knew when they asked for a box. Where none does any more, each is sent to by itself.
    #[must_use]
    pub fn is_broadcast_by_a_box(&self) -> bool {
        self.state.borrow().multicasts.is_some()
    }

    /// Has every participant join the groups in which each of them sends to all others. That is for groups of no more than can be sent to at
    /// once, each on a host of its own: to others on its host a sender sends by no box. Returns whether all have, which is the same at all.
    fn join_multicasts(&self, hosts: &[u64], joining: Joining) -> Result<bool, CollectiveError> {
        let (rank, size) = (self.rank(), self.size());
        let distinct: BTreeSet<u64> = hosts.iter().copied().collect();
        if distinct.len() < size || !(3..=RECEIVERS_MAX + 1).contains(&size) {
            return Ok(false);
        }
        let shared = Rc::clone(&self.state.borrow().channel.shared);
        let now = shared.now();
        let peers: Vec<Option<PeerId>> =
            self.state.borrow().partners.iter().map(|partner| partner.as_ref().map(|its| its.peer)).collect();
        let group = |sender: usize| MulticastGroup {
            key: joining.key,
            number: joining.group.wrapping_add(1 + sender as u64),
            size: size as u16,
        };
        let join = |(sender, peer): (usize, &Option<PeerId>)| {
            let core = &mut shared.inner.borrow_mut().core;
            match peer {
                // Whoever comes before the sender is one further back among the others.
                Some(peer) => {
                    let member = rank + usize::from(rank < sender);
                    core.receive_multicasts(now, group(sender), member as u16, *peer)
                }
                None => {
                    let receivers: Vec<PeerId> = peers.iter().flatten().copied().collect();
                    core.send_multicasts(now, group(sender), &receivers)
                }
            }
        };
        let ids: Vec<MulticastId> = peers.iter().enumerate().map(join).collect();
        let own = ids[rank];
        self.state.borrow_mut().multicasts = Some(ids);
        shared.transmit(now)?;
        let settled = |core: &mut Core| match core.multicast_standing(own) {
            Some(Standing::Joining) => None,
            standing => Some(standing == Some(Standing::Joined)),
        };
        let joined = shared.wait_until(Some(now.plus(PATIENCE_NS)), settled)?;
        let mut have_all = [u64::from(joined == Some(true))];
        self.allreduce(&mut have_all, &Reduction::min())?;
        if have_all[0] == 0 {
            let ids = self.state.borrow_mut().multicasts.take();
            let core = &mut shared.inner.borrow_mut().core;
            ids.into_iter().flatten().for_each(|id| core.leave_multicast(id));
        }
        Ok(have_all[0] == 1)
    }

    /// Joins a box on the way to a peer. `None`: there is none, or not for all.
    fn join(&self, to: PeerId, joining: Joining) -> Result<Option<SeatId>, CollectiveError> {
        let shared = Rc::clone(&self.state.borrow().channel.shared);
        let now = shared.now();
        let seat = shared.inner.borrow_mut().core.join_group(now, to, joining);
        let Some(seat) = seat else { return Ok(None) };
        shared.transmit(now)?;
        let deadline = Some(now.plus(PATIENCE_NS));
        let joined = shared.wait_until(deadline, |core| match core.seat(seat)?.state() {
            Seat::Joining => None,
            state => Some(state == Seat::Joined),
        })?;
        if joined == Some(true) {
            return Ok(Some(seat));
        }
        self.leave(seat)?;
        Ok(None)
    }

    fn leave(&self, seat: SeatId) -> Result<(), CollectiveError> {
        let shared = Rc::clone(&self.state.borrow().channel.shared);
        shared.inner.borrow_mut().core.leave_group(seat);
        shared.transmit(shared.now())?;
        Ok(())
    }
}
