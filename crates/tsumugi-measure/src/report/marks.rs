//! How what is compared can be told apart, with colour and without: the shape of its points, the dashes of its line and the
//! hatching of its bars. Colours are in the style sheet, under the same names.

use std::f64::consts::TAU;
use std::fmt::Write;

use super::html::escaped;

/// Corners of a polygon.
type Corners = Vec<(f64, f64)>;

/// The shape of points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Circle,
    Square,
    Up,
    Down,
    Diamond,
    Cross,
    Plus,
    Star,
}

/// The mark of a name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// What it is called, and its colour in the style sheet.
    pub(crate) name: &'static str,
    shape: Shape,
    /// Whether only the edge of its points has the colour.
    is_hollow: bool,
    /// Lengths of strokes and gaps; nothing for an unbroken line.
    pub(super) dashes: &'static [u32],
    /// The number of its [hatching](patterns); 0 for an even surface.
    hatching: usize,
}

const UNBROKEN: &[u32] = &[];
const DASHED: &[u32] = &[8, 4];
const DOTTED: &[u32] = &[2, 3];
const LONG: &[u32] = &[14, 4];
const DASH_DOT: &[u32] = &[8, 3, 2, 3];

const fn full(name: &'static str, shape: Shape, dashes: &'static [u32], hatching: usize) -> Mark {
    Mark { name, shape, is_hollow: false, dashes, hatching }
}

const fn hollow(name: &'static str, shape: Shape, dashes: &'static [u32], hatching: usize) -> Mark {
    Mark { name, shape, is_hollow: true, dashes, hatching }
}

/// All marks. Of the names on a page no two have the same.
const MARKS: [Mark; 33] = [
    // Comparisons.
    full("ours", Shape::Circle, UNBROKEN, 0),
    full("ours-packet", Shape::Square, LONG, 1),
    full("ours-udp-xdp", Shape::Up, DASHED, 2),
    full("ours-packet-xdp", Shape::Down, DASH_DOT, 3),
    full("ours-xsk-xdp", Shape::Diamond, DOTTED, 4),
    full("ours-busy-poll", Shape::Star, LONG, 5),
    hollow("udp", Shape::Circle, DOTTED, 6),
    hollow("tcp-spin", Shape::Square, DASHED, 7),
    full("tcp-block", Shape::Cross, UNBROKEN, 8),
    hollow("raw-xdp", Shape::Up, DASH_DOT, 9),
    hollow("raw-xdp-generic", Shape::Down, DOTTED, 1),
    hollow("raw-write", Shape::Diamond, LONG, 2),
    full("raw-write-generic", Shape::Plus, DASHED, 3),
    // Policies and bonds.
    full("adaptive", Shape::Circle, UNBROKEN, 0),
    full("round-robin", Shape::Square, DASHED, 1),
    full("tlb", Shape::Up, DASH_DOT, 2),
    full("active-backup", Shape::Down, LONG, 3),
    full("hash", Shape::Diamond, DOTTED, 4),
    full("broadcast", Shape::Star, DASHED, 5),
    hollow("kernel-rr", Shape::Square, LONG, 6),
    hollow("kernel-tlb", Shape::Up, DOTTED, 7),
    full("paper-rr", Shape::Cross, DASHED, 8),
    full("paper-tlb", Shape::Plus, DOTTED, 9),
    // Flows of one endpoint.
    full("flow-a", Shape::Circle, UNBROKEN, 0),
    hollow("flow-b", Shape::Square, DASHED, 1),
    full("flow-c", Shape::Up, DOTTED, 2),
    hollow("flow-d", Shape::Diamond, DASH_DOT, 3),
    // What carries the messages of an MPI; bare UDP is above.
    hollow("tcp", Shape::Square, DASHED, 1),
    hollow("ucx", Shape::Up, DASH_DOT, 2),
    full("socket", Shape::Circle, UNBROKEN, 0),
    full("xdp", Shape::Diamond, LONG, 3),
    hollow("udp-xdp", Shape::Down, LONG, 7),
    full("paper", Shape::Cross, DASHED, 8),
];

/// The mark of a name.
///
/// # Panics
/// There is none: [`MARKS`] lacks it.
pub(crate) fn mark(name: &str) -> &'static Mark {
    MARKS.iter().find(|mark| mark.name == name).unwrap_or_else(|| panic!("no mark is called '{name}'"))
}

impl Mark {
    /// Whether it stands for what the reader is looking for.
    pub(super) fn stands_out(&self) -> bool {
        matches!(self.name, "ours" | "adaptive" | "socket" | "xdp")
    }

    /// Whether it stands for Tsumugi as such.
    pub(super) fn is_ours(&self) -> bool {
        self.name.starts_with("ours") || self.name == "adaptive"
    }

    /// What its points are made of, around their middle: polygons, and the name of the colour that fills each.
    pub(super) fn polygons(&self, radius: f64) -> Vec<(Corners, &'static str)> {
        let of =
            |radius: f64| self.shape.corners().into_iter().map(|(x, y)| (x * radius, y * radius)).collect();
        let mut polygons = vec![(of(radius), self.name)];
        if self.is_hollow {
            polygons.push((of(radius * 0.5), "card"));
        }
        polygons
    }

    /// A stroke of its line with one of its points, as a small picture for the legend of lines.
    pub(super) fn line_key(&self) -> String {
        let Mark { name, dashes, .. } = self;
        let width = if self.stands_out() { 2.5 } else { 1.8 };
        let dashes = dash_attribute(dashes, 1);
        format!(
            "<svg class=\"key\" width=\"38\" height=\"14\" aria-hidden=\"true\"><path d=\"M1 7H37\" \
             stroke=\"var(--{name})\" stroke-width=\"{width}\"{dashes}/>{}</svg>",
            self.point((19.0, 7.0))
        )
    }

    /// One of its points, as a small picture for the rows of tables.
    pub(super) fn point_key(&self) -> String {
        format!(
            "<svg class=\"key\" width=\"14\" height=\"14\" aria-hidden=\"true\">{}</svg>",
            self.point((7.0, 7.0))
        )
    }

    fn point(&self, (x, y): (f64, f64)) -> String {
        let polygon = |(corners, ink): (Corners, &str)| {
            let corners: Vec<String> =
                corners.iter().map(|(across, down)| format!("{:.1},{:.1}", x + across, y + down)).collect();
            format!("<polygon fill=\"var(--{ink})\" points=\"{}\"/>", corners.join(" "))
        };
        self.polygons(5.5).into_iter().map(polygon).collect()
    }

    /// A bar of this length, which is a percentage of what it may have.
    pub(super) fn bar(&self, percent: f64) -> String {
        let surface = |fill: &str| format!("<rect width=\"{percent:.1}%\" height=\"100%\" fill=\"{fill}\"/>");
        let hatching = if self.hatching == 0 {
            String::new()
        } else {
            surface(&format!("url(#hatching-{})", self.hatching))
        };
        let ink = surface(&format!("var(--{})", self.name));
        format!("<svg class=\"bar\" aria-hidden=\"true\">{ink}{hatching}</svg>")
    }
}

impl Shape {
    /// Corners on, or within, a circle of radius 1.
    fn corners(self) -> Corners {
        // So many corners, from this share of a turn on; every second one this far from the middle.
        let around = |count: u32, from: f64, every_second: f64| -> Corners {
            let corner = |number: u32| {
                let angle = TAU * (from + f64::from(number) / f64::from(count));
                let radius = if number % 2 == 1 { every_second } else { 1.0 };
                (radius * angle.cos(), radius * angle.sin())
            };
            (0..count).map(corner).collect()
        };
        let arms = [
            (-0.3, -1.0),
            (0.3, -1.0),
            (0.3, -0.3),
            (1.0, -0.3),
            (1.0, 0.3),
            (0.3, 0.3),
            (0.3, 1.0),
            (-0.3, 1.0),
            (-0.3, 0.3),
            (-1.0, 0.3),
            (-1.0, -0.3),
            (-0.3, -0.3),
        ];
        match self {
            Shape::Circle => around(16, 0.0, 1.0).into_iter().map(|(x, y)| (x * 0.85, y * 0.85)).collect(),
            Shape::Square => around(4, 0.125, 1.0),
            Shape::Up => around(3, -0.25, 1.0),
            Shape::Down => around(3, 0.25, 1.0),
            Shape::Diamond => around(4, 0.0, 1.0),
            Shape::Plus => arms.to_vec(),
            Shape::Cross => arms.iter().map(|(x, y)| ((x - y) * 0.75, (x + y) * 0.75)).collect(),
            Shape::Star => around(10, -0.25, 0.45),
        }
    }
}

/// The attribute that breaks a line up; nothing for an unbroken one. Lengths are in units of `unit`.
pub(super) fn dash_attribute(dashes: &[u32], unit: u32) -> String {
    if dashes.is_empty() {
        return String::new();
    }
    let lengths: Vec<String> = dashes.iter().map(|length| (length * unit).to_string()).collect();
    format!(" stroke-dasharray=\"{}\"", lengths.join(" "))
}

/// A legend: each name with the mark of its line.
pub(super) fn legend<'a>(names: impl Iterator<Item = (&'a str, &'static Mark)>) -> String {
    let items: String =
        names.map(|(name, mark)| format!("<li>{}{}</li>", mark.line_key(), escaped(name))).collect();
    format!("<ul class=\"legend\">{items}</ul>")
}

/// The hatchings of bars, which a page holds once: lines in the colour of the ground, over a bar in its own.
pub(super) fn patterns() -> String {
    // Width and height of a tile, and what is drawn in it.
    const TILES: [(u32, u32, &str); 9] = [
        (7, 7, "M-2 2L2 -2M-1 8L8 -1M5 9L9 5"),
        (7, 7, "M5 -2L9 2M-1 -1L8 8M-2 5L2 9"),
        (8, 8, "M0 0L8 8M8 0L0 8"),
        (5, 5, "M2.5 0V5"),
        (5, 5, "M0 2.5H5"),
        (6, 6, "M3 0V6M0 3H6"),
        (12, 12, "M-3 3L3 -3M-1 13L13 -1M9 15L15 9"),
        (12, 12, "M9 -3L15 3M-1 -1L13 13M-3 9L3 15"),
        (10, 10, "M5 0V10"),
    ];
    let mut defined =
        "<svg class=\"patterns\" width=\"0\" height=\"0\" aria-hidden=\"true\"><defs>".to_owned();
    for (number, (width, height, path)) in (1..).zip(TILES) {
        let _ = write!(
            defined,
            "<pattern id=\"hatching-{number}\" width=\"{width}\" height=\"{height}\" \
             patternUnits=\"userSpaceOnUse\"><path d=\"{path}\" stroke=\"var(--card)\" stroke-width=\"1.6\" \
             fill=\"none\"/></pattern>"
        );
    }
    defined + "</defs></svg>"
}

/// Panics if two of these names have points of the same shape, or bars of the same hatching.
#[cfg(test)]
pub(crate) fn assert_told_apart(names: &[&'static str]) {
    let marks: Vec<&Mark> = names.iter().map(|name| mark(name)).collect();
    for (number, mark) in marks.iter().enumerate() {
        for other in &marks[..number] {
            let are_alike = (other.shape, other.is_hollow) == (mark.shape, mark.is_hollow);
            assert!(!are_alike, "{} looks like {}", mark.name, other.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::style::inks;

    #[test]
    fn every_mark_has_a_colour_and_a_hatching() {
        let patterns = patterns();
        for Mark { name, hatching, .. } in &MARKS {
            assert!(inks().any(|ink| ink == *name), "{name}");
            assert!(*hatching == 0 || patterns.contains(&format!("\"hatching-{hatching}\"")), "{name}");
            assert_eq!(mark(name).name, *name);
        }
    }

    #[test]
    fn points_stay_within_their_radius() {
        for mark in &MARKS {
            let corners: Vec<(f64, f64)> =
                mark.polygons(4.0).into_iter().flat_map(|(corners, _)| corners).collect();
            assert!(
                corners.len() > 2 && corners.iter().all(|(x, y)| x.hypot(*y) < 4.7),
                "{mark:?}: {corners:?}"
            );
        }
    }
}
