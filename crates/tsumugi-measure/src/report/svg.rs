//! What plots and charts share: a picture as inline SVG, drawn by plotters in the colours of the page's style sheet.

use std::io;

use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::{
    ChartBuilder, Color, DrawingAreaErrorKind, FontStyle, IntoDrawingArea, IntoFont, IntoTextStyle,
    LineSeries, PathElement, RGBColor, Rectangle, SVGBackend, ShapeStyle, Text,
};

use super::style::inks;

/// What plotters draws with for a name: the colours that the style sheet gives it change with the reader's theme.
fn placeholder(index: usize) -> RGBColor {
    RGBColor(0xfe, 0xed, index as u8)
}

/// The colour of a class, which is named by the first of its words.
pub(super) fn ink(class: &str) -> RGBColor {
    let name = class.split(' ').next();
    let index = inks().position(|ink| Some(ink) == name);
    debug_assert!(index.is_some(), "the style sheet has no colour for '{class}'");
    placeholder(index.unwrap_or(0))
}

/// A line in the colour of its class. Tsumugi's stand out.
pub(super) fn stroke(class: &str) -> ShapeStyle {
    let is_ours = class.starts_with("ours") || class == "adaptive";
    ink(class).filled().stroke_width(if is_ours { 3 } else { 2 })
}

/// Something to be drawn, with places and values in the axes' units, and what the legend calls it.
pub(super) struct Series<'a, T> {
    pub(super) name: &'a str,
    pub(super) style: ShapeStyle,
    pub(super) shape: Shape<T>,
}

pub(super) enum Shape<T> {
    Line(Vec<(T, f64)>),
    /// With a dot at each point.
    Dotted(Vec<(T, f64)>),
    /// Two corners of each.
    Bars(Vec<[(T, f64); 2]>),
}

/// A picture, and what is written around it.
pub(super) struct Picture<'a, T> {
    pub(super) size: (u32, u32),
    pub(super) title: &'a str,
    pub(super) x_label: &'a str,
    pub(super) y_label: &'a str,
    pub(super) show_x: &'a dyn Fn(&T) -> String,
    pub(super) show_y: fn(f64) -> String,
    pub(super) series: Vec<Series<'a, T>>,
}

impl<T: Clone + 'static> Picture<'_, T> {
    /// The SVG element.
    pub(super) fn svg<X, Y>(&self, x: X, y: Y) -> Option<String>
    where
        X: AsRangedCoord<CoordDescType: Ranged<ValueType = T> + ValueFormatter<T>>,
        Y: AsRangedCoord<CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>>,
    {
        let mut svg = String::new();
        self.draw(&mut svg, x, y).ok()?;
        for (index, name) in inks().enumerate() {
            svg = svg.replace(&format!("\"#FEED{index:02X}\""), &format!("\"var(--{name})\""));
        }
        Some(svg)
    }

    fn draw<X, Y>(&self, svg: &mut String, x: X, y: Y) -> Result<(), DrawingAreaErrorKind<io::Error>>
    where
        X: AsRangedCoord<CoordDescType: Ranged<ValueType = T> + ValueFormatter<T>>,
        Y: AsRangedCoord<CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>>,
    {
        let text = |class| ("sans-serif", 16).into_font().color(&ink(class));
        let legend_chars = self.series.iter().map(|series| series.name.chars().count()).max();
        let area = SVGBackend::with_string(svg, self.size).into_drawing_area();
        let mut chart = ChartBuilder::on(&area)
            .caption(self.title, ("sans-serif", 20, FontStyle::Bold).with_color(ink("text")))
            .margin(8)
            .margin_right(45 + 7 * legend_chars.unwrap_or(0) as i32)
            .x_label_area_size(44)
            .y_label_area_size(84)
            .build_cartesian_2d(x, y)?;
        chart
            .configure_mesh()
            .max_light_lines(0)
            .y_labels(8)
            .bold_line_style(ink("rule"))
            .axis_style(ink("soft"))
            .label_style(text("soft"))
            .x_desc(self.x_label)
            .y_desc(self.y_label)
            .x_label_formatter(self.show_x)
            .y_label_formatter(&|value| plain(&(self.show_y)(*value)))
            .draw()?;
        for Series { style, shape, .. } in &self.series {
            let style = *style;
            let line = |points: &[_], dot| LineSeries::new(points.to_vec(), style).point_size(dot);
            match shape {
                Shape::Line(points) => chart.draw_series(line(points, 0))?,
                Shape::Dotted(points) => chart.draw_series(line(points, 3))?,
                Shape::Bars(bars) => {
                    chart.draw_series(bars.iter().map(|bar| Rectangle::new(bar.clone(), style)))?
                }
            };
        }
        // The legend of plotters is inside of the axes, where it would lie over lines and bars.
        let (across, down) = chart.plotting_area().get_pixel_range();
        for (line, series) in (0..).zip(&self.series) {
            let (x, y) = (across.end + 10, down.start + 12 + 22 * line);
            area.draw(&PathElement::new([(x, y), (x + 20, y)], series.style))?;
            area.draw(&Text::new(series.name, (x + 28, y - 8), text("text")))?;
        }
        area.present()
    }
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

    #[test]
    fn a_class_has_the_colour_of_its_first_word() {
        assert_eq!(ink("raw-xdp generic"), ink("raw-xdp"));
    }

    #[test]
    fn an_axis_has_no_idle_zeros() {
        assert_eq!([plain("10.0 µs"), plain("500 ns")], ["10 µs", "500 ns"]);
    }
}
