//! `tsumugi perf costs --size`: where the time of a message goes over sockets, beside bare UDP and TCP.
//!
//! Unlike a message of 64 B, a longer one is not one packet through one call: what is sent and taken in is added up in a conversation,
//! apart for the library and for the kernel.

mod bare;
mod measure;
mod parts;
pub(super) mod table;
mod talk;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{CostsError, CostsOptions, Sides};
use crate::conditions::Conditions;
use crate::sizes::{SizeError, Sizes};
pub(crate) use parts::LongCosts;

/// Sizes that can be taken apart: more than an acknowledgement has, and no more than leaves with one call.
const SIZES: std::ops::RangeInclusive<u64> = 256..=64 << 10;
/// An answer takes microseconds; after so long there is none.
const PATIENCE: Duration = Duration::from_secs(2);

/// Sizes on the command line, all of which can be taken apart.
pub(super) fn sizes(text: &str) -> Result<Sizes, String> {
    let sizes: Sizes = text.parse().map_err(|why: SizeError| why.to_string())?;
    match sizes.0.iter().find(|size| !SIZES.contains(size)) {
        None => Ok(sizes),
        Some(size) => Err(format!(
            "messages of {size} bytes cannot be taken apart; choose sizes from {} to {}: those of 64 B are without --size, and longer \
             ones are streams (`tsumugi perf bandwidth`)",
            SIZES.start(),
            SIZES.end()
        )),
    }
}

/// What was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report {
    /// For each size.
    pub(crate) sizes: Vec<LongCosts>,
    /// What was measured.
    #[serde(default)]
    pub(crate) measured: Conditions,
}

/// Measures in a lab of its own, which is gone afterwards.
pub(super) fn report(
    options: &CostsOptions,
    sizes: &[u64],
    progress: impl FnMut(u32, &str) + Send,
) -> Result<Report, CostsError> {
    let sides = Sides::default();
    let sizes = measure::measure(options.rounds, sizes, &sides, progress)?;
    Ok(Report { sizes, measured: sides.measured(options.rounds) })
}
