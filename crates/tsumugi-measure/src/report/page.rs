//! A report: one HTML file that loads nothing from anywhere, also well-formed XML. All reports have this layout.

use std::fmt::Write;

use serde::Serialize;

use super::columns::is_words;
use super::html::{Figure, escaped, kept_together, paragraphs};
use super::marks;
use super::style::STYLE;
use crate::conditions::Conditions;
use crate::machine::Machine;

/// What stands above the summary of every report.
pub(crate) const SUMMARY: &str = "What Tsumugi gives on this machine";

/// A report.
pub(crate) struct Page<'a, T> {
    pub(crate) title: &'a str,
    /// When it was measured, and on what.
    pub(crate) subtitle: String,
    /// What the figures say, in words.
    pub(crate) summary: &'a [String],
    /// The sections, as HTML.
    pub(crate) body: String,
    /// How it was measured, in words; by what and where is added.
    pub(crate) method: &'a str,
    pub(crate) measured: &'a Conditions,
    pub(crate) machine: &'a Machine,
    /// The figures, which the page has as JSON in an element of this name.
    pub(crate) data_id: &'static str,
    pub(crate) data: &'a T,
}

impl<T: Serialize> Page<'_, T> {
    /// The whole file.
    pub(crate) fn html(&self) -> String {
        // Unicode escapes: `<` and `&` in a script would end it, or break the page as XML.
        let data = serde_json::to_string(self.data).unwrap_or_default();
        let data = data.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
        let (title, subtitle) = (escaped(self.title), escaped(&self.subtitle));
        let summary = if self.summary.is_empty() {
            String::new()
        } else {
            let said = paragraphs(self.summary);
            format!("<section class=\"summary\"><h2>{SUMMARY}</h2>{said}</section>")
        };
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\"><head><meta charset=\"utf-8\"/>\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\
             <title>{title}</title><style>{STYLE}</style></head><body>{patterns}\
             <header><h1>{title}</h1><p>{subtitle}</p></header>{summary}{body}{method}\
             <script type=\"application/json\" id=\"{data_id}\">{data}</script></body></html>\n",
            patterns = marks::patterns(),
            body = self.body,
            method = self.method(),
            data_id = self.data_id,
        )
    }
}

impl<T> Page<'_, T> {
    /// The last section.
    fn method(&self) -> String {
        let Page { measured, machine, data_id, .. } = self;
        let conditions = measured.header();
        let said = [self.method].into_iter().filter(|said| !said.is_empty()).chain(conditions.lines());
        format!(
            "<section><h2>How this was measured</h2>{}<p>{}. Load average before: {:.1}. tsumugi {}. The figures are in this page \
             as JSON, in the element <code>#{data_id}</code>.</p></section>",
            paragraphs(said),
            escaped(&machine.line()),
            machine.load_average,
            escaped(&machine.tsumugi),
        )
    }
}

/// A section of figures, if there are any.
pub(crate) fn section(title: &str, caption: &str, figures: impl Iterator<Item = Figure>) -> String {
    let figures: String = figures.map(Figure::html).collect();
    if figures.is_empty() {
        return String::new();
    }
    let caption = if caption.is_empty() { String::new() } else { paragraphs([caption]) };
    format!("<section><h2>{}</h2>{caption}<div class=\"plots\">{figures}</div></section>", escaped(title))
}

/// A section of tables with their headings, below some words.
pub(crate) fn tables(title: &str, words: &[String], tables: impl Iterator<Item = (String, Table)>) -> String {
    let mut html = format!("<section><h2>{}</h2>{}<div class=\"tables\">", escaped(title), paragraphs(words));
    for (heading, table) in tables {
        let class = if table.is_wide() { " class=\"wide\"" } else { "" };
        let heading = if heading.is_empty() { heading } else { format!("<h3>{}</h3>", escaped(&heading)) };
        let _ = write!(html, "<div{class}>{heading}{}</div>", table.html());
    }
    html + "</div></section>"
}

/// A table with a header. Where it has no room its rows become blocks, in which every cell has its heading beside it.
pub(crate) struct Table {
    pub(crate) header: Vec<String>,
    /// Cells of each row, and the name of its mark if it has one.
    pub(crate) rows: Vec<(Vec<String>, Option<&'static str>)>,
}

/// A table with more columns, or with so many characters in a row and the space of two between them, fills the page's width.
const COLUMNS_NARROW: usize = 7;
const ROW_CHARS_NARROW: usize = 80;
/// With more, its text is smaller on paper.
const COLUMNS_MANY: usize = 9;
/// Cells and headings that have room beside each other on a telephone.
const CELL_CHARS_SHORT: usize = 11;
const HEADING_CHARS_SHORT: usize = 15;
/// A table of so few has room everywhere.
const COLUMNS_FEW: usize = 3;

impl Table {
    /// A table whose rows have no marks.
    pub(crate) fn plain(header: Vec<String>, rows: impl IntoIterator<Item = Vec<String>>) -> Table {
        Table { header, rows: rows.into_iter().map(|cells| (cells, None)).collect() }
    }

    fn is_wide(&self) -> bool {
        let chars = |(cells, _): &(Vec<String>, _)| cells.iter().map(|cell| cell.chars().count() + 2).sum();
        let row_chars: usize = self.rows.iter().map(chars).max().unwrap_or(0);
        self.header.len() > COLUMNS_NARROW || row_chars > ROW_CHARS_NARROW
    }

    /// Whether two of its cells with their headings have no room beside each other on a telephone.
    fn is_long(&self) -> bool {
        let is_long = |text: &String, chars_max| text.chars().count() > chars_max;
        let mut cells = self.rows.iter().flat_map(|(cells, _)| cells.iter().skip(1));
        self.header.iter().skip(1).any(|heading| is_long(heading, HEADING_CHARS_SHORT))
            || cells.any(|cell| is_long(cell, CELL_CHARS_SHORT))
    }

    /// The element.
    pub(crate) fn html(&self) -> String {
        let many = match (self.is_wide(), self.header.len() > COLUMNS_MANY) {
            (false, _) => "",
            (true, false) => " many",
            (true, true) => " many most",
        };
        let stacks = if self.header.len() > COLUMNS_FEW { " class=\"stacks\"" } else { "" };
        let long = if self.is_long() { " long" } else { "" };
        let mut html = format!("<div class=\"box{many}{long}\"><table{stacks}><thead><tr>");
        for cell in &self.header {
            // Names such as udp+xdp may be broken.
            let name = escaped(cell).replace('+', "+<wbr/>");
            let _ = write!(html, "<th{}>{name}</th>", words(cell));
        }
        html.push_str("</tr></thead><tbody>");
        for (cells, mark) in &self.rows {
            let mark = mark.map(marks::mark);
            html.push_str(if mark.is_some_and(marks::Mark::is_ours) {
                "<tr class=\"ours\">"
            } else {
                "<tr>"
            });
            for (column, (heading, cell)) in self.header.iter().zip(cells).enumerate() {
                let (key, cell) = match column {
                    0 => (mark.map_or(String::new(), marks::Mark::point_key), kept_together(cell)),
                    _ => (String::new(), cell.clone()),
                };
                let (words, heading, cell) = (words(heading), escaped(heading), escaped(&cell));
                let _ = write!(html, "<td{words} data-heading=\"{heading}\">{key}{cell}</td>");
            }
            html.push_str("</tr>");
        }
        html + "</tbody></table></div>"
    }
}

fn words(heading: &str) -> &'static str {
    if is_words(heading) { " class=\"words\"" } else { "" }
}
