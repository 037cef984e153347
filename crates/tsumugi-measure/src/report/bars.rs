//! Groups of bars: each bar with its name before it and its value behind it, so that it takes neither legend nor axis.

use std::fmt::Write;

use super::html::{Figure, escaped};
use super::marks::mark;
use super::quantity::Quantity;

/// A bar: what it stands for, the name of its mark, and its value.
pub(crate) struct Bar {
    pub(crate) name: String,
    pub(crate) class: &'static str,
    pub(crate) value: f64,
}

/// Bars below each other.
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) bars: Vec<Bar>,
}

/// Groups of bars.
pub(crate) struct Bars<'a> {
    pub(crate) title: &'a str,
    /// What the bars measure.
    pub(crate) label: &'a str,
    pub(crate) quantity: Quantity,
    pub(crate) groups: Vec<Group>,
}

impl Bars<'_> {
    /// The figure; `None` when there is no bar.
    pub(crate) fn figure(&self) -> Option<Figure> {
        let is_bar = |bar: &&Bar| bar.value.is_finite() && bar.value >= 0.0;
        let all = self.groups.iter().flat_map(|group| &group.bars).filter(is_bar);
        let high = all.map(|bar| bar.value).reduce(f64::max)?;
        let mut html = format!("<p class=\"measured\">{}</p><table class=\"bars\">", escaped(self.label));
        for group in &self.groups {
            let _ = write!(html, "<tbody><tr><th colspan=\"3\">{}</th></tr>", escaped(&group.name));
            for Bar { name, class, value } in group.bars.iter().filter(is_bar) {
                let percent = if high > 0.0 { value / high * 100.0 } else { 0.0 };
                let (name, bar) = (escaped(name), mark(class).bar(percent));
                let value = escaped(&self.quantity.show(*value));
                let _ = write!(html, "<tr><td>{name}</td><td>{bar}</td><td>{value}</td></tr>");
            }
            html.push_str("</tbody>");
        }
        html.push_str("</table>");
        Some(Figure::new(self.title, html))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_values_and_say_them() {
        let bar = |name: &str, value| Bar { name: name.into(), class: "tlb", value };
        let groups = vec![
            Group { name: "a & b".into(), bars: vec![bar("one", 1.0), bar("two", 2.0), bar("no", f64::NAN)] },
            Group { name: "c".into(), bars: vec![bar("four", 4.0)] },
        ];
        let bars = Bars { title: "t", label: "y", quantity: Quantity::Bandwidth, groups };
        let html = bars.figure().expect("bars").html();
        let inks = html.split("<rect width=\"").skip(1).filter(|part| part.contains("var(--tlb)"));
        let lengths: Vec<&str> = inks.filter_map(|part| part.split('"').next()).collect();
        assert_eq!(lengths, ["25.0%", "50.0%", "100.0%"]);
        assert!(html.contains("a &amp; b") && !html.contains("a & b") && !html.contains("NaN"));
        assert!(html.contains("<td>four</td>") && html.contains("<td>4.00 Gb/s</td>"), "{html}");
    }

    #[test]
    fn nothing_is_no_picture() {
        let bars = Bars { title: "", label: "", quantity: Quantity::Bandwidth, groups: Vec::new() };
        assert!(bars.figure().is_none());
    }
}
