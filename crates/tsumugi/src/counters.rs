//! What an endpoint has counted.

use std::fmt;

/// Names and values of an endpoint's counters, in a fixed order. Names do not change between versions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub(crate) values: Vec<(&'static str, u64)>,
}

impl Counters {
    /// Every counter with its name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.values.iter().copied()
    }

    /// The counter called `name`; 0 when there is none.
    #[must_use]
    pub fn get(&self, name: &str) -> u64 {
        self.values.iter().find(|(have, _)| *have == name).map_or(0, |(_, value)| *value)
    }
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in self.iter().filter(|(_, value)| *value > 0) {
            writeln!(f, "{name:<24} {value}")?;
        }
        Ok(())
    }
}
