//! Text in aligned columns.

use std::fmt;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};

/// Whether the column under this heading holds words, which are set flush left; figures are flush right.
pub(crate) fn is_words(heading: &str) -> bool {
    matches!(heading, "" | "beside" | "best with" | "wait" | "what")
}

/// The same table without columns whose cells are all empty.
pub(crate) fn without_empty(
    header: Vec<String>,
    mut rows: Vec<Vec<String>>,
) -> (Vec<String>, Vec<Vec<String>>) {
    let has_cells =
        |column: usize| rows.iter().any(|row| row.get(column).is_some_and(|cell| !cell.is_empty()));
    let kept: Vec<bool> = (0..header.len()).map(has_cells).collect();
    let of_kept =
        |cells: Vec<String>| cells.into_iter().zip(&kept).filter(|(_, kept)| **kept).map(|(cell, _)| cell);
    rows = rows.into_iter().map(|cells| of_kept(cells).collect()).collect();
    (of_kept(header).collect(), rows)
}

/// A table of text: two spaces between columns, as wide as its cells need, whatever the terminal. Columns under whose heading there is
/// nothing are left out.
#[derive(Default)]
pub struct Columns {
    rows: Vec<Vec<String>>,
    /// Whether the first row is a header.
    is_headed: bool,
}

impl Columns {
    /// A table of its header alone.
    pub fn new<T: ToString>(header: &[T]) -> Columns {
        Columns { rows: vec![header.iter().map(T::to_string).collect()], is_headed: true }
    }

    /// A table of words without a header, set in.
    pub fn of_words() -> Columns {
        Columns::default()
    }

    /// Adds a row of at most as many cells as the header has.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }
}

impl fmt::Display for Columns {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = match &self.rows[..] {
            [header, cells @ ..] if self.is_headed && !cells.is_empty() => {
                let (header, mut rows) = without_empty(header.clone(), cells.to_vec());
                rows.insert(0, header);
                rows
            }
            rows => rows.to_vec(),
        };
        let mut table = Table::new();
        table.load_style(NOTHING).add_rows(&rows);
        for (number, column) in table.column_iter_mut().enumerate() {
            let is_figures = self.is_headed && number > 0 && !is_words(&rows[0][number]);
            column.set_cell_alignment(if is_figures { CellAlignment::Right } else { CellAlignment::Left });
            column.set_padding((if self.is_headed || number > 0 { 0 } else { 2 }, 2));
        }
        table.lines().try_for_each(|line| writeln!(formatter, "{}", line.trim_end()))
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
    fn columns_of_nothing_are_left_out() {
        let mut columns = Columns::new(&["a", "b", "c"]);
        columns.row(vec!["1".into(), String::new(), "3".into()]);
        columns.row(vec!["4".into()]);
        assert_eq!(columns.to_string(), "a  c\n1  3\n4\n");
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
