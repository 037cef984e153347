//! Text in aligned columns.

use std::fmt;

/// Whether the column under this heading holds words, which are set flush left; figures are flush right.
pub(crate) fn is_words(heading: &str) -> bool {
    matches!(heading, "" | "best with")
}

/// A table of text: two spaces between columns, the first flush left.
pub struct Columns {
    rows: Vec<Vec<String>>,
}

impl Columns {
    /// A table of its header alone.
    pub fn new(header: &[&str]) -> Columns {
        Columns { rows: vec![header.iter().map(|&text| text.to_owned()).collect()] }
    }

    /// Adds a row of at most as many cells as the header has.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }
}

impl fmt::Display for Columns {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..count).map(width).collect();
        let words: Vec<bool> = self.rows[0].iter().map(|heading| is_words(heading)).collect();
        for row in &self.rows {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                match column {
                    0 => line.push_str(&format!("{cell:<width$}")),
                    _ if words[column] => line.push_str(&format!("  {cell:<width$}")),
                    _ => line.push_str(&format!("  {cell:>width$}")),
                }
            }
            writeln!(formatter, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_flush_left() {
        let mut columns = Columns::new(&["a", "best with"]);
        columns.row(vec!["1".into(), "much".into()]);
        columns.row(vec!["2".into(), "a little luck".into()]);
        assert_eq!(columns.to_string(), "a  best with\n1  much\n2  a little luck\n");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut columns = Columns::new(&["transport", "p50"]);
        columns.row(vec!["udp".into(), "3.9 µs".into()]);
        columns.row(vec!["tsumugi, adaptive".into(), "4 µs".into()]);
        columns.row(vec!["only a name".into()]);
        assert_eq!(
            columns.to_string(),
            "transport             p50\n\
             udp                3.9 µs\n\
             tsumugi, adaptive    4 µs\n\
             only a name\n"
        );
    }
}
