//! A line plot against message size, with logarithmic axes.

use super::html::Figure;
use super::marks::{legend, mark};
use super::quantity::Quantity;
use super::svg::{Axis, Picture, Series, X_TICKS_MAX, Y_TICKS_MAX};
use super::ticks;

/// One line of a plot.
pub(crate) struct Line {
    /// What the legend says.
    pub(crate) name: String,
    /// Name of its mark.
    pub(crate) class: &'static str,
    /// (size in bytes, value), by growing size; only positive ones are drawn.
    pub(crate) points: Vec<(f64, f64)>,
}

/// What is drawn.
pub(crate) struct Plot<'a> {
    pub(crate) title: &'a str,
    pub(crate) y_label: &'a str,
    pub(crate) quantity: Quantity,
    pub(crate) lines: Vec<Line>,
}

/// What has a place on a logarithmic axis. Near the ends of what floating point can hold, looking for ticks would not end.
fn is_shown(value: f64) -> bool {
    (1e-12..1e24).contains(&value)
}

impl Plot<'_> {
    /// The figure; `None` when no line has two points.
    pub(crate) fn figure(mut self) -> Option<Figure> {
        for line in &mut self.lines {
            line.points.retain(|point| is_shown(point.0) && is_shown(point.1));
        }
        if !self.lines.iter().any(|line| line.points.len() > 1) {
            return None;
        }
        self.lines.retain(|line| !line.points.is_empty());
        let range = |of: fn(&(f64, f64)) -> f64| {
            let values = self.lines.iter().flat_map(|line| &line.points).map(of);
            values.fold((f64::INFINITY, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)))
        };
        // Room on all sides, and never less than a factor of two.
        let (x_low, x_high) = range(|point| point.0);
        let (y_low, y_high) = range(|point| point.1);
        let (x_low, x_high) = (x_low / 1.2, (x_high * 1.2).max(x_low * 2.0));
        let (y_low, y_high) = (y_low / 1.3, (y_high * 1.3).max(y_low * 2.0));
        let series = self.lines.iter().map(|line| Series {
            mark: mark(line.class),
            points: line.points.clone(),
            marked: line.points.clone(),
        });
        let x_ticks = ticks::powers_of_two(x_low, x_high, X_TICKS_MAX);
        let y_ticks = ticks::decades(y_low, y_high, self.quantity, Y_TICKS_MAX);
        let x = Axis {
            label: "message size".to_owned(),
            ticks: x_ticks,
            range: x_low..x_high,
            is_logarithmic: true,
        };
        let y = Axis {
            label: self.y_label.to_owned(),
            ticks: y_ticks,
            range: y_low..y_high,
            is_logarithmic: true,
        };
        let svg = Picture { title: self.title, x, y, series: series.collect() }.svg()?;
        let legend = legend(self.lines.iter().map(|line| (line.name.as_str(), mark(line.class))));
        Some(Figure::new(self.title, svg + &legend))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::svg::{AREA, drawn};

    fn html(points: &[(f64, f64)]) -> Option<String> {
        let line = Line { name: "a < b".into(), class: "udp", points: points.to_vec() };
        let plot = Plot { title: "Round trip", y_label: "time", quantity: Quantity::Time, lines: vec![line] };
        plot.figure().map(Figure::html)
    }

    #[test]
    fn every_point_is_drawn_inside_the_picture() {
        let points = [(8.0, 4000.0), (64.0, 4100.0), (65536.0, 90000.0)];
        let html = html(&points).expect("a plot");
        let (picture, legend) = html.split_once("</svg>").expect("a picture");
        let marks = drawn(picture, "polygon", "udp");
        assert_eq!(marks.len(), points.len());
        for (x, y) in marks.iter().flatten() {
            assert!((0.0..=AREA.0).contains(x) && (0.0..=AREA.1).contains(y), "{x},{y}");
        }
        assert!(marks[0][0].0 < marks[1][0].0 && marks[0][0].1 > marks[2][0].1, "{marks:?}");
        assert!(
            picture.contains("stroke-dasharray=\"20 30\"") && legend.contains("stroke-dasharray=\"2 3\"")
        );
        assert!(legend.contains("a &lt; b") && !legend.contains("a < b"));
    }

    #[test]
    fn what_has_no_place_is_left_out() {
        let points = [(8.0, f64::NAN), (16.0, 0.0), (32.0, f64::INFINITY), (0.0, 1.0), (64.0, 2.0)];
        assert!(html(&points).is_none(), "a single point is no plot");
        let html_of_two = html(&[&points[..], &[(64.0, 2.0)]].concat()).expect("a plot");
        let (picture, _) = html_of_two.split_once("</svg>").expect("a picture");
        assert_eq!(drawn(picture, "polygon", "udp").len(), 2);
        assert!(html(&[(8.0, 1e-11), (16.0, 1e23)]).is_some());
        assert!(html(&[(8.0, f64::MIN_POSITIVE), (16.0, f64::MAX)]).is_none());
    }
}
