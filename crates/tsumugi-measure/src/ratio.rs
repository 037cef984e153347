//! Ratios, and which way is better.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::report::units;

/// Which ratios are better; in JSON beside each ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Those above 1.
    Higher,
    /// Those below 1.
    Lower,
}

impl fmt::Display for Better {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Better::Higher => "higher is better",
            Better::Lower => "lower is better",
        })
    }
}

impl Better {
    /// The heading of a column of ratios.
    pub(crate) fn heading(self, what: &str) -> String {
        format!("{what} ({self})")
    }

    /// A ratio that stands alone.
    pub(crate) fn told(self, ratio: f64) -> String {
        format!("{} ({self})", show(ratio))
    }
}

/// `1.31 ×`: a ratio in a column whose heading says which way is better.
pub(crate) fn show(ratio: f64) -> String {
    format!("{} ×", units::three_digits(ratio))
}

/// The same, or nothing.
pub(crate) fn or_empty(ratio: Option<f64>) -> String {
    ratio.map_or_else(String::new, show)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_says_which_way_is_better() {
        assert_eq!(Better::Higher.told(1.314), "1.31 × (higher is better)");
        assert_eq!(Better::Lower.heading("ratio"), "ratio (lower is better)");
        assert_eq!((or_empty(None), or_empty(Some(13.0))), (String::new(), "13.0 ×".to_owned()));
    }
}
