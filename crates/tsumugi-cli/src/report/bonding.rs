//! The report of `tsumugi eval bonding`.

use super::page;
use crate::eval::Evaluation;

/// The whole page.
pub(crate) fn page(evaluation: &Evaluation) -> String {
    page::document("Several NICs as one", "", "evaluation", evaluation)
}
