//! P2's figures: Yoshida, Yamauchi and Taniguchi, "Evaluation of existing methods that control several NICs together"
//! (2014), section 4. TCP over Linux 2.6.35's bonding, from one Pentium 4 at 2.4 GHz.

use serde::Serialize;

use super::case::Case;

/// What P2 tells of a case in one mode.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Figure {
    /// `2x4@100M`, …
    pub(crate) case: &'static str,
    /// `balance-rr` or `balance-tlb`.
    pub(crate) mode: &'static str,
    /// Payload of all senders, 10⁹ bits a second (figure 8).
    pub(crate) gbit_s: f64,
    /// Share of the sending host's only core that was busy (figure 9).
    pub(crate) cpu: f64,
}

/// The modes, in the order of its figures, with the class that gives each its colour in a report.
pub(crate) const MODES: [(&str, &str); 2] = [("balance-rr", "paper-rr"), ("balance-tlb", "paper-tlb")];

const fn figure(case: &'static str, mode: usize, mbit_s: f64, cpu_percent: f64) -> Figure {
    Figure { case, mode: MODES[mode].0, gbit_s: mbit_s / 1e3, cpu: cpu_percent / 100.0 }
}

/// Figures 8 and 9, as its text says them. Of balance-tlb at 2x4@100M it gives 11.6 %, and its difference to
/// balance-rr as 67.0 %, which do not agree.
pub(crate) const FIGURES: [Figure; 12] = [
    figure("2x4@100M", 0, 377.0, 75.3),
    figure("2x4@100M", 1, 188.0, 11.6),
    figure("3x3@100M", 0, 282.0, 34.0),
    figure("3x3@100M", 1, 283.0, 21.9),
    figure("4x2@100M", 0, 188.0, 12.8),
    figure("4x2@100M", 1, 188.0, 11.6),
    figure("2x4@1G", 0, 561.0, 99.2),
    figure("2x4@1G", 1, 745.0, 31.1),
    figure("3x3@1G", 0, 425.0, 99.9),
    figure("3x3@1G", 1, 724.0, 27.8),
    figure("4x2@1G", 0, 656.0, 96.5),
    figure("4x2@1G", 1, 764.0, 31.5),
];

/// What figure 10 shows, in words.
pub(crate) const FIGURE_10: &str = "P2, balance-tlb: sender A alone from the start, B, C and D from 10 s on. From 10 s to 70 s B, C and D were \
     tied to NIC 0 and A to NIC 1, so that A had one NIC (of some 94 Mb/s) and the others a third of one each.";

/// What P2 tells of a case.
pub(crate) fn of(case: &Case) -> impl Iterator<Item = &'static Figure> {
    let name = case.to_string();
    FIGURES.iter().filter(move |figure| figure.case == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_matrix_is_complete() {
        for case in Case::ALL.iter().filter(|case| !case.is_uneven) {
            let modes: Vec<&str> = of(case).map(|figure| figure.mode).collect();
            assert_eq!(modes, MODES.map(|(mode, _)| mode), "{case}");
            assert!(of(case).all(|figure| figure.gbit_s < case.gbit_s()), "{case}");
        }
    }
}
