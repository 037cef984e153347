//! Figures as they are shown, with their units.

use super::figures::FigureRow;
use crate::report::units;

/// A value with its unit.
pub(super) fn value(row: &FigureRow) -> String {
    match row.unit.as_str() {
        "us" => microseconds(row.value),
        "s" => seconds(row.value),
        "MB/s" => megabytes(row.value),
        "messages/s" => units::rate(row.value),
        _ => units::three_digits(row.value),
    }
}

pub(super) fn microseconds(us: f64) -> String {
    units::time(us * 1e3)
}

pub(super) fn seconds(seconds: f64) -> String {
    units::time(seconds * 1e9)
}

pub(super) fn megabytes(mb_s: f64) -> String {
    units::bandwidth(mb_s * 8.0 / 1e3)
}
