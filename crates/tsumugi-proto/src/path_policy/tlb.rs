//! Transmit load balancing as Linux bonding's balance-tlb does it, to the letter of P2's evaluation (Yoshida et al., 2014).

use super::{Pick, Policy, usable};
use crate::sender::Path;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use tsumugi_wire::Instant;
use tsumugi_wire::time::MILLISECOND_NS;

/// How long ties last, and how far back the load of a flow is looked at, ns.
const PERIOD_NS: u64 = 10_000 * MILLISECOND_NS;
/// Load of a flow of which nothing is known yet, bytes.
const NEWCOMER_BYTES: u64 = 1;

/// Each flow is tied to one path: when it is tied, the one with the most headroom, its speed less the load tied to it;
/// of equal ones the first. The load of a flow is what it sent in the ten seconds before. Every ten seconds all ties are
/// dissolved, and made again as the flows send; so they are when a path comes up (bonding's `bond_alb_handle_link_change`).
#[derive(Clone, Debug, Default)]
pub struct Tlb {
    /// When the ties are dissolved.
    until: Instant,
    ties: BTreeMap<u32, Tie>,
    /// Bytes of each flow in the period before, and in this one.
    before: BTreeMap<u32, u64>,
    sent: BTreeMap<u32, u64>,
    /// Load tied to each path, bytes of a period.
    load: Vec<u64>,
}

/// What a flow is tied to.
#[derive(Clone, Copy, Debug)]
struct Tie {
    path: u8,
    /// Paths that the flow could be tied to.
    working: usize,
}

impl Tlb {
    fn dissolve(&mut self) {
        self.ties.clear();
        self.load.clear();
    }

    fn tie(&mut self, flow: u32, paths: &[Path]) -> Option<u8> {
        self.load.resize(paths.len().max(self.load.len()), 0);
        let headroom = |number: u8, path: &Path| {
            let speed = path.speed_bits / 8 * (PERIOD_NS / 1_000_000_000);
            i128::from(speed) - i128::from(self.load[usize::from(number)])
        };
        // The last of the greatest in reverse order is the first.
        let (number, _) = usable(paths).rev().max_by_key(|&(number, path)| headroom(number, path))?;
        self.load[usize::from(number)] += self.before.get(&flow).copied().unwrap_or(0).max(NEWCOMER_BYTES);
        self.ties.insert(flow, Tie { path: number, working: usable(paths).count() });
        Some(number)
    }
}

impl Policy for Tlb {
    fn pick(&mut self, now: Instant, flow: u32, paths: &[Path], _: u32) -> Option<Pick> {
        if now >= self.until {
            self.until = now.plus(PERIOD_NS);
            self.dissolve();
            self.before = core::mem::take(&mut self.sent);
        }
        if self.ties.get(&flow).is_some_and(|tie| tie.working < usable(paths).count()) {
            self.dissolve();
        }
        let tied = self.ties.get(&flow).map(|tie| tie.path);
        let path = match tied.filter(|number| paths.get(usize::from(*number)).is_some_and(Path::is_usable)) {
            Some(path) => path,
            None => self.tie(flow, paths)?,
        };
        let packets = paths[usize::from(path)].room();
        (packets > 0).then_some(Pick { path, packets })
    }

    fn on_sent(&mut self, flow: u32, _: u8, _: u32, bytes: u64) {
        *self.sent.entry(flow).or_default() += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(speeds: &[u64]) -> Vec<Path> {
        speeds.iter().map(|&speed_bits| Path::of_speed(speed_bits)).collect()
    }

    #[test]
    fn newcomers_count_as_a_byte_and_the_lowest_number_wins() {
        let (mut policy, paths) = (Tlb::default(), paths(&[100_000_000; 3]));
        let picked: Vec<_> =
            (0..5).map(|flow| policy.pick(Instant(1), flow, &paths, 1).unwrap().path).collect();
        assert_eq!(picked, [0, 1, 2, 0, 1]);
    }

    #[test]
    fn a_flow_stays_for_ten_seconds_and_is_tied_anew_by_its_load() {
        let (mut policy, paths) = (Tlb::default(), paths(&[100_000_000; 2]));
        let pick = |policy: &mut Tlb, at: u64, flow| policy.pick(Instant(at), flow, &paths, 1).unwrap().path;
        // Three flows, of which the first and the third share a path; the first sends most.
        assert_eq!([0, 1, 2].map(|flow| pick(&mut policy, 0, flow)), [0, 1, 0]);
        for (flow, bytes) in [(0, 90), (1, 10), (2, 20)] {
            policy.on_sent(flow, 0, 1, bytes * 1_000_000);
        }
        assert_eq!([0, 1, 2].map(|flow| pick(&mut policy, PERIOD_NS - 1, flow)), [0, 1, 0]);
        assert_eq!([2, 1, 0].map(|flow| pick(&mut policy, PERIOD_NS, flow)), [0, 1, 1]);
    }

    #[test]
    fn flows_are_tied_anew_when_a_path_comes_up() {
        let (mut policy, mut paths) = (Tlb::default(), paths(&[100_000_000; 2]));
        let pick =
            |policy: &mut Tlb, paths: &[Path], flow| policy.pick(Instant(0), flow, paths, 1).unwrap().path;
        paths[1].suspend(Instant(0));
        assert_eq!([0, 1].map(|flow| pick(&mut policy, &paths, flow)), [0, 0]);
        paths[1].revive(Instant(0));
        assert_eq!([0, 1].map(|flow| pick(&mut policy, &paths, flow)), [0, 1]);
        paths[1].suspend(Instant(0));
        assert_eq!([0, 1].map(|flow| pick(&mut policy, &paths, flow)), [0, 0], "only who was tied there");
    }

    #[test]
    fn a_faster_nic_has_more_headroom() {
        let (mut policy, paths) = (Tlb::default(), paths(&[100_000_000, 1_000_000_000]));
        for flow in 0..4 {
            assert_eq!(policy.pick(Instant(0), flow, &paths, 1).unwrap().path, 1);
        }
    }
}
