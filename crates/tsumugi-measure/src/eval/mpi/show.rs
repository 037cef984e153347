//! Figures as they are shown, with their units.

use super::figures::FigureRow;
use crate::report::quantity::Quantity;
use crate::report::units;

/// A value with its unit.
pub(super) fn value(row: &FigureRow) -> String {
    match row.unit.as_str() {
        "us" | "s" | "MB/s" => quantity(row).show(base(row)),
        "messages/s" => units::rate(row.value),
        _ => units::three_digits(row.value),
    }
}

/// What a value is a quantity of.
pub(super) fn quantity(row: &FigureRow) -> Quantity {
    match row.unit.as_str() {
        "us" | "s" => Quantity::Time,
        "MB/s" => Quantity::Bandwidth,
        "ratio" => Quantity::Share,
        _ => Quantity::Number,
    }
}

/// A value in the base unit of its quantity.
pub(super) fn base(row: &FigureRow) -> f64 {
    match row.unit.as_str() {
        "us" => row.value * 1e3,
        "s" => row.value * 1e9,
        "MB/s" => row.value * 8.0 / 1e3,
        _ => row.value,
    }
}

pub(super) fn seconds(seconds: f64) -> String {
    units::time(seconds * 1e9)
}
