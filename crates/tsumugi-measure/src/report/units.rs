//! Figures with three significant digits and a unit.

/// Three significant digits, no exponent.
pub(crate) fn three_digits(value: f64) -> String {
    let decimals = match value.abs() {
        value if value >= 99.95 => 0,
        value if value >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.decimals$}")
}

/// `820 ns`, `4.10 µs`, `2.50 ms`, `1.20 s` from nanoseconds.
pub(crate) fn time(ns: f64) -> String {
    match ns {
        ns if ns < 999.5 => format!("{} ns", three_digits(ns)),
        ns if ns < 999.5e3 => format!("{} µs", three_digits(ns / 1e3)),
        ns if ns < 999.5e6 => format!("{} ms", three_digits(ns / 1e6)),
        ns => format!("{} s", three_digits(ns / 1e9)),
    }
}

/// `24.0 Gb/s`, `512 Mb/s` from 10⁹ bits per second.
pub(crate) fn bandwidth(gbit_s: f64) -> String {
    match gbit_s {
        value if value < 0.9995 => format!("{} Mb/s", three_digits(value * 1e3)),
        value => format!("{} Gb/s", three_digits(value)),
    }
}

/// `2.10 M/s`, `244 k/s`, `12 /s`.
pub(crate) fn rate(per_s: f64) -> String {
    match per_s {
        value if value < 999.5 => format!("{} /s", three_digits(value)),
        value if value < 999.5e3 => format!("{} k/s", three_digits(value / 1e3)),
        value => format!("{} M/s", three_digits(value / 1e6)),
    }
}

/// `2.1 %` from a share.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_everywhere() {
        assert_eq!(time(820.0), "820 ns");
        assert_eq!(time(999.6), "1.00 µs");
        assert_eq!(time(74_123.0), "74.1 µs");
        assert_eq!(time(1.2e9), "1.20 s");
        assert_eq!(bandwidth(0.512), "512 Mb/s");
        assert_eq!(bandwidth(60.96), "61.0 Gb/s");
        assert_eq!(rate(2_104_000.0), "2.10 M/s");
        assert_eq!(rate(243_902.0), "244 k/s");
        assert_eq!(rate(1.0), "1.00 /s");
        assert_eq!(percent(0.0213), "2.1 %");
    }
}
