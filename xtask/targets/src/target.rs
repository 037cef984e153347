//! A target, beside what was measured.

/// Which side of the limit is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    AtLeast,
    AtMost,
}

/// How a figure is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Ratio,
    PerSecond,
    Seconds,
    Share,
}

/// One target.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Target {
    /// What is wanted, in words.
    pub(crate) name: &'static str,
    pub(crate) limit: Limit,
    pub(crate) wanted: f64,
    pub(crate) unit: Unit,
    /// Median over the rounds. Absent when it was not measured; infinite when it never came about.
    pub(crate) measured: Option<f64>,
}

impl Target {
    /// Absent when it was not measured.
    pub(crate) fn met(&self) -> Option<bool> {
        self.measured.map(|measured| match self.limit {
            Limit::AtLeast => measured >= self.wanted,
            Limit::AtMost => measured <= self.wanted,
        })
    }

    /// Name, wanted, measured, verdict.
    pub(crate) fn cells(&self) -> [String; 4] {
        let sign = match self.limit {
            Limit::AtLeast => '≥',
            Limit::AtMost => '≤',
        };
        let measured = match self.measured {
            None => "–".to_owned(),
            Some(measured) if measured.is_infinite() => "never".to_owned(),
            Some(measured) => self.unit.show(measured),
        };
        let verdict = match self.met() {
            Some(true) => "met",
            Some(false) => "NOT MET",
            None => "not measured",
        };
        [
            self.name.to_owned(),
            format!("{sign} {}", self.unit.show(self.wanted)),
            measured,
            verdict.to_owned(),
        ]
    }
}

impl Unit {
    fn show(self, value: f64) -> String {
        match self {
            Unit::Ratio => format!("{value:.2} ×"),
            Unit::PerSecond if value >= 999.5e3 => format!("{:.2} M/s", value / 1e6),
            Unit::PerSecond => format!("{:.1} k/s", value / 1e3),
            Unit::Seconds => format!("{value:.2} s"),
            Unit::Share => format!("{:.2} %", value * 100.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_says_what_was_wanted() {
        let cells = |measured| {
            let (limit, unit) = (Limit::AtLeast, Unit::PerSecond);
            Target { name: "speed", limit, wanted: 2e6, unit, measured }.cells()
        };
        assert_eq!(cells(Some(1.5e6)), ["speed", "≥ 2.00 M/s", "1.50 M/s", "NOT MET"]);
        assert_eq!(cells(Some(2e6))[3], "met");
        assert_eq!(cells(None)[2..], ["–", "not measured"]);
    }

    #[test]
    fn what_never_came_about_is_missed() {
        let (limit, unit, measured) = (Limit::AtMost, Unit::Seconds, Some(f64::INFINITY));
        let target = Target { name: "even", limit, wanted: 1.0, unit, measured };
        assert_eq!(target.cells(), ["even", "≤ 1.00 s", "never", "NOT MET"]);
    }
}
