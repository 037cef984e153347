//! Targets as a table of text.

use crate::target::Target;

const HEADER: [&str; 4] = ["target", "wanted", "measured", ""];

/// Two spaces between columns; words flush left, figures flush right.
pub(crate) fn text(targets: &[Target]) -> String {
    let cells = targets.iter().map(Target::cells);
    let rows: Vec<[String; 4]> = std::iter::once(HEADER.map(str::to_owned)).chain(cells).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let (name, wanted, measured) = (width(0), width(1), width(2));
    let line = |row: &[String; 4]| {
        let line = format!("{:<name$}  {:>wanted$}  {:>measured$}  {}", row[0], row[1], row[2], row[3]);
        line.trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{Limit, Unit};

    #[test]
    fn columns_are_aligned() {
        let (name, limit, wanted, unit) = ("speed", Limit::AtLeast, 10.0, Unit::Ratio);
        let targets = [Some(9.5), None].map(|measured| Target { name, limit, wanted, unit, measured });
        assert_eq!(
            text(&targets),
            "target     wanted  measured\n\
             speed   ≥ 10.00 ×    9.50 ×  NOT MET\n\
             speed   ≥ 10.00 ×         –  not measured\n"
        );
    }
}
