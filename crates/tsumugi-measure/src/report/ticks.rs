//! The ticks of an axis: round numbers, written without a detour through floating point.

use super::quantity::{Quantity, Unit};
use crate::sizes;

/// A place on an axis, and what is written there.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tick {
    pub(super) value: f64,
    pub(super) label: String,
}

/// `digits` × 10^`exponent` in full.
fn decimal(digits: i64, exponent: i32) -> String {
    let decimals = exponent.min(0).unsigned_abs() as usize;
    let zeros = "0".repeat(exponent.max(0) as usize);
    if digits == 0 || decimals == 0 {
        return if digits == 0 { "0".to_owned() } else { format!("{digits}{zeros}") };
    }
    let padded = format!("{digits:0>width$}", width = decimals + 1);
    let (whole, rest) = padded.split_at(padded.len() - decimals);
    format!("{whole}.{rest}")
}

/// `digits` × 10^`exponent` as a number.
fn number(digits: i64, exponent: i32) -> f64 {
    let power = 10_f64.powi(exponent.abs());
    if exponent < 0 { digits as f64 / power } else { digits as f64 * power }
}

/// Multiples of 1, 2 or 5 × 10ⁿ from `low` to `high`, neither of them negative: so many at most. All labels are in the same
/// unit, whose name they leave to the axis.
pub(super) fn linear(low: f64, high: f64, unit: Unit, count_max: usize) -> Vec<Tick> {
    let least = (high - low) / count_max as f64;
    let exponent = least.log10().floor() as i32;
    let steps = [(1, exponent), (2, exponent), (5, exponent), (1, exponent + 1), (2, exponent + 1)];
    let numbers = steps.into_iter().find_map(|(step, exponent)| {
        let first = (low / number(step, exponent)).ceil() as i64;
        let last = (high / number(step, exponent)).floor() as i64;
        (last - first < count_max as i64).then(|| (first..=last).map(move |count| (count * step, exponent)))
    });
    let tick = |(digits, exponent)| Tick {
        value: number(digits, exponent),
        label: decimal(digits, exponent - unit.exponent),
    };
    numbers.into_iter().flatten().map(tick).collect()
}

/// 1, 2 and 5 of every decade; only 1 when those are too many, and not of every decade when these are.
pub(super) fn decades(low: f64, high: f64, quantity: Quantity, count_max: usize) -> Vec<Tick> {
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let ticks = |steps: &[i64], decades: usize| -> Vec<Tick> {
        let exponents = (first..=last).filter(|exponent| exponent.rem_euclid(decades as i32) == 0);
        let numbers = exponents.flat_map(|exponent| steps.iter().map(move |step| (*step, exponent)));
        let tick = |(digits, exponent)| {
            let value = number(digits, exponent);
            let unit = quantity.unit(value);
            Tick { value, label: unit.with(&decimal(digits, exponent - unit.exponent)) }
        };
        numbers.map(tick).filter(|tick| (low..=high).contains(&tick.value)).collect()
    };
    let mut choices = [ticks(&[1, 2, 5], 1)].into_iter().chain((1..).map(|decades| ticks(&[1], decades)));
    let few = choices.find(|ticks| ticks.len() <= count_max).unwrap_or_default();
    if few.len() > 1 {
        return few;
    }
    let unit = quantity.unit(low);
    let mut linear = linear(low, high, unit, count_max);
    linear.iter_mut().for_each(|tick| tick.label = unit.with(&tick.label));
    linear
}

/// Powers of two bytes: so many at most.
pub(super) fn powers_of_two(low: f64, high: f64, count_max: usize) -> Vec<Tick> {
    let inside: Vec<u64> = (0..u64::BITS)
        .map(|power| 1 << power)
        .filter(|&size| (low..=high).contains(&(size as f64)))
        .collect();
    let every = inside.len().div_ceil(count_max).max(1);
    let tick = |&size: &u64| Tick { value: size as f64, label: sizes::show(size) };
    inside.iter().step_by(every).map(tick).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NONE: Unit = Unit { name: "", exponent: 0 };

    fn labels(ticks: &[Tick]) -> Vec<&str> {
        ticks.iter().map(|tick| tick.label.as_str()).collect()
    }

    #[test]
    fn steps_are_round() {
        assert_eq!(labels(&linear(0.0, 1.0, NONE, 6)), ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(labels(&linear(0.0, 22.1, NONE, 6)), ["0", "5", "10", "15", "20"]);
        let mega = Unit { name: "Mb/s", exponent: -3 };
        assert_eq!(labels(&linear(0.0, 0.4, mega, 5)), ["0", "100", "200", "300", "400"]);
    }

    #[test]
    fn decades_are_in_the_unit_of_each() {
        assert_eq!(labels(&decades(3e3, 60e3, Quantity::Time, 8)), ["5 µs", "10 µs", "20 µs", "50 µs"]);
        assert_eq!(labels(&decades(0.09, 40.0, Quantity::Bandwidth, 5)), ["100 Mb/s", "1 Gb/s", "10 Gb/s"]);
        assert_eq!(labels(&decades(2.1, 4.9, Quantity::Time, 4)), ["3 ns", "4 ns"]);
    }

    #[test]
    fn sizes_are_powers_of_two_in_even_steps() {
        assert_eq!(labels(&powers_of_two(7.0, 70.0, 6)), ["8 B", "16 B", "32 B", "64 B"]);
        assert_eq!(labels(&powers_of_two(7.0, 2e6, 5)), ["8 B", "128 B", "2 KiB", "32 KiB", "512 KiB"]);
    }

    proptest! {
        #[test]
        fn no_label_has_more_digits_than_its_step_needs(
            low in prop_oneof![Just(0.0), 0.0..1e3],
            width in 1e-3..10.0_f64,
            power in -9..9_i32,
            count_max in 3..12_usize,
        ) {
            let scale = 10_f64.powi(power);
            let (low, high) = (low * width * scale, (low + 1.0) * width * scale);
            let ticks = linear(low, high, NONE, count_max);
            prop_assert!((1..=count_max).contains(&ticks.len()), "{ticks:?}");
            // Of a single tick nobody sees the step.
            let step = ticks.get(1).map_or(f64::MIN_POSITIVE, |second| second.value - ticks[0].value);
            let decimals = (-step.log10() - 1e-6).ceil().max(0.0) as usize;
            for Tick { value, label } in &ticks {
                prop_assert!(low <= value * (1.0 + 1e-9) && *value <= high * (1.0 + 1e-9), "{value} in {low}..{high}");
                let told: f64 = label.parse().expect("a number");
                prop_assert!((told - value).abs() <= 1e-9 * value, "{label} is {value}");
                let digits = label.split_once('.').map_or(0, |(_, digits)| digits.len());
                prop_assert!(digits <= decimals, "{label} with steps of {step}");
            }
        }

        #[test]
        fn every_decade_is_told_in_three_digits(low in 1e-3..1e9_f64, times in 2.0..1e12_f64) {
            let ticks = decades(low, low * times, Quantity::Time, 8);
            prop_assert!((1..=8).contains(&ticks.len()), "{ticks:?}");
            for tick in ticks.iter().filter(|tick| tick.value >= 1.0 && tick.value < 1e12) {
                let digits = tick.label.chars().filter(char::is_ascii_digit).count();
                prop_assert!(digits <= 3, "{tick:?}");
            }
        }
    }
}
