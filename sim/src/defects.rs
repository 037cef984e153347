//! The protocol's defects by name, and the seeds that show them.

use std::ops::Range;
use tsumugi_wire::defect::Defect;

/// Seeds that are run before a defect counts as undetected.
const SEEDS: Range<u64> = 0..10_000;
/// The same, of clusters whose hosts use every programming model.
const MODEL_SEEDS: Range<u64> = 0..2000;

/// The name that users give: `XoffIgnored` is `xoff-ignored`.
#[must_use]
pub fn name(defect: Defect) -> String {
    let mut name = String::new();
    for letter in format!("{defect:?}").chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('-');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name
}

/// The defect of a name, if it can be switched on.
///
/// # Errors
/// What stands in the way, for the user.
pub fn parse(text: &str) -> Result<Defect, String> {
    if !Defect::BUILT_IN {
        return Err("this program was built without defects; build it with `--features defects`".to_owned());
    }
    let named = Defect::ALL.iter().copied().find(|defect| name(*defect) == text);
    named.ok_or_else(|| "there is no such defect; `--defects` lists them".to_owned())
}

/// Whether it takes clusters whose hosts use every programming model to show a defect.
#[must_use]
pub fn is_of_models(defect: Defect) -> bool {
    matches!(
        defect,
        Defect::NewestReceive
            | Defect::NewestMessage
            | Defect::RequestTwice
            | Defect::ReaderNotWoken
            | Defect::AtomicTwice
            | Defect::BarrierCutShort
    )
}

/// The seeds one of which shows a defect, or without a defect none.
#[must_use]
pub fn seeds(defect: Option<Defect>, models: bool) -> Range<u64> {
    match defect {
        // Where it takes more than the usual ones.
        Some(Defect::FormerFlowTaken) => 30_148_434..30_148_435,
        Some(Defect::TriedUnasked) => 22_094_922..22_094_923,
        _ if models => MODEL_SEEDS,
        _ => SEEDS,
    }
}
