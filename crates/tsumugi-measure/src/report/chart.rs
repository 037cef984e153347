//! Charts with linear axes as inline SVG: groups of bars, and lines over time.

use std::fmt::Write;

use super::page::escaped;
use super::svg::{Axis, Frame, Key, Scale, Tick, plain, steps};

/// A bar: what it stands for, the class that gives it its colour, and its value.
pub(crate) struct Bar {
    pub(crate) name: String,
    pub(crate) class: &'static str,
    pub(crate) value: f64,
}

/// Bars beside each other.
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) bars: Vec<Bar>,
}

/// Groups of bars.
pub(crate) struct Bars<'a> {
    pub(crate) title: &'a str,
    pub(crate) x_label: &'a str,
    pub(crate) y_label: &'a str,
    /// How a value is written.
    pub(crate) show: fn(f64) -> String,
    pub(crate) groups: Vec<Group>,
}

/// A line over time; its points are so many seconds after another.
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) class: &'static str,
    pub(crate) interval_s: f64,
    pub(crate) values: Vec<f64>,
}

/// A level that somebody else reached, drawn across.
pub(crate) struct Level {
    pub(crate) name: String,
    pub(crate) class: &'static str,
    pub(crate) value: f64,
}

/// Lines over time.
pub(crate) struct Course<'a> {
    pub(crate) title: &'a str,
    pub(crate) y_label: &'a str,
    pub(crate) show: fn(f64) -> String,
    pub(crate) series: Vec<Series>,
    pub(crate) levels: Vec<Level>,
}

const BARS: Frame = Frame::new(960.0, 420.0);
const COURSE: Frame = Frame::new(480.0, 320.0);

/// Share of a group's width that stays free between it and the next.
const GAP: f64 = 0.18;

/// A vertical axis from 0 to a little more than the largest value.
fn upwards(frame: &Frame, values: impl Iterator<Item = f64>) -> Axis {
    let high = values.filter(|value| value.is_finite()).fold(0.0_f64, f64::max);
    let high = if high > 0.0 { high * 1.08 } else { 1.0 };
    Axis { scale: Scale::Linear, low: 0.0, high, from: frame.bottom, to: frame.top }
}

fn ticks(axis: &Axis, show: fn(f64) -> String) -> Vec<Tick> {
    let tick = |value| Tick { at: axis.at(value), text: plain(&show(value)) };
    steps(axis.high).into_iter().map(tick).collect()
}

impl Bars<'_> {
    /// The SVG element; `None` when there is no bar.
    pub(crate) fn svg(&self) -> Option<String> {
        let mut keys: Vec<Key<'_>> = Vec::new();
        for bar in self.groups.iter().flat_map(|group| &group.bars) {
            if keys.iter().all(|key| key.name != bar.name) {
                keys.push(Key { name: &bar.name, class: bar.class });
            }
        }
        if keys.is_empty() {
            return None;
        }
        let frame = BARS.with_legend(&keys);
        let y = upwards(&frame, self.groups.iter().flat_map(|group| &group.bars).map(|bar| bar.value));
        let mut svg = frame.begin(self.title);
        frame.rows(&mut svg, &ticks(&y, self.show));
        let width = (frame.right - frame.left) / self.groups.len() as f64;
        let mut names = Vec::new();
        for (number, group) in self.groups.iter().enumerate() {
            let from = frame.left + width * number as f64;
            draw_group(&mut svg, group, (from, width), &y, self.show);
            names.push(Tick { at: from + width / 2.0, text: group.name.clone() });
        }
        frame.names(&mut svg, &names);
        frame.labels(&mut svg, self.x_label, self.y_label);
        frame.legend(&mut svg, &keys);
        svg.push_str("</svg>");
        Some(svg)
    }
}

fn draw_group(svg: &mut String, group: &Group, (from, width): (f64, f64), y: &Axis, show: fn(f64) -> String) {
    let each = width * (1.0 - GAP) / group.bars.len() as f64;
    for (number, bar) in group.bars.iter().enumerate() {
        let top = y.at(bar.value);
        let _ = write!(
            svg,
            "<g class=\"{}\"><rect class=\"bar\" x=\"{:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\">\
             <title>{}, {}: {}</title></rect></g>",
            bar.class,
            from + width * GAP / 2.0 + each * number as f64,
            each * 0.9,
            (y.from - top).max(0.0),
            escaped(&group.name),
            escaped(&bar.name),
            escaped(&show(bar.value)),
        );
    }
}

impl Course<'_> {
    /// The SVG element; `None` when no line has two points.
    pub(crate) fn svg(&self) -> Option<String> {
        let seconds = |series: &Series| series.interval_s * series.values.len() as f64;
        let longest = self.series.iter().map(seconds).fold(0.0, f64::max);
        if !self.series.iter().any(|series| series.values.len() > 1) {
            return None;
        }
        let keys: Vec<Key<'_>> = self
            .series
            .iter()
            .map(|series| Key { name: &series.name, class: series.class })
            .chain(self.levels.iter().map(|level| Key { name: &level.name, class: level.class }))
            .collect();
        let frame = COURSE.with_legend(&keys);
        let values = self.series.iter().flat_map(|series| series.values.iter().copied());
        let y = upwards(&frame, values.chain(self.levels.iter().map(|level| level.value)));
        let x = Axis { scale: Scale::Linear, low: 0.0, high: longest, from: frame.left, to: frame.right };
        let mut svg = frame.begin(self.title);
        frame.rows(&mut svg, &ticks(&y, self.show));
        frame.columns(&mut svg, &ticks(&x, |seconds| seconds.to_string()));
        frame.labels(&mut svg, "time, s", self.y_label);
        for Level { name, class, value } in &self.levels {
            let _ = write!(
                svg,
                "<g class=\"{class}\"><line class=\"line level\" x1=\"{}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\">\
                 <title>{}: {}</title></line></g>",
                frame.left,
                frame.right,
                escaped(name),
                escaped(&(self.show)(*value)),
                at = y.at(*value),
            );
        }
        for series in &self.series {
            draw_series(&mut svg, series, &x, &y);
        }
        frame.legend(&mut svg, &keys);
        svg.push_str("</svg>");
        Some(svg)
    }
}

/// What happened in an interval is drawn at its middle.
fn draw_series(svg: &mut String, series: &Series, x: &Axis, y: &Axis) {
    let at = |number: usize| x.at((number as f64 + 0.5) * series.interval_s);
    let points = series.values.iter().enumerate();
    let points: Vec<String> =
        points.map(|(number, value)| format!("{:.1},{:.1}", at(number), y.at(*value))).collect();
    let _ = write!(
        svg,
        "<g class=\"{}\"><polyline class=\"line\" points=\"{}\"><title>{}</title></polyline></g>",
        series.class,
        points.join(" "),
        escaped(&series.name)
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::units;

    fn numbers<'a>(svg: &'a str, attribute: &'a str) -> Vec<f64> {
        let parts = svg.split("class=\"bar\"").skip(1);
        let value = |part: &str| part.split_once(attribute)?.1.split('"').next()?.parse().ok();
        parts.filter_map(value).collect()
    }

    #[test]
    fn bars_are_as_high_as_their_values_and_beside_each_other() {
        let bar = |name: &str, value| Bar { name: name.into(), class: "tlb", value };
        let groups = vec![
            Group { name: "a & b".into(), bars: vec![bar("one", 1.0), bar("two", 2.0)] },
            Group { name: "c".into(), bars: vec![bar("one", 4.0)] },
        ];
        let bars = Bars { title: "t", x_label: "x", y_label: "y", show: units::bandwidth, groups };
        let svg = bars.svg().expect("bars");
        let heights = numbers(&svg, " height=\"");
        assert_eq!(heights.len(), 3);
        assert!((heights[1] / heights[0] - 2.0).abs() < 0.01 && (heights[2] / heights[0] - 4.0).abs() < 0.01);
        let (left, width) = (numbers(&svg, " x=\""), numbers(&svg, " width=\""));
        assert!(left[0] + width[0] < left[1] && left[1] + width[1] < left[2], "{left:?} {width:?}");
        assert!(svg.contains("a &amp; b") && !svg.contains("a & b"));
        assert_eq!(svg.matches("<circle").count(), 2, "one for each name in the legend");
    }

    #[test]
    fn nothing_is_no_picture() {
        let bars = Bars { title: "", x_label: "", y_label: "", show: units::bandwidth, groups: Vec::new() };
        assert!(bars.svg().is_none());
        let course =
            Course { title: "", y_label: "", show: units::bandwidth, series: Vec::new(), levels: Vec::new() };
        assert!(course.svg().is_none());
    }

    #[test]
    fn a_course_is_drawn_inside_its_frame() {
        let series =
            Series { name: "A".into(), class: "flow-a", interval_s: 0.1, values: vec![0.0, 0.05, 0.09] };
        let level = Level { name: "P2".into(), class: "paper-rr", value: 0.188 };
        let course = Course {
            title: "t",
            y_label: "y",
            show: units::bandwidth,
            series: vec![series],
            levels: vec![level],
        };
        let svg = course.svg().expect("a course");
        let points =
            svg.split_once("points=\"").and_then(|(_, rest)| rest.split('"').next()).expect("points");
        assert_eq!(points.split(' ').count(), 3);
        for point in points.split(' ') {
            let (x, y) = point.split_once(',').expect("two numbers");
            let (x, y): (f64, f64) = (x.parse().expect("x"), y.parse().expect("y"));
            assert!(x > COURSE.left && x < COURSE.right && y > COURSE.top && y <= COURSE.bottom, "{point}");
        }
    }
}
