//! Text in aligned columns.

use std::fmt;

/// A table of text: the first column flush left, all others flush right, two spaces between.
pub(crate) struct Columns {
    rows: Vec<Vec<String>>,
}

impl Columns {
    pub(crate) fn new(header: &[&str]) -> Columns {
        Columns { rows: vec![header.iter().map(|&text| text.to_owned()).collect()] }
    }

    /// Adds a row of as many cells as the header has, or fewer.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
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
        for row in &self.rows {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                match column {
                    0 => line.push_str(&format!("{cell:<width$}")),
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
