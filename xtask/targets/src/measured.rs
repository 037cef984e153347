//! What the `tsumugi` command measured: of its JSON, what the targets ask for.

use std::fmt;

use serde::Deserialize;

/// The output of a measurement.
#[derive(Debug, Deserialize)]
pub(crate) struct Measured {
    pub(crate) rows: Rows,
    pub(crate) machine: Machine,
}

/// Rows of one of the commands. Those of an evaluation of bonding name a case, those of MPI a figure.
#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "these are rows of none of `tsumugi compare`, `eval bonding` and `eval mpi`, or of an older version"
)]
pub(crate) enum Rows {
    Bonding(Vec<CaseRow>),
    Mpi(Vec<FigureRow>),
    Comparison(Vec<Row>),
}

/// Where it was measured.
#[derive(Debug, Deserialize)]
pub(crate) struct Machine {
    wire: String,
    cpu: String,
    load_average: f64,
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine { wire, cpu, load_average } = self;
        write!(f, "{wire}; {cpu}; load average {load_average:.1} before")
    }
}

/// A row of `tsumugi compare`.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Row {
    /// The test that it belongs to: `main`, `faults`, `overlap`, `idle`, `pairs`, …
    pub(crate) test: String,
    pub(crate) transport: String,
    pub(crate) send: Option<String>,
    pub(crate) receive: Option<String>,
    pub(crate) wait: Option<String>,
    pub(crate) metric: String,
    /// What was measured in each round.
    #[serde(default)]
    pub(crate) values: Vec<f64>,
    pub(crate) per_s: Option<f64>,
    pub(crate) repeat: Option<String>,
    pub(crate) faults: Option<String>,
    pub(crate) setting: Option<String>,
    /// `on` or `off`; absent over loopback, where there is nothing to switch off.
    pub(crate) offloads: Option<String>,
    pub(crate) mtu_bytes: Option<u32>,
}

impl Row {
    pub(crate) fn is_ours(&self) -> bool {
        self.transport == "tsumugi"
    }

    pub(crate) fn is_tcp(&self) -> bool {
        self.transport.starts_with("tcp-")
    }

    /// Whether it is Tsumugi with this send path, receive path and wait, and everything else as usual.
    pub(crate) fn is(&self, send_path: &str, receive_path: &str, wait: &str) -> bool {
        let is = |value: &Option<String>, wanted| value.as_deref() == Some(wanted);
        let others = [&self.repeat, &self.faults, &self.setting];
        self.is_ours()
            && is(&self.send, send_path)
            && is(&self.receive, receive_path)
            && is(&self.wait, wait)
            && others.iter().all(|other| other.is_none())
    }

    /// What all others are compared with.
    pub(crate) fn is_base(&self) -> bool {
        self.is("udp", "socket", "spin")
    }

    pub(crate) fn uses_xdp(&self) -> bool {
        self.is_ours() && self.receive.as_deref() == Some("xdp")
    }

    pub(crate) fn has_offloads(&self) -> bool {
        self.offloads.as_deref() != Some("off")
    }

    /// Median over the rounds.
    pub(crate) fn value(&self) -> Option<f64> {
        median(self.values.iter().copied())
    }
}

/// A row of `tsumugi eval bonding`.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct CaseRow {
    pub(crate) case: String,
    pub(crate) policy: String,
    pub(crate) simulated: bool,
    pub(crate) gbit_s: Option<f64>,
    pub(crate) cpu_ns_per_kib: Option<f64>,
    /// Absent where it never came about.
    pub(crate) even_after_s: Option<f64>,
}

/// A row of `tsumugi eval mpi`.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct FigureRow {
    /// `one_way`, `stream` or `barrier`.
    pub(crate) figure: String,
    pub(crate) size_bytes: u64,
    /// `tcp`, `tsumugi-socket` or `tsumugi-xdp`.
    pub(crate) over: String,
    /// Median of the ratios within rounds; absent with TCP itself.
    pub(crate) over_tcp: Option<f64>,
}

/// The median of the values that are finite; `None` of nothing.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        count if count % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: &str =
        r#""machine": {"wire": "loopback", "cpu": "A CPU", "load_average": 0.25, "cpus": 2}"#;

    fn read(rows: &str) -> Result<Measured, serde_json::Error> {
        serde_json::from_str(&format!(r#"{{"rows": {rows}, {MACHINE}, "costs": null}}"#))
    }

    #[test]
    fn all_outputs_are_read() {
        let row = r#"{"test": "main", "transport": "udp", "metric": "rate", "size_bytes": 8, "values": [2e6, 4e6]}"#;
        let measured = read(&format!("[{row}]")).expect("a comparison");
        assert_eq!(measured.machine.to_string(), "loopback; A CPU; load average 0.2 before");
        let Rows::Comparison(rows) = measured.rows else { panic!("{measured:?}") };
        assert_eq!(rows[0].value(), Some(3e6));
        let row = r#"{"case": "uneven", "policy": "tlb", "simulated": true, "gbit_s": 0.1, "transport": "tsumugi"}"#;
        let measured = read(&format!("[{row}]")).expect("an evaluation");
        assert!(matches!(measured.rows, Rows::Bonding(rows) if rows[0].gbit_s == Some(0.1)));
        let row = r#"{"figure": "one_way", "size_bytes": 8, "over": "tsumugi-socket", "value": 3e3, "over_tcp": 0.6}"#;
        let measured = read(&format!("[{row}]")).expect("an evaluation");
        assert!(matches!(measured.rows, Rows::Mpi(rows) if rows[0].over_tcp == Some(0.6)));
    }

    #[test]
    fn other_rows_are_refused() {
        let error = read(r#"[{"transport": "udp", "metric": "rate"}]"#).expect_err("a row of `perf`");
        assert!(error.to_string().contains("rows of none of `tsumugi compare`"), "{error}");
    }

    #[test]
    fn only_the_usual_is_the_base() {
        let text = |text: &str| Some(text.to_owned());
        let base = Row {
            transport: "tsumugi".into(),
            send: text("udp"),
            receive: text("socket"),
            wait: text("spin"),
            ..Row::default()
        };
        assert!(base.is_base() && base.is_ours() && !base.uses_xdp());
        for other in [
            Row { wait: text("adaptive"), ..base.clone() },
            Row { setting: text("in place"), ..base.clone() },
            Row { faults: text("loss=1%"), ..base.clone() },
            Row { repeat: text("go-back-n"), ..base.clone() },
            Row { send: text("packet"), ..base.clone() },
        ] {
            assert!(!other.is_base(), "{other:?}");
        }
    }

    #[test]
    fn medians() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), Some(2.0));
        assert_eq!(median([4.0, f64::INFINITY, 1.0].into_iter()), Some(2.5));
        assert_eq!(median(std::iter::empty()), None);
    }
}
