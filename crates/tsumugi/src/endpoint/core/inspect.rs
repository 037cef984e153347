//! What the simulation sees of an endpoint beyond what an application does, and what must always hold in it.

use super::Core;
use crate::PeerId;
use crate::endpoint::egress::REPLIES_MAX;
use crate::endpoint::peer::Peer;
use crate::endpoint::peer::connection::Phase;
use crate::endpoint::receive_queue::Payload;
use tsumugi_proto::{ReceiveMemory, queue, receiver};
use tsumugi_wire::atomic::Ordering;
use tsumugi_wire::handshake::Repeat;
use tsumugi_wire::limits::RECORD_ALIGN;
use tsumugi_wire::memory::Counter;

/// One peer, as the simulation sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerView {
    /// Packets flow.
    pub open: bool,
    /// It is gone.
    pub gone: bool,
    /// Something is outstanding in either direction.
    pub waiting: bool,
    /// Packets sent to it and not acknowledged.
    pub outstanding: usize,
    /// Epoch of the incarnation that we talk to; 0 while unknown.
    pub epoch: u32,
    /// Token of what we send; 0 while unknown.
    pub remote_token: u64,
    /// Token of what it sends; 0 while there is no flow.
    pub local_token: u64,
    /// Longest packet body that both sides take, bytes; 0 while unknown.
    pub body_bytes: usize,
    /// PSNs from here on are beyond the credit granted.
    pub limit: u64,
    /// It resends by Go-back-N.
    pub goes_back: bool,
    /// Packets that wait for one before them.
    pub held: usize,
    /// A long message is arriving, in turn or ahead of it.
    pub assembling: bool,
    /// Packets that arrived damaged and have not come again, also of connections that are over.
    pub damaged: u64,
}

impl Core {
    /// A peer, as the simulation sees it.
    #[must_use]
    pub fn view(&self, id: PeerId) -> Option<PeerView> {
        let peer = self.peers.get(id.0 as usize)?;
        let flow = peer.connection.local.and_then(|local| self.memory.flow(local.index));
        Some(PeerView {
            open: matches!(peer.connection.phase, Phase::Open | Phase::Leaving(_)),
            gone: matches!(peer.connection.phase, Phase::Gone(_)),
            waiting: peer.is_busy(),
            outstanding: peer.sender.outstanding(),
            epoch: peer.connection.epoch,
            remote_token: peer.connection.remote.map_or(0, |remote| remote.token),
            local_token: peer.connection.local.map_or(0, |local| local.token),
            body_bytes: peer.connection.remote.map_or(0, |remote| remote.body_bytes),
            limit: flow.map_or(0, |flow| receiver::limit(flow).0),
            goes_back: flow.is_some_and(|flow| flow.repeat.load(Ordering::Relaxed) == Repeat::GoBackN as u32),
            held: peer.receive.reorder.held(),
            assembling: !peer.receive.assemblies.is_empty(),
            damaged: peer.receive.damaged.len() as u64 + peer.receive.unrepaired,
        })
    }

    /// Packets that peers have acknowledged, and that are kept until they have compared them with their CRC.
    #[must_use]
    pub fn unchecked(&self) -> usize {
        self.peers.iter().map(|peer| peer.repairs.unchecked.len()).sum()
    }

    /// The peer that sends in flow `index`.
    #[must_use]
    pub fn peer_of_flow(&self, index: u32) -> Option<PeerId> {
        self.peers.in_flow(index).map(PeerId)
    }

    /// The bytes of a message.
    #[must_use]
    pub fn bytes_of<'a>(&'a self, payload: &'a Payload) -> &'a [u8] {
        match payload {
            Payload::InPlace { position, at, bytes, .. } => {
                let (at, bytes) = (*at as usize, *bytes as usize);
                // SAFETY: the record is kept until `release_message` takes the payload, and this core by a reference
                // that no other lives beside.
                unsafe { self.memory.body(*position, at, bytes) }
            }
            Payload::Owned(buffer) => buffer,
        }
    }

    /// The receive memory, for a simulation that deposits in place of the XDP program.
    #[must_use]
    pub fn receive_memory(&self) -> &dyn ReceiveMemory {
        &*self.memory
    }

    /// What a counter of the receive memory says.
    #[must_use]
    pub fn counted(&self, counter: Counter) -> u64 {
        self.memory.control().counters.0[counter as usize].load(Ordering::Relaxed)
    }

    /// What must hold after every call, cheap enough to be asked then.
    ///
    /// # Errors
    /// What does not hold.
    pub fn audit(&self) -> Result<(), String> {
        self.queue.audit(&*self.memory)?;
        let ensure = |holds: bool, what: &dyn Fn() -> String| if holds { Ok(()) } else { Err(what()) };
        let packets = |peer: &Peer| peer.sender.outstanding() + peer.repairs.unchecked.len();
        let outstanding: usize = self.peers.iter().map(packets).sum();
        ensure(self.sent.len() == outstanding, &|| {
            format!("{} packets kept for {outstanding} outstanding or not compared", self.sent.len())
        })?;
        let (peers, replies, failures) = (self.peers.len(), self.egress.replies(), self.channels.failures());
        let peers_max = self.options.peers_max as usize;
        ensure(peers <= peers_max && failures <= peers_max && replies <= REPLIES_MAX, &|| {
            format!("{peers} peers, {failures} failures, {replies} replies for at most {peers_max} peers")
        })?;
        let scheduled = self.schedule.to_send();
        ensure(scheduled <= peers, &|| format!("{scheduled} of {peers} peers scheduled"))
    }

    /// What must hold, the whole of it. `lent_bytes` are those of messages outside the queue that the caller has.
    ///
    /// # Errors
    /// What does not hold.
    pub fn audit_all(&self, lent_bytes: u64) -> Result<(), String> {
        self.audit()?;
        self.audit_held(lent_bytes)?;
        self.peers.iter().try_for_each(|peer| peer.outbox.audit())?;
        self.sent.audit(self.peers.iter().flat_map(|peer| peer.outbox.long_messages()))?;
        self.peers.audit()?;
        // Invariant 1 of the layout.
        let control = self.memory.control();
        let head = control.ring_head.0.load(Ordering::Relaxed);
        let free_end = control.ring_tail.0.load(Ordering::Relaxed) + self.memory.ring_bytes();
        let sealed = (head..free_end)
            .step_by(RECORD_ALIGN as usize)
            .find(|&position| queue::read(&*self.memory, position).is_some());
        sealed.map_or(Ok(()), |at| Err(format!("ring: there is a record at {at}, which is free")))
    }

    fn audit_held(&self, lent_bytes: u64) -> Result<(), String> {
        let mut held_bytes = lent_bytes + self.channels.owned_bytes();
        held_bytes += self.peers.iter().map(|peer| peer.receive.held_bytes()).sum::<u64>();
        if held_bytes != self.held_bytes() {
            return Err(format!("{} bytes counted as held, {held_bytes} are", self.held_bytes()));
        }
        Ok(())
    }
}
