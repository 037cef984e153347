//! Pieces of HTML, also well-formed XML.

/// Text for element content and attribute values.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Paragraphs of text.
pub(crate) fn paragraphs<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> String {
    texts.into_iter().map(|text| format!("<p>{}</p>", escaped(text.as_ref()))).collect()
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
            "<figure><figcaption>{}</figcaption>{picture}{}</figure>",
            escaped(&title),
            table.unwrap_or_default()
        )
    }
}
