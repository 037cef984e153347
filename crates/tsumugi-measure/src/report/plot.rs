//! A line plot with logarithmic axes as inline SVG.

use plotters::prelude::{BindKeyPoints, IntoLogRange};

use super::svg::{Picture, Series, Shape, stroke};
use crate::sizes;

/// One line of a plot.
pub(crate) struct Line {
    /// What the legend says.
    pub(crate) name: String,
    /// Class of the line, which gives it its colour.
    pub(crate) class: &'static str,
    /// (size in bytes, value), by growing size; only positive ones are drawn.
    pub(crate) points: Vec<(f64, f64)>,
}

/// What is drawn.
pub(crate) struct Plot<'a> {
    pub(crate) title: &'a str,
    pub(crate) y_label: &'a str,
    /// How a value is written on the axis.
    pub(crate) show: fn(f64) -> String,
    pub(crate) lines: Vec<Line>,
}

const SIZE: (u32, u32) = (880, 440);

/// What has a place on a logarithmic axis. Near the ends of what floating point can hold, looking for ticks would not end.
fn is_shown(value: f64) -> bool {
    (1e-12..1e24).contains(&value)
}

impl Plot<'_> {
    /// The SVG element; `None` when no line has two points.
    pub(crate) fn svg(mut self) -> Option<String> {
        for line in &mut self.lines {
            line.points.retain(|point| is_shown(point.0) && is_shown(point.1));
        }
        if !self.lines.iter().any(|line| line.points.len() > 1) {
            return None;
        }
        let range = |of: fn(&(f64, f64)) -> f64| {
            let values = self.lines.iter().flat_map(|line| &line.points).map(of);
            values.fold((f64::INFINITY, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)))
        };
        // Room on all sides, and never less than a factor of two.
        let (x_low, x_high) = range(|point| point.0);
        let (y_low, y_high) = range(|point| point.1);
        let x = (x_low / 1.2..(x_high * 1.2).max(x_low * 2.0)).log_scale().base(2.0);
        let (y_low, y_high) = (y_low / 1.3, (y_high * 1.3).max(y_low * 2.0));
        let y = (y_low..y_high).log_scale().with_key_points(decades(y_low, y_high));
        let series = self.lines.iter().map(|line| Series {
            name: &line.name,
            style: stroke(line.class),
            shape: Shape::Dotted(line.points.clone()),
        });
        let picture = Picture {
            size: SIZE,
            title: self.title,
            x_label: "message size",
            y_label: self.y_label,
            show_x: &|&size| sizes::show(size as u64),
            show_y: self.show,
            series: series.collect(),
        };
        picture.svg(x, y)
    }
}

/// 1, 2 and 5 of every decade in the range; only 1 when that would be too many.
fn decades(low: f64, high: f64) -> Vec<f64> {
    let steps: &[f64] = if high / low > 300.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let first = low.log10().floor() as i32;
    let last = high.log10().ceil() as i32;
    (first..=last)
        .flat_map(|exponent| steps.iter().map(move |step| step * 10_f64.powi(exponent)))
        .filter(|&value| value >= low && value <= high)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::units;

    fn svg(points: &[(f64, f64)]) -> Option<String> {
        let line = Line { name: "a < b".into(), class: "udp", points: points.to_vec() };
        Plot { title: "Round trip", y_label: "time", show: units::time, lines: vec![line] }.svg()
    }

    #[test]
    fn every_point_is_drawn_inside_the_picture() {
        let points = [(8.0, 4000.0), (64.0, 4100.0), (65536.0, 90000.0)];
        let svg = svg(&points).expect("a plot");
        assert_eq!(svg.matches("<circle").count(), points.len());
        for part in svg.split("cy=\"").skip(1) {
            let height: u32 = part.split('"').next().and_then(|text| text.parse().ok()).expect("a number");
            assert!((0..=SIZE.1).contains(&height));
        }
        assert!(svg.contains("a &lt; b") && !svg.contains("a < b"));
    }

    #[test]
    fn what_has_no_place_is_left_out() {
        let points = [(8.0, f64::NAN), (16.0, 0.0), (32.0, f64::INFINITY), (0.0, 1.0), (64.0, 2.0)];
        assert!(svg(&points).is_none(), "a single point is no plot");
        assert_eq!(
            svg(&[&points[..], &[(64.0, 2.0)]].concat()).expect("a plot").matches("<circle").count(),
            2
        );
        assert!(svg(&[(8.0, 1e-11), (16.0, 1e23)]).is_some());
        assert!(svg(&[(8.0, f64::MIN_POSITIVE), (16.0, f64::MAX)]).is_none());
    }

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(decades(3.0, 60.0), [5.0, 10.0, 20.0, 50.0]);
        assert_eq!(decades(0.09, 40.0), [0.1, 1.0, 10.0]);
    }
}
