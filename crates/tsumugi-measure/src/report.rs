//! How figures are shown: units, text columns, and the HTML reports.
//!
//! A report is a `page` of paragraphs, tables and figures: `plot`s against size, `course`s over time, `bars`. What is
//! compared has a mark (`marks`), the same in all of them.

pub(crate) mod bars;
pub mod columns;
pub(crate) mod course;
pub(crate) mod file;
pub(crate) mod html;
pub(crate) mod marks;
pub(crate) mod page;
pub(crate) mod plot;
pub(crate) mod quantity;
pub(crate) mod style;
mod svg;
mod ticks;
pub(crate) mod units;
pub(crate) mod words;
