//! What the project has promised of its trunks, beside what was measured.

use tsumugi::Policy;

use super::case::Case;
use super::contender::Contender;
use super::results::CaseRow;
use crate::measure::target::{Limit, Target, Unit};

/// All promises. What was measured in the lab counts; what was only simulated counts where nothing else was done.
pub(super) fn evaluate(rows: &[CaseRow]) -> Vec<Target> {
    let find = |case: Case, policy| {
        let name = case.to_string();
        let of = |row: &&CaseRow| row.case == name && row.contender == Contender::Ours(policy);
        rows.iter().filter(of).min_by_key(|row| row.simulated)
    };
    let few = Case::ALL[0];
    let over_tlb = |value: fn(&CaseRow) -> Option<f64>| {
        let (ours, tlb) = (find(few, Policy::Adaptive)?, find(few, Policy::Tlb)?);
        Some(value(ours)? / value(tlb)?).filter(|ratio| ratio.is_finite())
    };
    // Where it never came about, infinitely long.
    let even = find(Case::UNEVEN, Policy::Adaptive).map(|row| row.even_after_s.unwrap_or(f64::INFINITY));
    use Limit::{AtLeast, AtMost};
    [
        (
            "2x4@100M: throughput of adaptive against tlb",
            AtLeast,
            1.9,
            Unit::Ratio,
            over_tlb(|it| it.row.gbit_s),
        ),
        (
            "2x4@100M: CPU time per byte of adaptive against tlb",
            AtMost,
            1.3,
            Unit::Ratio,
            over_tlb(|it| it.row.cpu_ns_per_kib),
        ),
        (
            "uneven: adaptive has each flow within 5 % of the mean, for good, after",
            AtMost,
            1.0,
            Unit::Seconds,
            even,
        ),
    ]
    .into_iter()
    .map(|(name, limit, wanted, unit, measured)| Target::judged(name, limit, wanted, unit, measured))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::super::results::samples;
    use super::*;

    #[test]
    fn adaptive_is_judged_by_tlb() {
        let row = |policy, bytes: [u64; 2]| samples::run(Case::ALL[0], policy, &bytes).row();
        let rows = [row(Policy::Adaptive, [4000, 4000]), row(Policy::Tlb, [2000, 2000])];
        let targets = evaluate(&rows);
        assert_eq!((targets[0].measured, targets[0].met), (Some(2.0), Some(true)));
        assert_eq!((targets[1].measured, targets[1].met), (Some(0.5), Some(true)));
        assert_eq!(targets[2].met, None);
        assert!(evaluate(&rows[..1]).iter().all(|target| target.met.is_none()));
    }

    #[test]
    fn flows_that_never_become_even_miss_the_target() {
        let row = |bytes: [u64; 4]| samples::run(Case::UNEVEN, Policy::Adaptive, &bytes).row();
        let target = |row| evaluate(&[row])[2].clone();
        assert_eq!(target(row([100, 100, 100, 97])).met, Some(true));
        let missed = target(row([100, 100, 100, 50]));
        assert_eq!((missed.measured, missed.met), (None, Some(false)));
    }

    #[test]
    fn the_lab_goes_before_the_simulation() {
        let mut simulated = samples::run(Case::UNEVEN, Policy::Adaptive, &[1, 1, 1, 1]);
        simulated.is_simulated = true;
        let lab = samples::run(Case::UNEVEN, Policy::Adaptive, &[1, 1, 1, 9]).row();
        assert_eq!(evaluate(&[simulated.row(), lab])[2].met, Some(false));
        assert_eq!(evaluate(&[simulated.row()])[2].met, Some(true));
    }
}
