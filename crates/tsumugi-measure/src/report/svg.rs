//! What plots and charts share: axes, ticks, grid and legend, as inline SVG. Colours come from the page's style sheet,
//! by class.

use std::fmt::Write;

use super::page::escaped;

/// How values are laid out on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    Linear,
    /// Values must be positive.
    Logarithmic,
}

/// An axis from a value range to a pixel range.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    pub(super) scale: Scale,
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) from: f64,
    pub(super) to: f64,
}

impl Axis {
    /// The pixel of a value.
    pub(super) fn at(&self, value: f64) -> f64 {
        let on = |value: f64| match self.scale {
            Scale::Linear => value,
            Scale::Logarithmic => value.ln(),
        };
        let share = (on(value) - on(self.low)) / (on(self.high) - on(self.low));
        self.from + share * (self.to - self.from)
    }
}

/// A place on an axis, in pixels, and what is written there.
pub(super) struct Tick {
    pub(super) at: f64,
    pub(super) text: String,
}

/// What the legend says, and the class that gives it its colour.
pub(super) struct Key<'a> {
    pub(super) name: &'a str,
    pub(super) class: &'a str,
}

/// The picture's size and the area inside of its axes, in pixels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
}

/// Height of a line of the legend, pixels.
const LEGEND_LINE: f64 = 22.0;

impl Frame {
    /// A picture with the margins that titles, ticks and labels need, and one line of legend.
    pub(super) const fn new(width: f64, height: f64) -> Frame {
        Frame { width, height, left: 92.0, right: width - 16.0, top: 62.0, bottom: height - 52.0 }
    }

    /// The same with room for the lines that the legend takes.
    pub(super) fn with_legend(mut self, keys: &[Key<'_>]) -> Frame {
        let lines = self.places(keys).last().map_or(1.0, |(_, line)| line + 1.0);
        self.top += (lines - 1.0) * LEGEND_LINE;
        self
    }

    /// The element's beginning, with the title.
    pub(super) fn begin(&self, title: &str) -> String {
        let Frame { width, height, left, .. } = self;
        let title = escaped(title);
        format!(
            "<svg viewBox=\"0 0 {width} {height}\" role=\"img\" xmlns=\"http://www.w3.org/2000/svg\">\
             <title>{title}</title><text class=\"plot-title\" x=\"{left}\" y=\"20\">{title}</text>"
        )
    }

    /// A line and a figure at each tick of the vertical axis.
    pub(super) fn rows(&self, svg: &mut String, ticks: &[Tick]) {
        let Frame { left, right, .. } = self;
        for Tick { at, text } in ticks {
            let _ = write!(
                svg,
                "<line class=\"grid\" x1=\"{left}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
                 <text class=\"tick\" text-anchor=\"end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                left - 8.0,
                at + 4.0,
                escaped(text)
            );
        }
    }

    /// A line at each tick of the horizontal axis.
    pub(super) fn columns(&self, svg: &mut String, ticks: &[Tick]) {
        let Frame { top, bottom, .. } = self;
        for Tick { at, .. } in ticks {
            let _ = write!(
                svg,
                "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{top}\" y2=\"{bottom}\"/>"
            );
        }
        self.names(svg, ticks);
    }

    /// What is written below the horizontal axis.
    pub(super) fn names(&self, svg: &mut String, ticks: &[Tick]) {
        for Tick { at, text } in ticks {
            let _ = write!(
                svg,
                "<text class=\"tick\" text-anchor=\"middle\" x=\"{at:.1}\" y=\"{:.1}\">{}</text>",
                self.bottom + 18.0,
                escaped(text)
            );
        }
    }

    /// The horizontal axis, and what both are called.
    pub(super) fn labels(&self, svg: &mut String, x_label: &str, y_label: &str) {
        let Frame { left, right, top, bottom, .. } = self;
        let _ = write!(
            svg,
            "<line class=\"axis\" x1=\"{left}\" x2=\"{right}\" y1=\"{bottom}\" y2=\"{bottom}\"/>\
             <text class=\"label\" text-anchor=\"middle\" x=\"{:.1}\" y=\"{:.1}\">{}</text>\
             <text class=\"label\" text-anchor=\"middle\" transform=\"rotate(-90 14 {middle:.1})\" x=\"14\" \
             y=\"{middle:.1}\">{}</text>",
            (left + right) / 2.0,
            self.height - 10.0,
            escaped(x_label),
            escaped(y_label),
            middle = (top + bottom) / 2.0,
        );
    }

    /// Where each entry of the legend begins, and on which line.
    fn places(&self, keys: &[Key<'_>]) -> Vec<(f64, f64)> {
        let (mut across, mut line) = (self.left, 0.0);
        let mut places = Vec::with_capacity(keys.len());
        for key in keys {
            // Text has no measurable width here; 7 units a letter is generous at this size.
            let width = 50.0 + 7.0 * key.name.chars().count() as f64;
            if across > self.left && across + width > self.width {
                (across, line) = (self.left, line + 1.0);
            }
            places.push((across, line));
            across += width;
        }
        places
    }

    /// The legend, between title and picture.
    pub(super) fn legend(&self, svg: &mut String, keys: &[Key<'_>]) {
        for (Key { name, class }, (across, line)) in keys.iter().zip(self.places(keys)) {
            let height = 40.0 + line * LEGEND_LINE;
            let _ = write!(
                svg,
                "<g class=\"{class}\"><line class=\"line\" x1=\"{across:.1}\" x2=\"{:.1}\" y1=\"{height}\" y2=\"{height}\"/>\
                 <circle class=\"dot\" cx=\"{:.1}\" cy=\"{height}\" r=\"3.5\"/></g>\
                 <text class=\"legend\" x=\"{:.1}\" y=\"{}\">{}</text>",
                across + 24.0,
                across + 12.0,
                across + 30.0,
                height + 4.0,
                escaped(name)
            );
        }
    }
}

/// Multiples of a round step from 0 to `high`, some five of them.
pub(super) fn steps(high: f64) -> Vec<f64> {
    if high.is_nan() || high <= 0.0 {
        return vec![0.0];
    }
    let decade = 10_f64.powf((high / 5.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|step| step * decade).into_iter().find(|step| high / step <= 6.0);
    let step = step.unwrap_or(10.0 * decade);
    (0..=(high / step).floor() as u32).map(|count| f64::from(count) * step).collect()
}

/// `10.0 µs` as an axis says it: `10 µs`.
pub(super) fn plain(figure: &str) -> String {
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
    fn larger_values_are_further_along() {
        let axis = Axis { scale: Scale::Logarithmic, low: 8.0, high: 1024.0, from: 0.0, to: 100.0 };
        assert_eq!((axis.at(8.0), axis.at(1024.0)), (0.0, 100.0));
        assert!(axis.at(64.0) > 40.0 && axis.at(64.0) < 45.0);
        let axis = Axis { scale: Scale::Linear, low: 0.0, high: 10.0, from: 100.0, to: 0.0 };
        assert_eq!([0.0, 2.5, 10.0].map(|value| axis.at(value)), [100.0, 75.0, 0.0]);
    }

    #[test]
    fn steps_are_round_and_few() {
        assert_eq!(steps(100.0), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(steps(0.42), [0.0, 0.1, 0.2, 0.30000000000000004, 0.4]);
        assert_eq!(steps(0.0), [0.0]);
        for high in [1.0, 3.0, 7.0, 22.0, 377.0, 4000.0] {
            assert!((4..=7).contains(&steps(high).len()), "{high}: {:?}", steps(high));
        }
        assert_eq!(plain("10.0 µs"), "10 µs");
        assert_eq!(plain("500 ns"), "500 ns");
    }

    #[test]
    fn a_long_legend_takes_more_lines() {
        let frame = Frame::new(300.0, 200.0);
        let key = Key { name: "round-robin", class: "round-robin" };
        let one = frame.with_legend(&[Key { ..key }]);
        let four = frame.with_legend(&[Key { ..key }, Key { ..key }, Key { ..key }, Key { ..key }]);
        assert_eq!((one.top, four.top), (frame.top, frame.top + 3.0 * LEGEND_LINE));
    }
}
