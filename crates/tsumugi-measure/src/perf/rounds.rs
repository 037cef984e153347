//! Several rounds of one measurement become one row.

use crate::row::{Row, rounded};
use crate::statistics::{OverRounds, median};

/// The row over several rounds: medians of the figures, the extremes of the extremes, the spread of the value.
/// `None` without rounds.
pub(crate) fn over_rounds(rounds: &[Row]) -> Option<Row> {
    let first = rounds.first()?;
    let middle = |figure: fn(&Row) -> Option<f64>| median(rounds.iter().filter_map(figure)).map(rounded);
    let value = OverRounds::of(rounds.iter().filter_map(Row::value));
    let lost: u64 = rounds.iter().filter_map(|row| row.lost_bytes).sum();
    Some(Row {
        min_ns: rounds.iter().filter_map(|row| row.min_ns).min_by(f64::total_cmp),
        p50_ns: middle(|row| row.p50_ns),
        p99_ns: middle(|row| row.p99_ns),
        p999_ns: middle(|row| row.p999_ns),
        max_ns: rounds.iter().filter_map(|row| row.max_ns).max_by(f64::total_cmp),
        send_ns: middle(|row| row.send_ns),
        receive_ns: middle(|row| row.receive_ns),
        gbit_s: middle(|row| row.gbit_s),
        per_s: middle(|row| row.per_s),
        cpu_ns_per_kib: middle(|row| row.cpu_ns_per_kib),
        cpu_ns_per_message: middle(|row| row.cpu_ns_per_message),
        cpu_share: middle(|row| row.cpu_share),
        overlap: middle(|row| row.overlap),
        transfer_ns: middle(|row| row.transfer_ns),
        compute_ns: middle(|row| row.compute_ns),
        both_ns: middle(|row| row.both_ns),
        rounds: Some(rounds.len() as u32),
        spread: value.and_then(|value| value.spread).map(rounded),
        setting: most_frequent(rounds),
        paths: rounds.last()?.paths.clone(),
        lost_bytes: (lost > 0).then_some(lost),
        ..first.clone()
    })
}

/// The setting that was best most often.
fn most_frequent(rounds: &[Row]) -> Option<String> {
    let settings: Vec<&String> = rounds.iter().filter_map(|row| row.setting.as_ref()).collect();
    let count = |setting: &String| settings.iter().filter(|other| **other == setting).count();
    settings.iter().max_by_key(|setting| count(setting)).map(|setting| (*setting).clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Metric;

    fn round(p50_ns: f64, min_ns: f64, max_ns: f64, setting: &str) -> Row {
        Row {
            transport: "udp".into(),
            metric: Metric::RoundTrip,
            size_bytes: 64,
            p50_ns: Some(p50_ns),
            min_ns: Some(min_ns),
            max_ns: Some(max_ns),
            setting: Some(setting.into()),
            lost_bytes: Some(3),
            ..Row::default()
        }
    }

    #[test]
    fn medians_extremes_and_spread() {
        let rounds = [round(4.0, 3.0, 50.0, "a"), round(5.0, 2.0, 10.0, "b"), round(4.5, 3.5, 900.0, "b")];
        let row = over_rounds(&rounds).expect("rounds");
        assert_eq!((row.p50_ns, row.min_ns, row.max_ns), (Some(4.5), Some(2.0), Some(900.0)));
        assert_eq!(row.rounds, Some(3));
        assert_eq!(row.spread, Some(rounded(1.0 / 4.5)));
        assert_eq!(row.setting.as_deref(), Some("b"));
        assert_eq!(row.lost_bytes, Some(9));
        assert_eq!(row.gbit_s, None);
        assert_eq!(over_rounds(&rounds[..1]).expect("a round").spread, None);
        assert_eq!(over_rounds(&[]), None);
    }
}
