//! What the benchmarks have measured, and the rows that are told of it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Carrier;
use crate::ratio::Better;
use crate::row::rounded;
use crate::statistics::{OverRounds, median};

/// Which figure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// As the benchmark calls it: `latency`, `bandwidth`, `allreduce`; of the integer sort `is_time`, `is_communication`.
    pub figure: String,
    /// Payload bytes of a message; of the sort all keys; 0 of a barrier.
    pub size_bytes: u64,
    /// How many ranks, each on a node of its own.
    pub ranks: u32,
}

/// A figure over all rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FigureRow {
    /// What was measured.
    #[serde(flatten)]
    pub key: Key,
    /// What carried the messages.
    pub over: Carrier,
    /// Median.
    pub value: f64,
    /// `us`, `s`, `MB/s`, `messages/s` or `ratio`.
    pub unit: String,
    /// This figure divided by tcp's of the same round, median. Absent with tcp itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over_tcp: Option<f64>,
    /// The same by UCX's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over_ucx: Option<f64>,
    /// In each round.
    pub values: Vec<f64>,
    /// Which ratios, and values, are better.
    pub better: Better,
    /// How many rounds the medians are over.
    pub rounds: u32,
    /// (largest − smallest) / median of the values, where there is more than one round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<f64>,
}

impl FigureRow {
    /// Whether less is better.
    #[must_use]
    pub fn is_time(&self) -> bool {
        self.better == Better::Lower
    }
}

fn better(unit: &str) -> Better {
    if matches!(unit, "us" | "s") { Better::Lower } else { Better::Higher }
}

/// One figure of one job.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Figure {
    key: Key,
    value: f64,
    unit: String,
}

/// The figures of a line that a benchmark prints; `None` if it is none.
pub(super) fn read(line: &str) -> Option<Vec<Figure>> {
    let told: Value = serde_json::from_str(line).ok()?;
    let text = |name: &str| Some(told.get(name)?.as_str()?.to_owned());
    let number = |name: &str| told.get(name)?.as_f64();
    let (figure, unit) = (text("figure")?, text("unit")?);
    let (size_bytes, ranks) = (number("size_bytes")? as u64, number("ranks")? as u32);
    let key = |figure: &str| Key { figure: figure.to_owned(), size_bytes, ranks };
    if figure.starts_with("is_") {
        let seconds = |name: &str, figure: &str| {
            Some(Figure { key: key(figure), value: number(name)?, unit: "s".to_owned() })
        };
        let time = seconds("seconds", "is_time")?;
        return Some(vec![time, seconds("communication_mean_s", "is_communication")?]);
    }
    Some(vec![Figure { key: key(&figure), value: number("value")?, unit }])
}

/// What all rounds have measured.
#[derive(Default)]
pub(super) struct Measured(Vec<(u32, Carrier, Figure)>);

impl Measured {
    /// What a job of a round has printed.
    pub(super) fn add(&mut self, round: u32, over: Carrier, figures: Vec<Figure>) {
        self.0.extend(figures.into_iter().map(|figure| (round, over, figure)));
    }

    /// In the order of the benchmarks, and for each figure of the carriers.
    pub(super) fn rows(&self, carriers: &[Carrier]) -> Vec<FigureRow> {
        let mut keys: Vec<&Key> = Vec::new();
        for (_, _, figure) in &self.0 {
            if !keys.contains(&&figure.key) {
                keys.push(&figure.key);
            }
        }
        let carriers = carriers.iter().chain(&Carrier::FLOORS);
        keys.into_iter().flat_map(|key| carriers.clone().filter_map(|over| self.row(key, *over))).collect()
    }

    /// One figure of every round that has it.
    fn values(&self, key: &Key, over: Carrier) -> Vec<(u32, f64)> {
        let is = |of: &&(u32, Carrier, Figure)| of.1 == over && of.2.key == *key;
        self.0.iter().filter(is).map(|(round, _, figure)| (*round, figure.value)).collect()
    }

    fn row(&self, key: &Key, over: Carrier) -> Option<FigureRow> {
        let ours = self.values(key, over);
        let values: Vec<f64> = ours.iter().map(|(_, value)| *value).collect();
        let OverRounds { median: value, spread, rounds } = OverRounds::of(values.iter().copied())?;
        let unit = self.0.iter().find(|(.., figure)| figure.key == *key)?.2.unit.clone();
        let ratio = |other: Carrier| {
            let theirs = self.values(key, other);
            let of_round =
                |round: u32| theirs.iter().find(|(other, _)| *other == round).map(|(_, value)| *value);
            let ratios = ours.iter().filter_map(|(round, value)| Some(value / of_round(*round)?));
            // An overlap of nothing cannot be divided by.
            median(ratios.filter(|ratio| ratio.is_finite()))
                .map(rounded)
                .filter(|_| other != over && unit != "ratio")
        };
        let (over_tcp, over_ucx) = (ratio(Carrier::Tcp), ratio(Carrier::Ucx));
        let spread = spread.map(rounded);
        let better = better(&unit);
        Some(FigureRow {
            key: key.clone(),
            over,
            value,
            unit,
            better,
            over_tcp,
            over_ucx,
            values,
            rounds,
            spread,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(figure: &str, value: f64) -> Vec<Figure> {
        let line = format!(
            r#"{{"figure": "{figure}", "size_bytes": 8, "ranks": 2, "value": {value}, "unit": "us"}}"#
        );
        read(&line).expect("a figure")
    }

    #[test]
    fn ratios_are_made_within_a_round() {
        let mut measured = Measured::default();
        for (round, (tcp, ours)) in [(4.0, 2.0), (8.0, 2.0), (5.0, 2.0)].into_iter().enumerate() {
            measured.add(round as u32, Carrier::Tcp, line("latency", tcp));
            measured.add(round as u32, Carrier::TsumugiSocket, line("latency", ours));
        }
        let rows = measured.rows(&[Carrier::Tcp, Carrier::TsumugiSocket]);
        assert_eq!(rows.len(), 2, "{rows:?}");
        assert_eq!((rows[0].value, rows[0].over_tcp, rows[0].rounds), (5.0, None, 3));
        assert_eq!((rows[1].value, rows[1].over_tcp, rows[1].over_ucx), (2.0, Some(0.4), None));
        assert_eq!(rows[1].values, [2.0; 3]);
    }

    #[test]
    fn the_sort_gives_its_time_and_that_of_its_messages() {
        let line = r#"{"figure": "is_A", "size_bytes": 33554432, "ranks": 4, "value": 500, "unit": "Mop/s", "seconds": 0.16,
                       "communication_mean_s": 0.05, "communication_max_s": 0.06, "verified": 1}"#;
        let figures = read(line).unwrap();
        let told: Vec<_> =
            figures.iter().map(|it| (it.key.figure.as_str(), it.value, it.unit.as_str())).collect();
        assert_eq!(told, [("is_time", 0.16, "s"), ("is_communication", 0.05, "s")]);
        assert_eq!(figures[0].key.ranks, 4);
        assert!(read("mpiexec: a warning").is_none() && read("{}").is_none());
    }

    #[test]
    fn rows_come_in_the_order_of_the_benchmarks() {
        let mut measured = Measured::default();
        for over in [Carrier::Tcp, Carrier::TsumugiXdp] {
            measured.add(1, over, line("bandwidth", 1.0));
            measured.add(1, over, line("barrier", 2.0));
        }
        for over in [Carrier::BareUdpXdp, Carrier::BareUdp] {
            measured.add(1, over, line("udp_latency", 3.0));
        }
        let rows = measured.rows(&[Carrier::Tcp, Carrier::TsumugiXdp]);
        let kinds: Vec<_> = rows.iter().map(|row| (row.key.figure.as_str(), row.over)).collect();
        let expected = [
            ("bandwidth", Carrier::Tcp),
            ("bandwidth", Carrier::TsumugiXdp),
            ("barrier", Carrier::Tcp),
            ("barrier", Carrier::TsumugiXdp),
            ("udp_latency", Carrier::BareUdp),
            ("udp_latency", Carrier::BareUdpXdp),
        ];
        assert_eq!(kinds, expected);
        assert!(Measured::default().rows(&[Carrier::Tcp]).is_empty());
    }
}
