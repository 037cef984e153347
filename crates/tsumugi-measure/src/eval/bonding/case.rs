//! The cases of P2's matrix: so many senders, so many NICs of such a rate.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;
use tsumugi_lab::{NICS_MAX, Rate};

/// Most senders of a case.
const SENDERS_MAX: u32 = 16;
/// For how long the first flow of the uneven case sends alone, seconds: one period of balance-tlb, after which its load
/// is known, and a moment.
const ALONE_S: f64 = 10.1;
/// How much longer than other cases the rest of the uneven case is: balance-tlb makes its ties anew after ten seconds.
const UNEVEN_TIMES: f64 = 3.0;

/// A case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) senders: u32,
    pub(crate) nics: u32,
    /// Of each NIC.
    pub(crate) rate: Rate,
    /// The case of P2's figure 10: the first sender begins ten seconds before the others.
    pub(crate) is_uneven: bool,
}

/// A word that names no case.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "there is no case `{0}`; write SENDERSxNICS@RATE, as in 2x4@100M or 4x2@1G (1 to {SENDERS_MAX} senders, 1 to \
     {NICS_MAX} NICs), or `uneven`"
)]
pub(crate) struct UnknownCase(String);

impl Case {
    const fn new(senders: u32, nics: u32, mbit_s: u64) -> Case {
        Case { senders, nics, rate: Rate { bits_per_s: mbit_s * 1_000_000 }, is_uneven: false }
    }

    /// Figure 10: four senders, two NICs of 100 Mb/s.
    pub(crate) const UNEVEN: Case = Case { is_uneven: true, ..Case::new(4, 2, 100) };

    /// P2's matrix, in the order of its figure 8, and figure 10.
    pub(crate) const ALL: [Case; 7] = [
        Case::new(2, 4, 100),
        Case::new(3, 3, 100),
        Case::new(4, 2, 100),
        Case::new(2, 4, 1000),
        Case::new(3, 3, 1000),
        Case::new(4, 2, 1000),
        Case::UNEVEN,
    ];

    /// For how long the first flow sends alone, and then for how long all of them do where cases usually take `time_s`;
    /// seconds.
    pub(crate) fn times_s(&self, time_s: f64) -> (f64, f64) {
        if self.is_uneven { (ALONE_S, UNEVEN_TIMES * time_s) } else { (0.0, time_s) }
    }

    /// All NICs together, 10⁹ bits a second.
    pub(crate) fn gbit_s(&self) -> f64 {
        f64::from(self.nics) * self.rate.bits_per_s as f64 / 1e9
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_uneven {
            return f.write_str("uneven");
        }
        let rate = self.rate.to_string().replace("bit", "").to_uppercase();
        write!(f, "{}x{}@{rate}", self.senders, self.nics)
    }
}

impl FromStr for Case {
    type Err = UnknownCase;

    fn from_str(text: &str) -> Result<Case, UnknownCase> {
        let parse = || {
            let (matrix, rate) = text.split_once('@')?;
            let (senders, nics) = matrix.split_once('x')?;
            let (senders, nics) = (senders.parse().ok()?, nics.parse().ok()?);
            let rate = rate.parse().ok()?;
            let possible = (1..=SENDERS_MAX).contains(&senders) && (1..=NICS_MAX).contains(&nics);
            possible.then_some(Case { senders, nics, rate, is_uneven: false })
        };
        if text == "uneven" { Some(Case::UNEVEN) } else { parse() }
            .ok_or_else(|| UnknownCase(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_read_and_written() {
        for case in Case::ALL {
            assert_eq!(case.to_string().parse(), Ok(case));
        }
        let case: Case = "16x8@2.5gbit".parse().expect("a case");
        assert_eq!((case.senders, case.nics, case.rate.bits_per_s), (16, 8, 2_500_000_000));
        assert_eq!(Case::ALL[0].to_string(), "2x4@100M");
        for text in
            ["", "2x4", "2@100M", "0x1@1G", "17x1@1G", "1x9@1G", "2x4@fast", "2x4@", "even", "-1x2@1G"]
        {
            let error = text.parse::<Case>().expect_err(text).to_string();
            assert!(error.contains("2x4@100M") && error.contains(text), "{error}");
        }
    }

    #[test]
    fn the_uneven_case_begins_with_one_flow() {
        assert_eq!(Case::UNEVEN.times_s(4.0), (10.1, 12.0));
        assert_eq!(Case::ALL[0].times_s(4.0), (0.0, 4.0));
        assert!((Case::ALL[0].gbit_s() - 0.4).abs() < 1e-9);
    }
}
