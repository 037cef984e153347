//! Sentences that all reports share: what a comparison comes to, where it was measured, and whether it can be trusted.

use super::units::three_digits;
use crate::machine::Machine;

/// Ratios from here to its inverse are no difference.
const ALIKE: f64 = 0.95;

/// More load than this before a measurement means that other programs disturb it.
pub(crate) const LOAD_QUIET: f64 = 0.5;

/// Which of two is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Better {
    Tsumugi,
    Neither,
    Tcp,
}

impl Better {
    /// From how many times as fast as TCP Tsumugi is.
    pub(crate) fn of(faster: f64) -> Better {
        match faster {
            faster if faster < ALIKE => Better::Tcp,
            faster if faster > 1.0 / ALIKE => Better::Tsumugi,
            _ => Better::Neither,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Better::Tsumugi => "Tsumugi is faster",
            Better::Neither => "neither is faster",
            Better::Tcp => "TCP is faster",
        }
    }
}

/// How Tsumugi, so many times as fast, compares with TCP.
pub(crate) fn verdict(faster: f64) -> String {
    match Better::of(faster) {
        Better::Tcp => format!("TCP is {} times as fast as Tsumugi", three_digits(1.0 / faster)),
        Better::Tsumugi => format!("Tsumugi is {} times as fast as TCP", three_digits(faster)),
        Better::Neither => "Tsumugi is about as fast as TCP".to_owned(),
    }
}

/// Which way is better for short messages and for long ones.
pub(crate) fn choice(short: Option<f64>, long: Option<f64>) -> Option<String> {
    let [short, long] = [short, long].map(|faster| faster.map(Better::of));
    Some(match (short?, long?) {
        (short, long) if short == long => format!("For short messages and for long ones {}.", short.text()),
        (short, long) => format!("For short messages {}; for long ones {}.", short.text(), long.text()),
    })
}

/// Where the figures come from.
pub(crate) fn place(machine: &Machine) -> String {
    match machine.wire.as_str() {
        "loopback" => "Measured over the loopback of this machine.".to_owned(),
        "simulated time" => "Computed in simulated time, in which CPUs are infinitely fast.".to_owned(),
        _ => "Measured between nodes made of network namespaces on this machine, which share its CPUs; separate hosts give \
              other figures."
            .to_owned(),
    }
}

/// Whether other programs ran meanwhile.
pub(crate) fn busy(machine: &Machine) -> Option<String> {
    let Machine { load_average, cpus, .. } = machine;
    (*load_average > LOAD_QUIET)
        .then(|| format!("Other programs were busy (load average {load_average:.1} on {cpus} CPUs)."))
}

/// What is to be done about figures that cannot be relied on.
pub(crate) const MEASURE_AGAIN: &str = "Measure on a quiet machine before you rely on the figures.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_slower_is_told_as_well() {
        assert_eq!(verdict(0.5), "TCP is 2.00 times as fast as Tsumugi");
        assert_eq!(verdict(2.0), "Tsumugi is 2.00 times as fast as TCP");
        assert_eq!(verdict(1.04), "Tsumugi is about as fast as TCP");
    }

    #[test]
    fn a_choice_needs_both() {
        assert_eq!(choice(Some(2.0), None), None);
        let said = choice(Some(2.0), Some(0.5)).expect("a choice");
        assert_eq!(said, "For short messages Tsumugi is faster; for long ones TCP is faster.");
        let said = choice(Some(1.0), Some(1.0)).expect("a choice");
        assert_eq!(said, "For short messages and for long ones neither is faster.");
    }
}
