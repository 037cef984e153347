//! Peers that turn out to be one while requests to them wait.

use super::entry::{At, Receive, Stage, Stored};
use super::parcel::Outgoing;
use super::port_state::PortState;
use super::request::Status;
use crate::PeerId;
use crate::endpoint::core::Core;
use crate::endpoint::core::identity::Merge;

impl PortState {
    /// Has everything be known by the number that its peer goes by.
    pub(super) fn follow(&mut self, core: &mut Core) {
        while let Some(&merge) = core.merges().get(self.followed) {
            self.followed += 1;
            self.merge(core, merge);
        }
    }

    fn merge(&mut self, core: &mut Core, Merge { from, into }: Merge) {
        let rename = |peer: &mut PeerId| {
            if *peer == from {
                *peer = into;
            }
        };
        let of = |status: &mut Status| rename(&mut status.peer);
        for entry in self.requests.iter_mut() {
            match &mut entry.stage {
                Stage::Receive(Receive { at, expects, .. }) => {
                    if let Some((peer, connection)) = expects {
                        (*peer, *connection) = core.connection_now(*peer, *connection);
                    }
                    match at {
                        At::Posted(_, wanted) if wanted.source == Some(from.0) => {
                            wanted.source = Some(into.0)
                        }
                        At::Granted { status, .. } | At::Placing(status) => of(status),
                        At::Lost(peer) => rename(peer),
                        At::New | At::Posted(..) => {}
                    }
                }
                Stage::Many(many) => {
                    if let Some((peer, connection)) = &mut many.expects {
                        (*peer, *connection) = core.connection_now(*peer, *connection);
                    }
                    if let Some((_, wanted)) = &mut many.posted
                        && wanted.source == Some(from.0)
                    {
                        wanted.source = Some(into.0);
                    }
                }
                Stage::Lent(lent) => of(&mut lent.status),
                Stage::Send(offered) => {
                    let (peer, connection) = (offered.status.peer, offered.connection);
                    (offered.status.peer, offered.connection) = core.connection_now(peer, connection);
                }
                Stage::Done(completion) => {
                    if let Ok(status) = &mut completion.outcome {
                        of(status);
                    }
                }
            }
        }
        for (_, kept) in &mut self.messages {
            of(&mut kept.status);
            if let Stored::Arriving(incoming) = &mut kept.stored
                && incoming.source == from.0
            {
                incoming.source = into.0;
            }
        }
        let waiting: Vec<Outgoing> = self.outgoing.remove(&from.0).into_iter().flatten().collect();
        waiting.into_iter().for_each(|outgoing| self.say(into, outgoing));
        if let Some(bytes) = self.offered_bytes.remove(&from.0) {
            *self.offered_bytes.entry(into.0).or_default() += bytes;
        }
        self.matching.merge(from.0, into.0);
        self.match_anew(core, into);
    }

    /// Receives from a peer that went by another number match the messages that came under this one, each in its order.
    fn match_anew(&mut self, core: &mut Core, peer: PeerId) {
        let waits = |at: &At| match at {
            At::Posted(posted, wanted) if wanted.source == Some(peer.0) => Some((*posted, *wanted)),
            _ => None,
        };
        let mut receives: Vec<_> = self
            .requests
            .iter()
            .filter_map(|(number, entry)| match &entry.stage {
                Stage::Receive(receive) => {
                    waits(&receive.at).map(|(posted, wanted)| (number, posted, wanted))
                }
                _ => None,
            })
            .collect();
        // In the order in which they were posted.
        receives.sort_by_key(|(_, posted, _)| self.matching.turn(*posted));
        for (number, posted, wanted) in receives {
            if let Some(at) = self.matching.find(&wanted)
                && let Some(key) = self.matching.take(at)
            {
                self.matching.cancel(posted);
                self.hand_out(core, key, number);
            }
        }
    }
}
