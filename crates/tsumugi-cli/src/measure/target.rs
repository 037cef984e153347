//! A promise of the project's, beside what was measured.

use serde::Serialize;

use super::row::rounded;
use crate::report::units;

/// Which side of the limit is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Limit {
    AtLeast,
    AtMost,
}

/// How a figure is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unit {
    Ratio,
    PerSecond,
    Seconds,
    Share,
}

/// One promise.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Target {
    /// What is promised, in words.
    pub(crate) name: &'static str,
    pub(crate) limit: Limit,
    pub(crate) wanted: f64,
    pub(crate) unit: Unit,
    /// Median over the rounds; absent when it was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) measured: Option<f64>,
    /// Absent when it was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) met: Option<bool>,
}

/// The headings of [`Target::cells`].
pub(crate) const HEADER: [&str; 4] = ["target", "wanted", "measured", ""];

impl Target {
    /// Compares what was measured, if it was, with what is wanted.
    pub(crate) fn judged(
        name: &'static str,
        limit: Limit,
        wanted: f64,
        unit: Unit,
        measured: Option<f64>,
    ) -> Target {
        let met = measured.map(|measured| match limit {
            Limit::AtLeast => measured >= wanted,
            Limit::AtMost => measured <= wanted,
        });
        // What never came about is infinite, which JSON cannot say.
        Target { name, limit, wanted, unit, measured: measured.filter(|it| it.is_finite()).map(rounded), met }
    }

    /// Its cells in a table: name, wanted, measured, verdict.
    pub(crate) fn cells(&self) -> Vec<String> {
        let show = |value: f64| match self.unit {
            Unit::Ratio => format!("{} ×", units::three_digits(value)),
            Unit::PerSecond => units::rate(value),
            Unit::Seconds => format!("{} s", units::three_digits(value)),
            Unit::Share => format!("{:.2} %", value * 100.0),
        };
        let sign = match self.limit {
            Limit::AtLeast => '≥',
            Limit::AtMost => '≤',
        };
        let verdict = match self.met {
            Some(true) => "met",
            Some(false) => "NOT MET",
            None => "not measured",
        };
        let nothing = if self.met.is_some() { "never" } else { "–" };
        vec![
            self.name.to_owned(),
            format!("{sign} {}", show(self.wanted)),
            self.measured.map_or(nothing.to_owned(), show),
            verdict.to_owned(),
        ]
    }

    /// The class that gives its row in a report the colour of the verdict.
    pub(crate) fn class(&self) -> &'static str {
        match self.met {
            Some(true) => "met",
            Some(false) => "missed",
            None => "unknown",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_says_what_was_wanted() {
        let target = |measured| Target::judged("speed", Limit::AtLeast, 2e6, Unit::PerSecond, measured);
        assert_eq!(target(Some(1.5e6)).cells(), ["speed", "≥ 2.00 M/s", "1.50 M/s", "NOT MET"]);
        assert_eq!(target(Some(2e6)).cells()[3], "met");
        assert_eq!(target(None).cells()[2..], ["–", "not measured"]);
    }

    #[test]
    fn what_never_came_about_is_missed() {
        let target = Target::judged("even", Limit::AtMost, 1.0, Unit::Seconds, Some(f64::INFINITY));
        assert_eq!(target.cells(), ["even", "≤ 1.00 s", "never", "NOT MET"]);
        assert!(!serde_json::to_string(&target).expect("JSON").contains("null"));
    }
}
