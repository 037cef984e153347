//! Packets that a peer has acknowledged and may still ask for, because it had not compared them.

use crate::endpoint::sent::PacketKey;
use tsumugi_proto::unchecked::Unchecked;
use tsumugi_wire::Psn;

/// Packets that it has acknowledged and may still ask for.
#[derive(Debug, Default)]
pub(crate) struct Repairs {
    pub(crate) unchecked: Unchecked<PacketKey>,
    /// Packets that it has asked for because they were damaged.
    pub(crate) wanted: Vec<Psn>,
    /// How many packets were sent for that reason, ever.
    pub(crate) sent: u32,
}
