//! Lines over time, with linear axes.

use super::html::Figure;
use super::marks::{legend, mark};
use super::quantity::{Quantity, Unit};
use super::svg::{self, Axis, Picture, X_TICKS_MAX, Y_TICKS_MAX};
use super::ticks;

/// A line over time; its points are so many seconds after another.
pub(crate) struct Series {
    pub(crate) name: String,
    /// Name of its mark.
    pub(crate) class: &'static str,
    pub(crate) interval_s: f64,
    pub(crate) values: Vec<f64>,
}

/// A level that somebody else reached, drawn across.
pub(crate) struct Level {
    pub(crate) name: String,
    /// Name of its mark.
    pub(crate) class: &'static str,
    pub(crate) value: f64,
}

/// Lines over time.
pub(crate) struct Course<'a> {
    pub(crate) title: &'a str,
    pub(crate) y_label: &'a str,
    pub(crate) quantity: Quantity,
    pub(crate) series: Vec<Series>,
    pub(crate) levels: Vec<Level>,
}

/// Seconds.
const TIME: Unit = Unit { name: "s", exponent: 0 };
/// So many points of a line are marked; more would hide it.
const MARKED: usize = 8;

impl Course<'_> {
    /// The figure; `None` when no line has two points.
    pub(crate) fn figure(&self) -> Option<Figure> {
        if !self.series.iter().any(|series| series.values.len() > 1) {
            return None;
        }
        let seconds = |series: &Series| series.interval_s * series.values.len() as f64;
        let seconds = self.series.iter().map(seconds).fold(0.0, f64::max);
        let values = self.series.iter().flat_map(|series| series.values.iter().copied());
        let all = values.chain(self.levels.iter().map(|level| level.value));
        let high = all.filter(|value| value.is_finite()).fold(0.0_f64, f64::max);
        let high = if high > 0.0 { high * 1.08 } else { 1.0 };
        let lines = self.series.iter().enumerate().map(|(number, series)| {
            // What happened in an interval is drawn at its middle.
            let points = series.values.iter().enumerate();
            let points = points.map(|(at, value)| ((at as f64 + 0.5) * series.interval_s, *value));
            let points: Vec<(f64, f64)> = points.filter(|point| point.1.is_finite()).collect();
            // Marks of lines that lie upon each other are at different places.
            let every = points.len().div_ceil(MARKED).max(1);
            let first = every * number / self.series.len();
            let marked = points.iter().skip(first).step_by(every).copied().collect();
            svg::Series { mark: mark(series.class), points, marked }
        });
        let levels = self.levels.iter().map(|level| {
            let points = vec![(0.0, level.value), (seconds, level.value)];
            svg::Series { mark: mark(level.class), marked: points.clone(), points }
        });
        let unit = self.quantity.unit(high);
        let y_label = match unit.name {
            "" => self.y_label.to_owned(),
            name => format!("{}, {name}", self.y_label),
        };
        let x = Axis {
            label: "time, s".to_owned(),
            ticks: ticks::linear(0.0, seconds, TIME, X_TICKS_MAX),
            range: 0.0..seconds,
            is_logarithmic: false,
        };
        let y = Axis {
            label: y_label,
            ticks: ticks::linear(0.0, high, unit, Y_TICKS_MAX),
            range: 0.0..high,
            is_logarithmic: false,
        };
        let svg = Picture { title: self.title, x, y, series: lines.chain(levels).collect() }.svg()?;
        let lines = self.series.iter().map(|series| (series.name.as_str(), mark(series.class)));
        let levels = self.levels.iter().map(|level| (level.name.as_str(), mark(level.class)));
        Some(Figure::new(self.title, svg + &legend(lines.chain(levels))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::svg::{AREA, drawn};

    #[test]
    fn nothing_is_no_picture() {
        let (series, levels) = (Vec::new(), Vec::new());
        let course = Course { title: "", y_label: "", quantity: Quantity::Bandwidth, series, levels };
        assert!(course.figure().is_none());
    }

    #[test]
    fn a_course_is_drawn_inside_its_frame() {
        let values = vec![0.0, 0.05, 0.09, f64::NAN, f64::INFINITY];
        let series = Series { name: "A".into(), class: "adaptive", interval_s: 0.1, values };
        let level = Level { name: "P2".into(), class: "paper-rr", value: 0.188 };
        let course = Course {
            title: "t",
            y_label: "throughput",
            quantity: Quantity::Bandwidth,
            series: vec![series],
            levels: vec![level],
        };
        let html = course.figure().expect("a course").html();
        let lines = drawn(&html, "polyline", "adaptive");
        assert_eq!(lines[0].len(), 3);
        for (x, y) in &lines[0] {
            assert!((60.0..AREA.0).contains(x) && (0.0..=AREA.1).contains(y), "{x},{y}");
        }
        assert!(
            html.contains("throughput, Mb/s") && html.contains("\n0.2\n") && html.contains("\n150\n"),
            "{html}"
        );
    }
}
