//! Figures as people read them.

/// `1.5 MiB`; three digits.
pub(crate) fn bytes(value: f64) -> String {
    scaled(value, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB"])
}

/// `1.5 M`, of things that are counted; below a thousand without a unit.
pub(crate) fn count(value: f64) -> String {
    scaled(value, 1000.0, &["", "k", "M", "G", "T", "P"]).trim_end().to_owned()
}

/// A time in ns: `12.3 µs`.
pub(crate) fn time(ns: u64) -> String {
    if ns >= 120_000_000_000 {
        return format!("{:.0} min", ns as f64 / 60e9);
    }
    scaled(ns as f64, 1000.0, &["ns", "µs", "ms", "s"])
}

fn scaled(value: f64, step: f64, units: &[&str]) -> String {
    let (mut value, mut unit) = (value, 0);
    while value >= 999.5 && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    let digits = if unit == 0 && value.fract() == 0.0 || value >= 99.95 {
        0
    } else if value >= 9.995 {
        1
    } else {
        2
    };
    format!("{value:.digits$} {}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_and_a_unit() {
        assert_eq!([bytes(0.0), bytes(64.0), bytes(1536.0)], ["0 B", "64 B", "1.50 KiB"]);
        assert_eq!([bytes(1000.0), bytes(5e9)], ["0.98 KiB", "4.66 GiB"]);
        assert_eq!([count(12.0), count(1234.0), count(0.5)], ["12", "1.23 k", "0.50"]);
        assert_eq!(
            [time(7), time(45_300), time(2_000_000_000), time(300_000_000_000)],
            ["7 ns", "45.3 µs", "2.00 s", "5 min"]
        );
    }
}
