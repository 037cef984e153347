//! A report: one HTML file that loads nothing from anywhere, also well-formed XML.

use std::fmt::Write;

use serde::Serialize;

use super::columns::is_words;
use super::style::STYLE;

/// The whole file: a body, and the figures as JSON in an element of their own.
pub(crate) fn document(title: &str, body: &str, data_id: &str, data: &impl Serialize) -> String {
    // Unicode escapes: `<` and `&` in a script would end it, or break the page as XML.
    let data = serde_json::to_string(data).unwrap_or_default();
    let data = data.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    let title = escaped(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\"><head><meta charset=\"utf-8\"/>\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\
         <title>{title}</title><style>{STYLE}</style></head><body>{body}\
         <script type=\"application/json\" id=\"{data_id}\">{data}</script></body></html>\n"
    )
}

/// A section of pictures, if there are any.
pub(crate) fn section(title: &str, caption: &str, pictures: impl Iterator<Item = String>) -> String {
    let figures: String = pictures.map(|svg| format!("<figure>{svg}</figure>")).collect();
    if figures.is_empty() {
        return String::new();
    }
    let (title, caption) = (escaped(title), escaped(caption));
    format!("<section><h2>{title}</h2><p>{caption}</p><div class=\"plots\">{figures}</div></section>")
}

/// A table; each row has a class.
pub(crate) fn table_of(header: &[String], rows: impl Iterator<Item = (Vec<String>, &'static str)>) -> String {
    let mut html = "<div class=\"scroll\"><table><thead><tr>".to_owned();
    for cell in header {
        let _ = write!(html, "<th{}>{}</th>", words(cell), escaped(cell));
    }
    html.push_str("</tr></thead><tbody>");
    for (cells, class) in rows {
        let _ = write!(html, "<tr class=\"{class}\">");
        for (heading, cell) in header.iter().zip(cells) {
            let _ = write!(html, "<td{}>{}</td>", words(heading), escaped(&cell));
        }
        html.push_str("</tr>");
    }
    html.push_str("</tbody></table></div>");
    html
}

fn words(heading: &str) -> &'static str {
    if is_words(heading) { " class=\"words\"" } else { "" }
}

/// Text for element content and attribute values.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
