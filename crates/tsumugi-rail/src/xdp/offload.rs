//! What a NIC does without while the program is in its driver.

use super::{Attached, Mode};
use crate::netlink::Questions;

/// Whether streams into a NIC, everybody's, may be slower for the program in its driver.
///
/// A veth whose end has such a program is given every packet by itself: its other end hands over none that are still to be segmented
/// (`veth_xdp_set` in drivers/net/veth.c). Real NICs segment all the same, and coalesce before or behind the program.
#[must_use]
pub fn costs_segmentation(attached: &Attached) -> bool {
    attached.mode == Mode::Native && is_veth(attached.index)
}

/// Whether the NIC with this index is a veth.
pub(super) fn is_veth(index: u32) -> bool {
    let end = Questions::open().and_then(|mut questions| questions.other_end(index));
    matches!(end, Ok(Some(_)))
}
