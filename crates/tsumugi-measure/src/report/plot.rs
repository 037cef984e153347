//! A line plot with logarithmic axes as inline SVG. Colours come from the page's style sheet, by class.

use std::fmt::Write;

use super::page::escaped;
use super::svg::{Axis, Frame, Key, Scale, Tick, plain};
use crate::sizes;

/// One line of a plot.
pub(crate) struct Line {
    /// What the legend says.
    pub(crate) name: String,
    /// Class of the line, which gives it its colour.
    pub(crate) class: &'static str,
    /// (size in bytes, value), by growing size; all positive.
    pub(crate) points: Vec<(f64, f64)>,
}

/// What is drawn.
pub(crate) struct Plot<'a> {
    pub(crate) title: &'a str,
    pub(crate) y_label: &'a str,
    /// How a value is written, on the axis and beside a point.
    pub(crate) show: fn(f64) -> String,
    pub(crate) lines: Vec<Line>,
}

const FRAME: Frame = Frame::new(720.0, 440.0);

impl Plot<'_> {
    /// The SVG element; `None` when no line has two points.
    pub(crate) fn svg(&self) -> Option<String> {
        if !self.lines.iter().any(|line| line.points.len() > 1) {
            return None;
        }
        let all = || self.lines.iter().flat_map(|line| &line.points);
        let range = |of: fn(&(f64, f64)) -> f64| {
            all()
                .map(of)
                .fold((f64::INFINITY, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)))
        };
        let (x_low, x_high) = range(|point| point.0);
        let (y_low, y_high) = range(|point| point.1);
        let scale = Scale::Logarithmic;
        let keys: Vec<Key<'_>> =
            self.lines.iter().map(|line| Key { name: &line.name, class: line.class }).collect();
        let frame = FRAME.with_legend(&keys);
        let x = Axis { scale, low: x_low, high: x_high, from: frame.left + 14.0, to: frame.right - 14.0 };
        // Room above and below, and never less than a factor of two.
        let high = (y_high * 1.3).max(y_low * 2.0);
        let y = Axis { scale, low: y_low / 1.3, high, from: frame.bottom, to: frame.top };
        let mut svg = frame.begin(self.title);
        self.grid(&mut svg, &frame, &x, &y);
        for line in &self.lines {
            draw(&mut svg, line, &x, &y, self.show);
        }
        frame.legend(&mut svg, &keys);
        svg.push_str("</svg>");
        Some(svg)
    }

    fn grid(&self, svg: &mut String, frame: &Frame, x: &Axis, y: &Axis) {
        let row = |value| Tick { at: y.at(value), text: plain(&(self.show)(value)) };
        let column = |value| Tick { at: x.at(value), text: sizes::show(value as u64) };
        frame.rows(svg, &decades(y.low, y.high).into_iter().map(row).collect::<Vec<_>>());
        frame.columns(svg, &powers(x.low, x.high).into_iter().map(column).collect::<Vec<_>>());
        frame.labels(svg, "message size", self.y_label);
    }
}

fn draw(svg: &mut String, line: &Line, x: &Axis, y: &Axis, show: fn(f64) -> String) {
    let points: Vec<String> =
        line.points.iter().map(|&(size, value)| format!("{:.1},{:.1}", x.at(size), y.at(value))).collect();
    let _ =
        write!(svg, "<g class=\"{}\"><polyline class=\"line\" points=\"{}\"/>", line.class, points.join(" "));
    for &(size, value) in &line.points {
        let _ = write!(
            svg,
            "<circle class=\"dot\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.5\"><title>{}, {}: {}</title></circle>",
            x.at(size),
            y.at(value),
            escaped(&line.name),
            sizes::show(size as u64),
            escaped(&show(value))
        );
    }
    svg.push_str("</g>");
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

/// Powers of two in the range, thinned out to at most ten.
fn powers(low: f64, high: f64) -> Vec<f64> {
    let first = low.log2().ceil() as i32;
    let last = high.log2().floor() as i32;
    let step = ((last - first + 8) / 9).max(1) as usize;
    (first..=last).step_by(step).map(|exponent| 2_f64.powi(exponent)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::units;

    fn line(points: &[(f64, f64)]) -> Line {
        Line { name: "a < b".into(), class: "udp", points: points.to_vec() }
    }

    #[test]
    fn every_point_is_drawn_inside_the_picture() {
        let points = [(8.0, 4000.0), (64.0, 4100.0), (65536.0, 90000.0)];
        let plot =
            Plot { title: "Round trip", y_label: "time", show: units::time, lines: vec![line(&points)] };
        let svg = plot.svg().expect("a plot");
        assert_eq!(svg.matches("<circle").count(), points.len() + 1, "and one in the legend");
        for part in svg.split("cy=\"").skip(1) {
            let height: f64 = part.split('"').next().and_then(|text| text.parse().ok()).expect("a number");
            assert!((0.0..=FRAME.height).contains(&height));
        }
        assert!(svg.contains("a &lt; b") && !svg.contains("a < b"));
    }

    #[test]
    fn a_single_point_is_no_plot() {
        let plot = Plot { title: "", y_label: "", show: units::time, lines: vec![line(&[(8.0, 1.0)])] };
        assert!(plot.svg().is_none());
    }

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(decades(3.0, 60.0), [5.0, 10.0, 20.0, 50.0]);
        assert_eq!(decades(0.09, 40.0), [0.1, 1.0, 10.0]);
        assert_eq!(powers(8.0, 64.0), [8.0, 16.0, 32.0, 64.0]);
        assert!(powers(8.0, 4194304.0).len() <= 10);
    }
}
