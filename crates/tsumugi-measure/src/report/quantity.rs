//! What an axis measures, and in which units.

use super::units;

/// A kind of figure; values are in its base unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quantity {
    /// Nanoseconds.
    Time,
    /// 10⁹ bits a second.
    Bandwidth,
    /// Of a whole.
    Share,
    /// A number without a unit.
    Number,
}

/// A unit, and the power of ten of the base unit that it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unit {
    pub(super) name: &'static str,
    pub(super) exponent: i32,
}

impl Quantity {
    /// A value with three digits and its unit.
    pub(crate) fn show(self, value: f64) -> String {
        match self {
            Quantity::Time => units::time(value),
            Quantity::Bandwidth => units::bandwidth(value),
            Quantity::Share => units::percent(value),
            Quantity::Number => units::three_digits(value),
        }
    }

    /// The unit for a value: the largest of which it is one or more.
    pub(super) fn unit(self, value: f64) -> Unit {
        let names: &[(&str, i32)] = match self {
            Quantity::Time => &[("ns", 0), ("µs", 3), ("ms", 6), ("s", 9)],
            Quantity::Bandwidth => &[("kb/s", -6), ("Mb/s", -3), ("Gb/s", 0)],
            Quantity::Share => &[("%", -2)],
            Quantity::Number => &[("", 0)],
        };
        let mut units = names.iter().map(|&(name, exponent)| Unit { name, exponent });
        // A trifle below, because 10⁻³ has no exact value.
        let fits = |unit: &Unit| value >= (1.0 - 1e-9) * 10_f64.powi(unit.exponent);
        let smallest = units.clone().next().expect("every quantity has a unit");
        units.rfind(fits).unwrap_or(smallest)
    }
}

impl Unit {
    /// A number with the unit behind it, if it has a name.
    pub(super) fn with(self, number: &str) -> String {
        if self.name.is_empty() { number.to_owned() } else { format!("{number} {}", self.name) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_has_the_largest_unit_that_it_fills() {
        let name = |quantity: Quantity, value| quantity.unit(value).name;
        assert_eq!(
            [1.0, 999.0, 1e3, 2e7, 1e12].map(|ns| name(Quantity::Time, ns)),
            ["ns", "ns", "µs", "ms", "s"]
        );
        assert_eq!(
            [1e-9, 1e-3, 0.5, 1.0].map(|it| name(Quantity::Bandwidth, it)),
            ["kb/s", "Mb/s", "Mb/s", "Gb/s"]
        );
        assert_eq!(Quantity::Number.unit(3.0).with("3"), "3");
        assert_eq!(Quantity::Share.unit(0.3).with("30"), "30 %");
    }
}
