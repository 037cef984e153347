//! How figures are shown: units, text columns, and the HTML report.

pub(crate) mod columns;
pub(crate) mod html;
mod plot;
pub(crate) mod units;
