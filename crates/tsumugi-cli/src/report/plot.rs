//! A line plot with logarithmic axes as inline SVG. Colours come from the page's style sheet, by class.

use std::fmt::Write;

use super::html::escaped;
use crate::measure::sizes;

/// One line of a plot.
pub(super) struct Line {
    /// What the legend says.
    pub(super) name: String,
    /// Class of the line, which gives it its colour.
    pub(super) class: &'static str,
    /// (size in bytes, value), by growing size; all positive.
    pub(super) points: Vec<(f64, f64)>,
}

/// What is drawn.
pub(super) struct Plot<'a> {
    pub(super) title: &'a str,
    pub(super) y_label: &'a str,
    /// How a value is written, on the axis and beside a point.
    pub(super) show: fn(f64) -> String,
    pub(super) lines: Vec<Line>,
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 440.0;
const LEFT: f64 = 86.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 62.0;
const BOTTOM: f64 = 52.0;

/// A logarithmic axis from a value range to a pixel range.
struct Axis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Axis {
    fn at(&self, value: f64) -> f64 {
        let share = (value.ln() - self.low.ln()) / (self.high.ln() - self.low.ln());
        self.from + share * (self.to - self.from)
    }
}

impl Plot<'_> {
    /// The SVG element; `None` when no line has two points.
    pub(super) fn svg(&self) -> Option<String> {
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
        let x = Axis { low: x_low, high: x_high, from: LEFT + 14.0, to: WIDTH - RIGHT - 14.0 };
        // Room above and below, and never less than a factor of two.
        let y =
            Axis { low: y_low / 1.3, high: (y_high * 1.3).max(y_low * 2.0), from: HEIGHT - BOTTOM, to: TOP };
        let mut svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" xmlns=\"http://www.w3.org/2000/svg\">\
             <title>{title}</title><text class=\"plot-title\" x=\"{LEFT}\" y=\"20\">{title}</text>",
            title = escaped(self.title)
        );
        self.grid(&mut svg, &x, &y);
        for line in &self.lines {
            draw(&mut svg, line, &x, &y, self.show);
        }
        self.legend(&mut svg);
        svg.push_str("</svg>");
        Some(svg)
    }

    fn grid(&self, svg: &mut String, x: &Axis, y: &Axis) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for value in decades(y.low, y.high) {
            let height = y.at(value);
            let _ = write!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{height:.1}\" y2=\"{height:.1}\"/>\
                 <text class=\"tick\" text-anchor=\"end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                LEFT - 8.0,
                height + 4.0,
                escaped(&plain(&(self.show)(value)))
            );
        }
        for value in powers(x.low, x.high) {
            let across = x.at(value);
            let _ = write!(
                svg,
                "<line class=\"grid\" x1=\"{across:.1}\" x2=\"{across:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>\
                 <text class=\"tick\" text-anchor=\"middle\" x=\"{across:.1}\" y=\"{:.1}\">{}</text>",
                bottom + 18.0,
                sizes::show(value as u64)
            );
        }
        let _ = write!(
            svg,
            "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{bottom}\" y2=\"{bottom}\"/>\
             <text class=\"label\" text-anchor=\"middle\" x=\"{:.1}\" y=\"{:.1}\">message size</text>\
             <text class=\"label\" text-anchor=\"middle\" transform=\"rotate(-90 14 {middle:.1})\" x=\"14\" \
             y=\"{middle:.1}\">{}</text>",
            (LEFT + right) / 2.0,
            HEIGHT - 10.0,
            escaped(self.y_label),
            middle = (TOP + bottom) / 2.0,
        );
    }

    fn legend(&self, svg: &mut String) {
        let mut across = LEFT;
        for line in &self.lines {
            let _ = write!(
                svg,
                "<g class=\"{}\"><line class=\"line\" x1=\"{across:.1}\" x2=\"{:.1}\" y1=\"40\" y2=\"40\"/>\
                 <circle class=\"dot\" cx=\"{:.1}\" cy=\"40\" r=\"3.5\"/></g>\
                 <text class=\"legend\" x=\"{:.1}\" y=\"44\">{}</text>",
                line.class,
                across + 24.0,
                across + 12.0,
                across + 30.0,
                escaped(&line.name)
            );
            // Text has no measurable width here; 7 units a letter is generous at this size.
            across += 50.0 + 7.0 * line.name.chars().count() as f64;
        }
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

/// `10.0 µs` as an axis says it: `10 µs`.
fn plain(figure: &str) -> String {
    match figure.split_once(' ') {
        Some((number, unit)) if number.contains('.') => {
            format!("{} {unit}", number.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => figure.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::units;

    fn line(points: &[(f64, f64)]) -> Line {
        Line { name: "a < b".into(), class: "udp", points: points.to_vec() }
    }

    #[test]
    fn larger_values_are_higher_and_further_right() {
        let x = Axis { low: 8.0, high: 1024.0, from: 0.0, to: 100.0 };
        assert_eq!(x.at(8.0), 0.0);
        assert_eq!(x.at(1024.0), 100.0);
        assert!(x.at(64.0) > 40.0 && x.at(64.0) < 45.0);
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
            assert!((0.0..=HEIGHT).contains(&height));
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
        assert_eq!(plain("10.0 µs"), "10 µs");
        assert_eq!(plain("500 ns"), "500 ns");
    }
}
