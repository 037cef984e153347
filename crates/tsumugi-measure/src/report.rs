//! How figures are shown: units, text columns, and the HTML reports.

pub(crate) mod chart;
pub mod columns;
pub(crate) mod file;
pub(crate) mod page;
pub(crate) mod plot;
pub(crate) mod style;
pub(crate) mod svg;
pub(crate) mod units;
