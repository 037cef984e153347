//! What plots and courses share: axes and lines as inline SVG, drawn by plotters in the colours of the page's style sheet.

use std::io;
use std::ops::Range;

use plotters::prelude::{
    ChartBuilder, Color, DrawingAreaErrorKind, IntoDrawingArea, IntoFont, LineSeries, PathElement, Polygon,
    RGBColor, SVGBackend, Text, TextStyle,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::html::escaped;
use super::marks::{Mark, dash_attribute};
use super::style::inks;
use super::ticks::Tick;

/// Plotters draws on whole units; so many of them are a pixel where a picture is as wide as in a narrow column.
const PIXEL: i32 = 10;
/// Size of a picture, in pixels: small, so that its text can still be read on a telephone.
const SIZE: (i32, i32) = (420, 270);
/// Size of its text, in pixels.
const TEXT: i32 = 14;
/// What plotters divides sizes of text by.
const TEXT_FACTOR: f64 = 1.24;
/// Most ticks of an axis, so that their labels keep apart.
pub(super) const X_TICKS_MAX: usize = 5;
pub(super) const Y_TICKS_MAX: usize = 8;

/// What plotters draws with for a name: the colours that the style sheet gives it change with the reader's theme.
fn placeholder(index: usize) -> RGBColor {
    RGBColor(0xfe, 0xed, index as u8)
}

/// The colour of a name of the style sheet.
fn ink(name: &str) -> RGBColor {
    let index = inks().position(|ink| ink == name);
    debug_assert!(index.is_some(), "the style sheet has no colour for '{name}'");
    placeholder(index.unwrap_or(0))
}

/// A line, in the units of the axes.
pub(super) struct Series {
    pub(super) mark: &'static Mark,
    pub(super) points: Vec<(f64, f64)>,
    /// Which of its points are marked.
    pub(super) marked: Vec<(f64, f64)>,
}

/// An axis: what is written beside it, and at which places.
pub(super) struct Axis {
    pub(super) label: String,
    pub(super) ticks: Vec<Tick>,
    pub(super) range: Range<f64>,
    pub(super) is_logarithmic: bool,
}

impl Axis {
    /// Where a value is, in units of the drawing.
    fn place(&self, value: f64) -> f64 {
        if self.is_logarithmic { value.ln() } else { value }
    }

    fn places(&self) -> Range<f64> {
        self.place(self.range.start)..self.place(self.range.end)
    }
}

/// Lines between two axes.
pub(super) struct Picture<'a> {
    /// What it shows, for who cannot see it.
    pub(super) title: &'a str,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) series: Vec<Series>,
}

impl Picture<'_> {
    /// The SVG element.
    pub(super) fn svg(&self) -> Option<String> {
        let mut svg = String::new();
        self.draw(&mut svg).ok()?;
        for (index, name) in inks().enumerate() {
            let drawn = format!("\"#FEED{index:02X}\"");
            // Only lines are broken up, and only they have their name's colour as that of a stroke.
            let dashes = self.series.iter().find(|series| series.mark.name == name);
            let dashes =
                dashes.map_or(String::new(), |series| dash_attribute(series.mark.dashes, PIXEL as u32));
            svg = svg.replace(&format!("stroke={drawn}"), &format!("stroke=\"var(--{name})\"{dashes}"));
            svg = svg.replace(&drawn, &format!("\"var(--{name})\""));
        }
        // As wide as its column, not as plotters says.
        let (_, inside) = svg.split_once("viewBox=")?;
        let title = escaped(self.title);
        Some(format!("<svg class=\"plot\" role=\"img\" aria-label=\"{title}\" viewBox={inside}"))
    }

    fn draw(&self, svg: &mut String) -> Result<(), DrawingAreaErrorKind<io::Error>> {
        let colour = ink("soft");
        let text = |across, down| -> TextStyle {
            let font = ("sans-serif", f64::from(TEXT * PIXEL) * TEXT_FACTOR).into_font();
            TextStyle::from(font).color(&colour).pos(Pos::new(across, down))
        };
        let size = ((SIZE.0 * PIXEL) as u32, (SIZE.1 * PIXEL) as u32);
        let area = SVGBackend::with_string(svg, size).into_drawing_area();
        let mut chart = ChartBuilder::on(&area)
            .margin_top(26 * PIXEL)
            .margin_right(24 * PIXEL)
            .x_label_area_size(46 * PIXEL)
            .y_label_area_size(74 * PIXEL)
            .build_cartesian_2d(self.x.places(), self.y.places())?;
        let (across, down) = chart.plotting_area().get_pixel_range();
        let rule = |name: &str| ink(name).stroke_width(PIXEL as u32);
        for Tick { value, label } in &self.y.ticks {
            let (_, y) = chart.backend_coord(&(self.x.places().start, self.y.place(*value)));
            area.draw(&PathElement::new([(across.start, y), (across.end, y)], rule("rule")))?;
            let at = (across.start - 8 * PIXEL, y);
            area.draw(&Text::new(label.as_str(), at, text(HPos::Right, VPos::Center)))?;
        }
        for Tick { value, label } in &self.x.ticks {
            let (x, _) = chart.backend_coord(&(self.x.place(*value), self.y.places().start));
            area.draw(&PathElement::new([(x, down.start), (x, down.end)], rule("rule")))?;
            let at = (x, down.end + 7 * PIXEL);
            area.draw(&Text::new(label.as_str(), at, text(HPos::Center, VPos::Top)))?;
        }
        let corner = [(across.start, down.start), (across.start, down.end), (across.end, down.end)];
        area.draw(&PathElement::new(corner, rule("soft")))?;
        let top = text(HPos::Left, VPos::Top);
        area.draw(&Text::new(self.y.label.as_str(), (2 * PIXEL, 3 * PIXEL), top))?;
        let below = (across.end, down.end + 27 * PIXEL);
        area.draw(&Text::new(self.x.label.as_str(), below, text(HPos::Right, VPos::Top)))?;

        let place = |(x, y): &(f64, f64)| (self.x.place(*x), self.y.place(*y));
        for Series { mark, points, .. } in &self.series {
            let width = if mark.stands_out() { 26 } else { 17 };
            let style = ink(mark.name).stroke_width(width * PIXEL as u32 / 10);
            chart.draw_series(LineSeries::new(points.iter().map(place), style))?;
        }
        for Series { mark, marked, .. } in &self.series {
            let polygons = mark.polygons(f64::from(5 * PIXEL));
            for point in marked {
                let (x, y) = chart.backend_coord(&place(point));
                for (corners, colour) in &polygons {
                    let corner = |(right, below): &(f64, f64)| (x + *right as i32, y + *below as i32);
                    let corners: Vec<_> = corners.iter().map(corner).collect();
                    area.draw(&Polygon::new(corners, ink(colour).filled()))?;
                }
            }
        }
        area.present()
    }
}

/// Corners of what is drawn in the colour of a name, of each element of a kind, in pixels: for tests.
#[cfg(test)]
pub(super) fn drawn(svg: &str, element: &str, name: &str) -> Vec<Vec<(f64, f64)>> {
    let element = format!("<{element}");
    let elements = svg.split(&element).skip(1);
    let of_name = elements.filter(|part| part.contains(&format!("var(--{name})")));
    let points = of_name.filter_map(|part| part.split_once("points=\"")?.1.split('"').next());
    let corner = |pair: &str| {
        let (x, y) = pair.split_once(',').expect("two numbers");
        let pixels = |text: &str| text.parse::<f64>().expect("a number") / f64::from(PIXEL);
        (pixels(x), pixels(y))
    };
    points.map(|points| points.split_whitespace().map(corner).collect()).collect()
}

#[cfg(test)]
pub(super) const AREA: (f64, f64) = (SIZE.0 as f64, SIZE.1 as f64);
