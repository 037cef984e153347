//! Sending one message to several peers: joining, what is accepted for all of them, and leases. [`step`] sends it.

mod step;

use super::Core;
use crate::endpoint::long_message::LongMessage;
use crate::endpoint::multicast::{Multicast, MulticastId, PATIENCE_NS, Receiver, Role, Transfer};
use crate::endpoint::peer::connection::Phase;
use crate::{PeerId, SendError};
use rand::RngExt as _;
use std::collections::VecDeque;
use std::net::SocketAddr;
use tsumugi_proto::group::lease::{Lease, RENEW_NS, Standing};
use tsumugi_proto::group::member::Membership;
use tsumugi_rail::{Packet, Rail, RailError};
use tsumugi_wire::Instant;
use tsumugi_wire::time::MILLISECOND_NS;

/// A receiver without a connection to the sender looks for one after so long, ns.
const NO_FLOW_NS: u64 = 20 * MILLISECOND_NS;
/// Who may join a multicast group, and which it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MulticastGroup {
    /// What all members know, and nobody else.
    pub key: u64,
    /// Its number in the job. No two groups of a job have the same, whoever sends in them.
    pub number: u64,
    /// Its members: the receivers, and the sender.
    pub size: u16,
}

impl Core {
    fn membership(&self, group: MulticastGroup, member: u16, flow: u32, token: u64) -> Membership {
        Membership {
            job: self.options.job,
            key: group.key,
            group: group.number,
            size: group.size,
            member,
            epoch: self.incarnation.epoch,
            flow,
            token,
        }
    }

    /// Joins a multicast group as its sender.
    pub fn send_multicasts(
        &mut self,
        now: Instant,
        group: MulticastGroup,
        receivers: &[PeerId],
    ) -> MulticastId {
        // Nothing comes in this flow: it only tells what a box says to us from what it says to others.
        let token = self.incarnation.random.random_range(1..=u64::MAX);
        let lease = Lease::new(now, self.membership(group, 0, u32::MAX, token));
        let receivers = receivers.iter().map(|peer| Receiver::new(*peer)).collect();
        let role = Role::Sender { receivers, transfers: VecDeque::new() };
        self.multicasts.put(Multicast::new(lease, role))
    }

    /// Joins a multicast group as its receiver number `member` − 1.
    pub fn receive_multicasts(
        &mut self,
        now: Instant,
        group: MulticastGroup,
        member: u16,
        sender: PeerId,
    ) -> MulticastId {
        let lease = Lease::new(now, self.membership(group, member, u32::MAX, 0));
        self.multicasts.put(Multicast::new(lease, Role::Receiver(sender)))
    }

    /// Leaves a multicast group. What was accepted for receivers goes on to each by itself.
    pub fn leave_multicast(&mut self, id: MulticastId) {
        let Some(mut multicast) = self.multicasts.take(id) else { return };
        let to = match &multicast.role {
            Role::Receiver(sender) => Some(*sender),
            Role::Sender { receivers, .. } => receivers.first().map(|receiver| receiver.peer),
        };
        if let Role::Sender { receivers, transfers } = &multicast.role {
            for transfer in transfers {
                self.go_alone(receivers, transfer.key, &transfer.in_step);
            }
        }
        if let (Some((header, body)), Some(to)) =
            (multicast.lease.leave(), to.and_then(|to| self.address_of(to)))
        {
            self.egress.reply(to, [&header.encode()[..], &body].concat());
        }
    }

    /// How it stands with a multicast group; `None`: it was left.
    #[must_use]
    pub fn multicast_standing(&self, id: MulticastId) -> Option<Standing> {
        self.multicasts.get(id).map(|multicast| multicast.lease.standing())
    }

    /// The peers that it sends to.
    pub(crate) fn multicast_receivers(&self, id: MulticastId) -> Vec<PeerId> {
        match self.multicasts.get(id).map(|multicast| &multicast.role) {
            Some(Role::Sender { receivers, .. }) => receivers.iter().map(|receiver| receiver.peer).collect(),
            _ => Vec::new(),
        }
    }

    /// Packets that were sent once for several receivers, and how many of theirs a box was to make of them.
    #[must_use]
    pub fn multicast_packets(&self, id: MulticastId) -> (u64, u64) {
        self.multicasts.get(id).map_or((0, 0), |multicast| (multicast.packets, multicast.parts))
    }

    /// Accepts a message in two parts for all receivers of a group, or for none of them. Returns its number for each.
    ///
    /// # Errors
    /// See [`Core::may_post`], of the first receiver that does not take it.
    pub fn post_multicast(
        &mut self,
        now: Instant,
        id: MulticastId,
        channel: u16,
        parts: [&[u8]; 2],
    ) -> Result<Vec<(PeerId, u64)>, (PeerId, SendError)> {
        let Some(Multicast { lease, role: Role::Sender { receivers, .. }, .. }) = self.multicasts.get(id)
        else {
            return Ok(Vec::new());
        };
        let peers: Vec<PeerId> = receivers.iter().map(|receiver| self.canonical(receiver.peer)).collect();
        let keeps_step = |(place, receiver): (usize, &Receiver)| {
            let may = receiver.may_keep_step(now) && self.may_get_multicasts(peers[place]);
            may.then_some(place)
        };
        let mut in_step = Vec::new();
        let bytes = (parts[0].len() + parts[1].len()) as u64;
        // Two of them may have turned out to be one.
        let are_distinct = peers.iter().enumerate().all(|(at, peer)| !peers[..at].contains(peer));
        if lease.header().is_some() && bytes > 0 && are_distinct {
            in_step = receivers.iter().enumerate().filter_map(keeps_step).collect();
        }
        peers.iter().try_for_each(|peer| self.may_post(*peer, bytes).map_err(|error| (*peer, error)))?;
        let of_all = |error| (peers[0], error);
        if in_step.len() < 2 {
            let numbers = self.post_to_all(now, &peers, channel, parts).map_err(of_all)?;
            return Ok(peers.into_iter().zip(numbers).collect());
        }
        let buffer = self.long_buffer(parts).map_err(of_all)?;
        let key = self.sent.long_messages.insert(LongMessage::shared(buffer, peers.len() as u32));
        let numbers = peers.iter().map(|peer| self.peers[peer.0 as usize].outbox.next_fragmented());
        let message = numbers.max().unwrap_or_default();
        for (place, peer) in peers.iter().enumerate() {
            let its = in_step.contains(&place).then_some(id);
            self.peers[peer.0 as usize].outbox.push_shared_by(its, channel, key, message, bytes);
        }
        if let Some(Role::Sender { transfers, .. }) = self.multicasts.get_mut(id).map(|its| &mut its.role) {
            transfers.push_back(Transfer { key, in_step, since: now });
        }
        self.multicasts.wake_at(now.plus(PATIENCE_NS));
        Ok(peers.into_iter().map(|peer| (peer, self.accepted(now, peer.0))).collect())
    }

    /// Whether a peer can be sent to together with others.
    fn may_get_multicasts(&self, peer: PeerId) -> bool {
        let peer = &self.peers[peer.0 as usize];
        let tag = peer.connection.remote.map_or(0, |remote| remote.token as u32);
        matches!(peer.connection.phase, Phase::Open) && tag != 0
    }

    /// Receivers get the rest of a message, each by itself.
    fn go_alone(&mut self, receivers: &[Receiver], key: usize, who: &[usize]) {
        for place in who {
            let index = self.canonical(receivers[*place].peer).0;
            self.peers[index as usize].outbox.leave_multicast(key);
            self.schedule(index);
        }
    }

    /// Renews leases, and has transfers go on that have waited for somebody.
    pub(super) fn transmit_multicasts<R: Rail + ?Sized>(
        &mut self,
        now: Instant,
        rail: &mut R,
    ) -> Result<(), RailError> {
        if now < self.multicasts.deadline() {
            return Ok(());
        }
        for id in self.multicasts.ids() {
            self.transmit_multicast(now, id, rail)?;
            let Some(to) = self.look_after_lease(now, id) else { continue };
            let Some(multicast) = self.multicasts.get_mut(id) else { continue };
            if let (Some((header, body)), Some(to)) = (multicast.lease.transmit(now), to) {
                rail.send(now, to, &[Packet { head: &header.encode(), body: &body }])?;
                self.tally.packets_sent += 1;
            }
        }
        self.multicasts.wake_when_due();
        Ok(())
    }

    /// Finds out to where a JOIN is to go, if one is due, and that it names the right flow.
    fn look_after_lease(&mut self, now: Instant, id: MulticastId) -> Option<Option<SocketAddr>> {
        let multicast = self.multicasts.get(id).filter(|multicast| now >= multicast.lease.deadline())?;
        let sender = match &multicast.role {
            Role::Sender { receivers, .. } => {
                let first = receivers.first().map(|receiver| receiver.peer);
                return Some(first.and_then(|first| self.address_of(first)));
            }
            Role::Receiver(sender) => self.canonical(*sender),
        };
        let flow = multicast.lease.flow();
        let peer = self.peers.get(sender.0 as usize)?;
        let local = peer.connection.local.filter(|_| matches!(peer.connection.phase, Phase::Open));
        let address = peer.address;
        let Some(local) = local else {
            let pause_ns =
                if matches!(peer.connection.phase, Phase::Gone(_)) { RENEW_NS } else { NO_FLOW_NS };
            self.start_handshake(now, sender.0);
            self.multicasts.get_mut(id)?.lease.postpone(now.plus(pause_ns));
            return None;
        };
        if flow != (local.index, local.token) {
            self.multicasts.get_mut(id)?.lease.follow(now, local.index, local.token);
        }
        Some(Some(address))
    }
}
