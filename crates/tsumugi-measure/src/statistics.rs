//! Percentiles of samples, and medians and spread over rounds.

/// The percentiles of one round, in the unit of its samples (ns).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Percentiles {
    pub(crate) min: u64,
    pub(crate) p50: u64,
    /// `None` of fewer samples than 100: it would be one of the last few.
    pub(crate) p99: Option<u64>,
    /// `None` of fewer samples than 1000.
    pub(crate) p999: Option<u64>,
    pub(crate) max: u64,
}

impl Percentiles {
    /// Sorts `samples` and reads the percentiles off; `None` when there are no samples.
    pub(crate) fn of(samples: &mut [u64]) -> Option<Percentiles> {
        samples.sort_unstable();
        let (&min, &max) = (samples.first()?, samples.last()?);
        Some(Percentiles {
            min,
            p50: nearest_rank(samples, 500),
            p99: (samples.len() >= 100).then(|| nearest_rank(samples, 990)),
            p999: (samples.len() >= 1000).then(|| nearest_rank(samples, 999)),
            max,
        })
    }
}

/// The smallest sample that at least `permille`/1000 of all samples do not exceed (nearest rank: always a
/// value that was really measured). `sorted` must be sorted and not empty.
fn nearest_rank(sorted: &[u64], permille: u64) -> u64 {
    let rank = (sorted.len() as u64 * permille).div_ceil(1000).max(1);
    sorted[rank as usize - 1]
}

/// A value measured in several rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct OverRounds {
    /// The middle value, or the mean of the two middle values.
    pub(crate) median: f64,
    /// (largest − smallest) / median: 0.1 means that the rounds differ by a tenth of the median.
    /// `None` of a single value, which is no distance from itself.
    pub(crate) spread: Option<f64>,
    /// How many rounds there were.
    pub(crate) rounds: u32,
}

impl OverRounds {
    /// `None` when there are no values. Values that are not finite are ignored.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<OverRounds> {
        let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        values.sort_unstable_by(f64::total_cmp);
        let (first, last) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median =
            if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 };
        let spread = if median == 0.0 { 0.0 } else { (last - first) / median.abs() };
        let spread = (values.len() > 1).then_some(spread);
        Some(OverRounds { median, spread, rounds: values.len() as u32 })
    }
}

/// The median alone; `None` when there are no values.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    OverRounds::of(values).map(|over| over.median)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples_that_were_measured() {
        let mut samples: Vec<u64> = (1..=1000).rev().collect();
        let percentiles = Percentiles::of(&mut samples).expect("samples");
        assert_eq!(percentiles, Percentiles { min: 1, p50: 500, p99: Some(990), p999: Some(999), max: 1000 });
    }

    #[test]
    fn few_samples_have_no_rare_ones() {
        assert_eq!(Percentiles::of(&mut []), None);
        let of = |count: u64| {
            let few = Percentiles::of(&mut (1..=count).collect::<Vec<u64>>()).expect("samples");
            (few.p50, few.p99, few.p999)
        };
        assert_eq!(of(1), (1, None, None));
        assert_eq!(of(99), (50, None, None));
        assert_eq!(of(100), (50, Some(99), None));
        assert_eq!(of(999), (500, Some(990), None));
    }

    #[test]
    fn one_slow_round_moves_the_spread_and_not_the_median() {
        let calm = OverRounds::of([10.0, 10.0, 11.0, 10.0, 10.0]).expect("values");
        let disturbed = OverRounds::of([10.0, 10.0, 90.0, 10.0, 10.0]).expect("values");
        assert_eq!(calm.median, disturbed.median);
        assert_eq!(calm.spread, Some(0.1));
        assert_eq!(disturbed.spread, Some(8.0));
        assert_eq!(disturbed.rounds, 5);
    }

    #[test]
    fn an_even_number_of_rounds_takes_the_middle_of_two() {
        assert_eq!(median([4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median([]), None);
        assert_eq!(median([f64::NAN, 3.0]), Some(3.0));
        assert_eq!(OverRounds::of([0.0, 0.0]).and_then(|over| over.spread), Some(0.0));
        assert_eq!(OverRounds::of([5.0]).map(|over| over.spread), Some(None));
    }
}
