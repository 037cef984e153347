//! What a round has measured, and the rows that are told of all of them.

use serde::{Deserialize, Serialize};

use super::Carrier;
use crate::row::rounded;
use crate::statistics::{OverRounds, median};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Half a round trip, ns.
    OneWay,
    /// Messages a second.
    Stream,
    /// Of all ranks, ns.
    Barrier,
}

/// A line of the benchmark.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Figure {
    figure: Kind,
    /// Of a message.
    bytes: u64,
    /// In the unit of its kind.
    value: f64,
}

/// A figure over all rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FigureRow {
    /// What was measured.
    pub figure: Kind,
    /// Payload bytes of a message; 0 of a barrier.
    pub size_bytes: u64,
    /// What carried the messages.
    pub over: Carrier,
    /// Median: ns, of a stream messages a second.
    pub value: f64,
    /// This figure divided by TCP's of the same round, median. Absent with TCP itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over_tcp: Option<f64>,
    /// In each round.
    pub values: Vec<f64>,
    /// How many rounds the medians are over.
    pub rounds: u32,
    /// (largest − smallest) / median of the values.
    pub spread: f64,
}

/// What all rounds have measured.
#[derive(Default)]
pub(super) struct Measured(Vec<(Carrier, Vec<Figure>)>);

impl Measured {
    pub(super) fn add(&mut self, over: Carrier, figures: Vec<Figure>) {
        self.0.push((over, figures));
    }

    /// In the order of the benchmark, and for each figure of the carriers.
    pub(super) fn rows(&self) -> Vec<FigureRow> {
        let Some((_, first)) = self.0.first() else { return Vec::new() };
        let kinds = first.iter().map(|figure| (figure.figure, figure.bytes));
        kinds
            .flat_map(|(kind, bytes)| Carrier::ALL.map(|over| self.row(kind, bytes, over)))
            .flatten()
            .collect()
    }

    /// One figure of every round.
    fn values(&self, kind: Kind, bytes: u64, over: Carrier) -> Vec<f64> {
        let rounds = self.0.iter().filter(|(carrier, _)| *carrier == over);
        let of_kind = |figure: &&Figure| figure.figure == kind && figure.bytes == bytes;
        rounds.filter_map(|(_, figures)| Some(figures.iter().find(of_kind)?.value)).collect()
    }

    fn row(&self, kind: Kind, bytes: u64, over: Carrier) -> Option<FigureRow> {
        let values = self.values(kind, bytes, over);
        let OverRounds { median: value, spread, rounds } = OverRounds::of(values.iter().copied())?;
        let tcp = self.values(kind, bytes, Carrier::Tcp);
        let ratios = values.iter().zip(&tcp).map(|(ours, tcp)| ours / tcp);
        let over_tcp = (over != Carrier::Tcp).then(|| median(ratios).map(rounded)).flatten();
        let spread = rounded(spread);
        Some(FigureRow { figure: kind, size_bytes: bytes, over, value, over_tcp, values, rounds, spread })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(text: &str) -> Vec<Figure> {
        text.lines().map(|line| serde_json::from_str(line).expect("a figure")).collect()
    }

    #[test]
    fn ratios_are_made_within_a_round() {
        let mut measured = Measured::default();
        for (tcp, ours) in [(4000.0, 2000.0), (8000.0, 2000.0), (5000.0, 2000.0)] {
            for (over, ns) in [(Carrier::Tcp, tcp), (Carrier::TsumugiSocket, ours)] {
                let line = format!(r#"{{"figure": "one_way", "bytes": 8, "value": {ns}}}"#);
                measured.add(over, figures(&line));
            }
        }
        let rows = measured.rows();
        assert_eq!(rows.len(), 2, "{rows:?}");
        assert_eq!((rows[0].value, rows[0].over_tcp, rows[0].rounds), (5000.0, None, 3));
        assert_eq!((rows[1].value, rows[1].over_tcp), (2000.0, Some(0.4)));
        assert_eq!(rows[1].values, [2000.0; 3]);
    }

    #[test]
    fn rows_come_in_the_order_of_the_benchmark() {
        let mut measured = Measured::default();
        let text = r#"{"figure": "stream", "bytes": 8, "value": 1e6}
{"figure": "barrier", "bytes": 0, "value": 7000}"#;
        Carrier::ALL.into_iter().for_each(|over| measured.add(over, figures(text)));
        let kinds: Vec<_> = measured.rows().iter().map(|row| (row.figure, row.over)).collect();
        assert_eq!(kinds.len(), 8);
        assert_eq!(kinds[1], (Kind::Stream, Carrier::TsumugiSocket));
        assert_eq!(kinds[4], (Kind::Barrier, Carrier::Tcp));
        assert!(Measured::default().rows().is_empty());
    }
}
