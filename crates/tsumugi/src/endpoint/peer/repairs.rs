//! Packets that a peer has acknowledged and may still ask for, because it had not compared them.

use super::damaged::ASKED_MAX;
use crate::endpoint::sent::PacketKey;
use tsumugi_proto::unchecked::Unchecked;
use tsumugi_wire::Psn;

/// Packets that a peer may have asked for and not got: more it will ask for again.
const WANTED_MAX: usize = 2 * ASKED_MAX;

/// Packets that it has acknowledged and may still ask for.
#[derive(Debug, Default)]
pub(crate) struct Repairs {
    pub(crate) unchecked: Unchecked<PacketKey>,
    /// Packets that it has asked for because they were damaged.
    wanted: Vec<Psn>,
    /// How many packets were sent for that reason, ever.
    sent: u32,
}

impl Repairs {
    /// Whether it has asked for packets.
    #[inline]
    pub(crate) fn are_wanted(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// It asks for a packet. `false` if it has before, or for so many that it will ask again.
    pub(crate) fn want(&mut self, psn: Psn) -> bool {
        let is_new = self.wanted.len() < WANTED_MAX && !self.wanted.contains(&psn);
        if is_new {
            self.wanted.push(psn);
        }
        is_new
    }

    /// Takes the packets that it has asked for.
    pub(crate) fn take_wanted(&mut self) -> Vec<Psn> {
        std::mem::take(&mut self.wanted)
    }

    /// These could not be sent.
    pub(crate) fn put_back(&mut self, wanted: &[Psn]) {
        self.wanted.extend_from_slice(wanted);
    }

    /// One is sent again, over one of the paths after the other: it may be one of them that does the damage.
    pub(crate) fn next_path(&mut self, usable: &[u8]) -> u8 {
        let path = usable.get(self.sent as usize % usable.len().max(1)).copied().unwrap_or(0);
        self.sent = self.sent.wrapping_add(1);
        path
    }
}
