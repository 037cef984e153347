//! The output of a measurement of the `tsumugi` command, whichever it is.

use serde::Deserialize;
use tsumugi_measure::eval::bonding::CaseRow;
use tsumugi_measure::eval::mpi::FigureRow;
use tsumugi_measure::machine::Machine;
use tsumugi_measure::row::Row;

/// The output of a measurement.
#[derive(Debug, Deserialize)]
pub(crate) struct Measured {
    pub(crate) rows: Rows,
    pub(crate) machine: Machine,
}

/// Rows of one of the commands. Those of an evaluation of bonding name a case, those of MPI a figure, those of a comparison a
/// test.
#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "these are rows of none of `tsumugi compare`, `eval bonding` and `eval mpi`, or of an older version"
)]
pub(crate) enum Rows {
    Bonding(Vec<CaseRow>),
    Mpi(Vec<FigureRow>),
    Comparison(Vec<OfTest>),
}

/// A row of a comparison.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Row")]
pub(crate) struct OfTest(pub(crate) Row);

impl TryFrom<Row> for OfTest {
    type Error = &'static str;

    fn try_from(row: Row) -> Result<OfTest, &'static str> {
        if row.test.is_some() { Ok(OfTest(row)) } else { Err("a row that belongs to no test") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Serialize;
    use serde_json::json;
    use tsumugi_measure::eval::mpi::{Carrier, Key};

    fn read(row: &impl Serialize) -> Result<Rows, serde_json::Error> {
        let output = json!({"rows": [row], "machine": Machine::default(), "costs": null});
        serde_json::from_value::<Measured>(output).map(|measured| measured.rows)
    }

    #[test]
    fn all_outputs_are_read() {
        let row = Row { test: Some("main".into()), values: vec![2e6, 4e6], ..Row::default() };
        let rows = read(&row).expect("a comparison");
        assert!(matches!(&rows, Rows::Comparison(rows) if rows[0].0 == row), "{rows:?}");
        let row = CaseRow { case: "uneven".into(), simulated: true, row, ..CaseRow::default() };
        let rows = read(&row).expect("an evaluation");
        assert!(matches!(&rows, Rows::Bonding(rows) if rows[0] == row), "{rows:?}");
        let row = FigureRow {
            key: Key { figure: "latency".to_owned(), size_bytes: 8, ranks: 2 },
            over: Carrier::TsumugiSocket,
            value: 3.0,
            unit: "us".to_owned(),
            over_tcp: Some(0.6),
            over_ucx: None,
            values: vec![3.0],
            rounds: 1,
            spread: None,
            better: tsumugi_measure::Better::Lower,
        };
        let rows = read(&row).expect("an evaluation");
        assert!(matches!(&rows, Rows::Mpi(rows) if rows[0] == row), "{rows:?}");
    }

    #[test]
    fn other_rows_are_refused() {
        let error = read(&Row::default()).expect_err("a row of `perf`");
        assert!(error.to_string().contains("rows of none of `tsumugi compare`"), "{error}");
    }
}
