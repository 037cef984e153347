//! Broadcasts that leave their root once: the multicast groups of a group's participants.
//!
//! Nobody has to agree on that. Whoever is not the root expects a broadcast along its tree, until the root's data say that they go to
//! everybody ([`Route::Open`]): then nobody has passed any on, for they all come from the root, and there is nothing to undo. So the root alone
//! decides, each time, by what it knows of the box.
//!
//! A participant that broadcasts once needs no multicast group. All join its group when it does so for the second time.

use super::schedule::Position;
use crate::PeerId;
use crate::endpoint::core::Core;
use crate::endpoint::multicast::MulticastId;
use crate::multicast::{MulticastGroup, RECEIVERS_MAX};
use std::collections::{BTreeMap, BTreeSet};
use tsumugi_proto::group::lease::Standing;
use tsumugi_wire::Instant;

/// Which way the data of an operation go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// Along its schedule.
    Schedule,
    /// The root of a broadcast may send them to everybody itself. None have come yet.
    Open { root: usize },
    /// It does; at the root, in this group. `None`: to each by itself, for the group was left.
    ToAll(Option<MulticastId>),
}

/// The multicast groups of a group, one for each participant that broadcasts.
pub(super) struct Multicasts {
    key: u64,
    /// Number of the group in which participant 0 sends.
    first: u64,
    /// By the rank of who sends. `None`: it has broadcast once.
    of: BTreeMap<usize, Option<MulticastId>>,
}

impl Multicasts {
    /// For participants on these hosts. `None`: there are too many, or some are on the same host, where no box lies between them.
    pub(super) fn between(hosts: &[u64], key: u64, first: u64) -> Option<Multicasts> {
        let distinct: BTreeSet<u64> = hosts.iter().copied().collect();
        let are_few = (3..=RECEIVERS_MAX + 1).contains(&hosts.len());
        (are_few && distinct.len() == hosts.len()).then(|| Multicasts { key, first, of: BTreeMap::new() })
    }

    /// A participant broadcasts. Returns which way. `peer_of` has the peers of all ranks but this one's.
    pub(super) fn route(
        &mut self,
        (core, now): (&mut Core, Instant),
        (root, me): (usize, Position),
        peer_of: impl Fn(usize) -> Option<PeerId>,
    ) -> Route {
        let Some(known) = self.of.get(&root).copied() else {
            self.of.insert(root, None);
            return Route::Schedule;
        };
        if known.is_none() {
            let id = self.join((core, now), (root, me), peer_of);
            self.of.insert(root, id);
        }
        match () {
            () if root != me.rank => Route::Open { root },
            () if self.is_joined(core, root) => Route::ToAll(known),
            () => Route::Schedule,
        }
    }

    fn join(
        &self,
        (core, now): (&mut Core, Instant),
        (root, me): (usize, Position),
        peer_of: impl Fn(usize) -> Option<PeerId>,
    ) -> Option<MulticastId> {
        let number = self.first.wrapping_add(root as u64);
        let group = MulticastGroup { key: self.key, number, size: me.size as u16 };
        if root == me.rank {
            let receivers: Vec<PeerId> = (0..me.size).filter_map(peer_of).collect();
            return Some(core.send_multicasts(now, group, &receivers));
        }
        // Whoever comes before the sender is one further back among the members.
        let member = me.rank + usize::from(me.rank < root);
        Some(core.receive_multicasts(now, group, member as u16, peer_of(root)?))
    }

    /// Whether what a participant broadcasts leaves once.
    pub(super) fn is_joined(&self, core: &Core, rank: usize) -> bool {
        let id = self.of.get(&rank).copied().flatten();
        id.is_some_and(|id| core.multicast_standing(id) == Some(Standing::Joined))
    }

    /// The groups that were joined.
    pub(super) fn joined(self) -> impl Iterator<Item = MulticastId> {
        self.of.into_values().flatten()
    }
}
