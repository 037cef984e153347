//! What is wanted of several NICs used as one.

use tsumugi_measure::eval::bonding::CaseRow;

use crate::target::{Limit, Target, Unit};

const FEW: &str = "2x4@100M";
const UNEVEN: &str = "uneven";

/// All targets. What was measured in the lab counts; what was only simulated counts where nothing else was done.
pub(crate) fn evaluate(rows: &[CaseRow]) -> Vec<Target> {
    let find = |case: &str, policy: &str| {
        let of = |row: &&CaseRow| row.case == case && row.policy.to_string() == policy;
        rows.iter().filter(of).min_by_key(|row| row.simulated)
    };
    let over_tlb = |value: fn(&CaseRow) -> Option<f64>| {
        let (ours, tlb) = (find(FEW, "adaptive")?, find(FEW, "tlb")?);
        Some(value(ours)? / value(tlb)?).filter(|ratio| ratio.is_finite())
    };
    // Where it never came about, infinitely long.
    let even = find(UNEVEN, "adaptive").map(|row| row.even_after_s.unwrap_or(f64::INFINITY));
    use Limit::{AtLeast, AtMost};
    [
        (
            "2x4@100M: throughput of adaptive against tlb",
            AtLeast,
            1.9,
            Unit::Ratio,
            over_tlb(|row| row.row.gbit_s),
        ),
        (
            "2x4@100M: CPU time per byte of adaptive against tlb",
            AtMost,
            1.3,
            Unit::Ratio,
            over_tlb(|row| row.row.cpu_ns_per_kib),
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
    .map(|(name, limit, wanted, unit, measured)| Target { name, limit, wanted, unit, measured })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tsumugi_measure::row::Row;

    fn row(case: &str, policy: &str) -> CaseRow {
        CaseRow { case: case.into(), policy: policy.parse().expect("a policy"), ..CaseRow::default() }
    }

    #[test]
    fn adaptive_is_judged_by_tlb() {
        let figures = |policy, gbit_s, cpu| CaseRow {
            row: Row { gbit_s: Some(gbit_s), cpu_ns_per_kib: Some(cpu), ..Row::default() },
            ..row(FEW, policy)
        };
        let rows = [figures("adaptive", 0.4, 100.0), figures("tlb", 0.2, 200.0)];
        let targets = evaluate(&rows);
        assert_eq!((targets[0].measured, targets[0].met()), (Some(2.0), Some(true)));
        assert_eq!((targets[1].measured, targets[1].met()), (Some(0.5), Some(true)));
        assert_eq!(targets[2].met(), None);
        assert!(evaluate(&rows[..1]).iter().all(|target| target.met().is_none()));
    }

    #[test]
    fn flows_that_never_become_even_miss_the_target() {
        let met = |even_after_s| evaluate(&[CaseRow { even_after_s, ..row(UNEVEN, "adaptive") }])[2].met();
        assert_eq!(met(Some(0.3)), Some(true));
        assert_eq!(met(None), Some(false));
    }

    #[test]
    fn the_lab_goes_before_the_simulation() {
        let lab = row(UNEVEN, "adaptive");
        let simulated = CaseRow { simulated: true, even_after_s: Some(0.0), ..lab.clone() };
        assert_eq!(evaluate(&[simulated.clone(), lab])[2].met(), Some(false));
        assert_eq!(evaluate(&[simulated])[2].met(), Some(true));
    }
}
