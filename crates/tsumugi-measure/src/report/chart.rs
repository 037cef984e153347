//! Charts with linear axes as inline SVG: groups of bars, and lines over time.

use plotters::prelude::{BindKeyPoints, Color};

use super::svg::{self, Picture, Shape, ink, stroke};

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
    /// How a value is written on the axis.
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

const BARS: (u32, u32) = (960, 420);
const COURSE: (u32, u32) = (640, 320);

/// What a group is wide on its axis, and how much of it bars take.
const GROUP: i32 = 1000;
const FILLED: i32 = 820;

/// A vertical axis from 0 to a little more than the largest value.
fn upwards(values: impl Iterator<Item = f64>) -> std::ops::Range<f64> {
    let high = values.filter(|value| value.is_finite()).fold(0.0_f64, f64::max);
    0.0..if high > 0.0 { high * 1.08 } else { 1.0 }
}

impl Bars<'_> {
    fn bars(&self) -> impl Iterator<Item = &Bar> {
        self.groups.iter().flat_map(|group| &group.bars)
    }

    /// The SVG element; `None` when there is no bar.
    pub(crate) fn svg(&self) -> Option<String> {
        let mut keys: Vec<&Bar> = Vec::new();
        for bar in self.bars() {
            if keys.iter().all(|key| key.name != bar.name) {
                keys.push(bar);
            }
        }
        if keys.is_empty() {
            return None;
        }
        let end = GROUP * self.groups.len() as i32;
        let x = (0..end).with_key_points((GROUP / 2..end).step_by(GROUP as usize).collect());
        let series = keys.into_iter().map(|Bar { name, class, .. }| {
            let bars = (0..).zip(&self.groups).flat_map(|(number, group)| {
                let each = FILLED / group.bars.len() as i32;
                let left = GROUP * number + (GROUP - FILLED) / 2;
                let bars =
                    (0..).zip(&group.bars).filter(|(_, bar)| bar.name == *name && bar.value.is_finite());
                bars.map(move |(number, bar)| {
                    let left = left + each * number;
                    [(left, 0.0), (left + each * 9 / 10, bar.value)]
                })
            });
            svg::Series {
                name,
                style: ink(class).filled().stroke_width(10),
                shape: Shape::Bars(bars.collect()),
            }
        });
        let picture = Picture {
            size: BARS,
            title: self.title,
            x_label: self.x_label,
            y_label: self.y_label,
            show_x: &|centre| self.groups[(centre / GROUP) as usize].name.clone(),
            show_y: self.show,
            series: series.collect(),
        };
        picture.svg(x, upwards(self.bars().map(|bar| bar.value)))
    }
}

impl Course<'_> {
    /// The SVG element; `None` when no line has two points.
    pub(crate) fn svg(&self) -> Option<String> {
        if !self.series.iter().any(|series| series.values.len() > 1) {
            return None;
        }
        let seconds = |series: &Series| series.interval_s * series.values.len() as f64;
        let seconds = self.series.iter().map(seconds).fold(0.0, f64::max);
        let values = self.series.iter().flat_map(|series| series.values.iter().copied());
        let lines = self.series.iter().map(|Series { name, class, interval_s, values }| {
            // What happened in an interval is drawn at its middle.
            let points = values.iter().enumerate();
            let points = points.map(|(number, value)| ((number as f64 + 0.5) * interval_s, *value));
            let points = points.filter(|point| point.1.is_finite()).collect();
            svg::Series { name, style: stroke(class), shape: Shape::Line(points) }
        });
        let levels = self.levels.iter().map(|Level { name, class, value }| svg::Series {
            name,
            style: stroke(class),
            shape: Shape::Line(vec![(0.0, *value), (seconds, *value)]),
        });
        let picture = Picture {
            size: COURSE,
            title: self.title,
            x_label: "time, s",
            y_label: self.y_label,
            show_x: &|seconds: &f64| ((seconds * 1e3).round() / 1e3).to_string(),
            show_y: self.show,
            series: lines.chain(levels).collect(),
        };
        picture.svg(0.0..seconds, upwards(values.chain(self.levels.iter().map(|level| level.value))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::units;

    /// What the bars have in an attribute.
    fn numbers(svg: &str, attribute: &str) -> Vec<f64> {
        let bars = svg.split("<rect").skip(1).filter(|part| part.contains("fill=\"var("));
        bars.filter_map(|part| part.split_once(attribute)?.1.split('"').next()?.parse().ok()).collect()
    }

    #[test]
    fn bars_are_as_high_as_their_values_and_beside_each_other() {
        let bar = |name: &str, value| Bar { name: name.into(), class: "tlb", value };
        let groups = vec![
            Group { name: "a & b".into(), bars: vec![bar("one", 1.0), bar("two", 2.0), bar("no", f64::NAN)] },
            Group { name: "c".into(), bars: vec![bar("two", 4.0)] },
        ];
        let bars = Bars { title: "t", x_label: "x", y_label: "y", show: units::bandwidth, groups };
        let svg = bars.svg().expect("bars");
        let heights = numbers(&svg, " height=\"");
        assert_eq!(heights.len(), 3);
        assert!((heights[1] / heights[0] - 2.0).abs() < 0.05 && (heights[2] / heights[0] - 4.0).abs() < 0.05);
        let (left, width) = (numbers(&svg, " x=\""), numbers(&svg, " width=\""));
        assert!(left[0] + width[0] < left[1] && left[1] + width[1] < left[2], "{left:?} {width:?}");
        assert!(svg.contains("a &amp; b") && !svg.contains("a & b"));
        assert_eq!(svg.matches(">\ntwo\n<").count(), 1, "each name is in the legend once");
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
        let values = vec![0.0, 0.05, 0.09, f64::NAN, f64::INFINITY];
        let series = Series { name: "A".into(), class: "adaptive", interval_s: 0.1, values };
        let level = Level { name: "P2".into(), class: "paper-rr", value: 0.188 };
        let course = Course {
            title: "t",
            y_label: "y",
            show: units::bandwidth,
            series: vec![series],
            levels: vec![level],
        };
        let svg = course.svg().expect("a course");
        let line = svg.split("<polyline").find(|part| part.contains("var(--adaptive)")).expect("a line");
        let points =
            line.split_once("points=\"").and_then(|(_, rest)| rest.split('"').next()).expect("points");
        assert_eq!(points.split_whitespace().count(), 3);
        for point in points.split_whitespace() {
            let (x, y) = point.split_once(',').expect("two numbers");
            let (x, y): (u32, u32) = (x.parse().expect("x"), y.parse().expect("y"));
            assert!(x > 84 && x < COURSE.0 && y > 0 && y <= COURSE.1, "{point}");
        }
    }
}
