//! A network that is a tree of switch boxes, with a group's members at its ends.

use crate::random::Random;

/// Number of a member, or behind them of a box.
pub(super) type Node = usize;

/// Who is connected with whom.
pub(super) struct Tree {
    /// Of each node, the box that it hangs on; of the topmost box, itself.
    above: Vec<Node>,
    pub(super) members: usize,
}

impl Tree {
    /// Members on boxes that have so many ports each, filled in order; above them as many layers as it takes. One port of a box leads
    /// up, if there is something above.
    pub(super) fn full(members: usize, ports: usize) -> Tree {
        let mut above = vec![0; members];
        let (mut first, mut count) = (0, members);
        while count > 1 || above.len() == members {
            let below = if count <= ports { ports } else { ports - 1 };
            let boxes = count.div_ceil(below);
            let next = above.len();
            for node in 0..count {
                above[first + node] = next + node / below;
            }
            above.extend((0..boxes).map(|number| next + number));
            (first, count) = (next, boxes);
        }
        Tree { above, members }
    }

    /// So many boxes, each but the first on an earlier one, and members on any of them.
    pub(super) fn random(random: &mut Random, members: usize, boxes: usize) -> Tree {
        let on = |random: &mut Random, below: usize| members + random.below(below as u64) as usize;
        let mut above: Vec<Node> = (0..members).map(|_| on(random, boxes)).collect();
        above.extend((0..boxes).map(|number| if number == 0 { members } else { on(random, number) }));
        Tree { above, members }
    }

    /// Layers of boxes above the first member.
    pub(super) fn layers(&self) -> u32 {
        let mut node = self.above[0];
        let mut layers = 1;
        while self.above[node] != node {
            node = self.above[node];
            layers += 1;
        }
        layers
    }

    /// Boxes.
    pub(super) fn boxes(&self) -> usize {
        self.above.len() - self.members
    }

    /// The next node on the way to a member; `None`: there is nobody beyond.
    pub(super) fn next(&self, at: Node, to: Node) -> Option<Node> {
        if at == to {
            return None;
        }
        let mut node = to;
        loop {
            let above = self.above[node];
            if above == at {
                return Some(node);
            }
            if above == node {
                return Some(self.above[at]);
            }
            node = above;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_leads_to_its_end() {
        let trees = (1..20).flat_map(|members| {
            [Tree::full(members, 3), Tree::random(&mut Random::new(members as u64, 0), members, 5)]
        });
        for tree in trees {
            for (from, to) in (0..tree.members).flat_map(|from| (0..tree.members).map(move |to| (from, to))) {
                let mut at = from;
                for _ in 0..20 {
                    at = tree.next(at, to).unwrap_or(at);
                }
                assert_eq!(at, to, "from {from}");
            }
        }
    }
}
