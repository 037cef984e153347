//! How figures are shown: units, text columns, and the HTML reports.

pub(crate) mod bonding;
mod chart;
pub(crate) mod columns;
pub(crate) mod file;
pub(crate) mod html;
mod page;
mod plot;
mod svg;
pub(crate) mod units;
