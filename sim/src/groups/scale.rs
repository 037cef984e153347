//! How long a barrier takes that boxes count, by the number of members, on trees of boxes that nothing is lost on.

use super::tree::Tree;
use super::{GroupsPlan, run};

/// Costs, ns, as a lab has shown them (`tsumugi perf barrier`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// A packet on a link, and what its ends spend on it.
    pub link_ns: u64,
    /// What a box does for a packet that has come.
    pub packet_ns: u64,
    /// What it does for each that it sends.
    pub copy_ns: u64,
}

/// A number of members, and the time from when the last has arrived to when all have left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Members.
    pub members: usize,
    /// Boxes from a member to the top of the tree, which has this many layers.
    pub layers: u32,
    /// Median over generations, ns.
    pub barrier_ns: u64,
}

/// Runs so many barriers of each of these numbers of members, on trees of boxes with so many ports.
///
/// # Errors
/// What was broken.
pub fn scale(sizes: &[usize], generations: u64, ports: usize, costs: Costs) -> Result<Vec<Scale>, String> {
    sizes
        .iter()
        .map(|&members| {
            let plan = GroupsPlan {
                members,
                ports,
                boxes: 0,
                generations,
                loss: 0.0,
                doubling: 0.0,
                link_ns: (costs.link_ns, 0),
                box_ns: (costs.packet_ns, costs.copy_ns),
                // Long enough for the last to arrive alone: its barrier is that of a member who is late.
                compute_ns: 40_000_000,
                restarts: 0,
                deaths: 0,
            };
            let mut spans_ns = run(members as u64, plan)?.spans_ns;
            spans_ns.sort_unstable();
            let layers = Tree::full(members, ports).layers();
            Ok(Scale { members, layers, barrier_ns: spans_ns[spans_ns.len() / 2] })
        })
        .collect()
}
