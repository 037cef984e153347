//! Pieces of HTML, also well-formed XML.

/// Text for element content and attribute values.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Paragraphs of text, in which commands stand between backticks.
pub(crate) fn paragraphs<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> String {
    let paragraph = |text: T| {
        let pieces = kept_together(text.as_ref());
        let pieces = pieces.split('`').enumerate().map(|(number, piece)| match number % 2 {
            0 => escaped(piece),
            _ => format!("<code>{}</code>", escaped(piece)),
        });
        format!("<p>{}</p>", pieces.collect::<String>())
    };
    texts.into_iter().map(paragraph).collect()
}

/// Keeps a number and its unit on one line.
pub(super) fn kept_together(text: &str) -> String {
    let mut kept = String::new();
    for word in text.split_inclusive(' ') {
        let number = word.trim_end_matches(' ');
        let is_number = number.trim_start_matches('(').parse::<f64>().is_ok();
        kept.push_str(number);
        kept.push_str(if is_number && number != word { "\u{a0}" } else { &word[number.len()..] });
    }
    kept
}

/// A picture with a title, and its figures if they are shown too.
pub(crate) struct Figure {
    title: String,
    picture: String,
    table: Option<String>,
}

impl Figure {
    /// A picture; `picture` is HTML.
    pub(super) fn new(title: &str, picture: String) -> Figure {
        Figure { title: title.to_owned(), picture, table: None }
    }

    /// With a table of what it shows, folded away below it on screens.
    pub(crate) fn with_table(self, table: String) -> Figure {
        Figure { table: Some(table), ..self }
    }

    /// The element.
    pub(crate) fn html(self) -> String {
        let Figure { title, picture, table } = self;
        let table = table.map(|table| format!("<details><summary>figures</summary>{table}</details>"));
        format!(
            "<figure><div class=\"picture\"><figcaption>{}</figcaption>{picture}</div>{}</figure>",
            escaped(&title),
            table.unwrap_or_default()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_units_are_set_as_such() {
        let html = paragraphs(["After `tsumugi up` (4.2 µs < 5 µs), 2 NICs"]);
        let expected = "<p>After <code>tsumugi up</code> (4.2\u{a0}µs &lt; 5\u{a0}µs), 2\u{a0}NICs</p>";
        assert_eq!(html, expected);
    }
}
