//! Targets as a table of text.

use tsumugi_measure::report::columns::Columns;

use crate::target::Target;

const HEADER: [&str; 4] = ["target", "wanted", "measured", ""];

/// A line for each target.
pub(crate) fn text(targets: &[Target]) -> String {
    let mut columns = Columns::new(&HEADER);
    targets.iter().for_each(|target| columns.row(target.cells().into()));
    columns.to_string()
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
